"""Packages and rooms keep to their layers: imports run downwards only, heavy ones stay out."""

import ast
import functools
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.draw_rooms import PICTURE, draw, floors, imported, modules, room_imports

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ("sandbox", "envs_registry", "arpo_env", "arpo_trainer")
ALLOWED = {
    "sandbox": {"sandbox"},
    "envs_registry": {"envs_registry"},
    "arpo_env": {"sandbox", "envs_registry", "arpo_env"},
    "arpo_trainer": set(LAYERS),
}
HEAVY = {"torch", "transformers", "trl", "vllm"}


@functools.cache
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
def test_imports_run_downwards_only_and_heavy_ones_are_the_trainer_s(package: str) -> None:
    forbidden = set(LAYERS) - ALLOWED[package] | (HEAVY if package != "arpo_trainer" else set())
    modules = sorted((ROOT / package).rglob("*.py"))
    assert modules
    for path in modules:
        wrong = imports(path) & forbidden
        assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"


@pytest.mark.parametrize("package", LAYERS)
def test_a_room_imports_only_rooms_of_lower_floors(package: str) -> None:
    floor = {room: number for number, rooms in enumerate(floors(package)) for room in rooms}
    seen = 0
    for room, others in room_imports().items():
        if room.partition(".")[0] == package:
            assert room in floor, f"add {room} to FLOORS in scripts/draw_rooms.py"
            within = {other for other in others if other.partition(".")[0] == package}
            upwards = {other for other in within if floor.get(other, -1) <= floor[room]}
            assert not upwards, f"{room} imports {upwards}, which are not on a lower floor"
            seen += len(within)
    assert seen > 5
    assert {room for room in floor if not (ROOT / room.replace(".", "/")).exists()} == {
        room for room in floor if (ROOT / (room.replace(".", "/") + ".py")).exists()
    }


def test_no_module_is_in_a_circle_of_imports() -> None:
    graph = {name: imported(file) - {name} for name, file in modules() if file.name != "__init__.py"}
    list(graphlib.TopologicalSorter(graph).static_order())  # a CycleError names the circle


def test_the_picture_of_the_rooms_is_up_to_date() -> None:
    assert PICTURE.read_text(encoding="utf-8") == draw(), "run: python scripts/draw_rooms.py"


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


def test_the_command_line_answers_and_refuses_a_wrong_id_without_the_training_stack() -> None:
    pytest.importorskip("torch")
    code = (
        "import sys; from arpo_trainer.cli.arpo_command import main; main(['envs']);"
        "main(['train', '--recipe', 'arithmetic-cpu', '--set', 'env=arpo/GSMK-v0']);"
        "main(['eval', 'arpo/GSMK-v0', '--model', 'm', '--output', 'o']);"
        "assert not {'torch', 'transformers', 'trl'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "arpo/Arithmetic-v0" in done.stdout
    assert done.stderr.count("Did you mean: arpo/GSM8K-v0") == 2
