"""Runs a task's setup without its text ever being in the session's memory. Runs inside the sandbox.

Whatever was once in a process can be found there: in `linecache`, in a freed buffer, by reading memory. So a child
process reads the text from the channel and compiles it; the session gets the compiled code, runs it, and discards it.
Comments and layout never reach the session. What stays is what the setup leaves in the interpreter: its variables, and
the code of its functions with their constants. Constants of other statements may be found in freed memory as well.
"""

from __future__ import annotations

import marshal
import os
import struct
from typing import Any

from sandbox.server.session.blocking_channel import Channel
from sandbox.server.session.run_cell import Outcome, describe, shorten

NAME = "<setup>"
_HEADER = struct.Struct(">?Q")
_MOST_OF_AN_ERROR = 1 << 16
_fork, _leave = os.fork, os._exit


def run_setup(channel: Channel, length: int, namespace: dict[str, Any], own: tuple[str, ...]) -> Outcome:
    """Run the setup whose text is the next payload of the channel; the value of a last expression is not reported.

    Args:
        channel: to the supervisor; the header has been read.
        length: of the payload.
        namespace: where it is run.
        own: prefixes of the names of the user's own files, for tracebacks.
    """
    compiled, data = _compiled_apart(channel, length)
    if not compiled:
        return Outcome("error", None, data.decode("utf-8", "replace"))
    try:
        code = marshal.loads(data)
        data[:] = bytes(len(data))  # the code holds constants of the setup
        exec(code, namespace)
    except SystemExit as stop:
        return Outcome("exit", None, f"SystemExit: {stop.code!r}"[:_MOST_OF_AN_ERROR])
    except BaseException as error:  # the setup may raise anything
        return Outcome("error", None, *shorten(describe(error, own), _MOST_OF_AN_ERROR))
    return Outcome("ok")


def _compiled_apart(channel: Channel, length: int) -> tuple[bool, bytearray]:
    """Compile the text in a child; returns whether that worked, and the code or the error."""
    reading, writing = os.pipe()
    child = _fork()
    if child == 0:
        try:
            os.close(reading)
            _send(writing, *_compiled(channel.receive_payload(length, [])))
        finally:
            _leave(0)
    os.close(writing)
    try:
        header = _exactly(reading, _HEADER.size)
        compiled, size = _HEADER.unpack(header)
        return compiled, _exactly(reading, size)
    finally:
        os.close(reading)
        os.waitpid(child, 0)


def _compiled(text: bytes) -> tuple[bool, bytes]:
    try:
        return True, marshal.dumps(compile(text.decode("utf-8", "surrogatepass"), NAME, "exec", dont_inherit=True))
    except BaseException as error:  # a syntax error, or code that is nested too deeply
        return False, shorten(describe(error, (NAME,)), _MOST_OF_AN_ERROR)[0].encode("utf-8", "backslashreplace")


def _send(fd: int, compiled: bool, data: bytes) -> None:
    left = memoryview(_HEADER.pack(compiled, len(data)) + data)
    while left:
        left = left[os.write(fd, left) :]


def _exactly(fd: int, size: int) -> bytearray:
    """Read this many bytes into one buffer, which can be overwritten later."""
    data = bytearray(size)
    left = memoryview(data)
    while left:
        count = os.readv(fd, [left])
        if count == 0:
            raise EOFError("the process that compiles the setup has ended")
        left = left[count:]
    return data
