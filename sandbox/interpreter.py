"""A live Python session, asynchronous and blocking: cells, files and forks, and how it is opened."""

from __future__ import annotations

import base64
import contextlib
import errno
import itertools
import logging
import math
import os
import stat
import struct
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, Literal, NoReturn

from sandbox.errors import SandboxError, SessionLost
from sandbox.options import Limits
from sandbox.pool import Pool, RemoteSession, Reply, Steps, finish, finish_async
from sandbox.server import wire

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
    def from_reply(cls, reply: Reply, isolation: str) -> Execution:
        """Return the outcome in a server's reply; files that are not PNG pictures are left out."""
        files = [base64.b64decode(picture) for picture in reply.get("pictures", ())]
        pictures = tuple(file for file in files if png_size(file) is not None)
        left_out = reply.get("pictures_left_out", 0) + len(files) - len(pictures)
        return cls(**{**reply, "pictures": pictures, "pictures_left_out": left_out}, isolation=isolation)

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
            most = f"at most {wire.MOST_PICTURES} are kept, of {wire.PICTURE_BYTES >> 20} MiB together"
            yield f"[pictures left out: {self.pictures_left_out}; {most}]"


def png_size(file: bytes) -> tuple[int, int] | None:
    """Return width and height from the header of a PNG file; None if it is not one, or too large to show."""
    if not file.startswith(_PNG) or len(file) < len(_PNG) + _SIZE.size:
        return None
    width, height = _SIZE.unpack_from(file, len(_PNG))
    return (width, height) if 0 < width * height <= _MOST_PIXELS else None


# Arguments of sessions

_LONGEST_CODE = 8 << 20
_MOST_FORKS = 64


def checked_cell(code: str, timeout: float | None, limits: Limits) -> dict[str, Any]:
    """Return the fields of a request to run a cell."""
    if not isinstance(code, str):
        raise TypeError(f"code has to be a str, not {type(code).__name__}")
    # ASCII, the usual case, is measured without encoding it
    size = len(code) if code.isascii() else len(code.encode("utf-8", "surrogatepass"))
    if size > _LONGEST_CODE:
        raise ValueError(f"{size} bytes of code; at most {_LONGEST_CODE} can be sent; use `put` for data")
    if timeout is None:
        timeout = limits.timeout
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):  # bool is an int
        raise TypeError(f"timeout={timeout!r}; it has to be a number of seconds, or None for `Limits.timeout`")
    if not (timeout > 0 and math.isfinite(timeout)):
        raise ValueError(f"timeout={timeout}; it has to be a positive number of seconds")
    return {"code": code, "timeout": timeout}


def checked_forks(n: int) -> int:
    """Return a number of copies; a TypeError or ValueError says what is wrong with it."""
    if isinstance(n, bool) or not isinstance(n, int):
        raise TypeError(f"fork({n!r}): n has to be a whole number")
    if not 1 <= n <= _MOST_FORKS:
        raise ValueError(f"fork({n}): n has to be from 1 to {_MOST_FORKS}; fork again for more")
    return n


def checked_path(name: str | PurePath, directory: bool = False) -> str:
    """Return the path of a file in the session's directory, or of the directory (".") or one in it.

    The session opens it with its own rights; this only keeps mistakes from reaching it.
    """
    if isinstance(name, PurePath):
        name = name.as_posix()
    if not isinstance(name, str):
        raise TypeError(f"the name of a file has to be a str or a path, not {type(name).__name__}")
    try:
        name.encode()  # a str with lone surrogates has no UTF-8
    except UnicodeEncodeError as error:
        raise ValueError(f"{name!r} is not a file name: {error.reason}") from error
    path = PurePosixPath(name)
    if directory and not name:
        raise ValueError("'' is not a directory; write '.' for the session's own")
    if path.is_absolute() or ".." in path.parts or "\0" in name or not (directory or path.name):
        raise ValueError(f"{name!r} is not in the session's directory; write a relative path, such as 'data/in.csv'")
    return name


# Files travel in pieces of 1 MiB, each a request of its own. The code, or another caller, may change the file between
# two of them. What a session sends is not trusted, since the code may have written anything.

_PIECE = 1 << 20
_LARGEST = 1 << 62
SendRequest = Callable[..., Future[Reply]]
"""Sends a request to a session: kind, and fields by name."""
Files = Mapping[str | PurePath, bytes | str | Path]
"""Names, relative to the session's directory, and contents: bytes, a text (as UTF-8), or the path of a local file."""


@dataclass(frozen=True)
class FileInfo:
    """One entry of a directory.

    Attributes:
        name: without its parent directories. Bytes that are not UTF-8 are shown as hexadecimal escapes.
        size: in bytes; for a symbolic link, the size of the link itself.
        is_dir: whether it is a directory; False for a symbolic link.
    """

    name: str
    size: int
    is_dir: bool


def _write_file(send: SendRequest, name: str | PurePath, data: bytes, most: int) -> Steps[None]:
    name = checked_path(name)
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"data has to be bytes, not {type(data).__name__}; encode text first, such as text.encode()")
    content = bytes(data)
    _check_size(name, len(content), most)
    for kind, fields in _write_requests({name: content}):
        _check_reply((yield send(kind, **fields)), name)


def _write_requests(files: Mapping[str, bytes]) -> Iterator[tuple[int, dict[str, Any]]]:
    for name, content in files.items():
        for offset in range(0, max(1, len(content)), _PIECE):  # an empty file is one empty piece
            piece = base64.b64encode(content[offset : offset + _PIECE]).decode()
            yield wire.WRITE, {"path": name, "offset": offset, "data": piece}


def _read_file(send: SendRequest, name: str | PurePath, most: int) -> Steps[bytes]:
    name = checked_path(name)
    content = bytearray()
    while True:
        reply: Reply = yield send(wire.READ, path=name, offset=len(content), length=_PIECE)
        _check_reply(reply, name)
        piece = base64.b64decode(reply["data"])
        content += piece
        # also what has come, since the session may send more than the size that it has reported
        _check_size(name, max(reply["size"], len(content)), most)
        if len(piece) < _PIECE or len(content) >= reply["size"]:  # a short piece is the last one
            return bytes(content)


def _check_reply(reply: Reply, name: str) -> None:
    """Raise the OSError that a session has reported for a file, if any."""
    if "errno" in reply:
        raise OSError(reply["errno"], os.strerror(reply["errno"]), name)


def _check_size(name: str, size: int, most: int) -> None:
    if size > most:
        raise OSError(errno.EFBIG, f"{os.strerror(errno.EFBIG)}: {size} bytes; the limit is {most}", name)


def _list_directory(send: SendRequest, path: str | PurePath) -> Steps[list[FileInfo]]:
    path = checked_path(path, directory=True)
    reply: Reply = yield send(wire.LIST, path=path)
    _check_reply(reply, path)
    data, at, entries = base64.b64decode(reply["data"]), 0, list[FileInfo]()
    while at < len(data):
        size, is_dir, length = wire.ENTRY.unpack_from(data, at) if len(data) - at >= wire.ENTRY.size else (0, False, -1)
        name = data[at + wire.ENTRY.size : at + wire.ENTRY.size + length]
        at += wire.ENTRY.size + length
        # a name with "/" or ".." would lead a caller who joins paths out of the directory
        if len(name) != length or name in (b"", b".", b"..") or b"/" in name or b"\0" in name or size > _LARGEST:
            raise OSError(errno.EIO, "the session has sent a malformed list of files", path)
        entries.append(FileInfo(name.decode("utf-8", "backslashreplace"), size, is_dir))
    return sorted(entries, key=lambda entry: entry.name)


def checked_files(files: Files | None, limits: Limits) -> dict[str, bytes]:
    """Return the contents of first files by normalized name; local files are read now.

    Raises:
        TypeError: `files` is not a mapping, or a content has another type.
        ValueError: a name leaves the directory, or a local file is not a regular one.
        OSError: a local file cannot be read; EFBIG for a file above `Limits.file_size`, and for all files together
            above `Limits.disk`.
    """
    if files is None:
        return {}
    if not isinstance(files, Mapping):
        raise TypeError(f"files has to be a mapping of names to contents, not {type(files).__name__}")
    contents: dict[str, bytes] = {}
    for given, content in files.items():
        name = PurePosixPath(checked_path(given)).as_posix()
        contents[name] = _content(name, content, limits.file_size)
    _check_size("all files together", sum(map(len, contents.values())), limits.disk)
    return contents


def _content(name: str, content: bytes | str | Path, most: int) -> bytes:
    if isinstance(content, Path):
        found = content.stat()
        if not stat.S_ISREG(found.st_mode):  # reading a pipe or a device might never end
            raise ValueError(f"the content of the file {name!r}: {str(content)!r} is not a regular file")
        _check_size(name, found.st_size, most)
        content = content.read_bytes()
    elif isinstance(content, str):
        content = content.encode()
    elif not isinstance(content, (bytes, bytearray, memoryview)):
        kinds = "bytes, a str or a pathlib.Path"
        raise TypeError(f"the content of the file {name!r} has to be {kinds}, not {type(content).__name__}")
    content = bytes(content)
    _check_size(name, len(content), most)
    return content


_TRIES = 3


def open_session(pool: Pool, setup: str, files: dict[str, bytes]) -> Steps[RemoteSession]:
    """Open a session, write its files and run the setup in it.

    Raises:
        OSError: a file cannot be written.
        SandboxError: no session can be opened, or the setup fails.
    """
    fields = checked_cell(setup, None, pool.options.limits)
    session = yield from _open_empty(pool)
    try:  # files first, since the setup may read them
        for kind, piece in _write_requests(files):
            _check_reply((yield session.request(kind, **piece)), piece["path"])
        if setup:
            _check_setup((yield session.request(wire.RUN, setup=True, **fields)))
    except BaseException:
        session.close()
        raise
    return session


def _open_empty(pool: Pool) -> Steps[RemoteSession]:
    for _ in range(_TRIES):
        session = yield from pool.reserve()
        try:
            yield session.request(wire.OPEN)
        except BaseException as error:
            session.close()
            if session.container.lost and isinstance(error, SandboxError):
                continue  # no code has run in it yet, so another container can take its place
            raise
        return session
    raise SessionLost(f"{_TRIES} containers in a row ended before a session was opened in them")


def _check_setup(reply: Reply) -> None:
    execution = Execution.from_reply(reply, "")
    if execution.status != "ok":
        raise SandboxError(f"the setup code failed ({execution.status}):\n{execution.text}")


_log = logging.getLogger(__name__)
_cells = itertools.count(1)


class Interpreter:
    """One live Python session. Variables stay from cell to cell, and the session can be forked.

    May be used from any number of event loops and threads; cells of one session run one after the other. Created
    by `Sandbox.interpreter`.

    Attributes:
        lost_on_fork: what could not be copied when this session was forked from another: number of
            "threads", "processes" (both have ended, in the original too), "shared_mappings" (private copies now) and
            "pipes_and_sockets" (dead ends in the copies).
    """

    def __init__(self, pool: Pool, session: RemoteSession, setup: str, files: dict[str, bytes]) -> None:
        self.lost_on_fork: dict[str, int] = {}
        self._pool = pool
        self._setup = setup
        self._files = files
        self._gone = ""
        self._attach(session)

    @property
    def limits(self) -> Limits:
        """The limits of the sandbox."""
        return self._pool.options.limits

    async def run(self, code: str, timeout: float | None = None) -> Execution:
        """Run a cell and return its outcome. Cancelling this stops the cell as `interrupt` does.

        Args:
            code: any number of statements; the value of a last expression is reported.
            timeout: seconds before it is interrupted; None uses `Limits.timeout`.

        If the code has ended its own session, in a cell or between cells, the next result says so: its status is
        "killed" or "memory_limit", and `alive` is False.

        Raises:
            SessionLost: such a result was returned before, the session was closed, or its container has died.
        """
        return await finish_async(self._run(code, timeout))

    async def interrupt(self) -> bool:
        """Stop the running cell; its `run` returns an `Execution` with status "interrupted".

        The code gets a KeyboardInterrupt. If the cell goes on for `Limits.grace` seconds after that, the session is
        ended as well (`Execution.alive` is False). Cells that wait for their turn are not affected.

        Returns:
            Whether a cell was running. This does not wait for its end.
        """
        return await finish_async(self._interrupt())

    async def fork(self, n: int = 1) -> list[Interpreter]:
        """Return n copies with the same variables, files and random state, each independent from now on.

        Args:
            n: how many.

        Raises:
            ForkError: the fork failed; this session goes on.
            SessionEnded: the code has ended this session, since its last result or during the fork.
            SessionLost: an earlier result reported the end of the session, it was closed, or its container has died.
        """
        return await finish_async(self._fork(n))

    async def put(self, name: str | PurePath, data: bytes) -> None:
        """Write a file of the session; an existing file is replaced.

        Args:
            name: its path, relative to the session's directory; missing directories are created.
            data: the whole content, at most `Limits.file_size` bytes.

        Raises:
            OSError: an error of the file system, such as a FileNotFoundError or "no space left"; EIO for a session
                that has ended or gives a malformed answer.
            SessionLost: the session was closed, its container has died, or an earlier result reported its end.
        """
        await finish_async(_write_file(self._request, name, data, self.limits.file_size))

    async def get(self, name: str | PurePath) -> bytes:
        """Return a file of the session; errors are those of `put`, and EFBIG for one above `Limits.file_size`."""
        return await finish_async(_read_file(self._request, name, self.limits.file_size))

    async def ls(self, path: str | PurePath = ".") -> list[FileInfo]:
        """Return the entries of a directory of the session, sorted by name.

        Errors are those of `put`, and EFBIG for a listing above 1 MiB (about 20,000 entries).
        """
        return await finish_async(_list_directory(self._request, path))

    async def restart(self) -> None:
        """Start over: close the session, open another one, write its first files and run the setup in it.

        This works after the session was killed, lost or closed as well. A session that was forked from another starts
        with that one's files and setup, without its variables. Copies are not affected.

        Raises:
            SandboxError: as in `Sandbox.interpreter`. The session stays closed, and can be restarted again.
        """
        await finish_async(self._restart())

    async def close(self) -> None:
        """End the session, and the running cell with it; may be called twice."""
        await finish_async(self._close())

    @property
    def sync(self) -> SyncInterpreter:
        """The same session with blocking methods."""
        return SyncInterpreter(self)

    async def __aenter__(self) -> Interpreter:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _attach(self, session: RemoteSession) -> None:
        self._session = session
        self._finalizer = weakref.finalize(self, session.forget)
        # at exit the sandbox is closed as a whole, with all its sessions
        self._finalizer.atexit = False

    def _request(self, kind: int, **fields: Any) -> Future[Reply]:
        if self._gone:
            # in a forked process that is the reason to report, whatever has become of the session
            self._pool.check_process()
            raise SessionLost(self._gone)
        return self._session.request(kind, **fields)

    def _run(self, code: str, timeout: float | None) -> Steps[Execution]:
        fields = checked_cell(code, timeout, self.limits)
        # kept, since a restart may put another one in its place while this waits
        session = self._session
        cell = next(_cells)
        future = self._request(wire.RUN, setup=False, cell=cell, **fields)
        self._pool.count("runs")
        try:
            reply: Reply = yield future
        except BaseException:
            if not future.done():  # the caller was cancelled
                session.interrupt_later(cell)
            raise
        execution = Execution.from_reply(reply, session.container.isolation)
        if not execution.alive and session is self._session:
            why = f"{execution.status}: {execution.error}"
            self._gone = f"the session has ended ({why}); open a new interpreter, or restart this one"
        return execution

    def _interrupt(self) -> Steps[bool]:
        try:
            reply: Reply = yield self._session.request(wire.INTERRUPT, cell=None)
        except SessionLost:
            return False
        found: bool = reply["interrupted"]
        return found

    def _fork(self, n: int) -> Steps[list[Interpreter]]:
        copies = self._session.copies(checked_forks(n))  # counted as members now, so that the slot is not freed
        try:
            future = self._request(wire.FORK, children=[copy.key for copy in copies])
        except BaseException:
            copies[0].group.leave(n)
            raise
        try:
            reply: Reply = yield future
        except BaseException:  # includes a cancellation, after which nobody would close the copies
            _close_when_forked(future, copies)
            raise
        return self._adopt(copies, {name: count for name, count in reply["losses"].items() if count})

    def _adopt(self, copies: list[RemoteSession], losses: dict[str, int]) -> list[Interpreter]:
        self._pool.count("forks", len(copies))
        if losses:
            _log.warning("a fork could not copy everything: %s", losses)
        interpreters = [Interpreter(self._pool, copy, self._setup, self._files) for copy in copies]
        for interpreter in interpreters:
            interpreter.lost_on_fork = losses
        return interpreters

    def _close(self) -> Steps[None]:
        self._finalizer.detach()  # else the session would be forgotten and closed once more
        future = self._session.close()
        if future is not None:
            with contextlib.suppress(SessionLost):
                yield future

    def _restart(self) -> Steps[None]:
        # first, since its slot may be the only one; the new session would wait for it
        yield from self._close()
        session = yield from open_session(self._pool, self._setup, self._files)
        try:
            yield from self._close()  # another caller may have opened a session meanwhile
        except BaseException:
            session.close()
            raise
        self._gone, self.lost_on_fork = "", {}
        self._attach(session)


def _close_when_forked(future: Future[Reply], copies: list[RemoteSession]) -> None:
    """Close copies that nobody waits for any more, as soon as they exist."""

    def close() -> None:
        copies[0].pool.count("forks", len(copies))
        for copy in copies:
            copy.close()

    def on_reply(reply: Future[Reply]) -> None:
        if reply.exception() is None:
            copies[0].pool.wake.put(close)  # not here, since this runs in the thread that reads the replies
        else:
            copies[0].group.leave(len(copies))

    future.add_done_callback(on_reply)


class SyncInterpreter:
    """The blocking methods of an `Interpreter`. They work in any thread, also in one that runs an event loop.

    Attributes:
        interpreter: the same session, with asynchronous methods.
    """

    def __init__(self, interpreter: Interpreter) -> None:
        self.interpreter = interpreter

    def run(self, code: str, timeout: float | None = None) -> Execution:
        """Run a cell; see `Interpreter.run`. A KeyboardInterrupt while this waits stops the cell."""
        return finish(self.interpreter._run(code, timeout))

    def interrupt(self) -> bool:
        """Stop the running cell, from another thread; see `Interpreter.interrupt`."""
        return finish(self.interpreter._interrupt())

    def fork(self, n: int = 1) -> list[SyncInterpreter]:
        """Return n copies; see `Interpreter.fork`."""
        return [copy.sync for copy in finish(self.interpreter._fork(n))]

    def put(self, name: str | PurePath, data: bytes) -> None:
        """Write a file; see `Interpreter.put`."""
        finish(_write_file(self.interpreter._request, name, data, self.interpreter.limits.file_size))

    def get(self, name: str | PurePath) -> bytes:
        """Return a file; see `Interpreter.get`."""
        return finish(_read_file(self.interpreter._request, name, self.interpreter.limits.file_size))

    def ls(self, path: str | PurePath = ".") -> list[FileInfo]:
        """Return the entries of a directory; see `Interpreter.ls`."""
        return finish(_list_directory(self.interpreter._request, path))

    def restart(self) -> None:
        """Start over; see `Interpreter.restart`."""
        finish(self.interpreter._restart())

    def close(self) -> None:
        """End the session; may be called twice."""
        finish(self.interpreter._close())

    def __enter__(self) -> SyncInterpreter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class FreshInterpreter(Interpreter):
    """Runs each cell in a new session, which starts from the setup and is closed afterwards.

    It holds no session between two runs. Runs may happen at the same time; each waits for a slot. Forking returns more
    interpreters of this kind; there are no files to put or get. A setup that fails is an error of each run. A setup
    that ends its session is a result of each run ("killed"), as if the code had ended it. `interrupt` stops all runs,
    except those that are still being opened or prepared.

    """

    def __init__(self, pool: Pool, setup: str, files: dict[str, bytes]) -> None:
        # not by `Interpreter.__init__`, which attaches a session
        self.lost_on_fork = {}
        self._pool = pool
        self._setup = setup
        self._files = files
        self._closed = False
        self._running: set[RemoteSession] = set()
        # checked here, so that a setup of a wrong type or size is refused before the first run
        self._setup_cell = checked_cell(setup, None, pool.options.limits)

    def _request(self, kind: int, **fields: Any) -> NoReturn:
        raise ValueError(
            "a fresh interpreter keeps no files from run to run; give it files=, write them in the code or in the "
            "setup, or open an interpreter without fresh=True"
        )

    def _run(self, code: str, timeout: float | None) -> Steps[Execution]:
        fields = checked_cell(code, timeout, self.limits)
        self._check_open()
        session = yield from self._pool.reserve()
        self._pool.count("runs")
        try:
            reply = yield from self._run_in(session, {**fields, "setup": False, "cell": next(_cells)})
        finally:
            self._running.discard(session)
            session.close()
        return Execution.from_reply(reply, session.container.isolation)

    def _run_in(self, session: RemoteSession, run: dict[str, Any]) -> Steps[Reply]:
        """Run the setup and the code with one request; files need one more request for each piece."""
        before = {**self._setup_cell, "setup": True} if self._setup else None
        if not self._files:
            future = session.request(wire.RUN_ONCE, before=before, **run)
            self._running.add(session)
            reply: Reply = yield future
            # the server has closed it with this reply
            if session.mark_closed():
                session.group.leave()
            if reply.pop("of_setup", False) and reply["alive"]:
                _check_setup(reply)
            return reply
        future = session.request(wire.OPEN)
        self._running.add(session)
        yield future
        for kind, step in (*_write_requests(self._files), *([(wire.RUN, before)] if before else []), (wire.RUN, run)):
            reply = yield session.request(kind, **step)
            if kind == wire.RUN and step["setup"] and reply["alive"]:
                _check_setup(reply)
            elif kind == wire.RUN:  # also of a setup that has ended its session, which is a result
                return reply
            else:
                _check_reply(reply, step["path"])
        raise AssertionError("unreachable: the last step runs the code")

    def _interrupt(self) -> Steps[bool]:
        found = False
        for session in list(self._running):
            with contextlib.suppress(SessionLost):
                reply: Reply = yield session.request(wire.INTERRUPT, cell=None)
                found = found or reply["interrupted"]
        return found

    def _fork(self, n: int) -> Steps[list[Interpreter]]:
        self._check_open()
        return [FreshInterpreter(self._pool, self._setup, self._files) for _ in range(checked_forks(n))]
        yield  # makes this a generator, as the methods of `Interpreter` are; it never waits

    def _close(self) -> Steps[None]:
        self._closed = True
        return
        yield

    def _restart(self) -> Steps[None]:
        self._closed = False
        return
        yield

    def _check_open(self) -> None:
        self._pool.check_process()
        if self._closed:
            raise SessionLost("this interpreter is closed; open a new one")
