"""Copies `docs/` and fills in the parts that are generated from the code.

A page asks for such a part with a comment on a line of its own:

    <!-- generated: settings ARPOConfig -->

The first word names a row of `GENERATORS`, the rest is its argument. A line right below says where the part is without
a build, as on a code host; the site leaves it out.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

from scripts.site.algorithms import algorithm_table
from scripts.site.api import api_reference
from scripts.site.command_line import command_reference
from scripts.site.environments import all_environments, family
from scripts.site.examples import example_scripts
from scripts.site.included import included_file, inline_picture
from scripts.site.metrics import metric_tables
from scripts.site.presets import preset_tables
from scripts.site.settings import settings_table

ROOT = Path(__file__).resolve().parents[2]
GENERATORS: dict[str, Callable[[str], str]] = {
    "algorithms": algorithm_table,
    "api": api_reference,
    "command-line": command_reference,
    "environments": all_environments,
    "examples": example_scripts,
    "family": family,
    "file": included_file,
    "metrics": metric_tables,
    "picture": inline_picture,
    "presets": preset_tables,
    "settings": settings_table,
}
_MARK = re.compile(r"^<!-- generated: (\S+) ?(.*?) -->$(?:\n.+)?", re.MULTILINE)


def assemble(folder: Path) -> None:
    """Write the whole source of the site into a folder, which is emptied first.

    Raises:
        KeyError: a page asks for a generated part that does not exist.
    """
    if folder.exists():
        shutil.rmtree(folder)
    shutil.copytree(ROOT / "docs", folder, ignore=shutil.ignore_patterns("__pycache__", "gpu"))
    for page in sorted(folder.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        page.write_text(_MARK.sub(_generated, text), encoding="utf-8")


def _generated(mark: re.Match[str]) -> str:
    name, argument = mark[1], mark[2]
    if name not in GENERATORS:
        raise KeyError(f"no generator {name!r}; there are: {', '.join(GENERATORS)}")
    return GENERATORS[name](argument)
