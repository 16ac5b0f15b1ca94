"""What sessions find in their interpreter: variables, standard streams, /work, an empty `__main__`. Runs inside.

It is prepared once, in the zygote; sessions inherit it, and a fork is cheap where they change nothing.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import mmap
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
    if config["harden"]:
        _share_memory_in_files(directory)
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


def _share_memory_in_files(directory: Callable[[], str]) -> None:
    """Let `mmap.mmap(-1, n)` map a file of the session that has no name, since shared memory without one is refused.

    Such a file counts as what the session has on its disk, with all its contents, whoever maps it.
    """
    plain = mmap.mmap

    class SharedMapping(plain):  # type: ignore[valid-type, misc]
        def __new__(
            cls,
            fileno: int,
            length: int,
            flags: int = mmap.MAP_SHARED,
            prot: int = mmap.PROT_READ | mmap.PROT_WRITE,
            access: int = mmap.ACCESS_DEFAULT,
            offset: int = 0,
            **options: Any,
        ) -> SharedMapping:
            private = access == mmap.ACCESS_COPY or (access == mmap.ACCESS_DEFAULT and not flags & mmap.MAP_SHARED)
            if fileno != -1 or private or length <= 0:
                return plain.__new__(cls, fileno, length, flags, prot, access, offset, **options)
            file = _file_of_zeros(directory(), offset + length)
            try:
                flags &= ~mmap.MAP_ANONYMOUS
                return plain.__new__(cls, file, length, flags, prot, access, offset, **options)
            finally:
                os.close(file)

    SharedMapping.__name__ = SharedMapping.__qualname__ = "mmap"
    SharedMapping.__module__ = "mmap"
    mmap.mmap = SharedMapping  # type: ignore[misc]


def _file_of_zeros(directory: str, size: int) -> int:
    file = os.open(directory, os.O_TMPFILE | os.O_RDWR, 0o600)
    try:
        os.posix_fallocate(file, 0, size)  # else a write to the mapping would be the first to find the disk full
    except OSError as error:
        os.close(file)
        why = "shared memory is a file here, and Limits.file_size and Limits.disk are its limits"
        raise OSError(error.errno, f"{error.strerror}; {why}") from None
    return file


def _pass_work_on() -> None:
    """Let subprocesses inherit the descriptor that /work leads to, which subprocess would close."""
    plain = subprocess.Popen.__init__

    def init(self: Any, *args: Any, **options: Any) -> None:
        if len(args) < 8 and options.get("close_fds", True):
            options["pass_fds"] = (*options.get("pass_fds", ()), WORK_FD)
        plain(self, *args, **options)

    subprocess.Popen.__init__ = init  # type: ignore[method-assign]
