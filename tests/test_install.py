"""How the package is installed: the lines that errors and pages name, and the vLLM that goes with TRL."""

import importlib
import importlib.metadata
import json
import re
import tomllib
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from arpo_trainer.cli.doctor import _vllm
from arpo_trainer.optional_dependencies import warn_of_vllm
from envs_registry.install_line import SOURCE, install_line

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]


@pytest.mark.parametrize(
    ("origin", "line"),
    [
        ({"url": "file:///a%20clone", "dir_info": {"editable": True}}, "pip install -e '/a clone[lora,vllm]'"),
        ({"url": "file:///clone", "dir_info": {}}, "pip install '/clone[lora,vllm]'"),
        (
            {"url": "https://h/arpo.git", "vcs_info": {"vcs": "git", "commit_id": "ab12"}},
            "pip install 'arpo-gym[lora,vllm] @ git+https://h/arpo.git@ab12'",
        ),
        ({"url": "file:///w/a.whl", "archive_info": {}}, "pip install 'arpo-gym[lora,vllm] @ file:///w/a.whl'"),
        (None, "pip install 'arpo-gym[lora,vllm]'"),
    ],
)
def test_an_extra_is_installed_from_where_the_package_came(origin: Any, line: str, monkeypatch: Any) -> None:
    noted = SimpleNamespace(read_text=lambda name: origin and json.dumps(origin))
    monkeypatch.setattr("importlib.metadata.distribution", lambda name: noted)
    assert install_line("lora,vllm") == line


def test_all_texts_name_the_place_that_the_package_is_installed_from() -> None:
    """By `SOURCE`; the page "Install" also names a repository and a folder of wheels."""
    texts = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    texts += [path for folder in ("examples", "benchmarks", "scripts") for path in (ROOT / folder).rglob("*.py")]
    right = re.compile(rf"{re.escape(SOURCE)}(\[([\w,]+)\])?|arpo-gym\[train\] @ git\+.*")
    stale, named = [], set[str]()
    for path in texts:
        for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for command in re.findall(r"pip install (?!--no-index)([^`]*)", text):
                for word in re.findall(r"(?:^|[ '])((?:arpo-gym|\.)(?:\[[^' ]*)?(?: @ [^']*)?)(?=[' ]|$)", command):
                    found = right.fullmatch(word)
                    if not found:
                        stale.append(f"{path.relative_to(ROOT)}:{number}: {word}")
                    elif found[2]:
                        named |= set(found[2].split(","))
    assert not stale, f"the package is installed from {SOURCE!r}:\n" + "\n".join(stale)
    assert {"train", "vllm", "lora"} <= named <= set(EXTRAS)


@pytest.mark.parametrize("version", ["0.21.0", "0.22.0", "0.31.0+cu129", "0.31.1"])
def test_a_vllm_that_trl_does_not_support_is_named(version: str, monkeypatch: Any, caplog: Any) -> None:
    """By `arpo doctor` and before a model is loaded, for the versions of which TRL itself warns."""
    declared = [f"{line}; extra == '{extra}'" for extra, lines in EXTRAS.items() for line in lines]
    requires, versions = importlib.metadata.requires, importlib.metadata.version
    monkeypatch.setattr("importlib.metadata.requires", lambda name: declared if name == "arpo-gym" else requires(name))
    monkeypatch.setattr("importlib.metadata.version", lambda name: version if name == "vllm" else versions(name))
    of_trl = importlib.import_module("trl.import_utils")
    monkeypatch.setattr(of_trl, "_is_package_available", lambda name, return_version: (True, version))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        of_trl.is_vllm_available()
    warn_of_vllm()
    line = " ".join(str(_vllm()).split())  # it is wrapped
    assert line.startswith("-- vLLM TRL " if told else "ok vLLM")
    for text in (line, caplog.text) if told else ():
        assert re.search(rf"{re.escape(version)} is installed.*pip install .*\[vllm\]", text)
    assert bool(caplog.text) == bool(told)
