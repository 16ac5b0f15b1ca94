"""Packages are installed also where the environment has no pip, and a first use says what it waits for."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from sandbox import SandboxError
from sandbox.images import profiles

ROOT = Path(__file__).resolve().parents[3]
RUN_PIP = """
import subprocess, sys
import sandbox.images.profiles as ways
with ways.pip_environment() as environment:
    done = subprocess.run([sys.executable, "-P", "-m", "pip", "--version"], env=environment, capture_output=True)
sys.stdout.write(done.stdout.decode())
"""


@pytest.fixture(scope="module")
def no_pip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment without pip."""
    folder = tmp_path_factory.mktemp("no-pip")
    venv.create(folder, with_pip=False)
    return folder / "bin" / "python"


def run(python: Path, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run([python, "-c", code], env=environment, capture_output=True, text=True, check=False)


def test_an_environment_without_pip_gets_the_one_of_ensurepip(no_pip: Path) -> None:
    assert run(no_pip, "import pip").returncode == 1
    done = run(no_pip, RUN_PIP)
    if "there is no pip" in done.stderr:
        pytest.skip("NOT TESTED: this Python has no ensurepip")
    assert done.stdout.startswith("pip "), done.stderr


INSTALL = """
import os, sandbox.images.profiles as profiles
profiles._install = lambda profile, target: os.mkdir(target)
profiles.packages_directory("math")
"""


def test_a_first_use_says_what_it_waits_for(tmp_path: Path) -> None:
    done = run(Path(sys.executable), INSTALL, ARPO_CACHE=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "installing the packages" in done.stderr
    assert "installed the packages" in done.stderr


@pytest.mark.parametrize(("pip", "words"), [(False, r"there is no pip.*uv pip install pip.*"), (True, "")])
def test_packages_that_can_not_be_installed_can_be_done_without(
    pip: bool, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"ARPO_CACHE": str(tmp_path), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": "/dev/null"}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    if not pip:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        monkeypatch.setattr(profiles, "_bundled_wheel", lambda: None)
    with pytest.raises(SandboxError, match=words + 'profile="minimal"'):
        profiles.packages_directory("math")
    assert profiles.packages_directory("minimal") is None
