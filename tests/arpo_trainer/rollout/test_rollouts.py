"""Rollouts as a whole: the same tree whoever is faster, the right number of trajectories whatever breaks."""

import asyncio
import itertools
import os
import random
import signal
import threading
import time
from typing import Any

import pytest

import benchmarks.laboratory.paper_rows  # noqa: F401  (registers rows)
from arpo_env import ServiceError, Tool, ToolEnv, ToolResult
from arpo_env.event_loop import run
from arpo_trainer.algorithms.branching import ENTROPY_UNIT
from arpo_trainer.algorithms.registry import ALGORITHMS
from arpo_trainer.backends.base import Generation, OnWindow, Request
from arpo_trainer.rollout.engine import Engine, RolloutSettings
from arpo_trainer.rollout.live_trajectory import ConcurrencyLimits
from arpo_trainer.rollout.metrics import rollout_metrics
from arpo_trainer.tree import RolloutTree
from benchmarks.ray_world import CountingTool, SleepingPolicy


@pytest.fixture
def tokenizer(whole_tokenizer: Any) -> Any:
    return whole_tokenizer  # the policy below is a function of the ids


class Look(CountingTool):
    """The tool with a memory. `hurry` decides how long a call or a copy takes, or what breaks."""

    keeps_time = False

    def __init__(self, hurry: Any) -> None:
        super().__init__()
        self.hurry, self.last = hurry, ""

    async def call(self, **arguments: Any) -> ToolResult:
        shown, self.last = await super().call(**arguments), arguments["at"]
        await self.hurry(self)
        return shown

    async def fork(self, n: int) -> list[Tool]:
        await self.hurry(self)
        copies = [type(self)(self.hurry) for _ in range(n)]
        for copy in copies:
            copy.calls, copy.last = self.calls, self.last
        return list(copies)


class Writer(SleepingPolicy):
    """The policy whose turns and entropies are a function of the context and the seed; how long it takes is not."""

    def __init__(self, tokenizer: Any, hurry: random.Random) -> None:
        super().__init__(tokenizer, seconds=0.0, rows=100)
        self.hurry, self.most, self.now = hurry, 0, 0

    async def generate(self, request: Request, on_window: OnWindow | None = None) -> Generation:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(self.hurry.random() * 0.01)
        made = await super().generate(request, on_window)
        await asyncio.sleep(self.hurry.random() * 0.01)
        self.now -= 1
        return made


async def at_once(tool: Look) -> None:
    """Take no time."""


def slowly(rng: random.Random) -> Any:
    """Take some time, seldom a long one."""

    async def sleep(tool: Look) -> None:
        await asyncio.sleep(rng.random() ** 4 * 0.05)

    return sleep


def make_env(hurry: Any = at_once, look: Any = Look) -> ToolEnv:
    return ToolEnv("arpo/Arithmetic-v0", tools=[lambda: look(hurry)], max_tool_calls=5, max_turns=7)


def errors(trees: list[RolloutTree]) -> list[str | None]:
    """What made trajectories void."""
    return [trajectory.error for tree in trees for trajectory in tree.trajectories if not trajectory.valid]


def play(
    tokenizer: Any, speed: int = 0, groups: int = 2, env: ToolEnv | None = None, limits: Any = None, **settings: Any
) -> list[RolloutTree]:
    rng = random.Random(speed)
    env = env or make_env(slowly(rng))
    values: dict[str, Any] = {"num_generations": 8, "initial_rollouts": 3, **settings}
    engine = Engine(Writer(tokenizer, rng), tokenizer, env, RolloutSettings(**values), limits=limits or {})
    trees = asyncio.run(engine.rollout([env.tasks.task(number) for number in range(groups)], step=1))
    return [without_seconds(tree) for tree in trees]


def without_seconds(tree: RolloutTree) -> RolloutTree:
    """Take away what no two rollouts share: how long a tool took."""
    for span in tree.spans:
        if span.tool:
            span.tool["seconds"] = 0.0
    return tree


# one algorithm for each way of growing trees, those of `paper_rows` among them
GROWN = list({(row.budget, row.branch): name for name, row in reversed(ALGORITHMS.items())}.values())[::-1]


@pytest.mark.parametrize("algorithm", GROWN)
def test_a_tree_does_not_depend_on_who_was_faster(tokenizer: Any, algorithm: str) -> None:
    first, *others = (play(tokenizer, speed, algorithm=algorithm, branch_width=3) for speed in range(3))
    assert all(trees == first for trees in others)
    origins = [trajectory.origin for tree in first for trajectory in tree.trajectories]
    assert len(origins) == 16
    if (method := ALGORITHMS[algorithm].method) and method.roots_only:
        grown = [(tree, one.parent) for tree in first for one in tree.trajectories if one.parent is not None]
        assert {tree.trajectories[parent].origin for tree, parent in grown} == {"root"}
    assert ("branch" in origins) == (ALGORITHMS[algorithm].branch is not None)


def test_trees_depend_on_seed_step_and_group(tokenizer: Any) -> None:
    one, other = play(tokenizer, groups=2, seed=1), play(tokenizer, groups=2, seed=2)
    assert one[0].spans != other[0].spans
    assert one[0].spans != one[1].spans


def test_a_group_is_the_same_whoever_plays_it(tokenizer: Any) -> None:
    both = play(tokenizer, groups=2)
    env, settings = make_env(), RolloutSettings(num_generations=8, initial_rollouts=3)
    engine = Engine(Writer(tokenizer, random.Random(5)), tokenizer, env, settings)
    alone = asyncio.run(engine.rollout([env.tasks.task(1)], step=1, first_group=1))
    assert without_seconds(alone[0]) == both[1]


def test_the_probe_of_aepo_is_kept_and_decides_the_budget(tokenizer: Any) -> None:
    for tree in play(tokenizer, groups=4, algorithm="aepo", budget_beta=4.0):
        roots = tree.meta["roots"]
        rise = tree.meta["root_entropy"] - tree.meta["tool_entropy"]
        assert (roots > 4) == (rise > 0) or roots == 4
        assert sum(trajectory.origin == "root" for trajectory in tree.trajectories) == roots
        first = [span.entropies[0] for span in tree.path(0) if span.kind == "model"]
        assert tree.meta["root_entropy"] == pytest.approx(first[0] / ENTROPY_UNIT)


def families(tree: RolloutTree) -> dict[int, int]:
    """The branches of each root and all its descendants, by the span that the root starts with."""
    counts = dict.fromkeys(tree.starts(), 0)
    for number, start in enumerate(tree.starts()):
        counts[start] += tree.trajectories[number].origin == "branch"
    return counts


@pytest.mark.parametrize(
    ("settings", "most"),
    [
        *(({"algorithm": name}, 2) for name in ("arpo", "arpo-ranked", "random")),
        *(({"algorithm": name}, None) for name in ("tree-grpo", "treepo")),  # these have no quota
        ({"branch_quota": 1}, 1),
        ({"branch_quota": 0, "initial_rollouts": 2}, 6),
    ],
)
def test_branches_are_spread_over_the_roots(tokenizer: Any, settings: dict[str, Any], most: int | None) -> None:
    """M = 8 and N = 3: two branches a root, ceil(5 / 3), where every point passes."""
    trees = play(tokenizer, groups=8, branch_alpha=1.0, **settings)
    assert all(len(tree.trajectories) == 8 for tree in trees)
    found = max(count for tree in trees for count in families(tree).values())
    assert found == most if most else found > 2


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_aepo_s_penalty_decides_which_chains_branch_again(tokenizer: Any, beta: float) -> None:
    """With a budget_beta of 0, m = k / 2, and a default quota of one branch a root would do the penalty's work."""

    def consecutive(penalty: float) -> int:
        settings = {"algorithm": "aepo", "budget_beta": beta, "branch_penalty": penalty, "branch_alpha": 0.6}
        chains = [
            [span.decision.branches > 0 for span in tree.path(number) if span.decision]
            for tree in play(tokenizer, groups=6, **settings)
            for number in range(len(tree.trajectories))
        ]
        return sum(one and other for chain in chains for one, other in itertools.pairwise(chain))

    assert consecutive(1.0) == 0 < consecutive(0.0)


def test_a_quota_does_not_go_with_the_published_branches() -> None:
    with pytest.raises(ValueError, match="branch_quota=2 does not go with branch 'arpo-reference'"):
        RolloutSettings(algorithm="arpo-reference", branch_quota=2)


WENT = ("entropy rose", "score above threshold", "drawn", "chosen by rank", "every point branches")


# which reason it is, tests of the scores and of the budget hold
@pytest.mark.parametrize(
    "algorithm", ["arpo", "aepo", "random", "tree-grpo", "arpo-reference", "arpo-ranked", "treepo"]
)
def test_decisions_say_what_has_left(tokenizer: Any, algorithm: str) -> None:
    for tree in play(tokenizer, groups=4, algorithm=algorithm, branch_alpha=0.6):
        for span, decision in [(span, span.decision) for span in tree.spans if span.decision]:
            left_here = sum(trajectory.fork_span == span.index for trajectory in tree.trajectories)
            assert decision.branches == left_here
            assert (decision.reason in WENT) == (left_here > 0)


def test_the_best_points_get_the_budget_once_the_roots_have_ended(tokenizer: Any) -> None:
    for tree in play(tokenizer, groups=6, algorithm="arpo-ranked", branch_quota=0):
        roots = [number for number, trajectory in enumerate(tree.trajectories) if trajectory.origin == "root"]
        points = {span.index: span.decision for number in roots for span in tree.path(number) if span.decision}
        taken = [point.score for point in points.values() if point.branches]
        denied = [point.score for point in points.values() if point.reason == "budget spent"]
        assert not denied or min(taken) >= max(denied)
        metrics = rollout_metrics([tree])
        assert metrics["copies_unused"] == sum(event.copies for event in tree.timeline) - metrics["branches"]


def test_limits_hold(tokenizer: Any) -> None:
    rng = random.Random(0)
    now = most = 0

    async def counted(tool: Look) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(rng.random() * 0.01)
        now -= 1

    env = make_env(counted)
    writer = Writer(tokenizer, rng)
    settings = RolloutSettings(algorithm="grpo", num_generations=12)
    engine = Engine(writer, tokenizer, env, settings, limits={"look": 2, "generate": 3})
    trees = asyncio.run(engine.rollout([env.tasks.task(0)]))
    assert (most, writer.most) == (2, 3)
    waited = {event.kind for event in trees[0].timeline if event.waited > 0.001}
    assert {"tool", "generate"} <= waited


@pytest.mark.parametrize(("algorithm", "places", "waiting"), [("grpo", 1, 3 * 8 - 1), ("arpo", 8, 2 * 3)])
def test_few_places_for_trajectories_are_enough(tokenizer: Any, algorithm: str, places: int, waiting: int) -> None:
    trees = play(tokenizer, groups=3, algorithm=algorithm, limits={"trajectory": places})
    free = play(tokenizer, groups=3, algorithm=algorithm)
    assert trees == free
    starts = [event for tree in trees for event in tree.timeline if event.kind == "start"]
    assert len(starts) >= waiting  # the first ones, too, where a machine is slow


def test_limits_that_cannot_be_are_refused(tokenizer: Any) -> None:
    with pytest.raises(ValueError, match=r"limits allows 7 trajectories at once.*num_generations = 8"):
        play(tokenizer, limits={"trajectory": 7})
    with pytest.raises(ValueError, match="limits names serach; there are trajectory, generate"):
        play(tokenizer, limits={"serach": 2})


def test_a_turn_that_calls_several_tools_holds_a_place_of_each() -> None:
    async def most() -> int:
        limits, now, seen = ConcurrencyLimits({"search": 2, "python": 3}), 0, [0]

        async def turn(*kinds: str) -> None:
            nonlocal now
            async with limits.acquire(*kinds):
                now += "search" in kinds
                seen.append(now)
                await asyncio.sleep(0)
                now -= "search" in kinds

        orders = [("search", "python"), ("python", "search"), ("search",), ("python",)]
        await asyncio.wait_for(asyncio.gather(*(turn(*orders[n % 4]) for n in range(40))), 20)
        return max(seen)

    assert asyncio.run(most()) == 2


class Breaks:
    """Breaks the second call of an episode, once: it fails with this error, or hangs."""

    def __init__(self, error: Exception | None) -> None:
        self.error, self.whole = error, True

    async def __call__(self, tool: Look) -> None:
        if tool.calls == 2 and self.whole:
            self.whole = False
            if self.error:
                raise self.error
            await asyncio.Event().wait()


def test_what_broke_down_is_played_again(tokenizer: Any) -> None:
    whole = play(tokenizer, env=make_env(), algorithm="grpo")
    mended = play(tokenizer, env=make_env(Breaks(ServiceError("look", "gone"))), algorithm="grpo")
    assert mended == whole
    retries = [event.name for tree in mended for event in tree.timeline if event.kind == "retry"]
    assert retries == ["ServiceError"]


def test_what_may_not_be_called_twice_is_not(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Look, "repeatable", False)
    trees = play(tokenizer, env=make_env(Breaks(ServiceError("look", "gone"))), algorithm="grpo")
    assert errors(trees) == ["ServiceError: look: gone"]


def test_an_episode_that_shows_something_else_the_second_time_is_void(tokenizer: Any) -> None:
    answers = iter(range(10**6))

    class Counts(Look):
        async def call(self, **arguments: Any) -> ToolResult:
            await super().call(**arguments)
            return ToolResult(f"call {next(answers)} of all")

    env = make_env(Breaks(ServiceError("look", "gone")), Counts)
    (error,) = errors(play(tokenizer, env=env, algorithm="grpo"))
    assert "could not be replayed" in str(error)


def test_a_tool_that_hangs_is_given_up(tokenizer: Any) -> None:
    trees = play(tokenizer, env=make_env(Breaks(None)), algorithm="grpo", turn_timeout=1.5, retries=0)
    assert errors(trees) == ["TimeoutError: a tool took longer than turn_timeout = 1.5 s"]


@pytest.mark.parametrize("what", ["reset", "fork", "close"])
def test_nothing_of_a_tool_may_hang_for_ever(tokenizer: Any, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    real, calls = getattr(Look, what), iter(range(10**6))

    async def hangs_once(self: Look, *arguments: Any) -> Any:
        if next(calls) == 2:
            await asyncio.Event().wait()
        return await real(self, *arguments)

    monkeypatch.setattr(Look, what, hangs_once)
    assert not errors(play(tokenizer, env=make_env(), branch_alpha=0.6, turn_timeout=1.5))


def test_an_interrupted_rollout_leaves_nothing_open(tokenizer: Any) -> None:
    living: set[Look] = set()

    class Living(Look):
        async def reset(self, setup: str) -> None:
            living.add(self)

        async def close(self) -> None:
            await asyncio.sleep(0.01)
            living.discard(self)

    hanging = threading.Event()

    async def hangs(tool: Look) -> None:
        hanging.set()
        await asyncio.Event().wait()

    def interrupt() -> None:
        hanging.wait()
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    env = make_env(hangs, Living)
    settings = RolloutSettings(num_generations=8, initial_rollouts=4)
    engine = Engine(Writer(tokenizer, random.Random(0)), tokenizer, env, settings)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            run(engine.rollout([env.tasks.task(0)]))
    finally:
        signal.signal(signal.SIGINT, before)
    assert not living


def test_the_timeline_tells_what_every_trajectory_did(tokenizer: Any) -> None:
    (tree,) = play(tokenizer, groups=1)
    for number, trajectory in enumerate(tree.trajectories):
        own = [event for event in tree.timeline if event.trajectory == number]
        assert all(event.end >= event.start >= 0 and event.waited <= event.end - event.start + 1e-6 for event in own)
        shared = [] if trajectory.fork_span is None else tree.path_to(trajectory.fork_span)
        turns = sum(span.kind == "model" for span in tree.path(number)[len(shared) :])
        assert sum(event.kind == "generate" for event in own) == turns
        assert sum(event.kind == "tool" for event in own) + sum(event.kind == "answer" for event in own) == turns
        assert trajectory.origin == "branch" or own[0].kind in ("start", "reset")


class SometimesForks(Look):
    """Whether it can be forked depends on what it was asked last, not on when."""

    async def fork(self, n: int) -> list[Tool]:
        copies = await super().fork(n)
        if int(self.last) % 3 == 0:
            raise RuntimeError("something in it cannot be copied")
        return copies


@pytest.mark.parametrize("algorithm", ["arpo", "at2po", "vineppo", "aepo"])
def test_forks_that_fail_make_no_tree_depend_on_timing(tokenizer: Any, algorithm: str) -> None:
    def once(speed: int) -> list[RolloutTree]:
        env = make_env(slowly(random.Random(-speed)), SometimesForks)
        return play(tokenizer, speed, 3, env, algorithm=algorithm, branch_width=3, num_generations=12)

    first, *others = (once(speed) for speed in range(4))
    assert all(trees == first for trees in others)
    reasons = [span.decision.reason for tree in first for span in tree.spans if span.decision]
    assert any(reason.startswith("fork failed") for reason in reasons)


@pytest.mark.parametrize("room", [60, 75, 90])
def test_what_the_tree_says_was_shown_was_shown(tokenizer: Any, room: int) -> None:
    """Also where a word that there is no room would take more room than the result."""
    trees = play(tokenizer, groups=2, env=make_env(), algorithm="grpo", max_completion_length=room)
    spans = [span for tree in trees for span in tree.spans if span.kind == "environment"]
    assert spans
    assert [tokenizer.decode(span.ids) for span in spans] == [span.text for span in spans]
    assert max(len(tree.row(number).ids) for tree in trees for number in range(8)) <= room
