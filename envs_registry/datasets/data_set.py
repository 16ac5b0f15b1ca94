"""`DataSet`: the description of one published data set, as one row of a table without behaviour.

The rows are in `math_sets`, `multihop_sets`, `deep_search_sets` and `training_sets`; `loading` creates an `EnvSpec` and
a task source from each row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from envs_registry.datasets.data_files import Row
from envs_registry.datasets.repairs import Repairs
from envs_registry.task import Kind

Step = Callable[[Row, Repairs], Row | None]
"""Changes a row before it is converted, or returns None to drop it; raises ValueError if the row is broken."""


@dataclass(frozen=True)
class Play:
    """Tools, scorer and limits of a set; the attributes are those of `EnvSpec`."""

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

    Columns are listed in the order in which they are tried; "info.level" is a field of a column.

    Attributes:
        name: name of the environment; in lower case the name of the task source.
        description: one line for tables.
        hub: id on the Hugging Face hub.
        splits: pairs of our name and the hub's name, or names as in "validation|test"; the first is the default.
        play: tools, scorer and limits.
        size: rows per split, for tables.
        licence: licence of the data.
        gated: URL of the page where the terms are accepted, or "".
        configs: configurations on the hub, read one after the other; "" is the default configuration.
        question: columns that may hold the question.
        answers: columns that may hold accepted answers; all columns that a row has are combined.
        row_id: column with the row's id; the row's number is used if it is missing.
        level: column with the difficulty, or "".
        levels: values of the level column, in lower case and without the word "level".
        category: column with the subject or type of question, or "".
        kind: how answers are compared, if there is no `kind_column`.
        kind_column: column with the kind, or "".
        kinds: pairs of a value of `kind_column` and the kind that it means.
        steps: changes to a row before it is converted.
        filters: options that are off by default, each with the step that drops rows while the option is off.
        reads: further columns that the steps need.
        known_as: accepted names of a local file or folder, besides the name of the source.
        files: columns with the path of an attached file, or a list of them, relative to the folder of the data file or
            of the set. The first column that names something is used. If there is an option `files`, they are loaded
            only while it is on.
        revision: commit of the repository that is read; "" is its newest.
        start_url: column with the page at which the tool `browse` starts, or "".
        drops: faulty rows that are dropped without an error: "no answer", "cut-off answer", "duplicate question".
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
    category: str = ""
    kind: Kind = "qa"
    kind_column: str = ""
    kinds: tuple[tuple[str, Kind], ...] = ()
    steps: tuple[Step, ...] = ()
    filters: tuple[tuple[str, Step], ...] = ()
    reads: tuple[str, ...] = ()
    known_as: tuple[str, ...] = ()
    drops: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    start_url: str = ""
    revision: str = ""

    @property
    def source(self) -> str:
        """Name of the task source."""
        return self.name.lower()

    @property
    def split_names(self) -> tuple[str, ...]:
        """Names of the splits in this library."""
        return tuple(ours for ours, _ in self.splits)

    @property
    def columns(self) -> set[str]:
        """Columns that are needed to convert rows into tasks."""
        named = {*self.question, *self.answers, *self.reads, *self.files, self.row_id, self.level, self.category}
        named |= {self.kind_column, self.start_url}
        # A dotted name is a field of a column or a column of that name; both are read.
        return {name.partition(".")[0] for name in named if name} | named
