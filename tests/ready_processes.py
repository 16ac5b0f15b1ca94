"""Processes of their own for programs that train: forks of one that has imported the libraries, which takes seconds.

A program runs as with `python PROGRAM`: in its own folder, with its own arguments, variables and output. That a fresh
interpreter can import everything is what other tests see.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import runpy
import sys
from multiprocessing.context import ForkServerProcess
from pathlib import Path

_LIBRARIES = ["arpo_trainer.run.train", "arpo_trainer.evaluation.run_evaluation", "transformers.models.llama", "peft"]
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(_LIBRARIES)


def start(program: str, *arguments: str, folder: Path, said: Path, **variables: str) -> ForkServerProcess:
    """Start a program: a file, or the name of a module; what it prints is in the file `said`, errors in `said`.err."""
    process = _context.Process(target=_play, args=(program, arguments, folder, said, variables))
    process.start()
    return process


def run(program: str, *arguments: str, folder: Path, said: Path, **variables: str) -> str:
    """Run a program to its end, and return what it prints."""
    process = start(program, *arguments, folder=folder, said=said, **variables)
    process.join(300)
    process.kill()
    process.join()
    assert process.exitcode == 0, errors_of(said)
    return said.read_text(encoding="utf-8")


def errors_of(said: Path) -> str:
    """Return the end of what a program has said on standard error."""
    return said.with_suffix(".err").read_text(encoding="utf-8")[-3000:]


def _play(program: str, arguments: tuple[str, ...], folder: Path, said: Path, variables: dict[str, str]) -> None:
    os.chdir(folder)
    os.environ.update(variables)
    for number, file in enumerate((said, said.with_suffix(".err")), 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    sys.argv = [program, *arguments]
    try:
        if program.endswith(".py"):
            sys.path.insert(0, str(Path(program).parent))
            runpy.run_path(program, run_name="__main__")
        else:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()  # multiprocessing leaves them out
