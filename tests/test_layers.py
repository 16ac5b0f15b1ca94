"""The packages keep to their layers: imports run downwards only, heavy ones stay out, public names are listed."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ("sandbox", "envs_registry", "arpo_env", "arpo_trainer")
ALLOWED = {
    "sandbox": {"sandbox"},
    "envs_registry": {"sandbox", "envs_registry"},  # of sandbox only `moved_names`
    "arpo_env": {"sandbox", "envs_registry", "arpo_env"},
    "arpo_trainer": set(LAYERS),
}
HEAVY = {"torch", "transformers", "trl", "vllm"}


def imports(path: Path) -> set[str]:
    """Top-level names that a module imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("package", LAYERS)
def test_imports_run_downwards_only(package: str) -> None:
    modules = sorted((ROOT / package).rglob("*.py"))
    assert modules
    for path in modules:
        upwards = (imports(path) & set(LAYERS)) - ALLOWED[package]
        assert not upwards, f"{path.relative_to(ROOT)} imports {upwards}"


@pytest.mark.parametrize("package", LAYERS[:3])
def test_lower_layers_never_import_the_training_stack(package: str) -> None:
    for path in sorted((ROOT / package).rglob("*.py")):
        assert not imports(path) & HEAVY, path


@pytest.mark.parametrize("package", LAYERS)
def test_public_names_are_sorted_and_there(package: str) -> None:
    if package == "arpo_trainer":
        pytest.importorskip("torch")
    module = importlib.import_module(package)
    assert module.__all__ == sorted(module.__all__)
    for name in module.__all__:
        assert getattr(module, name) is not None


def test_importing_the_environments_is_cheap() -> None:
    # gymnasium and numpy are the caller's own; what we add on top of them counts
    code = (
        "import gymnasium, sys, time; start = time.process_time(); import arpo_env;"
        "spent = time.process_time() - start;"
        "heavy = {'torch', 'transformers', 'trl', 'datasets', 'docker'} & set(sys.modules);"
        "print(spent); assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert float(done.stdout) < 0.3


def test_the_command_line_answers_without_the_training_stack() -> None:
    code = (
        "import sys; from arpo_trainer.cli.arpo_command import main; main(['envs']);"
        "assert not {'torch', 'transformers', 'trl'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "arpo/Arithmetic-v0" in done.stdout
