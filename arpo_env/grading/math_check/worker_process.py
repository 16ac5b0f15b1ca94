"""The process that does symbolic checks: one JSON line in, one out, until its input ends.

Started by `process_pool`. It limits its own memory and kills itself when a check runs too long, so that
nothing is left over when the parent dies.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from typing import Any

_MARGIN = 1.0  # seconds after the parent should have ended this process


def main(memory: int) -> None:
    """Serve until the input ends.

    Args:
        memory: most bytes of address space.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints must not be read as a reply
    _warm()
    replies.write("ready\n")
    replies.flush()
    for line in sys.stdin:
        replies.write(json.dumps(_check(json.loads(line))) + "\n")
        replies.flush()


def _warm() -> None:
    from arpo_env.grading.math_check.symbolic_equality import same_mathematics

    for answer, gold in (("\\frac{2}{4}", "\\frac{1}{2}"), ("2*sqrt(3)", "\\sqrt{12}"), ("2<x<3", "(2,3)")):
        same_mathematics(answer, gold)


def _check(request: dict[str, Any]) -> dict[str, Any]:
    from arpo_env.grading.math_check.symbolic_equality import same_mathematics

    signal.setitimer(signal.ITIMER_REAL, request["seconds"] + _MARGIN)
    try:
        return {"same": same_mathematics(request["answer"], request["gold"])}
    except RecursionError:
        return {"same": False}  # the same every time, and no right answer is nested that deeply
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:300]}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
