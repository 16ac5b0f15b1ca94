"""Packages are installed also where the environment has no pip, and a first use says what it waits for."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from sandbox import SandboxError
from sandbox.images.profiles import locked

ROOT = Path(__file__).resolve().parents[3]
RUN_PIP = """
import subprocess, sys
import sandbox.images.profiles as ways
for name in {without}:
    setattr(ways, name, lambda: None)
with ways.pip_environment() as environment:
    done = subprocess.run([sys.executable, "-P", "-m", "pip", "--version"], env=environment, capture_output=True)
sys.stdout.write(done.stdout.decode())
"""
WAYS = ("_bundled_wheel", "_pip_of_base", "_uv")


@pytest.fixture(scope="module")
def no_pip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment without pip."""
    folder = tmp_path_factory.mktemp("no-pip")
    venv.create(folder, with_pip=False)
    return folder / "bin" / "python"


def run(python: Path, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run([python, "-c", code], env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("way", WAYS)
def test_an_environment_without_pip_gets_one_from_elsewhere(way: str, no_pip: Path, tmp_path: Path) -> None:
    assert run(no_pip, "import pip").returncode == 1
    if way == "_uv":  # `uv pip install --target FOLDER pip`
        uv = tmp_path / "uv"
        package = Path(pytest.importorskip("pip").__file__).parent
        uv.write_text(f'#!/bin/sh\nwhile [ "$1" != --target ]; do shift; done\nln -s {package} "$2/pip"\n')
        uv.chmod(0o755)
    done = run(no_pip, RUN_PIP.format(without=[name for name in WAYS if name != way]), UV=str(tmp_path / "uv"))
    if way == "_bundled_wheel" and "there is no pip" in done.stderr:
        pytest.skip("NOT TESTED: this Python has no ensurepip")
    assert done.stdout.startswith("pip "), done.stderr


def test_without_any_pip_the_error_says_what_to_install(no_pip: Path) -> None:
    done = run(no_pip, RUN_PIP.format(without=WAYS))
    assert "SandboxError: there is no pip" in done.stderr
    assert "uv pip install pip" in done.stderr


INSTALL = """
import logging, os, sandbox.images.profiles as profiles
profiles._install = lambda profile, target: os.mkdir(target)
{configure}
profiles.packages_directory("math")
"""


@pytest.mark.parametrize(
    ("configure", "shown"),
    [
        ("", True),
        ("logging.basicConfig(level=logging.INFO)", True),
        ("logging.basicConfig()", False),
        ("logging.getLogger('sandbox').setLevel(logging.ERROR)", False),
    ],
)
def test_a_first_use_says_what_it_waits_for(configure: str, shown: bool, tmp_path: Path) -> None:
    done = run(Path(sys.executable), INSTALL.format(configure=configure), ARPO_CACHE=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert ("installing the packages" in done.stderr) is shown
    assert ("installed the packages" in done.stderr) is shown


def test_who_waits_for_another_process_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARPO_CACHE", str(tmp_path))
    code = "from sandbox.images.profiles import locked\nwith locked('image'): print('in')"
    command = [sys.executable, "-c", code]
    with locked("image"):
        other = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
        assert other.stderr is not None
        assert "waiting for another process" in other.stderr.readline()
    assert other.communicate()[0] == "in\n"


def test_packages_without_any_pip_can_be_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sandbox.images import profiles
    from sandbox.images import profiles as ways

    monkeypatch.setenv("ARPO_CACHE", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for way in WAYS:
        monkeypatch.setattr(ways, way, lambda: None)
    with pytest.raises(SandboxError, match=r'there is no pip.*profile="minimal"'):
        profiles.packages_directory("math")
