"""The engine: trees of the right size and shape, branched by the paper's rule, from live episodes."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from arpo_env import ToolEnv
from arpo_trainer.backends.base import Generation, GenerationError, Request
from arpo_trainer.rollout.engine import Engine, Group, RolloutSettings
from arpo_trainer.rollout.live_trajectory import ConcurrencyLimits, LiveEpisode, PlayedTurn, ReplayError, replay
from arpo_trainer.tree import RolloutTree
from envs_registry import Task
from sandbox import SessionLost
from tests.arpo_trainer.text_policy import TextPolicy

TASK = Task("t", "How long is the list?", ("3",), kind="math", setup="items = [1, 2, 3]")
CALL = "<think>c</think><python>items.append(1); len(items)</python>"
DONE = "<think>d</think><answer>\\boxed{3}</answer>"


@dataclass
class ScriptedPolicy(TextPolicy):
    """Writes given turns with given entropies: the n-th turn of a conversation is `turns[n]`."""

    tokenizer: Any
    turns: Sequence[str]
    entropies: Sequence[float]
    seen: list[Request] = field(default_factory=list)

    async def generate(self, request: Request, on_window: Any = None) -> Generation:
        self.seen.append(request)
        await asyncio.sleep(0)
        turn = self.tokenizer.decode(request.ids).count("<result>\n")
        turn = min(turn, len(self.turns) - 1)
        return self.said(request, self.turns[turn], self.entropies[turn], on_window)


def play(
    env: ToolEnv, policy: Any, tokenizer: Any, tasks: Sequence[Task] = (TASK,), **settings: Any
) -> list[RolloutTree]:
    values = {"num_generations": 4, "initial_rollouts": 2, "branch_alpha": 0.5, "branch_threshold": 0.5, **settings}
    return asyncio.run(Engine(policy, tokenizer, env, RolloutSettings(**values)).rollout(tasks))


def origins(tree: RolloutTree) -> list[str]:
    return sorted(trajectory.origin for trajectory in tree.trajectories)


def test_entropy_that_rises_after_the_result_branches(env: ToolEnv, tokenizer: Any) -> None:
    policy = ScriptedPolicy(tokenizer, [CALL, DONE], [0.1, 2.0])
    tree = play(env, policy, tokenizer)[0]
    assert origins(tree) == ["branch", "branch", "root", "root"]
    decided = [span.decision for span in tree.spans if span.decision]
    assert [decision.reason for decision in decided] == ["entropy rose"] * 2
    assert all(decision.score > decision.threshold and decision.delta > 0 for decision in decided)


def test_entropy_that_falls_does_not_and_the_budget_goes_to_fresh_roots(env: ToolEnv, tokenizer: Any) -> None:
    tree = play(env, ScriptedPolicy(tokenizer, [CALL, DONE], [2.0, 0.1]), tokenizer)[0]
    assert origins(tree) == ["root", "root", "top-up", "top-up"]
    assert {span.decision.branches for span in tree.spans if span.decision} == {0}


def test_a_branch_shares_the_tokens_before_it_and_lives_in_its_own_world(env: ToolEnv, tokenizer: Any) -> None:
    policy = ScriptedPolicy(tokenizer, [CALL, CALL, DONE], [0.1, 2.0, 0.1])
    tree = play(env, policy, tokenizer, num_generations=2, initial_rollouts=1)[0]
    branch = next(number for number, t in enumerate(tree.trajectories) if t.origin == "branch")
    fork = tree.trajectories[branch].fork_span
    assert fork is not None
    shared = sum(len(span.ids) for span in tree.path_to(fork))
    assert tree.row(0).ids[:shared] == tree.row(1).ids[:shared]
    assert tree.row(0).span[shared] != tree.row(1).span[shared]
    # each saw its own second call make the list 5 long: neither saw the other's
    results = [[span.text for span in tree.path(number) if span.kind == "environment"] for number in (0, 1)]
    assert results[0] == results[1] == ["\n<result>\n4\n</result>\n", "\n<result>\n5\n</result>\n"]


def test_no_two_requests_for_the_same_context_share_a_seed(env: ToolEnv, tokenizer: Any) -> None:
    policy = ScriptedPolicy(tokenizer, [CALL, CALL, DONE], [0.1, 2.0, 3.0])
    play(env, policy, tokenizer, tasks=[TASK, TASK], num_generations=6)
    assert len({request.seed for request in policy.seen}) == len(policy.seen)


def test_a_failure_before_the_first_token_still_makes_a_row(env: ToolEnv, tokenizer: Any, monkeypatch: Any) -> None:
    real, calls = ToolEnv.areset, []

    async def failing(self: ToolEnv, **options: Any) -> Any:
        calls.append(options)
        if len(calls) == 1:
            raise SessionLost("gone")
        return await real(self, **options)

    monkeypatch.setattr(ToolEnv, "areset", failing)
    settings = {"algorithm": "grpo", "max_invalid": 0.3, "retries": 0}
    tree = play(env, ScriptedPolicy(tokenizer, [DONE], [1.0]), tokenizer, **settings)[0]
    number = [trajectory.valid for trajectory in tree.trajectories].index(False)
    assert tree.row(number).mask == [0]


def test_if_too_much_fails_the_rollout_stops(env: ToolEnv, tokenizer: Any, monkeypatch: Any) -> None:
    async def failing(self: ToolEnv, action: str) -> Any:
        raise SessionLost("the container is gone")

    monkeypatch.setattr(ToolEnv, "astep", failing)
    with pytest.raises(RuntimeError, match=r"4 of 4 trajectories failed, more than max_invalid = 0\.2"):
        play(env, ScriptedPolicy(tokenizer, [DONE], [1.0]), tokenizer)


def test_a_failing_model_ends_the_rollout(env: ToolEnv, tokenizer: Any) -> None:
    class Broken(TextPolicy):
        async def generate(self, request: Request, on_window: Any = None) -> Generation:
            raise IndexError("index 9 is out of range")

    with pytest.raises(GenerationError, match="generation failed: IndexError: index 9") as caught:
        play(env, Broken(), tokenizer)
    assert isinstance(caught.value.__cause__, IndexError)  # with the traceback of the model
    assert caught.value.__cause__.__traceback__


def test_a_turn_is_cut_short_also_by_the_environment_s_own_limit(env: ToolEnv, tokenizer: Any) -> None:
    tree = play(env, ScriptedPolicy(tokenizer, [DONE], [1.0]), tokenizer, max_turn_length=5)[0]
    assert {(trajectory.outcome, trajectory.reward) for trajectory in tree.trajectories} == {("truncated", -1.0)}
    limited = ToolEnv("arpo/Arithmetic-v0", level=3, max_tokens=60)
    tree = play(limited, ScriptedPolicy(tokenizer, [CALL], [0.1]), tokenizer, max_completion_length=1024)[0]
    assert all(len(tree.row(number).ids) <= 60 for number in range(len(tree.trajectories)))
    assert {trajectory.outcome for trajectory in tree.trajectories} == {"truncated"}


@dataclass
class ShortPolicy(ScriptedPolicy):
    """A model whose turns end where its context does, and that takes no full one."""

    max_context: int = 0

    async def generate(self, request: Request, on_window: Any = None) -> Generation:
        room = self.max_context - len(request.ids)
        assert room > 0
        return await super().generate(replace(request, max_tokens=min(request.max_tokens, room)), on_window)


def test_a_trajectory_ends_where_the_context_of_the_model_does(env: ToolEnv, tokenizer: Any) -> None:
    prompt = len(play(env, ScriptedPolicy(tokenizer, [DONE], [0.1]), tokenizer)[0].prompt_ids)
    whole = len(tokenizer(CALL)["input_ids"])
    for room in (whole - 1, whole, whole + 1, whole + 20, 2 * whole + 5, 3 * whole):
        policy = ShortPolicy(tokenizer, [CALL], [0.1], max_context=prompt + room)
        tree = play(env, policy, tokenizer, max_completion_length=4096)[0]
        assert {trajectory.outcome for trajectory in tree.trajectories} == {"truncated"}
        assert max(len(tree.row(number).ids) for number in range(len(tree.trajectories))) <= room


class FindingPolicy(ScriptedPolicy):
    """Writes the turns of a solution, one after each result."""

    async def generate(self, request: Request, on_window: Any = None) -> Generation:
        turn = self.tokenizer.decode(request.ids).count("<tool_call_result>\n")
        return self.said(request, self.turns[turn], self.entropies[turn], on_window)


def solution(env: ToolEnv, index: int) -> list[str]:
    turns = []
    for step in env.tasks.steps(index):
        call = json.dumps({"name": step.tool, "arguments": step.arguments})
        turns += [f"<tool_search>{step.query}</tool_search>", f"<tool_call>{call}</tool_call>"]
    return [*turns, f"\\boxed{{{env.tasks.task(index).answers[0]}}}"]


def test_an_episode_that_is_played_again_has_found_the_same() -> None:
    env = ToolEnv("arpo/ToolWorld-v0", level="1", tool_results=2)
    env.reset(options={"index": 3})
    history = []
    for text in solution(env, 3)[:-1]:
        env.step(text)
        history.append(PlayedTurn(text, 10_000, env.episode.turns[-1].result))
    episode = LiveEpisode(env, retries=1, begun=True)
    assert episode.may_replay(OSError("lost"))  # found tools of a world in memory may be called twice
    fresh = env.spawn()
    asyncio.run(replay(fresh, env.tasks.task(3), history))
    assert set(fresh.tools["tool_search"].found) == set(env.tools["tool_search"].found)


def test_another_picture_is_another_result(tmp_path: Path) -> None:
    Image.new("RGB", (40, 40), "red").save(tmp_path / "a.png")
    task = Task("1", "Which colour?", ("red",), files=(str(tmp_path / "a.png"),))
    env = ToolEnv("arpo/Arithmetic-v0", tools=["read_file"], show_images=True)
    env.reset(options={"task": task})
    env.step('<think>l</think><read_file>{"file": "a.png"}</read_file>')
    env.episode.tokens_left = 4000
    episode = LiveEpisode(env, begun=True)
    episode.record(withheld=False)
    asyncio.run(replay(env.spawn(), task, episode.history))
    Image.new("RGB", (40, 40), "blue").save(tmp_path / "a.png")  # its text is the same
    with pytest.raises(ReplayError, match="turn 0"):
        asyncio.run(replay(env.spawn(), task, episode.history))


def test_the_first_turn_is_the_opening_and_what_was_sampled(env: ToolEnv, tokenizer: Any) -> None:
    opening, rest = (
        tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
        for text in ("<think>I compute it. ", "Now.</think><python>1 + 1</python>")
    )
    policy = ScriptedPolicy(tokenizer, [tokenizer.decode(rest), DONE], [0.5, 0.5])
    settings = RolloutSettings(algorithm="grpo", num_generations=1, max_completion_length=200)
    group = Group(Engine(policy, tokenizer, env, settings), ConcurrencyLimits({"trajectory": 8}), TASK, 0, 0, opening)
    asyncio.run(group.grow())
    tree = group.tree
    first, second = policy.seen
    assert first.ids == (*tree.prompt_ids, *opening)
    assert first.max_tokens == 200 - len(opening)
    turn, result, answer = tree.spans
    assert tuple(turn.ids) == (*opening, *rest)
    assert turn.logprobs == [0.0] * len(opening) + [-0.1] * (len(turn.ids) - len(opening))
    assert turn.entropies[: len(opening)] == [0.0] * len(opening)
    assert result.tool["status"] == "ok"
    assert second.ids == (*tree.prompt_ids, *turn.ids, *result.ids)
    assert answer.text == DONE
    assert tree.meta["opening"] == len(opening)


def test_an_algorithm_that_compares_first_tokens_takes_none(env: ToolEnv, tokenizer: Any) -> None:
    engine = Engine(TextPolicy(), tokenizer, env, RolloutSettings(num_generations=2))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="only 'grpo' takes an opening"):
        Group(engine, ConcurrencyLimits({}), TASK, 0, 0, (5, 6))
