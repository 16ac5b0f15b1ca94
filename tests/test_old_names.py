"""Old module names work for one more version: they warn, name the new place, and give the same objects."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("sandbox", "envs_registry", "arpo_env", "arpo_trainer")
MEMBERS = [  # a module that is a package now, and one of its former members
    ("sandbox.backends", "choose"),
    ("sandbox.pool", "Pool"),
    ("arpo_env.cache", "Cache"),
    ("arpo_env.tools", "PythonTool"),
    ("arpo_env.tools", "ToolResult"),
    ("arpo_env.search.local", "LocalSearch"),
    ("arpo_trainer.algorithms", "ALGORITHMS"),
    ("arpo_trainer.cli", "main"),
    ("arpo_trainer.report", "write_report"),
    ("arpo_trainer.backends", "trainer_backend"),
    ("arpo_trainer.evaluation", "evaluate"),
    ("arpo_env.search", "SearchTool"),
]


def moved(package: str) -> dict[str, str]:
    table = importlib.import_module(f"{package}.moved_modules").MOVED
    return {f"{package}.{old}": f"{package}.{new}" for old, new in table.items()}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_old_module_name_gives_the_new_module(package: str) -> None:
    if package == "arpo_trainer":
        pytest.importorskip("torch")
    for old, new in moved(package).items():
        sys.modules.pop(old, None)
        with pytest.warns(DeprecationWarning, match=f"{old} has moved to {new}"):
            module = importlib.import_module(old)
        assert module is importlib.import_module(new)
        assert module.__name__ == module.__spec__.name == new


@pytest.mark.parametrize(("package", "name"), MEMBERS)
def test_members_of_modules_that_are_packages_now(package: str, name: str) -> None:
    if package == "arpo_trainer":
        pytest.importorskip("torch")
    with pytest.warns(DeprecationWarning, match=rf"{package}\.{name} has moved to {package.partition('.')[0]}\.\w+"):
        assert getattr(importlib.import_module(package), name) is not None


def test_what_was_pickled_by_an_earlier_version_loads() -> None:
    """A pickle names the module of a class; checkpoints hold some."""
    from envs_registry import Task

    task = Task("a", "How many?", ("3",))
    old = pickle.dumps(task, protocol=0).replace(b"envs_registry.task\n", b"envs_registry.tasks_of_old\n")
    code = (
        "import sys, pickle, envs_registry; from sandbox.moved_names import moved_modules;"
        "moved_modules({'envs_registry.tasks_of_old': 'envs_registry.task'});"
        f"print(pickle.loads({old!r}) == envs_registry.Task('a', 'How many?', ('3',)))"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "True\n", done.stderr


def test_a_name_that_never_was_is_refused_as_ever() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'arpo_env\.nothing'"):
        importlib.import_module("arpo_env.nothing")
    with pytest.raises(AttributeError, match=r"module 'arpo_env\.cache' has no attribute 'nothing'"):
        _ = importlib.import_module("arpo_env.cache").nothing


def test_an_old_module_name_runs_as_a_command() -> None:
    command = [sys.executable, "-W", "ignore", "-m", "envs_registry.overlap"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
