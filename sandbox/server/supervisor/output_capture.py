"""Keeps the head and the tail of what a session writes. Runs inside the sandbox, in the supervisor."""

from __future__ import annotations


class OutputCapture:
    """Keeps the head and the tail of a stream of bytes.

    Args:
        keep: how many bytes, head and tail together.
    """

    def __init__(self, keep: int) -> None:
        self._half = max(1, keep // 2)
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        """Add the next bytes."""
        self.total += len(data)
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 4 * self._half:  # cut rarely, since each cut moves the whole tail
            del self._tail[: -self._half]

    @property
    def truncated(self) -> bool:
        """Whether bytes were left out."""
        return self.total > 2 * self._half

    def text(self) -> str:
        """Return what was kept, with a note where bytes were left out."""
        if not self.truncated:
            return (self._head + self._tail).decode("utf-8", "replace")
        tail = self._tail[-self._half :]
        left_out = self.total - len(self._head) - len(tail)
        note = f"\n... [{left_out} bytes left out] ...\n"
        # each cut may fall within a character; half of one is replaced
        return self._head.decode("utf-8", "replace") + note + tail.decode("utf-8", "replace")
