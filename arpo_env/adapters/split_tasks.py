"""`SplitTasks`: the tasks of an environment by split and number, in the form of OpenEnv's task API.

Questions are shown, answers are not.
"""

from __future__ import annotations

from typing import Any

from arpo_env.env_factory import EnvFactory
from envs_registry import Task, TaskSource, get_spec
from envs_registry.nearest_name import nearest_hint

ENDLESS = 2**31
_PREVIEW = 1000


class SplitTasks:
    """The tasks of an environment.

    Args:
        factory: the environment. If it is made for one split, only this one is there.

    Attributes:
        names: names of the splits.
        default: the split of the environment itself.
    """

    def __init__(self, factory: EnvFactory) -> None:
        self._factory, self._spec = factory, get_spec(factory.id)
        given = factory.options.get("split")
        self.names: tuple[str, ...] = (given,) if given else self._spec.splits or ("train",)
        if "data" in factory.options:  # a file of the user's own has one split
            self.names = self.names[:1]
        self.default = self.names[0]

    def task(self, split: str, index: int) -> Task:
        """Return a task.

        Raises:
            ValueError: there is no such split.
            IndexError: there is no such task.
        """
        source, size = self._source(split), self.num_tasks(split)
        if not isinstance(index, int) or not 0 <= index < size:
            raise IndexError(f"there is no task {index!r}: the split {split!r} has the numbers 0 to {size - 1}")
        return source.task(index)

    def list_splits(self) -> list[str]:
        """Return the names of the splits."""
        return list(self.names)

    def num_tasks(self, split: str) -> int:
        """Return the number of tasks; of generated ones there are `ENDLESS`."""
        return self._source(split).size or ENDLESS

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """Return a task without its answer."""
        task = self.task(split, index)
        return {"id": task.id, "index": index, "split": split, "question": task.question}

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        """Return the first tasks, at most 1000."""
        return self.get_task_range(split, 0, min(_PREVIEW, self.num_tasks(split)))

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
        """Return the tasks of a slice.

        Raises:
            ValueError: there is no such split, or the slice has more than 1000 tasks.
        """
        numbers = range(self.num_tasks(split))[start:stop]
        if len(numbers) > _PREVIEW:
            raise ValueError(f"ask for at most {_PREVIEW} tasks at a time, not {len(numbers)}")
        return [self.get_task(split, index) for index in numbers]

    def metadata(self) -> dict[str, str]:
        """Return what describes the environment."""
        return {"name": self._spec.id, "description": self._spec.description}

    def _source(self, split: str) -> TaskSource:
        if split not in self.names:
            hint = nearest_hint(split, self.names, " Did you mean {!r}?")
            raise ValueError(f"there is no split {split!r}; the splits are {', '.join(self.names)}.{hint}")
        options = self._factory.options
        # the sources of an environment without splits do not take the option
        if split != self.default and self._spec.splits:
            options = {**options, "split": split}
        source: TaskSource = EnvFactory(self._factory.id, **options)().tasks
        return source
