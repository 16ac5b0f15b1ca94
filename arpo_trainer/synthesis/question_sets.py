"""The questions of a synthesis: environments with and without their tools, and the questions that must not be used."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from arpo_env import ToolEnv
from arpo_env.cache import Cache
from arpo_trainer.evaluation.eval_plan import PlannedEnv, task_count
from arpo_trainer.evaluation.eval_shard import EvalShard
from arpo_trainer.make_env import make_env
from arpo_trainer.synthesis.stages import DIRECT, stage_label
from arpo_trainer.synthesis.synth_settings import SynthSettings
from arpo_trainer.synthesis.training_rows import check_format
from envs_registry import Task
from envs_registry.contamination import overlap
from envs_registry.sources import LimitedSource, named_source

# options of tools, which an environment without tools refuses
_OF_TOOLS = ("tools", "tool_limits", "search")


@dataclass
class QuestionSet:
    """The questions of one environment.

    Attributes:
        planned: the environment with its tools.
        plain: the same without tools.
        contaminated: ids of tasks that are in an evaluation set.
        shard: the part of the questions that is taken; None is all. Question number k is in shard k modulo n.
    """

    planned: PlannedEnv
    plain: ToolEnv
    contaminated: set[str] = field(default_factory=set)
    shard: EvalShard | None = None

    @property
    def label(self) -> str:
        """Its name in tables and files."""
        return self.planned.label

    @property
    def env(self) -> ToolEnv:
        """The environment with its tools."""
        return self.planned.env

    def numbered(self) -> Iterator[tuple[int, Task]]:
        """Yield the tasks with their numbers."""
        for number in filter(self.takes, range(self.planned.count)):
            yield number, self.env.tasks.task(number)

    def takes(self, number: int) -> bool:
        """Return whether the question of a number is taken."""
        return self.shard is None or self.shard.owns(number)

    def stage(self, stage: str) -> PlannedEnv:
        """Return the environment as it is played in a stage, under the label of the stage."""
        env = self.plain if stage == DIRECT else self.env
        return replace(self.planned, label=stage_label(self.label, stage), env=env)


@contextlib.contextmanager
def open_question_sets(settings: SynthSettings, cache: Cache | None = None) -> Iterator[list[QuestionSet]]:
    """Make the environments, and close them afterwards.

    Args:
        settings: of the synthesis.
        cache: records and replays their services.

    Raises:
        UnknownEnvError: an environment is not known.
        ValueError: an option is invalid, the environment has no tools or may fold, or the tasks are endless and no
            number is set.
        RuntimeError: a service is not configured.
    """
    with contextlib.ExitStack() as opened:
        sets = []
        for name in dict.fromkeys(settings.environments):
            services = {"cache": cache} if cache else {}
            env = make_env(name, {**settings.env_options, **services})
            opened.callback(env.close)
            env.check()
            if not env.tools:
                raise ValueError(f"{name} has no tools, so nothing with tools can be sampled; add tools=[python]")
            if env.budget.folds:
                raise ValueError(f"folds={env.budget.folds}: a training row is one conversation; leave folds out")
            if env.services.show_images:
                raise ValueError("show_images=True: a training row is text, and has no pictures; leave show_images out")
            check_format(settings.format, env.protocol)
            plain_options = {n: value for n, value in settings.env_options.items() if n not in _OF_TOOLS}
            plain = make_env(name, {**plain_options, **services, "tools": []})
            opened.callback(plain.close)
            label = name.rpartition(":")[2].removeprefix("arpo/")
            count = task_count(label, env, settings.tasks, None)
            sets.append(QuestionSet(PlannedEnv(label, name, settings.env_options, "accuracy", "", env, count), plain))
        yield sets


def find_contaminated(settings: SynthSettings, sets: list[QuestionSet]) -> dict[str, dict[str, int]]:
    """Note the questions that are in evaluation sets, and count them by set: the same, and similar ones.

    Raises:
        UnknownEnvError: there is no such evaluation set.
    """
    counts: dict[str, dict[str, int]] = {}
    for text in settings.against:
        name, held_out = named_source(text, "held out")
        counted = counts.setdefault(name, {"same": 0, "similar": 0})
        for one in sets:
            found = overlap(LimitedSource(one.env.tasks, one.planned.count), held_out)
            same, near = ({task.id for task, _ in pairs} for pairs in (found.exact, found.near))
            one.contaminated |= same | near
            counted["same"] += len(same)
            counted["similar"] += len(near - same)
    return counts
