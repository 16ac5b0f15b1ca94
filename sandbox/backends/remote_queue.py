"""The requests to one session of a sandbox server, in their order."""

from __future__ import annotations

from collections import deque
from typing import Any


class RemoteQueue:
    """The requests of one session that have not been sent yet.

    Attributes:
        id: of the session on the server; empty until it is open.
        number: of the last request.
        requests: kind, number of the frame, and fields.
        busy: whether a thread is sending them.
        closing: whether it is to be closed, so that nothing more is run in it.
        cell: the name of the cell whose answer is awaited; None if there is none.
    """

    def __init__(self) -> None:
        self.id = ""
        self.number = 0
        self.requests: deque[tuple[int, int, dict[str, Any]]] = deque()
        self.busy = False
        self.closing = False
        self.cell: int | None = None
