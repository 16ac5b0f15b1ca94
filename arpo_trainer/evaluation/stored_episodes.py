r"""Scorers for stored episodes: a grader, a function of yours, or a reward, applied without playing anything again.

    scorer = grader_scorer(make_grader("math"))
    score = await scorer(stored)              # arpo_env.grading.Score

A scorer takes a `StoredEpisode` and returns a `Score`, or raises if it cannot decide, which never counts as wrong.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from arpo_env.episode import FOLD, Call, Episode, Outcome, Turn
from arpo_env.errors import GradingError
from arpo_env.grading import Grader, Score
from arpo_env.memory_folding import memory_text
from arpo_env.rewards import DeepAgentRewards, Rewards
from arpo_trainer.evaluation.episode_store import EvalRun
from arpo_trainer.evaluation.unit_row import EpisodeEntry, UnitRow
from arpo_trainer.tree import RolloutTree
from envs_registry import Task
from envs_registry.spec import load_object

_RIGHT_CALLS = "right_calls"


@dataclass
class PlayedEpisode(Episode):
    """An episode that was played before, with the components that its reward had then."""

    components: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class StoredEpisode:
    """One trajectory of a stored unit.

    Attributes:
        row: the unit.
        number: of the trajectory.
        task: the full task.
        tree: the unit's tree.
    """

    row: UnitRow
    number: int
    task: Task
    tree: RolloutTree

    @property
    def entry(self) -> EpisodeEntry:
        """Its entry in the row."""
        return self.row.episodes[self.number]

    @property
    def answer(self) -> str | None:
        """Its answer."""
        return self.entry.answer

    def episode(self) -> PlayedEpisode:
        """Return the episode as rewards take it, from the stored spans.

        Turns, results, and names and states of calls are there; the arguments of calls are not stored.
        """
        turns: list[Turn] = []
        for span in self.tree.path(self.number):
            if span.kind == "model":
                turns.append(Turn(span.text))
            elif turns:
                tool = span.tool or {}
                if span.kind == "fold":
                    turns[-1].memory = tool["memory"]
                # a fold's own text is the whole new prompt
                turns[-1].result += memory_text(tool["memory"]) if span.kind == "fold" else span.text
                # several calls of one turn are stored as "search+python", with the worst state among them
                names = [name for name in tool.get("name", "").split("+") if name]
                turns[-1].images += tool.get("images", ())
                turns[-1].calls += [Call(name, tool.get("status", ""), tool.get("seconds", 0.0)) for name in names]
        outcome: Any = self.entry.outcome
        ended: Outcome = outcome
        parts = dict(self.entry.components)
        return PlayedEpisode(self.task, turns, answer=self.answer, outcome=ended, components=parts)


Scorer = Callable[[StoredEpisode], Awaitable[Score]]


def stored_episodes(run: EvalRun) -> Iterator[StoredEpisode]:
    """Yield the episodes that can be graded: those with a reward, and those with an answer that no grader decided.

    Raises:
        ValueError: traces.jsonl is missing or was changed.
    """
    for row in run.rows:
        if any(_gradable(entry) for entry in row.episodes):
            tree = run.tree(row)
            task = Task.from_dict(tree.task)
            yield from (
                StoredEpisode(row, number, task, tree) for number, entry in enumerate(row.episodes) if _gradable(entry)
            )


def _gradable(entry: EpisodeEntry) -> bool:
    return entry.reward is not None or entry.answer is not None


def grader_scorer(grader: Grader) -> Scorer:
    """Return a scorer that asks a grader; an episode without an answer has 0, as when it was played."""

    async def score(stored: StoredEpisode) -> Score:
        return Score(0.0) if stored.answer is None else await grader.grade(stored.answer, stored.task)

    return score


def function_scorer(function: Callable[[str, Task], Any]) -> Scorer:
    """Return a scorer from a function of (answer, task): a number, True or False, or a `Score`; it may be async."""

    async def score(stored: StoredEpisode) -> Score:
        if stored.answer is None:
            return Score(0.0)
        value = function(stored.answer, stored.task)
        if inspect.isawaitable(value):
            value = await value
        if isinstance(value, Score):
            return value
        if value is None or not math.isfinite(float(value)):
            raise GradingError(f"the function returned {value!r}, not a finite number")
        return Score(float(value))

    return score


def reward_scorer(rewards: Rewards) -> Scorer:
    """Return a scorer that computes another reward from the stored score, format and calls of an episode."""

    async def score(stored: StoredEpisode) -> Score:
        parts = dict(stored.entry.components)
        if stored.entry.reward is None or "accuracy" not in parts:
            raise GradingError("the episode was not graded when it was played: grade it with --scorer instead")
        value, format_ok = parts.pop("accuracy"), parts.pop("format", 1.0) > 0
        episode = stored.episode()
        if isinstance(rewards, DeepAgentRewards) and rewards.correct is None:
            _refuse_repeats(episode)
        grade = await rewards(episode, Score(value, parts), format_ok)
        return Score(grade.reward, grade.components)

    return score


def _refuse_repeats(episode: Episode) -> None:
    """Refuse to judge by the names of calls which of them repeat an earlier one."""
    worked = [call.name for turn in episode.turns for call in turn.calls if call.status == "ok"]
    if twice := next((name for name in worked if worked.count(name) > 1 and name != FOLD), None):
        raise GradingError(
            f"{twice} was called more than once, and the arguments of calls are not stored, so that a repeated call "
            "cannot be told from another one: give correct: gold, if the run has the component right_calls, or "
            "MODULE:NAME of a function of the episode"
        )


def _counted_right_calls(episode: Any) -> float:
    """Return how many right calls were counted when an episode was played."""
    if _RIGHT_CALLS not in episode.components:
        raise GradingError("right calls were not counted when the episode was played")
    return float(episode.components[_RIGHT_CALLS])


def read_reward(text: str, components: Collection[str] = ()) -> Rewards:
    """Return the reward that a command line names.

    Args:
        text: "paper", "tool-star", "deepagent", "reference", weights in YAML ("{accuracy: 1, format: 0.2}"), or
            MODULE:NAME of a function of the episode or of anything that `Rewards.of` takes.
        components: names of the components that the episodes have; `right_calls` is for "{deepagent: {correct: gold}}".

    Raises:
        ValueError: it is none of these, or needs a component that the episodes do not have.
    """
    own = {_RIGHT_CALLS: (_counted_right_calls, 0.0)} if _RIGHT_CALLS in components else None
    if ":" in text and not text.lstrip().startswith("{"):
        found = load_object(text, "--reward")
        plain = isinstance(found, Rewards | dict | str)
        return Rewards.of(found if plain else {text.partition(":")[2]: (found, 1.0)}, own)
    try:
        return Rewards.of(yaml.safe_load(text), own)
    except yaml.YAMLError as error:
        raise ValueError(f"--reward {text!r} is not YAML: write '{{accuracy: 1, format: 0.2}}'") from error
