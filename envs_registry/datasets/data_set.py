"""`DataSet`: everything that is known of one published data set, as one row of a table. No behaviour.

The rows are in `math_sets`, `multihop_sets`, `deep_search_sets` and `training_sets`; `loading` makes an `EnvSpec` and
a task source of each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from envs_registry.datasets.data_files import Row
from envs_registry.datasets.repairs import Repairs
from envs_registry.task import Kind

Step = Callable[[Row, Repairs], Row | None]
"""Changes a row before it is read, or returns None to leave it out; raises ValueError where it is broken."""


@dataclass(frozen=True)
class Play:
    """How the tasks of a set are played; the attributes are those of `EnvSpec`."""

    tools: tuple[str, ...]
    scorer: str
    max_turns: int
    max_tool_calls: int
    tool_limits: tuple[tuple[str, int], ...] = ()
    tool_timeout: float = 10.0
    max_tokens: int | None = None
    language: str = "en"


@dataclass(frozen=True)
class DataSet:
    """One data set.

    Columns are named in the order in which they are looked for; "info.level" is a field of a column.

    Attributes:
        name: of the environment; in lower case that of the source.
        description: one line for tables.
        hub: id on the Hugging Face hub.
        splits: our name and the hub's; the first is the default.
        play: tools, scorer and limits.
        size: rows by split, for tables.
        licence: of the data.
        gated: page where the terms are accepted, or "".
        configs: on the hub; several are read one after the other. "" is the default one.
        question: columns that may hold the question.
        answers: columns that hold accepted answers; those that a row has are put together.
        row_id: column with the row's id; without it the row's number is taken.
        level: column with the difficulty, or "".
        levels: its values, in lower case and without the word "level".
        kind: how answers are compared, unless `kind_column` says so.
        kind_column: column that says so, or "".
        kinds: what its values mean.
        steps: changes to a row before it is read.
        filters: options that are off by default, each with the step that leaves rows out while it is off.
        reads: further columns that the steps need.
        known_as: what a local file or folder may be called, beside the source's name.
        drops: rows that are left out instead of refused: "no answer", "cut-off answer", "duplicate question".
    """

    name: str
    description: str
    hub: str
    splits: tuple[tuple[str, str], ...]
    play: Play
    size: str
    licence: str
    gated: str = ""
    configs: tuple[str, ...] = ("",)
    question: tuple[str, ...] = ("question", "problem")
    answers: tuple[str, ...] = ("answer", "golden_answers", "answer_aliases", "answers")
    row_id: str = "id"
    level: str = ""
    levels: tuple[str, ...] = ()
    kind: Kind = "qa"
    kind_column: str = ""
    kinds: tuple[tuple[str, Kind], ...] = ()
    steps: tuple[Step, ...] = ()
    filters: tuple[tuple[str, Step], ...] = ()
    reads: tuple[str, ...] = ()
    known_as: tuple[str, ...] = ()
    drops: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """Name of the task source."""
        return self.name.lower()

    @property
    def split_names(self) -> tuple[str, ...]:
        """Our names of the splits."""
        return tuple(ours for ours, _ in self.splits)

    @property
    def columns(self) -> set[str]:
        """Columns that are needed to make tasks of the rows."""
        named = {*self.question, *self.answers, *self.reads, self.row_id, self.level, self.kind_column}
        return {name.partition(".")[0] for name in named if name} | named
