"""`ChosenTasks`: some tasks of an endless source, named by a data file, as `arpo synth` writes it for hard questions.

    gym.make("arpo/MultiHop-v0", data="hard/MultiHop-v0.jsonl", level=2)

Each row has the `index` of a task and its `question`. The other options of the source have to be those with which the
file was made; a question that differs is an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs_registry.datasets.data_files import DataFileError, read_rows
from envs_registry.task import Task


@dataclass(frozen=True)
class ChosenTasks:
    """Tasks of an endless source.

    Attributes:
        tasks: the whole source, with its world.
        indices: the place of each task in it.
    """

    tasks: Any
    indices: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of tasks."""
        return len(self.indices)

    @property
    def solution_tool(self) -> str:
        """The tool of the solutions."""
        name: str = self.tasks.solution_tool
        return name

    def task(self, index: int) -> Task:
        """Return task number `index`, modulo the size."""
        found: Task = self.tasks.task(self._place(index))
        return found

    def solution(self, index: int) -> tuple[str, ...]:
        """Return the calls that solve task number `index`."""
        calls: tuple[str, ...] = self.tasks.solution(self._place(index))
        return calls

    def _place(self, index: int) -> int:
        return self.indices[index % len(self.indices)]


def chosen_tasks(source: Any, data: str | Path) -> ChosenTasks:
    """Return the tasks that a file names.

    Raises:
        FileNotFoundError: the file does not exist.
        DataFileError: a row has no index, or the task at its index has another question.
    """
    indices = []
    for where, row in read_rows(data):
        index = row.get("index")
        if type(index) is not int or index < 0:
            raise DataFileError(f"{data}, {where}, column 'index': expected the number of a generated task")
        if source.task(index).question != row.get("question"):
            raise DataFileError(
                f"{data}, {where}: task {index} has another question here; give the options with which the file was "
                "made, such as level, seed and split"
            )
        indices.append(index)
    return ChosenTasks(source, tuple(indices))
