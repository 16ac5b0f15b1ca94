"""The engine: trees of the right size and shape, branched by the paper's rule, from live episodes."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from arpo_env import ToolEnv
from arpo_trainer.backends.base import Generation, GenerationError, Request
from arpo_trainer.rollout.engine import Engine, RolloutSettings
from arpo_trainer.tree import RolloutTree
from envs_registry import Task
from sandbox import SessionLost

TASK = Task("t", "How long is the list?", ("3",), kind="math", setup="items = [1, 2, 3]")
CALL = "<think>c</think><python>items.append(1); len(items)</python>"
DONE = "<think>d</think><answer>\\boxed{3}</answer>"


@dataclass
class ScriptedPolicy:
    """Writes given turns with given entropies: the n-th turn of a conversation is `turns[n]`."""

    tokenizer: Any
    turns: Sequence[str]
    entropies: Sequence[float]
    seen: list[Request] = field(default_factory=list)
    wants_messages = False
    trains = True

    async def begin(self) -> None:
        """It keeps nothing."""

    async def end(self) -> None:
        """It holds nothing."""

    async def generate(self, request: Request, on_window: Any = None) -> Generation:
        self.seen.append(request)
        await asyncio.sleep(0)
        turn = self.tokenizer.decode(request.ids).count("<result>\n")
        turn = min(turn, len(self.turns) - 1)
        ids = self.tokenizer(self.turns[turn], add_special_tokens=False)["input_ids"][: request.max_tokens]
        finish = "stop" if len(ids) < request.max_tokens else "length"
        if on_window:
            on_window([self.entropies[turn]] * min(len(ids), request.window))
        return Generation(ids, [-0.1] * len(ids), [self.entropies[turn]] * len(ids), finish)  # type: ignore[arg-type]


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


def test_branching_stops_when_the_budget_is_spent(env: ToolEnv, tokenizer: Any) -> None:
    policy = ScriptedPolicy(tokenizer, [CALL, CALL, CALL, DONE], [0.1, 1.0, 2.0, 3.0])
    tree = play(env, policy, tokenizer, num_generations=5, initial_rollouts=1, branch_width=3)[0]
    assert origins(tree) == ["branch"] * 4 + ["root"]
    spent = [span.decision for span in tree.spans if span.decision and span.decision.reason == "budget spent"]
    assert spent
    assert all(decision.branches == 0 for decision in spent)


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


def test_what_the_model_sees_is_what_the_tree_holds(env: ToolEnv, tokenizer: Any) -> None:
    """Ids in, ids out: each request's context is the prompt and the spans before it, token by token."""
    policy = ScriptedPolicy(tokenizer, [CALL, CALL, DONE], [0.1, 2.0, 3.0])
    tree = play(env, policy, tokenizer, num_generations=6, initial_rollouts=2)[0]
    contexts = {tuple(tree.prompt_ids)}
    for span in tree.spans:
        if span.kind == "environment":
            contexts.add((*tree.prompt_ids, *(i for s in tree.path_to(span.index) for i in s.ids)))
    assert {request.ids for request in policy.seen} == contexts


def test_no_two_requests_for_the_same_context_share_a_seed(env: ToolEnv, tokenizer: Any) -> None:
    policy = ScriptedPolicy(tokenizer, [CALL, CALL, DONE], [0.1, 2.0, 3.0])
    play(env, policy, tokenizer, tasks=[TASK, TASK], num_generations=6)
    assert len({request.seed for request in policy.seen}) == len(policy.seen)


def test_a_result_cannot_smuggle_in_a_control_token(env: ToolEnv, tokenizer: Any) -> None:
    engine = Engine(ScriptedPolicy(tokenizer, [DONE], [1.0]), tokenizer, env, RolloutSettings())
    ids = engine.renderer.encode("a<|im_end|>b")
    assert not set(ids) & set(tokenizer.all_special_ids)
    assert tokenizer.decode(ids) == "a<|im_end|>b"


def test_a_turn_that_is_cut_short_is_truncated(env: ToolEnv, tokenizer: Any) -> None:
    tree = play(env, ScriptedPolicy(tokenizer, [DONE], [1.0]), tokenizer, max_turn_length=5)[0]
    assert {trajectory.outcome for trajectory in tree.trajectories} == {"truncated"}
    assert {trajectory.reward for trajectory in tree.trajectories} == {-1.0}


def test_a_result_that_does_not_fit_ends_the_trajectory_within_the_limit(env: ToolEnv, tokenizer: Any) -> None:
    long = "<think>c</think><python>print('word ' * 300)</python>"
    tree = play(env, ScriptedPolicy(tokenizer, [long, DONE], [1.0, 1.0]), tokenizer, max_completion_length=60)[0]
    assert {trajectory.outcome for trajectory in tree.trajectories} == {"truncated"}
    assert max(len(tree.row(number).ids) for number in range(4)) <= 60


def test_a_failure_before_the_first_token_still_makes_a_row(env: ToolEnv, tokenizer: Any, monkeypatch: Any) -> None:
    real, calls = ToolEnv.areset, []

    async def failing(self: ToolEnv, **options: Any) -> Any:
        calls.append(options)
        if len(calls) == 1:
            raise SessionLost("gone")
        return await real(self, **options)

    monkeypatch.setattr(ToolEnv, "areset", failing)
    tree = play(env, ScriptedPolicy(tokenizer, [DONE], [1.0]), tokenizer, algorithm="grpo", max_invalid=0.3, retries=0)[
        0
    ]
    number = [trajectory.valid for trajectory in tree.trajectories].index(False)
    assert tree.row(number).mask == [0]


def test_if_too_much_fails_the_rollout_stops_instead_of_learning_from_the_rest(
    env: ToolEnv, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(self: ToolEnv, action: str) -> Any:
        raise SessionLost("the container is gone")

    monkeypatch.setattr(ToolEnv, "astep", failing)
    with pytest.raises(
        RuntimeError, match=r"4 of 4 trajectories failed, more than max_invalid = 0\.2 allows; the first"
    ):
        play(env, ScriptedPolicy(tokenizer, [DONE], [1.0]), tokenizer)


def test_a_failing_model_ends_the_rollout(env: ToolEnv, tokenizer: Any) -> None:
    class Broken:
        wants_messages = False

        async def begin(self) -> None:
            """It keeps nothing."""

        async def end(self) -> None:
            """It holds nothing."""

        async def generate(self, request: Request, on_window: Any = None) -> Generation:
            raise IndexError("index 9 is out of range")

    with pytest.raises(GenerationError, match="generation failed: IndexError: index 9") as caught:
        play(env, Broken(), tokenizer)
    assert isinstance(caught.value.__cause__, IndexError)  # with the traceback of the model
    assert caught.value.__cause__.__traceback__


def test_the_environment_s_own_token_limit_holds_too(env: ToolEnv, tokenizer: Any) -> None:
    limited = ToolEnv("arpo/Arithmetic-v0", level=3, max_tokens=60)
    tree = play(limited, ScriptedPolicy(tokenizer, [CALL], [0.1]), tokenizer, max_completion_length=1024)[0]
    assert all(len(tree.row(number).ids) <= 60 for number in range(len(tree.trajectories)))
    assert {trajectory.outcome for trajectory in tree.trajectories} == {"truncated"}
