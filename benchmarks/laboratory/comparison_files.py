"""Writes the files of a comparison: comparison.json, and the figures and the page that are drawn from it alone.

write_comparison(data, "lab/first")                # comparison.json, comparison.html, curves.svg, differences.svg
draw_comparison("docs/results/laboratory.json")    # laboratory-curves.svg, laboratory-differences.svg
"""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

RESULT, PAGE = "comparison.json", "comparison.html"
_DRAWS_WITH = "matplotlib"


def write_comparison(data: dict[str, Any], folder: str | Path) -> list[Path]:
    """Write comparison.json, and where matplotlib is installed the page and the figures; return the paths."""
    path = Path(folder) / RESULT
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.write_text(_one_line_lists(json.dumps(data, indent=1)) + "\n", encoding="utf-8")
    unfinished.replace(path)
    return [path, *(_drawn(data, Path(folder)) if importlib.util.find_spec(_DRAWS_WITH) else [])]


def load_result(path: str | Path) -> dict[str, Any]:
    """Read a comparison.json.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a comparison.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no file {str(path)!r}; `python -m benchmarks.laboratory compare` writes a {RESULT}")
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if data.get("kind") != "lab comparison":
        raise ValueError(f"{path} is not a result of `python -m benchmarks.laboratory compare`")
    return data


def draw_comparison(path: str | Path) -> list[Path]:
    """Draw the figures of a stored comparison beside it, and return their paths.

    Those of comparison.json are curves.svg and differences.svg; of NAME.json, NAME-curves.svg and NAME-differences.svg.

    Raises:
        FileNotFoundError: there is no such file.
        ModuleNotFoundError: matplotlib is not installed.
        ValueError: it is not a comparison.
    """
    from benchmarks.laboratory.comparison_figures import write_comparison_figures

    path = Path(path)
    prefix = "" if path.name == RESULT else f"{path.stem}-"
    return write_comparison_figures(load_result(path), path.parent, prefix)


def _one_line_lists(text: str) -> str:
    """Return JSON in which lists of numbers take one line each."""
    return re.sub(r"\[[^\[\]{}\"]*\]", lambda match: " ".join(match[0].split()), text)


def _drawn(data: dict[str, Any], folder: Path) -> list[Path]:
    from benchmarks.laboratory.comparison_figures import write_comparison_figures
    from benchmarks.laboratory.comparison_page import write_comparison_page

    return [write_comparison_page(data, folder / PAGE), *write_comparison_figures(data, folder)]
