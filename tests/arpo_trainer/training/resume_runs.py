"""Runs of `arpo train` in processes of their own, some of them killed: python resume_runs.py JOBS.json ENDS.json.

A job is {"arguments": of the command line, "kill": the step in which the process is killed, or null}. Importing takes
longer than a run of a tiny model, so that it is done once, and each run is a fork of what has been imported.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from arpo_trainer.cli.arpo_command import main
from arpo_trainer.training.trainer import ARPOTrainer


def run(job: dict[str, Any]) -> int:
    """Do a job in a process of its own; return how it ended, a signal as a negative number."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    _kill_in(job["kill"])
    os._exit(main(["--traceback", "train", *job["arguments"]]))


def _kill_in(step: int | None) -> None:
    ordinary = ARPOTrainer._compute_loss

    def killing(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.state.global_step + 1 == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return ordinary(self, *args, **kwargs)

    ARPOTrainer._compute_loss = killing  # type: ignore[method-assign]


if __name__ == "__main__":
    ends = [run(job) for job in json.loads(Path(sys.argv[1]).read_text())]
    Path(sys.argv[2]).write_text(json.dumps(ends))
