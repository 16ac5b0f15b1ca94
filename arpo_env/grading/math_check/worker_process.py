"""The child process that runs symbolic checks; see `arpo_env.worker_pool` for how jobs arrive.

It limits its own memory, and the kernel ends it if a check takes too much CPU time, or its parent is gone.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import struct
import sys
from typing import Any, BinaryIO

_MARGIN = 1.0  # seconds after which the parent should have killed this process


def main(memory: int, cpu: float, wall: float) -> None:
    """Serve checks until the input ends.

    Args:
        memory: maximum address space in bytes.
        cpu: seconds of CPU time that one check may take.
        wall: seconds that one check may take on a busy machine.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    for number in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, signal.SIG_DFL)  # a handler in Python would wait for the arithmetic to return
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    jobs, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not be read as a reply
    _warm_up()
    _send(replies, b"")
    while len(length := jobs.read(4)) == 4:
        job = json.loads(jobs.read(struct.unpack("!I", length)[0]))
        _send(replies, json.dumps(_check(job, cpu, wall)).encode())


def _send(replies: BinaryIO, reply: bytes) -> None:
    replies.write(struct.pack("!I", len(reply)) + reply)
    replies.flush()


def _warm_up() -> None:
    from arpo_env.grading.math_check.symbolic_equality import same_mathematics

    for answer, gold in (("\\frac{2}{4}", "\\frac{1}{2}"), ("2*sqrt(3)", "\\sqrt{12}"), ("2<x<3", "(2,3)")):
        same_mathematics(answer, gold)


def _check(job: dict[str, Any], cpu: float, wall: float) -> dict[str, Any]:
    from arpo_env.grading.math_check.symbolic_equality import same_mathematics

    signal.setitimer(signal.ITIMER_PROF, cpu)
    signal.setitimer(signal.ITIMER_REAL, wall + _MARGIN)
    try:
        return {"same": same_mathematics(job["answer"], job["gold"], job["by_text"])}
    except RecursionError:
        return {"same": False}  # the same every time, and no right answer is nested that deeply
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:300]}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
