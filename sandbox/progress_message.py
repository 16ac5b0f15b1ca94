"""What takes a while says so: a first use may install packages and make an image for a minute."""

from __future__ import annotations

import logging


def announce(log: logging.Logger, text: str, *values: object) -> None:
    """Log at INFO; in a program that has not configured logging as WARNING, which Python then writes to stderr.

    `logging.getLogger("sandbox").setLevel(logging.ERROR)` silences it in such a program.
    """
    log.log(logging.INFO if log.hasHandlers() else logging.WARNING, text, *values)
