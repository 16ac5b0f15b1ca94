"""Collects the pictures of a cell: open figures of pyplot, and a last value that is a picture. Runs inside.

Nothing is imported here: if the code has not imported matplotlib, there are no figures.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from sandbox.server.wire import MOST_PICTURES, PICTURE_BYTES

_PYPLOT, _FIGURE = "matplotlib.pyplot", "matplotlib.figure"


class Pictures(NamedTuple):
    """PNG files, and how many more there were."""

    kept: tuple[bytes, ...] = ()
    left_out: int = 0


def collect(value: Any) -> Pictures:
    """Return the pictures after a cell.

    Args:
        value: of the last expression. A figure, or an object with `_repr_png_`, is a picture as well.

    Raises:
        Exception: drawing a figure fails.
    """
    figures = _figures(value)
    kept: list[bytes] = []
    left_out = max(0, len(figures) - MOST_PICTURES)
    for picture in (*map(_drawn, figures[:MOST_PICTURES]), *_own_picture(value)):
        if len(kept) < MOST_PICTURES and sum(map(len, kept)) + len(picture) <= PICTURE_BYTES:
            kept.append(picture)
        else:
            left_out += 1
    return Pictures(tuple(kept), left_out)


def close_figures() -> None:
    """Close the figures of pyplot, so that they are not shown again after the next cell."""
    pyplot = sys.modules.get(_PYPLOT)
    if pyplot is not None:
        try:
            pyplot.close("all")
        except Exception:  # whatever the user has put in its place
            return


def _figures(value: Any) -> list[Any]:
    pyplot, module = sys.modules.get(_PYPLOT), sys.modules.get(_FIGURE)
    figures = [pyplot.figure(number) for number in pyplot.get_fignums()] if pyplot is not None else []
    if module is not None and isinstance(value, module.Figure) and value not in figures:
        figures.append(value)
    return figures


def _drawn(figure: Any) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def _own_picture(value: Any) -> Iterator[bytes]:
    """Yield a value's picture, as notebooks do. If it has none, or fails, its `repr` is shown."""
    # asked of the type, since some objects claim to have any attribute
    if not hasattr(type(value), "_repr_png_"):
        return
    try:
        picture = value._repr_png_()
    except Exception:
        return
    # IPython allows a pair of picture and metadata
    if isinstance(picture, tuple) and picture:
        picture = picture[0]
    if isinstance(picture, bytes) and picture:
        yield picture
