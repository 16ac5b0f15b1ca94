"""Writes the files of a comparison: comparison.json, and what is drawn from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULT = "comparison.json"


def write_comparison(data: dict[str, Any], folder: str | Path) -> list[Path]:
    """Write comparison.json, and return the paths of what was written."""
    path = Path(folder) / RESULT
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    unfinished.replace(path)
    return [path]
