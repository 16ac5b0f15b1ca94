"""`DataSet`: the description of one published data set, as one row of a table without behaviour.

The rows are in `math_sets`, `multihop_sets`, `deep_search_sets` and `training_sets`; `loading` creates an `EnvSpec` and
a task source from each row.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from envs_registry.datasets.data_files import Row
from envs_registry.task import Kind

# Repairs known faults of published data files while rows are read, and counts each kind of repair.
#
# Repairs of texts: a `\frac` that a JSON reader turned into a form feed and "rac", invisible characters, `<br/>`,
# surrounding white space. Repairs of answers: a list written as text, blank or repeated aliases, a sentence around
# `\boxed{}`. Repairs for a single set are in that set's row. No repair can change the question or the right answer.

Repairs = Counter[str]

# Control character that a JSON or Python reader makes of a LaTeX command -> its first letter and what must follow.
_COMMANDS = {
    "\a": ("a", r"lpha|ngle|pprox|st\b|rc"),
    "\b": ("b", r"oxed|eta\b|inom|ar\b|egin\{|mod|ot\b|ig|ullet|ecause|f\b"),
    "\f": ("f", r"rac|orall|box|lat\b"),
    "\n": ("n", r"eq\b|abla|otin"),
    "\r": ("r", r"ight|angle|floor|ceil|ho\b"),
    "\t": ("t", r"riangle|imes|heta|ext(?:bf|it|rm)?\{|frac|binom|ilde\{|au\b"),
    "\v": ("v", r"ec\b|ert|dots|arepsilon|arphi|arnothing|ee\b"),
}
_READ_WRONGLY = re.compile("|".join(f"{control}(?={rest})" for control, (_, rest) in _COMMANDS.items()))
# In this order: a carriage return is a line break, the other control characters mean nothing.
_CHANGES = (
    (re.compile(r"\r\n?"), "\n", "carriage return"),
    (re.compile(r"[\x00-\x08\x0b-\x1f\x7f]"), "", "control character"),
    (re.compile("[\u200b\u200e\u200f\u2060\ufeff]"), "", "invisible character"),
    (re.compile(r"<br ?/?>"), "\n", "<br> for a new line"),
)


def clean(text: str, repairs: Repairs) -> str:
    """Return the repaired text and count the repairs."""
    # Before the other changes, which delete the control characters that mark the damaged commands.
    mended = _READ_WRONGLY.sub(lambda match: "\\" + _COMMANDS[match[0]][0], text)
    repairs["backslash read as a control character"] += mended != text
    for pattern, replacement, name in _CHANGES:
        mended, count = pattern.subn(replacement, mended)
        repairs[name] += count > 0
    repairs["white space around a text"] += mended != mended.strip()
    return mended.strip()


def answers(values: Iterable[Any], kind: str, repairs: Repairs) -> tuple[str, ...]:
    """Return the accepted answers of one or several columns, without blanks and repetitions."""
    found: list[str] = []
    for part in itertools.chain.from_iterable(_parts(value, repairs) for value in values):
        text = clean(_text(part), repairs)
        if kind == "math":
            text = _bare(text, repairs)
        if text and text not in found:
            found.append(text)
        else:
            repairs["repeated alias" if text else "blank alias"] += 1
    return tuple(found)


def boxed(text: str) -> str | None:
    r"""Return the content of the last `\boxed{...}`, `\fbox{...}` or `\boxed 2` of a text, or None."""
    start = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    if start < 0:
        return None
    rest = text[start:].split("box", 1)[1].removeprefix("ed")
    # TeX needs no braces around a single token; the end is then a space, a dollar sign or a full stop.
    if not rest.lstrip().startswith("{"):
        return re.split(r"[\s$.]", rest.strip(), maxsplit=1)[0] or None
    depth, body = 0, rest.lstrip()
    for position, letter in enumerate(body):
        depth += (letter == "{") - (letter == "}")
        if depth == 0:
            return body[1:position]
    return None


def cut_off(answer: str) -> bool:
    r"""Return whether the brackets of a formula do not match, as in "1}^N"."""
    # Round and square brackets are counted together: the interval [0, 1) is whole.
    braces = answer.count("{") - answer.count("}")
    return braces != 0 or sum(map(answer.count, "([")) != sum(map(answer.count, ")]"))


def _parts(value: Any, repairs: Repairs) -> list[Any]:
    if isinstance(value, list | tuple):
        return list(value)
    # Only a list of quoted texts: [1, 2] may itself be the answer.
    if isinstance(value, str) and re.fullmatch(r"\s*\[\s*(['\"]).*\1\s*\]\s*", value, re.DOTALL):
        try:
            parts = ast.literal_eval(value.strip())
        except (ValueError, SyntaxError):
            return [value]
        if all(isinstance(part, str) for part in parts):
            repairs["list written as text"] += 1
            return list(parts)
    return [] if value is None else [value]


def _text(value: Any) -> str:
    # Columns of numbers may be stored as floats; the answer 5.0 means 5.
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _bare(text: str, repairs: Repairs) -> str:
    inside = boxed(text)
    if inside is not None:
        repairs["sentence around a \\boxed answer"] += 1
        text = inside.strip()
    # "$x$ and $y$" are two formulas, not one between dollar signs.
    if len(text) > 2 and text[0] == text[-1] == "$" and "$" not in text[1:-1]:
        repairs["$ around an answer"] += 1
        text = text[1:-1].strip()
    return text


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
