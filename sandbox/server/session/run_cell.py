"""Runs one cell of code in a namespace, as a read-eval-print loop does. Runs inside the sandbox.

All statements are executed, except a last expression: it is evaluated, and its `repr` is the value. Tracebacks show
only the frames of the user's own code.
"""

from __future__ import annotations

import ast
import builtins
import linecache
import os
import sys
import traceback
from typing import Any, NamedTuple

from sandbox.server.session.pictures import Pictures, close_figures, collect


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
