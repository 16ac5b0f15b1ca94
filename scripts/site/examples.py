"""The scripts of `examples/`, each with what it shows."""

from __future__ import annotations

import ast
from pathlib import Path

from scripts.site.markdown import block

FOLDER = Path(__file__).resolve().parents[2] / "examples"


def example_scripts(_: str) -> str:
    """Return a section for each script: its name as the heading, its docstring, its code.

    Raises:
        FileNotFoundError: there are no scripts.
    """
    scripts = sorted(FOLDER.glob("[0-9]*.py"))
    if not scripts:
        raise FileNotFoundError(f"{FOLDER} has no scripts such as 01_play_an_episode.py")
    return "\n".join(map(_section, scripts))


def _section(script: Path) -> str:
    source = script.read_text(encoding="utf-8")
    tree = ast.parse(source)
    said = ast.get_docstring(tree) or ""
    behind = tree.body[0].end_lineno if said else 0
    code = "\n".join(source.splitlines()[behind:])
    _, _, words = script.stem.partition("_")
    title = words.replace("_", " ").capitalize()
    return f"## {title}\n\n{said.split(chr(10) * 2)[0]}\n\n`examples/{script.name}`:\n\n{block(code, 'python')}"
