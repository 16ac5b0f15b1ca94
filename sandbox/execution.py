"""The outcome of one cell of code."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from sandbox.server.wire import MOST_PICTURES, PICTURE_BYTES

Status = Literal["ok", "error", "timeout", "output_limit", "memory_limit", "killed", "exit", "interrupted"]
# the signature and the head of the first chunk, which has to be an IHDR of 13 bytes
_PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
_SIZE = struct.Struct(">II")
# a file of 1 MiB can hold so many pixels of one colour that showing it takes gigabytes
_MOST_PIXELS = 1 << 24


@dataclass(frozen=True)
class Execution:
    """The outcome of one cell.

    Attributes:
        stdout: what it wrote, including subprocesses and C libraries; bytes that are not UTF-8 are replaced.
        stderr: the same for standard error.
        value: `repr` of the last expression, None if there is none or it is None.
        error: a traceback of the user's own frames, ending in a line such as "ValueError: boom"; or why the cell
            was stopped.
        status: "ok"; "error" (an exception); "timeout"; "output_limit"; "memory_limit" (the kernel killed it for
            memory; a MemoryError is an "error"); "killed" (its process ended: crash, os._exit, a signal);
            "exit" (it called exit()); "interrupted" (by `Interpreter.interrupt`).
        duration: seconds from dispatch to the end.
        truncated: the middle of stdout, stderr, value or error was left out.
        alive: the session can go on, with its variables.
        isolation: what separated the code from the machine, as in `Sandbox.isolation`.
        pictures: PNG files: figures of matplotlib that were open at the end of a cell without an error, and a last
            value that is a picture. At most 8, of 1 MiB together and 16 million pixels each. Their content is not
            checked, and the code can forge it like any output.
        pictures_left_out: how many more there were.
    """

    stdout: str
    stderr: str
    value: str | None
    error: str | None
    status: Status
    duration: float
    truncated: bool
    alive: bool
    isolation: str
    pictures: tuple[bytes, ...] = ()
    pictures_left_out: int = 0

    @classmethod
    def from_reply(cls, reply: dict[str, Any], isolation: str) -> Execution:
        """Return the outcome in a server's reply; files that are not PNG pictures are left out."""
        files = [base64.b64decode(picture) for picture in reply.get("pictures", ())]
        pictures = tuple(file for file in files if png_size(file) is not None)
        left_out = reply.get("pictures_left_out", 0) + len(files) - len(pictures)
        return cls(**{**reply, "pictures": pictures, "pictures_left_out": left_out}, isolation=isolation)

    @property
    def timed_out(self) -> bool:
        """Whether it was stopped because it took too long."""
        return self.status == "timeout"

    @property
    def text(self) -> str:
        """The text for a model: stdout, value, stderr, error, notes about pictures; without a newline at the end."""
        parts = (self.stdout, self.value, self.stderr, self.error, *self._picture_notes())
        return "\n".join(part.rstrip("\n") for part in parts if part and part.strip("\n"))

    def _picture_notes(self) -> Iterator[str]:
        for number, picture in enumerate(self.pictures, 1):
            width, height = png_size(picture) or (0, 0)
            yield f"[picture {number}: {width}x{height} PNG]"
        if self.pictures_left_out:
            most = f"at most {MOST_PICTURES} are kept, of {PICTURE_BYTES >> 20} MiB together"
            yield f"[pictures left out: {self.pictures_left_out}; {most}]"


def png_size(file: bytes) -> tuple[int, int] | None:
    """Return width and height from the header of a PNG file; None if it is not one, or too large to show."""
    if not file.startswith(_PNG) or len(file) < len(_PNG) + _SIZE.size:
        return None
    width, height = _SIZE.unpack_from(file, len(_PNG))
    return (width, height) if 0 < width * height <= _MOST_PIXELS else None
