#!/usr/bin/env python3
"""Parses YAML, TOML and JSON files and names those that cannot be parsed.

Usage: scripts/check_data_files.py FILE ...
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

import yaml

PARSERS = {
    ".cff": yaml.safe_load,
    ".json": json.loads,
    ".toml": tomllib.loads,
    ".yaml": yaml.safe_load,
    ".yml": yaml.safe_load,
}


def faults(paths: list[Path]) -> list[str]:
    """Return one line for each file that cannot be parsed.

    Args:
        paths: files with one of the suffixes of `PARSERS`; all others are passed over.
    """
    found = []
    for path in paths:
        if parse := PARSERS.get(path.suffix):
            try:
                parse(path.read_text(encoding="utf-8"))
            except (yaml.YAMLError, ValueError) as error:  # the errors of json and tomllib are ValueErrors
                found.append(f"{path}: {error}")
    return found


if __name__ == "__main__":
    sys.exit("\n".join(faults([Path(name) for name in sys.argv[1:]])) or 0)
