"""For any hostile program: its origin and its sibling return what they do without it, and nothing is left behind."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import pytest
from attacks.fortress import TOOLS, Fortress
from attacks.statements import HONEST, PAIRS, PLANTS, STRIKES
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sandbox_under_test import open_or_skip

import arpo_env  # noqa: F401  (registers the environments)
from envs_registry import Task
from sandbox import Execution, ForkError, Limits, SyncInterpreter

LIMITS = Limits(memory="1g", session_memory=256 << 20, processes=64, disk=32 << 20, file_size=24 << 20, grace=0.3)
TASK = Task("t", "How many?", ("4",), kind="math")
START = """
kept, items, n = [], [1, 2, 3], 0
numbers = iter(range(100))
"""
PATIENCE = 0.7


Program = tuple[list[str], list[str]]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Return what runs before the fork, and in the branch after it: each statement is a cell of its own."""
    pairs = draw(st.lists(st.sampled_from(PAIRS), min_size=1, max_size=3))
    before = [plant for plant, _ in pairs] + draw(st.lists(st.sampled_from(PLANTS + HONEST), max_size=3))
    after = [strike for _, strike in pairs] + draw(st.lists(st.sampled_from(STRIKES + HONEST), max_size=4))
    return draw(st.permutations(before)), draw(st.permutations(after))


cells = st.lists(st.sampled_from(PLANTS + STRIKES + HONEST), min_size=1, max_size=6)
hostile = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module", params=[pytest.param("docker", marks=pytest.mark.docker), "bubblewrap"])
def fortress(request: pytest.FixtureRequest) -> Iterator[Fortress]:
    opened = open_or_skip(request.param, LIMITS, containers=1)
    yield Fortress(opened, "the client's own secret")
    opened.close_sync()


def run_all(session: SyncInterpreter, cells: list[str]) -> bool:
    """Run cells until the session ends, each with a result of its own; return whether it lives."""
    for cell in cells:
        execution = session.run(cell, timeout=PATIENCE)
        assert isinstance(execution, Execution)
        if not execution.alive:
            return False
    return True


def begin(session: SyncInterpreter, name: str) -> None:
    """Give a session something of its own."""
    assert session.run(f"import os\nmine = {name!r}; _ = open('own', 'w').write(mine)").status == "ok"


def check(session: SyncInterpreter, name: str) -> None:
    """See that an honest cell gives what it has to."""
    execution = session.run("print(len(mine))\nmine, open('own').read(), os.path.exists('stolen')")
    found = (execution.status, execution.stdout, execution.stderr, execution.value)
    assert found == ("ok", f"{len(name)}\n", "", repr((name, name, False))), execution


@hostile
@given(program=programs())
def test_a_hostile_branch_changes_nothing_for_the_others(fortress: Fortress, program: Program) -> None:
    before, after = program
    with contextlib.ExitStack() as stack:
        origin = stack.enter_context(fortress.sandbox.interpreter_sync(TOOLS))
        if not run_all(origin, [START, *before]):
            return
        attacker, sibling = (stack.enter_context(copy) for copy in origin.fork(2))
        others = {"origin": origin, "sibling": sibling}
        for name, session in others.items():
            begin(session, name)
        run_all(attacker, after)
        for name, session in others.items():
            check(session, name)
    fortress.sentinel.check()
    fortress.check_recovered()


def take_step(env: Any, code: str) -> None:
    _, _, terminated, truncated, _ = env.step(f"<think>c</think><python>{code}</python>")
    assert not terminated
    assert not truncated
    if "Timer" in code:
        time.sleep(0.1)  # so that it happens between the cells


@hostile
@given(before=cells, after=cells)
def test_a_hostile_program_never_makes_a_step_fail(fortress: Fortress, before: list[str], after: list[str]) -> None:
    env: Any = gym.make(
        "arpo/Arithmetic-v0", tool_timeout=PATIENCE, max_turns=40, max_tool_calls=40, sandbox=fortress.sandbox
    )
    env.reset(options={"task": TASK})
    branches = [env]
    try:
        for code in (TOOLS, START, *before):
            take_step(env, code)
        with contextlib.suppress(ForkError):
            branches.append(env.unwrapped.fork())
        for branch in branches:
            for code in after:
                take_step(branch, code)
            _, reward, terminated, _, _ = branch.step("<think>d</think><answer>\\boxed{4}</answer>")
            assert (reward, terminated) == (1.0, True)
    finally:
        for branch in branches:
            branch.close()
    fortress.sentinel.check()
    fortress.check_recovered()
