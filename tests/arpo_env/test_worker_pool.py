"""Jobs in child processes: replies, time limits, replacement, closing; crashes are tested with those of algebra."""

import asyncio
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from arpo_env.worker_pool import PoolClosed, WorkerPool, WorkerStartError, WorkerTimeout
from tests.waiting import wait_for

CHILD = """
import os, struct, sys, time
def send(reply):
    sys.stdout.buffer.write(struct.pack("!I", len(reply)) + reply); sys.stdout.buffer.flush()
send(b"")
while length := sys.stdin.buffer.read(4):
    job = sys.stdin.buffer.read(struct.unpack("!I", length)[0])
    if job == b"hang": time.sleep(60)
    send(b"%d %d" % (os.getpid(), len(job)))
"""


def pool(child: str = CHILD, **options: Any) -> WorkerPool:
    return WorkerPool([sys.executable, "-c", child], **{"processes": 1, "seconds": 2.0, **options})


def ask(workers: WorkerPool, job: bytes = b"job") -> tuple[int, int]:
    pid, length = asyncio.run(workers.run(job)).split()
    return int(pid), int(length)


def test_a_child_that_does_not_read_holds_nobody_and_is_ended() -> None:
    workers = pool("import os, time; os.write(1, bytes(4)); time.sleep(60)", seconds=1.0)
    with pytest.raises(WorkerTimeout, match="more than 1 s"):
        ask(workers, bytes(5_000_000))
    assert not workers.pids


def test_a_worn_out_process_is_replaced() -> None:
    workers = pool(worn_out=lambda jobs, reply: jobs == 2 or reply.endswith(b" 4"))
    pids, lengths = zip(*(ask(workers, job) for job in (b"", b"", b"", b"four", b"")), strict=True)
    assert lengths == (0, 0, 0, 4, 0)
    assert len(set(pids)) == 3
    assert pids[0] == pids[1]
    assert pids[2] == pids[3]
    workers.close()


@pytest.mark.parametrize("deaths", [1, 3])
def test_a_process_that_is_killed_while_it_starts_is_started_again(tmp_path: Path, deaths: int) -> None:
    dying = (
        "import os, pathlib, signal\n"
        f"born = pathlib.Path({str(tmp_path)!r}, str(os.getpid())); born.touch()\n"
        f"if len(list(born.parent.iterdir())) <= {deaths}: os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    workers = pool(dying + CHILD, seconds=20.0)
    if deaths == 1:
        assert ask(workers)[1] == 3
    else:
        with pytest.raises(WorkerStartError, match="killed while it started, 3 times"):
            ask(workers)
    workers.close()


def test_closing_ends_jobs_under_way() -> None:
    workers = pool(seconds=30.0)
    first, _ = ask(workers)
    threading.Timer(0.3, workers.close).start()
    with pytest.raises(PoolClosed):
        ask(workers, b"hang")
    wait_for(lambda: not Path(f"/proc/{first}").exists())
    with pytest.raises(PoolClosed):
        ask(workers)
