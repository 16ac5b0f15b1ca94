"""The values of one stored episode, and the episodes of each task that could be scored.

    episode_value(entry, "accuracy")          # 1.0 only for a right answer
    by_task = values_of(rows, "f1")           # task -> the values of its scored samples

An episode that broke has no value and is in no mean. Neither are the branches and top-ups of a tree, which are no
independent samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from arpo_trainer.evaluation.unit_row import EpisodeEntry, UnitKey, UnitRow
from arpo_trainer.statistics.intervals import MeanInterval, clustered_interval, clustered_share_interval
from envs_registry.nearest_name import nearest_hint

ACCURACY, REWARD = "accuracy", "reward"
Value = Callable[[EpisodeEntry], float | None]


def episode_value(entry: EpisodeEntry, metric: str = ACCURACY) -> float | None:
    """Return a metric of an episode that was scored; None if the episode has no such component.

    Args:
        entry: the episode.
        metric: "accuracy" (1 for an answer whose score is 1, else 0: partly right is not right), "reward", or a
            component such as "em", "f1" or "correct". An episode without an answer, which no grader saw, has 0.
    """
    if metric == REWARD:
        return entry.reward
    if metric == ACCURACY:
        return float(entry.components.get(ACCURACY, entry.reward or 0.0) >= 1.0)
    return entry.components.get(metric, 0.0 if entry.answer is None else None)


def scored_episodes(rows: Iterable[UnitRow]) -> dict[str, list[EpisodeEntry]]:
    """Return task -> its independent samples that have a reward, in the order of the rows; no task without any."""
    found: dict[str, list[EpisodeEntry]] = {}
    for row in rows:
        if scored := row.scored:
            found.setdefault(row.task, []).extend(scored)
    return found


def component_names(rows: Iterable[UnitRow]) -> list[str]:
    """Return the names of all components of the scored episodes, sorted."""
    scored = (entry for each in scored_episodes(rows).values() for entry in each)
    return sorted({name for entry in scored for name in entry.components})


def values_of(rows: Iterable[UnitRow], metric: str = ACCURACY) -> dict[str, list[float]]:
    """Return task -> the values of its scored episodes.

    A set may mix graders by the kind of its tasks (HLE has multiple-choice questions). Then only the episodes count
    that have the component.

    Raises:
        ValueError: episodes were scored, but none has the component; names those that there are.
    """
    rows = list(rows)
    episodes = scored_episodes(rows)
    graded = [entry for each in episodes.values() for entry in each if entry.answer is not None]
    having = [entry for entry in graded if episode_value(entry, metric) is not None]
    if graded and not having:
        names = sorted({ACCURACY, REWARD, *component_names(rows)})
        raise ValueError(
            f"no episode has the metric {metric!r}; there is {', '.join(names)}{nearest_hint(metric, names)}. "
            "`arpo eval score` grades stored answers with another scorer"
        )
    mixed = len(having) < len(graded)
    found = {
        task: [
            value
            for entry in each
            if (value := episode_value(entry, metric)) is not None and not (mixed and metric not in entry.components)
        ]
        for task, each in episodes.items()
    }
    return {task: values for task, values in found.items() if values}


def interval_of(values: Mapping[Any, list[float]]) -> MeanInterval | None:
    """Return the mean with its interval, clustered by task; None without any value.

    Values between 0 and 1 have the interval of a share, which is Wilson's for one sample of each task.
    """
    groups = [each for each in values.values() if each]
    if not groups:
        return None
    share = all(0.0 <= value <= 1.0 for each in groups for value in each)
    return clustered_share_interval(groups) if share else clustered_interval(groups)


class RunningScore:
    """The score of an evaluation that goes on; a later attempt of a unit replaces the earlier one.

    Args:
        metric: as of `episode_value`.

    Attributes:
        broken: number of episodes without a score.
    """

    def __init__(self, metric: str = ACCURACY) -> None:
        self.metric = metric
        self._values: dict[tuple[str, str, str], dict[UnitKey, list[float]]] = {}
        self._broken: dict[UnitKey, int] = {}
        self._known: MeanInterval | None = None
        self._fresh = True

    def add(self, row: UnitRow) -> None:
        """Count a unit."""
        values = [value for entry in row.scored if (value := episode_value(entry, self.metric)) is not None]
        self._values.setdefault((row.model, row.env, row.task), {})[row.key] = values
        self._broken[row.key] = sum(entry.reward is None for entry in row.episodes)
        self._fresh = False

    @property
    def broken(self) -> int:
        """Number of episodes without a score."""
        return sum(self._broken.values())

    @property
    def interval(self) -> MeanInterval | None:
        """The mean so far with its 95 % interval; None while nothing is scored. Computed once after each `add`."""
        if not self._fresh:
            tasks = {task: [v for each in units.values() for v in each] for task, units in self._values.items()}
            self._known, self._fresh = interval_of(tasks), True
        return self._known


def running_score(rows: Iterable[UnitRow], metric: str = ACCURACY) -> MeanInterval | None:
    """Return the mean of a metric over rows of any models and environments; None while nothing is scored."""
    score = RunningScore(metric)
    for row in rows:
        score.add(row)
    return score.interval
