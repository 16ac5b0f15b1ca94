"""Whatever takes a path takes it as str and as Path: public names by their annotations, and the common ones by use."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("sandbox", "envs_registry", "arpo_env", "arpo_trainer")
HOOKS = {"before_checkpoint"}  # called by the trainer, overridden by others: they are given a Path
PATH_NAME = re.compile(r"(?!is_)(.*_)?(path|folder|directory|dir)")


def public(package: str) -> Iterator[tuple[str, Any]]:
    """What the packages export, their sub-packages included, and what the documents import from them."""
    inits = [init.parent for init in sorted((ROOT / package).rglob("__init__.py"))]
    for module_name in (".".join(folder.relative_to(ROOT).parts) for folder in inits):
        module = importlib.import_module(module_name)
        for name in getattr(module, "__all__", ()):
            yield f"{module_name}.{name}", getattr(module, name)
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for code in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            for module_name, names in re.findall(rf"^from ({package}[\w.]*) import ([\w, ]+)$", code, re.MULTILINE):
                for name in (each.partition(" as ")[0] for each in names.split(", ")):
                    try:
                        value = getattr(importlib.import_module(module_name), name, None)
                        yield f"{module_name}.{name}", value or importlib.import_module(f"{module_name}.{name}")
                    except ModuleNotFoundError:
                        if page.parent.name != "adapters":  # these need the framework
                            raise


def annotations(where: str, one: Any) -> Iterator[tuple[str, str, str]]:
    """The parameters of a function, or of a class's public methods, and its fields: place, name, annotation."""
    if inspect.isfunction(inspect.unwrap(one)):
        for name, parameter in inspect.signature(one).parameters.items():
            yield where, name, str(parameter.annotation)
    elif inspect.isclass(one):
        for owner in one.__mro__:
            if owner.__module__.partition(".")[0] not in PACKAGES:
                continue
            if dataclasses.is_dataclass(owner) or hasattr(owner, "__total__"):  # a TypedDict has the latter
                yield from ((where, name, str(kind)) for name, kind in inspect.get_annotations(owner).items())
            for name, member in vars(owner).items():
                function = getattr(member, "__func__", member)  # of a class method or a static one
                written = name == "__init__" and not dataclasses.is_dataclass(owner)
                if inspect.isfunction(function) and (written or name[0] != "_") and name not in HOOKS:
                    yield from annotations(f"{where}.{name}", function)


@pytest.mark.parametrize("package", PACKAGES)
def test_public_parameters_take_a_path_as_text_and_as_path(package: str) -> None:
    if package == "arpo_trainer":
        pytest.importorskip("torch")
    seen = [entry for where, one in public(package) for entry in annotations(where, one)]
    assert len(seen) > 30
    wrong = [
        f"{where}({name}: {kind})"
        for where, name, kind in seen
        if (re.search(r"\bPath\b", kind) and not re.search(r"\bstr\b", kind))
        or (PATH_NAME.fullmatch(name) and not re.search(r"Path", kind))
    ]
    assert not wrong, f"write str | Path: {', '.join(wrong)}"


@pytest.mark.parametrize("kind", [str, Path])
def test_a_run_is_written_read_and_shown(kind: type, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from arpo_trainer import read_traces, write_report, write_traces
    from arpo_trainer.report.html_report import write_timeline
    from arpo_trainer.training.recorder import RunRecorder
    from tests.arpo_trainer.sample_timeline import sample_tree

    folder, tree = tmp_path / "run", sample_tree()
    RunRecorder(kind(folder)).begin({"name": "test"}, kind(folder / "checkpoint-1"))
    write_traces(kind(folder / "traces.jsonl"), [tree])
    assert [one.prompt for one in read_traces(kind(folder / "traces.jsonl"))] == [tree.prompt]
    assert write_report(kind(folder)).is_file()
    assert write_timeline(kind(folder), output=kind(tmp_path / "page.html"))[0].is_file()


@pytest.mark.parametrize("kind", [str, Path])
def test_settings_take_folders(kind: type, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from arpo_trainer import ARPOConfig
    from arpo_trainer.run.arguments import split_settings
    from arpo_trainer.run.recipes import read_settings

    (tmp_path / "my.yaml").write_text("max_steps: 1\n")
    settings = read_settings(kind(tmp_path / "my.yaml"), [])
    run, values = split_settings({**settings, "model": kind(tmp_path), "output_dir": kind(tmp_path / "out")})
    assert run.model == str(tmp_path)
    args = ARPOConfig(**values, use_cpu=True, bf16=False)
    assert args.output_dir == str(tmp_path / "out")
