"""One live Python session: a process that waits for cells, runs them, and forks when told to. Runs inside.

It is forked from the zygote (`start`) or from another session (`fork`). The supervisor trusts nothing that it sends,
since the user's code shares its memory and can change anything here.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import errno
import io
import linecache
import marshal
import mmap
import os
import posix
import signal
import stat
import struct
import subprocess
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from importlib.machinery import PathFinder
from typing import Any, NamedTuple

from sandbox.server.kernel.confine import Confinement, adopt_orphans, die_with_parent
from sandbox.server.session.fork import fork_session, identity_of, replace, reseed
from sandbox.server.wire import (
    BRANCH,
    CELL,
    DONE,
    ENTRY,
    FILE_REPLY,
    FILE_REQUEST,
    FILED,
    GAVE_UP,
    GIVE,
    HAS_ERROR,
    HAS_VALUE,
    LARGEST_PIECE,
    LOAD,
    LOOK,
    MOST_PICTURES,
    OUTCOME,
    PICTURE_BYTES,
    READY,
    SETUP,
    SHORTENED,
    STATUSES,
    STORE,
    UNABLE,
    Channel,
    pack_pictures,
)

# Reads, writes and lists files of a session for the client.
#
# The session opens the files itself, with its own rights, so that no path leads where the code could not go. Relative
# paths start at the session's directory, whatever the code's working directory is.


def load(payload: bytes, directory: int) -> bytes:
    """Return the reply to a LOAD: a piece of a file.

    Args:
        payload: of the frame.
        directory: descriptor of the session's directory.
    """
    offset, length = FILE_REQUEST.unpack_from(payload)
    path = payload[FILE_REQUEST.size :]
    try:
        file = _open_regular(path, os.O_RDONLY | os.O_NONBLOCK, directory)
        try:
            size = os.fstat(file).st_size
            return FILE_REPLY.pack(0, size) + os.pread(file, min(length, LARGEST_PIECE), offset)
        finally:
            os.close(file)
    except (OSError, ValueError, OverflowError) as error:
        return _refusal(error)


def store(payload: bytes, directory: int) -> bytes:
    """Write a piece of a file, and create its directories; returns the reply to a STORE. See `load`."""
    offset, _ = FILE_REQUEST.unpack_from(payload)
    path, _, data = payload[FILE_REQUEST.size :].partition(b"\0")
    try:
        if offset == 0:
            _make_directories(os.path.dirname(path), directory)
        truncate = os.O_TRUNC if offset == 0 else 0
        file = _open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | truncate, directory)
        try:
            view = memoryview(data)
            while view:
                written = os.pwrite(file, view, offset)
                view, offset = view[written:], offset + written
        finally:
            os.close(file)
    except (OSError, ValueError, OverflowError) as error:
        return _refusal(error)
    return FILE_REPLY.pack(0, 0)


def look(path: bytes, directory: int) -> bytes:
    """Return the reply to a LOOK: the entries of a directory.

    Args:
        path: of the directory.
        directory: descriptor of the session's directory.
    """
    try:
        place = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
        try:
            return FILE_REPLY.pack(0, 0) + _entries(place)
        finally:
            os.close(place)
    except (OSError, ValueError) as error:
        return _refusal(error)


def _entries(place: int) -> bytes:
    data = bytearray()
    with os.scandir(place) as entries:
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # removed meanwhile
                continue
            name = os.fsencode(entry.name)
            if len(data) + ENTRY.size + len(name) > LARGEST_PIECE:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
            data += ENTRY.pack(status.st_size, stat.S_ISDIR(status.st_mode), len(name)) + name
    return bytes(data)


def _open_regular(path: bytes, flags: int, directory: int) -> int:
    file = os.open(path, flags | os.O_CLOEXEC, 0o644, dir_fd=directory)
    mode = os.fstat(file).st_mode
    if not stat.S_ISREG(mode):
        os.close(file)
        code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(code, os.strerror(code))
    return file


def _make_directories(path: bytes, directory: int) -> None:
    parts = path.split(b"/")
    for end in range(1, len(parts) + 1):
        parent = b"/".join(parts[:end])
        if parent:
            try:
                os.mkdir(parent, 0o755, dir_fd=directory)
            except FileExistsError:
                continue
            except (PermissionError, OSError) as error:
                if error.errno not in (errno.EACCES, errno.EROFS, errno.EISDIR):
                    raise  # the directory may exist and be unreadable; opening the file will tell


def _refusal(error: Exception) -> bytes:
    return FILE_REPLY.pack(getattr(error, "errno", None) or errno.EINVAL, 0)


# Collects the pictures of a cell: open figures of pyplot, and a last value that is a picture.
#
# Nothing is imported here: if the code has not imported matplotlib, there are no figures.

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


# Runs one cell of code in a namespace, as a read-eval-print loop does.
#
# All statements are executed, except a last expression: it is evaluated, and its `repr` is the value. Tracebacks show
# only the frames of the user's own code.


class Outcome(NamedTuple):
    """Status ("ok", "error", "exit"), value and error of a cell, whether a text was shortened, and pictures."""

    status: str
    value: str | None = None
    error: str | None = None
    shortened: bool = False
    pictures: Pictures = Pictures()


def run_cell(source: str, name: str, namespace: dict[str, Any], keep: int, own: tuple[str, ...]) -> Outcome:
    """Run a cell; whatever it raises ends up in the outcome.

    Args:
        source: the code.
        name: its name in tracebacks, such as "<cell 3>".
        namespace: the variables, kept from cell to cell.
        keep: the maximum number of characters of value and error.
        own: prefixes of the names of the user's own files; tracebacks leave out frames of other files.
    """
    # tracebacks show the source lines of cells
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    try:
        result = _evaluate(source, name, namespace)
        value, pictures = _shown(result), collect(result)
    except SystemExit as stop:
        return _exit(stop, keep)
    except BaseException as error:  # the user's code may raise anything, KeyboardInterrupt included
        text, shortened = shorten(describe(error, own), keep)
        return Outcome("error", None, text, shortened)
    finally:
        close_figures()
    if value is None:
        return Outcome("ok", pictures=pictures)
    text, shortened = shorten(value, keep)
    return Outcome("ok", text, None, shortened, pictures)


def _evaluate(source: str, name: str, namespace: dict[str, Any]) -> Any:
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    if tree.body:
        exec(compile(tree, name, "exec", dont_inherit=True), namespace)
    if last is None:
        return None
    expression = ast.Expression(last.value)  # type: ignore[attr-defined]
    return eval(compile(expression, name, "eval", dont_inherit=True), namespace)


def _shown(value: Any) -> str | None:
    if value is None:
        return None
    builtins._ = value  # type: ignore[attr-defined]
    text = repr(value)
    return str(text)


def _exit(stop: SystemExit, keep: int) -> Outcome:
    if stop.code in (None, 0):
        return Outcome("exit")
    try:
        text, shortened = shorten(f"SystemExit: {stop.code}", keep)
    except Exception as error:  # a __str__ of the user's
        text, shortened = f"SystemExit, and its code cannot be shown: {type(error).__name__}", False
    return Outcome("exit", None, text, shortened)


def describe(error: BaseException, own: tuple[str, ...]) -> str:
    """Return the traceback as text, with only the frames of files whose name starts with one of `own`."""
    try:
        report = traceback.TracebackException.from_exception(error)
        _trim(report, own, set())
        return "".join(report.format()).rstrip("\n")
    except BaseException as fault:  # a hostile __str__, no memory left, an interrupt
        return f"{type(error).__name__}: the error cannot be shown ({type(fault).__name__})"


def _trim(report: traceback.TracebackException, own: tuple[str, ...], seen: set[int]) -> None:
    if id(report) in seen:
        return
    seen.add(id(report))
    report.stack = traceback.StackSummary.from_list([frame for frame in report.stack if frame.filename.startswith(own)])
    # `seen` stops at cycles of causes, which code can build
    nested = [report.__cause__, report.__context__, *(getattr(report, "exceptions", None) or [])]
    for below in nested:
        if below is not None:
            _trim(below, own, seen)


def shorten(text: str, keep: int) -> tuple[str, bool]:
    """Keep head and tail of a long text; returns whether anything was left out."""
    if len(text) <= keep:
        return text, False
    half = keep // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n... [{left_out} characters left out] ...\n{text[len(text) - half :]}", True


def flush_output() -> None:
    """Write what print() has buffered. Errors of a closed or replaced stdout are ignored."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        try:
            if stream is not None:
                stream.flush()
        except Exception:  # whatever the user has put in its place
            continue


def restore_input() -> None:
    """Reopen standard input after exit(), which closes it."""
    if sys.stdin is None or getattr(sys.stdin, "closed", True):
        sys.stdin = open(os.devnull)  # noqa: SIM115


# Runs a task's setup without its text ever being in the session's memory.
#
# Whatever was once in a process can be found there: in `linecache`, in a freed buffer, by reading memory. So a child
# process reads the text from the channel and compiles it; the session gets the compiled code, runs it, and discards it.
# Comments and layout never reach the session. What stays is what the setup leaves in the interpreter: its variables,
# and the code of its functions with their constants. Constants of other statements may be found in freed memory as
# well.

# kept, since the user's code may replace the names in `os`
_fork, _pid, _leave = os.fork, os.getpid, os._exit
NAME = "<setup>"
_HEADER = struct.Struct(">?Q")
_MOST_OF_AN_ERROR = 1 << 16


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


# What sessions find in their interpreter: variables, standard streams, /work, an empty `__main__`.
#
# It is prepared once, in the zygote; sessions inherit it, and a fork is cheap where they change nothing.

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


CONTROL_FD = 199
_HIGHEST_FD = 1024
_current: Session | None = None


class Session:
    """The state of a session apart from the user's variables: channel, directory, number of cells.

    Args:
        config: what the client sent to the server; limits, mostly.
        confinement: what confines the session.
        directory: real path of the session's own directory.

    Attributes:
        channel: to the supervisor.
        outputs: device and inode of the pipes of stdout and stderr.
        pid: of the process that is the session.
    """

    def __init__(self, config: dict[str, Any], confinement: Confinement, directory: str) -> None:
        self.config = config
        self.confinement = confinement
        self.directory = directory
        self.channel: Channel
        self.outputs: tuple[tuple[int, int], ...] = ()
        self.pid = 0
        self._cells = 0
        self._running = False
        self._interrupted = False
        self._namespace = sys.modules["__main__"].__dict__

    def become_session(self, parent: int) -> None:
        """Give a freshly forked process a process group of its own, and have it end with its parent.

        Args:
            parent: a process in between that is about to end (see `forked_away`), or 0.
        """
        self.pid = _pid()
        os.setsid()
        adopt_orphans()
        while posix.getppid() == parent:  # else the death signal would come from the process in between
            os.sched_yield()
        die_with_parent()

    def take_over(self, control: int, out: int, err: int) -> None:
        """Make a process forked from the zygote a session: directory, descriptors, confinement."""
        global _current
        _current = self
        os.mkdir(self.directory, 0o700)
        os.chdir(self.directory)
        place = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
        self.confinement.close_off()  # before any code runs, after the directory was opened
        os.dup2(control, CONTROL_FD, inheritable=False)
        os.dup2(place, WORK_FD, inheritable=True)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.closerange(3, CONTROL_FD)  # descriptors of the zygote
        os.closerange(WORK_FD + 1, _HIGHEST_FD)
        self.channel = Channel(CONTROL_FD)
        self.note_outputs()
        self.point_to_directory("")
        reseed(None)
        signal.signal(signal.SIGINT, self._interrupt)

    def hide_directory(self) -> bytes:
        """Give the directory a name that is in no other session's memory; return it.

        Without /work the name stays, since the code may have stored it.
        """
        if self.config["work"]:
            hidden = os.path.join(os.path.dirname(self.directory), posix.urandom(16).hex())
            with contextlib.suppress(OSError):  # the code has removed it
                posix.rename(self.directory, hidden)
                self.directory = hidden
        return os.path.basename(self.directory).encode()

    def note_outputs(self) -> None:
        """Remember which pipes are stdout and stderr, since the user's code may copy their descriptors."""
        self.outputs = tuple(identity_of(os.fstat(fd)) for fd in (1, 2))

    def take_outputs(self, fds: list[int]) -> None:
        """Put new pipes in place of stdout and stderr, including redirected copies.

        Raises:
            OSError: the pipes could not be received, since no descriptors are left.
        """
        if len(fds) != len(self.outputs):
            raise OSError("too many open files: the session has no descriptors left for its output")
        replace(dict(zip(self.outputs, fds)))  # noqa: B905  (Python 3.9)
        self.outputs = tuple(identity_of(os.fstat(fd)) for fd in fds)
        for fd in fds:
            os.close(fd)

    def renew_streams(self) -> None:
        """Give sys.stdout and sys.stderr new buffers; see `python_environment`."""
        renew_streams()

    def point_to_directory(self, old: str) -> None:
        """Let variables that name the old directory name the one that the session has now."""
        if not self.config["work"]:  # else they name /work, which is the same in every session
            point_variables_to(self.directory, old)

    def _interrupt(self, number: int, frame: types.FrameType | None) -> None:
        """Handle SIGINT: stop the cell, once; between cells it is ignored."""
        if self._running and not self._interrupted:
            self._interrupted = True
            raise KeyboardInterrupt

    def serve(self) -> None:
        """Report that the session is ready, then serve requests until the channel ends."""
        self.channel.send(READY, 0, self.hide_directory())
        while True:
            try:
                kind, number, length, fds = self.channel.receive_header()
                if kind == SETUP:  # its text must not be read into this process; see `task_setup`
                    self._setup(number, length)
                    continue
                payload = self.channel.receive_payload(length, fds)
                if kind == CELL:
                    self._cell(number, payload)
                elif kind == BRANCH:
                    fork_session(self, number, payload)
                elif kind == GIVE:
                    self.take_outputs(fds)
                elif kind == LOAD:
                    self.channel.send(FILED, number, load(payload, WORK_FD))
                elif kind == STORE:
                    self.channel.send(FILED, number, store(payload, WORK_FD))
                elif kind == LOOK:
                    self.channel.send(FILED, number, look(payload, WORK_FD))
            except KeyboardInterrupt:  # the signal came a moment after the cell had ended
                continue

    def _cell(self, number: int, payload: bytes) -> None:
        self._cells += 1
        source, name = payload.decode("utf-8", "surrogatepass"), f"<cell {self._cells}>"
        keep = self.config["limits"]["output_bytes"]
        self._execute(number, lambda: run_cell(source, name, self._namespace, keep, self._own_files()))

    def _setup(self, number: int, length: int) -> None:
        self._execute(number, lambda: run_setup(self.channel, length, self._namespace, self._own_files()))

    def _execute(self, number: int, run: Callable[[], Outcome]) -> None:
        """Run the user's code and send the outcome to the supervisor."""
        outcome = self._guarded(run)
        flush_output()
        # a child must not answer for the session
        if _pid() != self.pid:  # the code called os.fork() and this is the child
            _leave(0)
        restore_input()
        self.channel.send(DONE, number, _packed(outcome))

    def _guarded(self, run: Callable[[], Outcome]) -> Outcome:
        self._interrupted = False
        self._running = True
        try:
            return run()
        except BaseException as error:  # an interrupt between the cell and the next line
            return Outcome("error", None, f"{type(error).__name__}: the cell was interrupted")
        finally:
            self._running = False

    def _own_files(self) -> tuple[str, ...]:
        """Return the prefixes of the names of the user's own files."""
        return ("<cell ", "<setup>", self.directory + "/", WORK + "/")


def current_directory() -> str:
    """Return the directory of the session that this process is; empty in the zygote."""
    return _current.directory if _current else ""


def _packed(outcome: Outcome) -> bytes:
    value = _encoded(outcome.value)
    error = _encoded(outcome.error)
    flags = HAS_VALUE * (outcome.value is not None) | HAS_ERROR * (outcome.error is not None)
    flags |= SHORTENED * outcome.shortened
    head = OUTCOME.pack(STATUSES.index(outcome.status), flags, len(value), len(error))
    return head + value + error + pack_pictures(*outcome.pictures)


def _encoded(text: str | None) -> bytes:
    return (text or "").encode("utf-8", "backslashreplace")


def refuse(control: int, error: BaseException) -> None:
    """Report to the supervisor, over the new session's own channel, that the session cannot be created."""
    text = f"{type(error).__name__}: {error}".encode(errors="replace")[:2000]
    with contextlib.suppress(OSError):  # the supervisor sees the end of the channel instead
        Channel(os.dup(control)).send(UNABLE, 0, text)


def start(config: dict[str, Any], confinement: Confinement, order: dict[str, Any], fds: list[int]) -> int:
    """Fork a session from the zygote. Returns in the zygote only: the new process's id, or 0."""
    control, out, err = fds
    try:
        confinement.prepare(order["slot"])
        child = os.fork()
    except OSError as error:
        refuse(control, error)
        return 0
    if child:
        return child
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        confinement.separate(order["uid"])
        session = Session(config, confinement, order["directory"])
        session.become_session(0)
        session.take_over(control, out, err)
        session.serve()
    except EOFError:
        pass
    except BaseException as error:  # a session must never return into the zygote's own code
        for fd in (control, CONTROL_FD):
            refuse(fd, error)
        _leave(GAVE_UP)
    _leave(0)
    return 0
