"""Two runs never write into one folder, and no stage goes on after its pipeline was killed."""

import multiprocessing
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from arpo_trainer.folder_lock import LOCK, lock_folder
from arpo_trainer.preference.dpo_run import dpo
from arpo_trainer.run import pipeline
from arpo_trainer.run.sft_run import sft
from arpo_trainer.run.train import train


@pytest.mark.parametrize("command", [train, sft, dpo])
def test_a_second_run_in_a_folder_is_refused(command: Callable[[dict[str, Any]], Path], tmp_path: Path) -> None:
    common = {"model": "owner/no-such-model", "output_dir": str(tmp_path), "use_cpu": True, "threads": 1}
    data = {"data": "traces.jsonl"} if command is sft else {"env": "arpo/Arithmetic-v0"}
    with lock_folder(tmp_path), pytest.raises(BlockingIOError, match="another process is writing"):
        command({**common, **data})
    assert [path.name for path in tmp_path.iterdir()] == [LOCK]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent has ended")
def test_a_stage_ends_with_its_killed_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "stage"
    program.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    parent = multiprocessing.get_context("fork").Process(target=pipeline.run_command, args=(["train"],))
    parent.start()
    wait_for(lambda: (tmp_path / "pid").is_file() and (tmp_path / "pid").read_text().endswith("\n"))
    stage = psutil.Process(int((tmp_path / "pid").read_text()))
    parent.kill()
    parent.join()
    wait_for(lambda: not stage.is_running() or stage.status() == psutil.STATUS_ZOMBIE)


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
