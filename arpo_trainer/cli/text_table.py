"""Tables on the terminal."""

from __future__ import annotations

import itertools
import sys
import textwrap
from collections.abc import Sequence

_WIDTH = 100  # characters per line


def write_table(rows: Sequence[Sequence[str]], notes: Sequence[str] = ()) -> None:
    """Print rows of equal length with aligned columns.

    Args:
        rows: the cells of each row.
        notes: a note below each row, indented and wrapped; an empty one is left out.
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row, note in itertools.zip_longest(rows, notes[: len(rows)], fillvalue=""):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        sys.stdout.write("  ".join(cells).rstrip() + "\n")
        sys.stdout.writelines(
            f"{line}\n" for line in textwrap.wrap(note, _WIDTH, initial_indent="  ", subsequent_indent="  ")
        )
