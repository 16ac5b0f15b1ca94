"""Runs cells and setups in a session, and what they find there: streams, variables, /work. Runs inside.

All statements of a cell are executed as a read-eval-print loop does, except a last expression: it is evaluated, and its
`repr` is the value. Tracebacks show only the frames of the user's own code.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import io
import linecache
import marshal
import mmap
import os
import posix
import subprocess
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import PathFinder
from typing import Any, NamedTuple

from sandbox.server.wire import MOST_PICTURES, PICTURE_BYTES, Channel

# Collects the pictures of a cell: open figures of pyplot, and a last value that is a picture.
#
# Nothing is imported here: if the code has not imported matplotlib, there are no figures.

_PYPLOT, _FIGURE = "matplotlib.pyplot", "matplotlib.figure"


Pictures = tuple[Sequence[bytes], int]
"""PNG files, and how many more there were."""


def collect(value: Any) -> Pictures:
    """Return the pictures after a cell; its last value is one if it is a figure, or an object with `_repr_png_`."""
    figures = _figures(value)
    kept: list[bytes] = []
    left_out = max(0, len(figures) - MOST_PICTURES)
    for picture in (*map(_drawn, figures[:MOST_PICTURES]), *_own_picture(value)):
        if len(kept) < MOST_PICTURES and sum(map(len, kept)) + len(picture) <= PICTURE_BYTES:
            kept.append(picture)
        else:
            left_out += 1
    return kept, left_out


def close_figures() -> None:
    """Close the figures of pyplot, so that they are not shown again after the next cell."""
    pyplot = sys.modules.get(_PYPLOT)
    if pyplot is not None:
        with contextlib.suppress(Exception):  # whatever the user has put in its place
            pyplot.close("all")


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


class Outcome(NamedTuple):
    """Status ("ok", "error", "exit"), value and error of a cell, whether a text was shortened, and pictures."""

    status: str
    value: str | None = None
    error: str | None = None
    shortened: bool = False
    pictures: Pictures = ((), 0)


def run_cell(source: str, name: str, namespace: dict[str, Any], keep: int, own: tuple[str, ...]) -> Outcome:
    """Run a cell; whatever it raises ends up in the outcome.

    `name` is its name in tracebacks, `keep` the maximum number of characters of value and error. Tracebacks leave out
    frames of files whose names do not begin with one of `own`.
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
        with contextlib.suppress(Exception):  # None, or whatever the user has put in its place
            stream.flush()  # type: ignore[union-attr]


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
_COMPILED = b"+"
_MOST_OF_AN_ERROR = 1 << 16


def run_setup(channel: Channel, length: int, namespace: dict[str, Any], own: tuple[str, ...]) -> Outcome:
    """Run the setup whose text is the next payload of the channel; the value of a last expression is not reported."""
    data = _compiled_apart(channel, length)
    if data[:1] != _COMPILED:
        return Outcome("error", None, data[1:].decode("utf-8", "replace") or "the setup was not compiled")
    try:
        code = marshal.loads(data[1:])
        del data  # it holds constants of the setup
        exec(code, namespace)
    except SystemExit as stop:
        return Outcome("exit", None, f"SystemExit: {stop.code!r}"[:_MOST_OF_AN_ERROR])
    except BaseException as error:  # the setup may raise anything
        return Outcome("error", None, *shorten(describe(error, own), _MOST_OF_AN_ERROR))
    return Outcome("ok")


def _compiled_apart(channel: Channel, length: int) -> bytes:
    """Compile the text in a child; returns `_COMPILED` and the code, or another byte and the error."""
    reading, writing = os.pipe()
    child = _fork()
    if child == 0:
        try:
            os.close(reading)
            with open(writing, "wb") as pipe:
                pipe.write(_compiled(channel.receive_payload(length, [])))
        finally:
            _leave(0)
    os.close(writing)
    try:
        with open(reading, "rb") as pipe:
            return pipe.read()
    finally:
        os.waitpid(child, 0)


def _compiled(text: bytes) -> bytes:
    try:
        code = compile(text.decode("utf-8", "surrogatepass"), NAME, "exec", dont_inherit=True)
        return _COMPILED + marshal.dumps(code)
    except BaseException as error:  # a syntax error, or code that is nested too deeply
        return b"!" + shorten(describe(error, (NAME,)), _MOST_OF_AN_ERROR)[0].encode("utf-8", "backslashreplace")


# What sessions find in their interpreter: variables, standard streams, /work, an empty `__main__`.

WORK = "/work"
"""A path that means each session's own directory, where the image has such a link."""
WORK_FD = 200
"""The descriptor of a session's directory; the link /work leads to it."""
_directory_variables = ["HOME", "TMPDIR"]
_streams: dict[int, io.TextIOWrapper] = {}
_retired: list[Any] = []  # buffers whose lock a lost thread may hold; deleting one would wait for it for ever


def furnish(config: dict[str, Any], directory: Callable[[], str]) -> None:
    """In the zygote: prepare the interpreter for all sessions; `directory` returns the session's, "" before it is one.

    Sessions inherit it all, and a fork is cheap where they change nothing.
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
        def __new__(cls, fileno: int, length: int, *flags: int, **options: int) -> SharedMapping:
            # one with flags or access of its own is left to the kernel, which has private ones
            if fileno != -1 or flags or options or length <= 0:
                return plain.__new__(cls, fileno, length, *flags, **options)
            file = _file_of_zeros(directory(), length)
            try:
                return plain.__new__(cls, file, length)
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
