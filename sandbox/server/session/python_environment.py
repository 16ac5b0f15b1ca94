"""What sessions find in their interpreter: variables, standard streams, /work, an empty `__main__`. Runs inside.

It is prepared once, in the zygote; sessions inherit it, and a fork is cheap where they change nothing.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import posix
import subprocess
import sys
import types
from collections.abc import Callable
from importlib.machinery import PathFinder
from typing import Any

WORK = "/work"
"""A path that means each session's own directory, where the image has such a link."""
WORK_FD = 200
"""The descriptor of a session's directory; the link /work leads to it."""
_directory_variables = ["HOME", "TMPDIR"]
_streams: dict[int, io.TextIOWrapper] = {}
_retired: list[Any] = []  # buffers whose lock a lost thread may hold; deleting one would wait for it for ever


def furnish(config: dict[str, Any], directory: Callable[[], str]) -> None:
    """In the zygote: prepare the interpreter for all sessions.

    Args:
        config: what the client sent.
        directory: returns the session's directory; empty before there is a session.
    """
    os.environ.pop("GLIBC_TUNABLES", None)
    if PathFinder.find_spec("matplotlib") is not None:
        os.environ["MPLBACKEND"] = "Agg"
        _directory_variables.append("MPLCONFIGDIR")  # without it, matplotlib makes two directories of its own
    for name in _directory_variables:
        if config["work"]:
            os.environ[name] = WORK
    _replace_streams()
    main = types.ModuleType("__main__")
    main.__builtins__ = builtins  # type: ignore[attr-defined]
    for name in [name for name in sys.modules if name.split(".")[0] == "sandbox"]:
        del sys.modules[name]
    sys.modules["__main__"] = main
    sys.path.insert(0, "")
    if config["work"]:
        _show_work(directory)


def _replace_streams() -> None:
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # type: ignore[misc]  # noqa: SIM115
    for fd, name in ((1, "stdout"), (2, "stderr")):
        stream = _streams[fd] = io.TextIOWrapper.__new__(io.TextIOWrapper)
        _open_output(stream, fd)
        stream.mode = "w"  # type: ignore[misc]
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _open_output(stream: io.TextIOWrapper, fd: int) -> None:
    """Let a stream object write to a descriptor, line by line. References to the stream stay valid."""
    buffer = io.BufferedWriter(io.FileIO(fd, "w", closefd=False))
    stream.__init__(buffer, encoding="utf-8", errors="backslashreplace", line_buffering=True)  # type: ignore[misc]


def renew_streams() -> None:
    """Give sys.stdout and sys.stderr new buffers, since a thread that is gone may hold the locks of the old ones."""
    for fd, stream in _streams.items():
        with contextlib.suppress(Exception):  # detached by the code
            _retired.append(stream.buffer)
        _open_output(stream, fd)


def point_variables_to(new: str, old: str) -> None:
    """Let variables that name the session's old directory name the new one, where there is no /work."""
    for name in _directory_variables:
        if os.environ.get(name) in (None, old):
            os.environ[name] = new
    tempfile = sys.modules.get("tempfile")
    if tempfile is not None and tempfile.tempdir == old:
        tempfile.tempdir = new  # type: ignore[attr-defined]


def _show_work(directory: Callable[[], str]) -> None:
    """Let getcwd() return /work/..., a path that means the same in every fork."""

    def getcwd() -> str:
        real, own = posix.getcwd(), directory()
        return WORK + real[len(own) :] if own and (real == own or real.startswith(own + "/")) else real

    os.getcwd = getcwd
    os.getcwdb = lambda: os.fsencode(getcwd())
    _pass_work_on()


def _pass_work_on() -> None:
    """Let subprocesses inherit the descriptor that /work leads to, which subprocess would close."""
    plain = subprocess.Popen.__init__

    def init(self: Any, *args: Any, **options: Any) -> None:
        if len(args) < 8 and options.get("close_fds", True):
            options["pass_fds"] = (*options.get("pass_fds", ()), WORK_FD)
        plain(self, *args, **options)

    subprocess.Popen.__init__ = init  # type: ignore[method-assign]
