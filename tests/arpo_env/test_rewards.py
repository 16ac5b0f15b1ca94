"""Compositions of rewards, and the published text reward."""

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import pytest

from arpo_env.episode import FOLD, Call, Episode, Turn
from arpo_env.grading import Grader, GradingError, Score, make_grader
from arpo_env.rewards import DeepAgentRewards, Grade, Rewards, grade_episode, reference_reward
from envs_registry import Task

MATH = Task("t", "q", ("1204",), kind="math")


def episode(answer: str | None = "1204", *turns: Turn) -> Episode:
    last = Turn(f"<think>x</think><answer>\\boxed{{{answer}}}</answer>")
    return Episode(MATH, [*turns, last], answer=answer, outcome="answered")


def graded(finished: Episode, what: Any = "paper", well_formed: bool = True) -> Grade:
    return asyncio.run(grade_episode(finished, well_formed, make_grader(), Rewards.of(what)))


def test_the_bonus_is_for_tools_that_really_ran() -> None:
    python, search = Turn("", calls=[Call("python", "ok")]), Turn("", calls=[Call("search", "ok")])
    assert graded(episode("1204", python, search)).reward == pytest.approx(1.1)
    assert graded(episode("1204", python, Turn("", calls=[Call("search", "refused")]))).reward == 1.0
    assert graded(episode("1204", python, Turn("", calls=[Call("search", "error")]))).reward == 1.0  # a blank query
    assert graded(episode("1204", Turn("</search></python>"))).reward == 1.0


def test_the_reference_reward_reads_the_transcript() -> None:
    got = graded(
        episode("1204", Turn("<think>a</think><python>1</python>", "<result>1</result></search>")), "reference"
    )
    assert got.reward == pytest.approx(1.1)  # a tool result that holds </search> earns the bonus, as published
    assert got.components["reference"] == got.reward


def test_deepagents_reward_adds_right_calls_to_success_whatever_the_format() -> None:
    turns = [Turn("", calls=[Call("python", "ok", arguments={"code": code})]) for code in "abcde"]
    labelled = DeepAgentRewards(lambda one: [0.0, 1.0, 1.0, 1.0, 0.0], call_weight=0.5)
    got = graded(episode("1204", *turns), labelled, well_formed=False)
    assert (got.reward, got.components["success"], got.components["action"]) == (2.5, 1.0, 1.5)
    assert graded(episode("3", *turns), labelled).reward == 1.5
    assert graded(episode(None), labelled).reward == 1.5


def searches(*queries: str, results: Sequence[str] = ()) -> list[Turn]:
    return [
        Turn("", calls=[Call("search", "ok", arguments={"query": query})], results=list(results[place : place + 1]))
        for place, query in enumerate(queries)
    ]


@pytest.mark.parametrize(
    ("turns", "action"),
    [
        (searches(*(f"junk {number}" for number in range(20))), 1.0),  # no more than one call
        (searches("capital France", *(" " * n + "France, CAPITAL" + "?" * n for n in range(19))), 1 / 20),
        (searches("one", "two", "three", "four", results=["Nothing."] * 4), 1 / 4),
        (
            [Turn("", calls=[Call("python", s, arguments={"code": "a"})]) for s in ("ok", "error", "ok", "refused")],
            1 / 4,
        ),
        ([Turn("", calls=[Call("python", "ok", arguments={"code": code})]) for code in ("x + 1", "x - 1")], 1.0),
        ([*searches("one"), Turn("", calls=[Call(FOLD, "ok")])], 1.0),  # a fold earns S_pref alone
        ([], 0.0),
    ],
    ids=["junk", "spellings", "same result", "failed", "code", "fold", "none"],
)
def test_calls_that_nobody_checked_earn_a_share_of_success_alone(turns: list[Turn], action: float) -> None:
    assert graded(episode("1204", *turns), "deepagent").components["action"] == pytest.approx(action)
    assert graded(episode("3", *turns), "deepagent").reward == 0.0
    assert graded(episode(None, *turns), "deepagent").reward == 0.0


def test_deepagents_reward_takes_its_settings_from_a_file() -> None:
    turn = Turn("", calls=[Call("python", "ok", arguments={"code": code}) for code in "12"])
    own = {"accuracy": 1.0, "right_calls": (lambda one: 3.0, 0.0)}
    for correct, action in (("executed", 1.0), ("gold", 3.0), (f"{__name__}:all_wrong", 0.0)):
        rewards = Rewards.of({"deepagent": {"correct": correct, "call_weight": 0.5, "fold_weight": 2}}, own)
        assert isinstance(rewards, DeepAgentRewards)
        assert (graded(episode("1204", turn), rewards).components["action"], rewards.fold_weight) == (action / 2, 2)
    for own_reward, action in ((own, 3.0), (None, 1.0)):  # gold calls where the tasks have them
        assert graded(episode("1204", turn), Rewards.of({"deepagent": None}, own_reward)).components["action"] == action


@pytest.mark.parametrize("reward", ["deepagent", {"deepagent": {"correct": "gold"}}])
def test_deepagents_success_is_that_of_the_calls_where_tasks_have_no_gold_answer(reward: Any) -> None:
    own = {"accuracy": (lambda one: 1.0, 1.0), "right_calls": (lambda one: 2.0, 0.0)}
    rewards = Rewards.of(reward, own)
    parts = graded(episode("no gold answer"), rewards).components
    assert (parts["accuracy"], parts["success"], parts["action"]) == (1.0, 1.0, 2.0)
    assert not rewards.counts_format


def all_wrong(episode: Episode) -> list[float]:
    return [0.0 for turn in episode.turns for _ in turn.calls]


def test_a_term_is_named_by_its_module_in_a_file() -> None:
    rewards = Rewards.of({"accuracy": 1.0, "turns": [f"{__name__}:how_many_turns", 0.25]})
    assert graded(episode("1204", Turn(""), Turn("")), rewards).components["turns"] == 3.0
    with pytest.raises(ValueError, match=r"reward turns: .*no module 'own_nowhere'"):
        Rewards.of({"turns": ["own_nowhere:x", 1.0]})


def how_many_turns(episode: Episode) -> float:
    return float(len(episode.turns))


def test_a_weighted_sum_with_sync_and_async_terms_of_ones_own() -> None:
    async def short(episode: Episode) -> float:
        return float(len(episode.turns) < 3)

    what = {"accuracy": 1.0, "format": 0.2, "short": (short, 0.5), "turns": (lambda episode: len(episode.turns), 0.0)}
    got = graded(episode(), what)
    assert got.reward == pytest.approx(1.7)
    assert (got.components["short"], got.components["turns"]) == (1.0, 1.0)
    assert graded(episode(None), {"em": 1.0, "format": 0.2}).reward == 0.0  # nothing was graded


@pytest.mark.parametrize("function", [lambda _: None, lambda _: float("nan"), lambda _: "much", lambda _: {}["x"]])
def test_a_term_without_a_number_makes_the_sample_invalid(function: Any) -> None:
    with pytest.raises(GradingError, match="mine"):
        graded(episode(), {"accuracy": 1.0, "mine": (function, 0.5)})


def test_a_grader_that_cannot_decide_makes_the_sample_invalid() -> None:
    class Undecided(Grader):
        async def grade(self, answer: str, task: Task) -> Score:
            raise GradingError("too slow")

    with pytest.raises(GradingError):
        asyncio.run(grade_episode(episode(), True, Undecided(), Rewards.of("paper")))


@pytest.mark.parametrize("score", [Score(math.nan), Score(1.0, {"f1": math.inf})])
def test_a_score_that_is_no_number_makes_the_sample_invalid(score: Score) -> None:
    class Faulty(Grader):
        async def grade(self, answer: str, task: Task) -> Score:
            return score

    with pytest.raises(GradingError, match="have to be finite"):
        asyncio.run(grade_episode(episode(), True, Faulty(), Rewards.of("paper")))


@pytest.mark.parametrize(
    ("what", "hint"),
    [
        ("papers", "did you mean 'paper'"),
        ({"acuracy": 1.0}, "did you mean 'accuracy'"),
        ({"accuracy": float("nan")}, "finite"),
        ({"mine": 1.0}, "takes .function, weight., or as one of accuracy"),
        ({}, "not {}"),
        ({"deepagent": {"fold_weight": "much"}}, "fold_weight .* finite number"),
        ({"deepagent": {"correct": 5}}, "executed, gold or a function, not 5"),
        ({"deepagent": {"corect": "gold"}}, "settings of reward deepagent are correct, call_weight, fold_weight"),
        ({"deepagent": {"correct": "gold"}}, "arpo/ToolWorld-v0"),
        ({"deepagent": {"correct": "golden"}}, "executed, gold or MODULE:NAME, not 'golden'"),
    ],
)
def test_what_cannot_be_a_reward_is_refused_with_a_hint(what: Any, hint: str) -> None:
    with pytest.raises(ValueError, match=hint):
        Rewards.of(what, {"accuracy": 1.0})


@pytest.mark.parametrize(
    ("text", "score", "reason"),
    [
        ("<think>x</think><answer>\\fbox{\\boxed{}</answer>", 0.0, "wrong"),
        ("<think>x</think><answer>\\boxed{9} \\fbox{8}</answer>", 1.0, "correct"),
        ("<think>x</think><answer>\\boxed{ \\boxed 9$ }</answer>", 1.0, "correct"),
        ("<think>x</think></answer>\\boxed{9}<answer>", -1.0, "answer_order"),
        ("<think>x</think><answer>\\boxed{-9}</answer>", 1.0, "correct"),
        ("<think>x</think><answer>\\boxed{9</answer>}", -1.0, "no_boxed"),
    ],
)
def test_the_published_reward_bug_for_bug(text: str, score: float, reason: str) -> None:
    got = reference_reward(text, "9")
    assert (got.score, got.reason) == (score, reason)


def test_the_weights_tell_named_rewards_apart() -> None:
    # a resumed run compares them
    assert Rewards.of("paper").weights == Rewards.of("tool-star").weights == {}
    assert Rewards.of("deepagent").weights == {"success": 1.0, "action": 1.0, "fold": 1.0}
    assert Rewards.of({"accuracy": 1.0, "f1": 0.5}).weights == {"accuracy": 1.0, "f1": 0.5}
