"""Grades stored answers again, with another grader, judge, function or reward; nothing is generated.

    run = load_eval_run("evals/gaia")
    judge = function_scorer(make_grader("judge", chat="qwen").grade)
    found = await rescore(run, "judge-qwen", judge, {"scorer": "judge"})
    found.agreement.kappa, found.disagreements

Each verdict is appended at once to RUN/scores/NAME.jsonl, and a run of the same name goes on from there. A verdict that
could not be reached is noted with its error, is tried again the next time, and is never scored as wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from arpo_env.episode import Call, Episode, Outcome, Turn
from arpo_env.errors import GradingError
from arpo_env.grading import Score
from arpo_env.memory_folding import memory_text
from arpo_env.rewards import DeepAgentRewards, Rewards
from arpo_trainer.evaluation.episode_store import SCORES, EpisodeEntry, EvalRun, UnitKey, UnitRow
from arpo_trainer.evaluation.eval_metrics import episode_value, interval_data, interval_of
from arpo_trainer.folder_lock import lock_folder
from arpo_trainer.report.run_data import JsonLines, cut_half_line, json_line, lines_of, write_whole
from arpo_trainer.statistics import Agreement, agreement
from arpo_trainer.tree import RolloutTree
from envs_registry import Task
from envs_registry.spec import load_object

logger = logging.getLogger(__name__)
GIVE_UP = 50  # failures before the first success
_EVERY = 200  # verdicts between two lines of progress


@dataclass(frozen=True)
class StoredEpisode:
    """One trajectory of a stored unit: the unit's row, the trajectory's number, the full task, the unit's tree."""

    row: UnitRow
    number: int
    task: Task
    tree: RolloutTree

    @property
    def entry(self) -> EpisodeEntry:
        """Its entry in the row."""
        return self.row.episodes[self.number]

    def episode(self) -> Episode:
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
        ended: Outcome = self.entry.outcome  # type: ignore[assignment]
        return Episode(self.task, turns, answer=self.entry.answer, outcome=ended)


# returns the score of an episode, or raises if it cannot decide, which never counts as wrong
Scorer = Callable[[StoredEpisode], Awaitable[Score]]


def stored_episodes(run: EvalRun) -> Iterator[StoredEpisode]:
    """Yield the episodes that can be graded: those with a reward, and those with an answer that no grader decided.

    Raises:
        ValueError: traces.jsonl is missing or was changed.
    """
    for row in run.rows:
        gradable = [n for n, e in enumerate(row.episodes) if e.reward is not None or e.answer is not None]
        if gradable:
            tree = run.tree(row)
            task = Task.from_dict(tree.task)
            yield from (StoredEpisode(row, number, task, tree) for number in gradable)


def function_scorer(function: Callable[[str, Task], Any]) -> Scorer:
    """Return a scorer from a function of (answer, task): a number, True or False, or a `Score`; it may be async.

    An episode without an answer has 0, as when it was played.
    """

    async def score(stored: StoredEpisode) -> Score:
        if stored.entry.answer is None:
            return Score(0.0)
        value = function(stored.entry.answer, stored.task)
        if inspect.isawaitable(value):
            value = await value
        number = value.value if isinstance(value, Score) else value
        if number is None or not math.isfinite(float(number)):
            raise GradingError(f"the function returned {value!r}, not a finite number")
        return value if isinstance(value, Score) else Score(float(number))

    return score


def reward_scorer(rewards: Rewards) -> Scorer:
    """Return a scorer that computes another reward from the stored score, format and calls of an episode."""

    async def score(stored: StoredEpisode) -> Score:
        parts = dict(stored.entry.components)
        if stored.entry.reward is None or "accuracy" not in parts:
            raise GradingError("the episode was not graded when it was played: grade it with --scorer instead")
        value, format_ok = parts.pop("accuracy"), parts.pop("format", 1.0) > 0
        grade = await rewards(stored.episode(), Score(value, parts), format_ok)
        return Score(grade.reward, grade.components)

    return score


def read_reward(text: str) -> Rewards:
    """Return the reward that a command line names.

    Args:
        text: "paper", "tool-star", "reference", weights in YAML ("{accuracy: 1, format: 0.2}"), or MODULE:NAME of a
            function of the episode or of anything that `Rewards.of` takes.
    """
    if ":" in text and not text.lstrip().startswith("{"):
        found = load_object(text, "--reward")
        known = isinstance(found, Rewards | dict | str)
        rewards = Rewards.of(found if known else {text.partition(":")[2]: (found, 1.0)})
    else:
        try:
            rewards = Rewards.of(yaml.safe_load(text))
        except yaml.YAMLError as error:
            raise ValueError(f"--reward {text!r} is not YAML: write '{{accuracy: 1, format: 0.2}}'") from error
    if isinstance(rewards, DeepAgentRewards):
        raise ValueError(f"--reward {text}: deepagent compares the arguments of calls, which are not stored")
    return rewards


VerdictKey = tuple[UnitKey, int, int]  # unit, attempt, trajectory


@dataclass(frozen=True)
class Verdict:
    """One line of RUN/scores/NAME.jsonl."""

    model: str
    env: str
    task: str
    sample: int
    attempt: int  # of the unit: an episode that was played again is graded again
    trajectory: int
    value: float | None  # the score, or None if it could not be decided
    parts: dict[str, float]
    error: str | None = None

    @property
    def key(self) -> VerdictKey:
        """What identifies the graded answer."""
        return UnitKey(self.model, self.env, self.task, self.sample), self.attempt, self.trajectory


Verdicts = dict[VerdictKey, Verdict]


def _read_verdicts(path: Path, about: Mapping[str, Any]) -> Verdicts:
    """Return the verdicts of a file, whose first line says what graded; of several on one answer the last counts."""
    verdicts: Verdicts = {}
    for number, line in lines_of(path, running=False):
        if number == 1:
            if json.loads(line) != about:
                raise ValueError(
                    f"{path} was written by another scorer, {line.strip()}: give another --name, or delete it"
                )
            continue
        try:
            verdict = Verdict(**json.loads(line))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path}, line {number}: not a verdict ({error}); delete the line") from error
        verdicts[verdict.key] = verdict
    return verdicts


@dataclass(frozen=True)
class Rescored:
    """The result of a re-scoring."""

    path: Path  # the file with the verdicts
    # for each model and environment {"model", "env", "accuracy", "value", "broken", "agreement"}; accuracy counts
    # scores of 1, value is the mean score, both with intervals
    scores: list[dict[str, Any]]
    agreement: Agreement | None  # with the scores of the run, over all models and environments; None if there are none
    disagreements: list[dict[str, Any]]  # answers with another verdict than in the run, as plain data to read
    broken: dict[str, int]  # error's class -> number of answers without a verdict
    answers: int  # number of answers to grade


async def rescore(run: EvalRun, name: str, scorer: Scorer, about: Mapping[str, Any], concurrency: int = 16) -> Rescored:
    """Grade the stored answers of a run that have no verdict of this name yet, and summarise all verdicts.

    Args:
        run: the run.
        name: of the files in RUN/scores.
        scorer: returns the score of an episode. What it raises is noted as the error of that verdict.
        about: what grades, as plain data: model, prompt version and the like.
        concurrency: maximum number of answers that are graded at once.

    Raises:
        ValueError: there is nothing to grade, the name belongs to another scorer, or a line cannot be read.
        BlockingIOError: another process is grading under this name, for which another name can be taken.
        RuntimeError: the first 50 verdicts all failed.
    """
    path, header = run.folder / SCORES / f"{name}.jsonl", {"format": 1, **about}
    path.parent.mkdir(parents=True, exist_ok=True)
    with lock_folder(path.parent, f".{name}.lock"), contextlib.closing(JsonLines(path)) as lines:
        cut_half_line(path)
        if not path.stat().st_size:
            lines.add(json_line(header))
        verdicts = _read_verdicts(path, header)
        known = {key for key, verdict in verdicts.items() if verdict.value is not None}
        missing = (each for each in stored_episodes(run) if (each.row.key, each.row.attempt, each.number) not in known)
        done, failed, reached = 0, 0, bool(known)

        async def work() -> None:
            nonlocal done, failed, reached
            for stored in missing:  # shared by all workers, and read as far as they come: trees are large
                verdict = await _verdict(stored, scorer)
                lines.add(json_line(asdict(verdict)))
                verdicts[verdict.key] = verdict
                done, failed, reached = done + 1, failed + (verdict.value is None), reached or verdict.value is not None
                if done % _EVERY == 0:
                    logger.info("%d answers graded", done)
                if failed >= GIVE_UP and not reached:
                    raise RuntimeError(
                        f"the first {failed} answers could not be graded; the last error: {verdict.error}. Mend it "
                        "and run the same command again"
                    )

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(concurrency):
                    group.create_task(work())
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None  # as the caller knows it, not as a group
        return _summary(run, path, verdicts, rewards="reward" in about)


async def _verdict(stored: StoredEpisode, scorer: Scorer) -> Verdict:
    about = {**asdict(stored.row.key), "attempt": stored.row.attempt, "trajectory": stored.number}
    try:
        score = await scorer(stored)
    except Exception as failure:  # a grader of the user's may raise anything, and one answer must not end the run
        return Verdict(**about, value=None, parts={}, error=f"{type(failure).__name__}: {failure}")
    return Verdict(**about, value=score.value, parts=dict(score.parts))


def write_rescored(found: Rescored) -> None:
    """Write NAME.json with the scores and NAME.disagreements.jsonl beside the verdicts; nothing in them has a time."""
    compared = found.agreement
    data = {
        "scores": found.scores,
        "agreement": compared and {name: getattr(compared, name) for name in ("share", "kappa", "answers")},
        "broken": found.broken,
        "answers": found.answers,
    }
    text = json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    write_whole(found.path.with_suffix(".json"), text)
    lines = "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in found.disagreements)
    write_whole(found.path.with_suffix(".disagreements.jsonl"), lines)


_Found = list[tuple[Verdict, EpisodeEntry, dict[str, Any]]]


def _summary(run: EvalRun, path: Path, verdicts: Verdicts, rewards: bool) -> Rescored:
    """Summarise the verdicts on the episodes that count: the last attempts."""
    pairs: dict[tuple[str, str], _Found] = {}
    for row in run.rows:
        about = {**asdict(row.key), "question": row.question, "answers": row.answers}
        for number, entry in enumerate(row.episodes):
            if (verdict := verdicts.get((row.key, row.attempt, number))) is not None:
                each = (verdict, entry, {**about, "trajectory": number, "answer": entry.answer})
                pairs.setdefault((row.model, row.env), []).append(each)
    found = [each for of_pair in pairs.values() for each in of_pair]
    if not found:
        raise ValueError(f"{run.folder} has no answer to grade: no episode was played to its end")
    compared, readable = _compared(found, rewards)
    scores = [_score(each, pair, rewards) for pair, each in pairs.items()]
    broken = Counter((verdict.error or "").partition(":")[0] for verdict, _, _ in found if verdict.value is None)
    return Rescored(path, scores, compared, readable, dict(sorted(broken.items())), len(found))


def _score(found: _Found, pair: tuple[str, str], rewards: bool) -> dict[str, Any]:
    values: dict[str, list[float]] = {}
    for verdict, entry, _ in found:
        if verdict.value is not None and entry.counted:
            values.setdefault(verdict.task, []).append(verdict.value)
    right = {task: [float(value >= 1.0) for value in each] for task, each in values.items()}
    compared, _ = _compared(found, rewards)
    return {
        "model": pair[0],
        "env": pair[1],
        "accuracy": None if rewards else interval_data(interval_of(right)),
        "value": interval_data(interval_of(values)),
        "broken": sum(verdict.value is None for verdict, _, _ in found),
        "agreement": compared and {"share": compared.share, "kappa": compared.kappa},
    }


def _compared(found: _Found, rewards: bool) -> tuple[Agreement | None, list[dict[str, Any]]]:
    """Compare with the scores of the run: verdicts (right or not), or rewards."""
    readable: dict[str, dict[str, Any]] = {}
    for number, (verdict, entry, about) in enumerate(found):
        if verdict.value is not None and entry.reward is not None:
            before = round(entry.reward, 6) if rewards else episode_value(entry) or 0.0
            now = round(verdict.value, 6) if rewards else float(verdict.value >= 1.0)
            readable[str(number)] = {**about, "before": before, "now": now, "value": verdict.value}
    if not readable:
        return None, []
    sides = ({name: each[side] for name, each in readable.items()} for side in ("before", "now"))
    both = agreement(*sides)
    return both, [readable[name] for name in both.disagreements]
