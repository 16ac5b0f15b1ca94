"""Tables on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def write_table(rows: Sequence[Sequence[str]]) -> None:
    """Write rows of the same length with their columns aligned."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        sys.stdout.write("  ".join(cells).rstrip() + "\n")
