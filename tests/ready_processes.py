"""Processes of their own for programs that train: forks of one that has imported the libraries, which takes seconds.

A program runs as with `python PROGRAM`: in its own folder, with its own arguments, variables and output. That a fresh
interpreter can import everything is what other tests see.
"""

import atexit
import gc
import multiprocessing
import os
import runpy
import socket
import sys
from multiprocessing.context import ForkServerProcess
from pathlib import Path

_LIBRARIES = ["arpo_trainer.run.train", "arpo_trainer.evaluation.eval_session", "transformers.models.llama", "peft"]
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


def run_ranks(program: str, *arguments: str, folder: Path, said: Path) -> None:
    """Run a program as the two ranks of one group to their end; what they print is in the folder `said`."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    group |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    outputs = [said / f"rank{rank}.out" for rank in range(2)]
    ranks = [
        start(program, *arguments, folder=folder, said=output, RANK=str(rank), LOCAL_RANK=str(rank), **group)
        for rank, output in enumerate(outputs)
    ]
    for process in ranks:
        process.join(300)
        process.kill()
    assert [process.exitcode for process in ranks] == [0, 0], [errors_of(output) for output in outputs]


def errors_of(said: Path) -> str:
    """Return the end of what a program has said on standard error."""
    return said.with_suffix(".err").read_text(encoding="utf-8")[-3000:]


def _play(program: str, arguments: tuple[str, ...], folder: Path, said: Path, variables: dict[str, str]) -> None:
    gc.freeze()  # what has been imported is not looked through again
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
