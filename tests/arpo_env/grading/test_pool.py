"""The supervised processes: right from many threads, never a 0 for the machine's failures, safe after a fork."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from arpo_env.grading import GradingError
from arpo_env.grading.check_pool import MEMORY, CheckPool, shared_pool
from arpo_env.grading.math_grader import MathGrader
from envs_registry import Task
from tests.arpo_env.forks import holds_in_a_child
from tests.waiting import has_ended, wait_for

SLOW = r"\cup".join(f"({number},{number}.5)" for number in range(6000))  # the pool itself has no guard
HUGE = r"\binom{10^7}{5\cdot10^6}"
FORMULA = r"\sqrt{2}"


@pytest.fixture(scope="module")
def pool() -> Iterator[CheckPool]:
    made = CheckPool(workers=2, seconds=0.3)
    yield made
    made.close()


def check(pool: CheckPool, answer: str, gold: str) -> bool:
    return asyncio.run(pool.check(answer, gold))


@pytest.mark.parametrize(("expensive", "reason"), [(SLOW, r"more than 0\.3 s"), (HUGE, "TooLarge")])
def test_an_expensive_answer_is_wrong_and_an_expensive_gold_invalid(
    pool: CheckPool, expensive: str, reason: str
) -> None:
    start, ordinary = time.monotonic(), "(0,1)" if expensive == SLOW else FORMULA
    assert check(pool, expensive, ordinary) is False
    with pytest.raises(GradingError, match=f"cannot be evaluated: {reason}"):
        check(pool, ordinary, expensive)
    with pytest.raises(GradingError):  # the grader passes it on; where the gold is absurd, its guard stands aside
        asyncio.run(MathGrader(pool).grade("9", Task("t", "q", (HUGE,), kind="math")))
    assert time.monotonic() - start < 30
    assert check(pool, r"\sqrt{12}", r"2\sqrt{3}")


def test_what_keeps_killing_workers_makes_a_check_invalid_never_a_zero(pool: CheckPool) -> None:
    over = threading.Event()

    def kill() -> None:
        while not over.wait(0.05):
            for pid in pool._pool.pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(GradingError, match="killed"):
        check(pool, SLOW, FORMULA)
    over.set()
    killer.join()
    assert check(pool, r"\sqrt{12}", r"2\sqrt{3}")


def test_sixty_four_threads_with_poison_among_them_and_little_memory(pool: CheckPool) -> None:
    def one(number: int) -> object:
        if number % 64 == 5:
            try:
                return check(pool, "(0,1)", SLOW)
            except GradingError:
                return "invalid"
        return check(pool, f"\\sqrt{{{number * number * 3}}}", f"{number + number % 2}\\sqrt{{3}}")

    with ThreadPoolExecutor(64) as threads:
        found = list(threads.map(one, range(1, 129)))
    wanted = ["invalid" if n % 64 == 5 else n % 2 == 0 for n in range(1, 129)]
    assert found == wanted
    assert check(pool, r"\sqrt{12}", r"2\sqrt{3}")
    limits = Path(f"/proc/{pool._pool.pids[0]}/limits").read_text(encoding="utf-8")
    assert f"{MEMORY}" in next(line for line in limits.splitlines() if line.startswith("Max address space"))


def test_after_os_fork_the_child_has_its_own_processes_and_after_close_none_are_left() -> None:
    assert check(shared_pool(), r"\sqrt{12}", r"2\sqrt{3}")
    before = shared_pool()._pool.pids

    def apart() -> bool:
        right, own = check(shared_pool(), r"\sqrt{12}", r"2\sqrt{3}"), set(shared_pool()._pool.pids)
        shared_pool().close()
        return right and not own & set(before)

    assert holds_in_a_child(apart)
    assert shared_pool()._pool.pids == before
    assert check(shared_pool(), r"\sqrt{12}", r"2\sqrt{3}")
    closed = CheckPool(workers=1)
    closed.close()
    with pytest.raises(GradingError, match="closed"):  # refused, not wrong
        check(closed, r"\sqrt{12}", r"2\sqrt{3}")


def test_no_process_is_left_when_the_parent_is_killed(tmp_path: Path) -> None:
    program = "import asyncio, time; from arpo_env.grading.check_pool import CheckPool; pool = CheckPool(1); "
    program += "asyncio.run(pool.check('x', 'y')); print(pool._pool.pids[0], flush=True); time.sleep(60)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment)
    worker = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_for(lambda: has_ended(worker))
