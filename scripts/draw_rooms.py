"""Draws the rooms of the packages and their imports: docs/images/rooms.svg.

A room is a sub-package, or a module directly in a package. `FLOORS` is the rule: a room may import only rooms on lower
floors of its own package, and rooms of packages below. `tests/test_layers.py` checks the rule, and that the picture is
up to date.

    python scripts/draw_rooms.py
"""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "images" / "rooms.svg"

# package -> its floors from the top down; an upper package stands on the lower ones
FLOORS: dict[str, list[str]] = {
    "arpo_trainer": [
        "cli",
        "views synthesis preference",
        "evaluation export",
        "run",
        "costs sft",
        "adapters",
        "training",
        "report",
        "ray_rollouts",
        "rollout",
        "inference_tools",
        "backends",
        "algorithms packing",
        "tree",
        "models make_env",
        "validation folder_lock optional_dependencies statistics",
    ],
    "arpo_env": [
        "adapters",
        "vector chat_messages",
        "env",
        "apply_turn",
        "memory_folding",
        "protocols",
        "tools",
        "services rewards",
        "grading pages task_files",
        "search",
        "chat_model",
        "net cache",
        "worker_pool registration",
        "event_loop episode errors lazy_names text",
    ],
    "envs_registry": [
        "generated",
        "datasets",
        "contamination",
        "sources",
        "spec task",
        "nearest_name install_line",
    ],
    "sandbox": [
        "http",
        "sandbox",
        "interpreter",
        "pool",
        "backends",
        "images",
        "docker_engine",
        "options",
        "errors server",
    ],
}


def room_of(module: str) -> str:
    """Return the room of a module, such as "arpo_env.net" for "arpo_env.net"."""
    return ".".join(module.split(".")[:2])


def modules() -> Iterator[tuple[str, Path]]:
    """Yield every module of the packages with its file; the faces of the packages are left out."""
    for package in FLOORS:
        for file in sorted((ROOT / package).rglob("*.py")):
            parts = list(file.relative_to(ROOT).with_suffix("").parts)
            if parts[-1] == "__init__":
                parts.pop()
            if len(parts) > 1:
                yield ".".join(parts), file


@functools.cache  # each file is asked for by several tests
def imported(file: Path) -> frozenset[str]:
    """Return the modules of this project that a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {_module(node.module, alias.name) for alias in node.names}
    return frozenset(name for name in found if name.partition(".")[0] in FLOORS)


def _module(package: str, name: str) -> str:
    folder = ROOT / Path(*package.split("."))
    return f"{package}.{name}" if (folder / f"{name}.py").exists() or (folder / name).is_dir() else package


def room_imports() -> dict[str, set[str]]:
    """Return room -> rooms that it imports; a package's own name stands for its public names."""
    rooms: dict[str, set[str]] = defaultdict(set)
    for name, file in modules():
        rooms[room_of(name)] |= {room_of(other) for other in imported(file)} - {room_of(name)}
    return dict(rooms)


def floors(package: str) -> list[list[str]]:
    """Return the rooms of a package by floor, from the top down."""
    return [[f"{package}.{room}" for room in floor.split()] for floor in FLOORS[package]]


WIDTH, ROW, BOX, GAP = 1000, 46, 26, 12
_STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #24292f } .package { font-weight: 600; font-size: 14px }
  .band { fill: #f6f8fa; stroke: #d0d7de } .room { fill: #ffffff; stroke: #57606a } .small { fill: #57606a }
  path { fill: none; stroke: #8c959f; stroke-opacity: .55 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .band { fill: #161b22; stroke: #30363d } .room { fill: #0d1117; stroke: #8b949e }
    .small { fill: #8b949e } path { stroke: #8b949e }
  }
"""


def draw() -> str:
    """Return the picture as SVG. An arrow is left out if a path over other rooms implies it."""
    boxes: dict[str, tuple[float, float, float]] = {}
    shapes: list[str] = []
    top = 10.0
    for package in FLOORS:
        rows = floors(package)
        height = 34 + ROW * len(rows)
        shapes.append(f'<rect class="band" x="4" y="{top:g}" width="{WIDTH - 8}" height="{height:g}" rx="8"/>')
        shapes.append(f'<text class="package" x="16" y="{top + 22:g}">{package}</text>')
        for number, row in enumerate(rows):
            widths = [14 + 6.6 * len(_label(room)) for room in row]
            x = (WIDTH - sum(widths) - GAP * (len(row) - 1)) / 2 + 30
            y = top + 28 + ROW * number
            for room, width in zip(row, widths, strict=True):
                boxes[room] = (x, y, width)
                x += width + GAP
        top += height + 16
    arrows = [_arrow(boxes[one], boxes[other]) for one, other in _shown() if one in boxes and other in boxes]
    for room, (x, y, width) in boxes.items():
        shapes.append(f'<rect class="room" x="{x:.1f}" y="{y:g}" width="{width:.1f}" height="{BOX}" rx="5"/>')
        shapes.append(
            f'<text x="{x + width / 2:.1f}" y="{y + 17:g}" text-anchor="middle">{escape(_label(room))}</text>'
        )
    bands = [shape for shape in shapes if "band" in shape]
    rest = [shape for shape in shapes if "band" not in shape]
    body = "\n".join([*bands, *arrows, *rest])
    size = f'width="{WIDTH}" height="{top:g}" viewBox="0 0 {WIDTH} {top:g}"'
    title = "<title>Rooms of the four packages; each imports only what lies below it</title>"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    return f"{head}\n{title}\n<style>{_STYLE}</style>\n{body}\n</svg>\n"


def _label(room: str) -> str:
    return room.split(".", 1)[1].replace(".", "/")


def _shown() -> list[tuple[str, str]]:
    graph = room_imports()
    within = {one: {other for other in others if _package(other) == _package(one)} for one, others in graph.items()}
    below: dict[str, set[str]] = {}

    def reach(room: str) -> set[str]:
        if room not in below:
            below[room] = set()
            for other in within.get(room, ()):
                below[room] |= {other} | reach(other)
        return below[room]

    arrows = []
    for one, others in sorted(within.items()):
        for other in sorted(others):
            if not any(other in reach(third) for third in others - {other}):
                arrows.append((one, other))
    return arrows


def _package(room: str) -> str:
    return room.partition(".")[0]


def _arrow(one: tuple[float, float, float], other: tuple[float, float, float]) -> str:
    x1, y1 = one[0] + one[2] / 2, one[1] + BOX
    x2, y2 = other[0] + other[2] / 2, other[1]
    bend = (y1 + y2) / 2
    return f'<path d="M{x1:.1f} {y1:g}C{x1:.1f} {bend:g} {x2:.1f} {bend:g} {x2:.1f} {y2:g}"/>'


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
