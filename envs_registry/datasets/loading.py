"""`DataSet`, one published data set as a row of a table, and how its rows become tasks and an environment.

The tables are in `question_sets`. Rows are repaired while they are read.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, get_args

from envs_registry.contamination import question_key
from envs_registry.datasets.hub import hub_files, hub_rows
from envs_registry.datasets.rows import DataFileError, Row, column, files_of, place_of, read_rows, split_of
from envs_registry.datasets.rows import field as look_up
from envs_registry.sources import ListSource, Loader, TaskSource, UnknownOptionError, register_source
from envs_registry.spec import EnvSpec, register
from envs_registry.task import Kind, Task

# Known faults of published data files are repaired, and each kind of repair is counted. Those of a single set are in
# that set's row. No repair can change the question or the right answer.

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
    (re.compile("[\ud800-\udfff]"), "", "half of a surrogate pair"),
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
    if isinstance(value, Mapping):  # as in SQuAD and TriviaQA; nobody would give the text of an object as an answer
        raise ValueError(f"an answer is {value!r:.80}: write a text, or a list of the accepted texts")
    # Columns of numbers may be stored as floats; the answer 5.0 means 5.
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _bare(text: str, repairs: Repairs) -> str:
    if rationale := re.fullmatch(r".*\n####\s*([^\n]+)", text, re.DOTALL):  # as in copies of GSM8K
        repairs["rationale before the answer"] += 1
        text = rationale[1]
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
class DataSet:
    """One data set. Columns are tried in the order in which they are listed; "info.level" is a field of a column."""

    name: str  # of the environment; in lower case the name of the task source
    description: str  # one line for tables
    hub: str  # id on the Hugging Face hub
    splits: tuple[tuple[str, str], ...]  # our name and the hub's, or several as in "validation|test"; default first
    size: str  # rows per split, for tables
    licence: str
    play: Mapping[str, Any]  # tools, scorer, language and limits of its environment: fields of `EnvSpec`
    gated: str = ""  # URL of the page where the terms are accepted
    configs: tuple[str, ...] = ("",)  # on the hub, read one after the other; "" is the default configuration
    question: tuple[str, ...] = ("question", "problem")  # columns
    answers: tuple[str, ...] = ("answer", "golden_answers", "answer_aliases", "answers")  # all that a row has count
    row_id: str = "id"  # column; the row's number is used if it is missing
    level: str = ""  # column with the difficulty
    levels: tuple[str, ...] = ()  # its values, in lower case and without the word "level"
    category: str = ""  # column with the subject or type of question
    kind: Kind = "qa"  # how answers are compared, if there is no `kind_column`
    kind_column: str = ""
    kinds: tuple[tuple[str, Kind], ...] = ()  # value of that column, and the kind that it means
    steps: tuple[Step, ...] = ()  # changes to a row before it is converted
    reads: tuple[str, ...] = ()  # further columns that the steps need
    drops: tuple[str, ...] = ()  # without an error: "no answer", "cut-off answer", "duplicate question"
    # Columns with the path of an attached file, or a list of them, relative to the folder of the data file or of the
    # set; the first that names something is used.
    files: tuple[str, ...] = ()
    without_files: Step | None = None  # drops rows with files unless the option `files` is on; None: they are loaded
    start_url: str = ""  # column with the page at which the tool `browse` starts

    @property
    def source(self) -> str:
        """Name of the task source."""
        return self.name.lower()

    @property
    def split_names(self) -> tuple[str, ...]:
        """Names of the splits in this library."""
        return tuple(ours for ours, _ in self.splits)

    @property
    def steps_without_files(self) -> tuple[Step, ...]:
        """The steps while attached files are not loaded."""
        return self.steps if self.without_files is None else (*self.steps, self.without_files)

    @property
    def columns(self) -> set[str]:
        """Columns that are needed to convert rows into tasks."""
        named = {*self.question, *self.answers, *self.reads, *self.files, self.row_id, self.level, self.category}
        named |= {self.kind_column, self.start_url}
        # A dotted name is a field of a column or a column of that name; both are read.
        return {name.partition(".")[0] for name in named if name} | named


# The files that are attached to the rows of a data set: beside a local data file, or on the hub.


def attached_files(row: Row, columns: Sequence[str], folders: Sequence[Path], where: str) -> tuple[str, ...]:
    """Return the paths of a row's files: those of the first column whose files all exist in one of the folders.

    Raises:
        DataFileError: a file was not found, or its path leads out of the folder; the message names it and the cure.
    """
    named = [names for column in columns if (names := _names(row, column))]
    for names in named:
        found = [_place(name, folders) for name in names]
        if all(found):
            return tuple(map(str, found))
    if not named:
        return ()
    lacking = next(name for name in named[0] if _place(name, folders) is None)
    raise DataFileError(
        f"{where}: the attached file {lacking!r} was not found in {' or '.join(map(str, folders))}. Put it there, at "
        "that path (data from the hub: download the whole repository, as `hf download REPOSITORY --repo-type dataset "
        "--local-dir FOLDER` does, and give data=FOLDER), or take it out of the row"
    )


def _names(row: Row, column: str) -> list[str]:
    value = look_up(row, column)
    values = value if isinstance(value, list | tuple) else [value]
    return [name for each in values if each is not None and (name := str(each).strip())]


def _place(name: str, folders: Sequence[Path]) -> Path | None:
    # A data file may come from elsewhere, so it cannot name files outside its folder.
    if not _is_inside(name):
        return None
    try:
        return next((path for folder in folders if (path := folder.absolute() / name).is_file()), None)
    except OSError:  # a name that is too long, or a folder that may not be read
        return None


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and "\0" not in name


@dataclass(frozen=True)
class DataSetSource(ListSource):
    """The tasks of a data set, and where they are from."""

    origin: str = ""  # the local path, or the id on the hub
    split: str = ""
    revision: str = ""  # commit of the hub's repository; "" where it is not known, as of local files
    rows: int = 0  # number of rows that were read
    repairs: dict[str, int] = field(default_factory=dict)  # count of each repaired fault, and of "left out: ..."


DATA_SETS: dict[str, DataSet] = {}  # by the name of their source


def register_data_sets(data_sets: Iterable[DataSet]) -> None:
    """Register an environment and a task source for each data set."""
    for data_set in data_sets:
        named = {name: getattr(data_set, name) for name in ("description", "levels", "size", "licence", "gated")}
        named |= {"splits": data_set.split_names, **data_set.play}
        register([EnvSpec(f"arpo/{data_set.name}-v0", data_set.source, **named)])
        register_source(data_set.source, functools.partial(load, data_set))
        DATA_SETS[data_set.source] = data_set


def load(
    data_set: DataSet,
    *,
    split: str | None = None,
    data: str | Path | None = None,
    level: int | str | None = None,
    kind: str | None = None,
    revision: str | None = None,
    **options: Any,
) -> DataSetSource:
    """Return the tasks of a split, from a local file or folder, else from the hub.

    Args:
        data_set: the data set.
        split: name of the split; None means the one after which a file is named, else the first split.
        data: a file or folder; None means that of `ARPO_DATA`, then the hub.
        level: a level, or several as in "1,2"; None means all levels.
        kind: "math", "qa" or "mcq", for the tasks of one kind of a set that has several; None means all.
        revision: commit, tag or branch of the hub's repository; None means the newest.
        options: options of the set itself, such as `files` of GAIA.

    Raises:
        UnknownOptionError: the set does not have one of the options.
        ValueError: there is no such split, level or kind, or a revision of local files is asked for.
        DataFileError: a file or row is broken; the message names it.
        HubError: the hub refused the data set; the message says how to get it.
    """
    place = place_of(data_set.source, data)
    if split is None and place is not None and place.is_file():
        split = split_of(place, data_set.split_names)
    split = _one_of(data_set, "split", split or data_set.split_names[0], data_set.split_names)
    wanted = [] if level is None else [_level(part) for part in str(level).split(",")]
    levels = {_one_of(data_set, "level", name, data_set.levels) for name in wanted}
    kinds = tuple(dict.fromkeys(known for _, known in data_set.kinds)) or (data_set.kind,)
    if kind is not None:
        _one_of(data_set, "kind", kind, kinds)
    own = [] if data_set.without_files is None else ["files"]
    for name in options:
        if name not in own:
            raise UnknownOptionError(data_set.name, name, ("split", "data", "level", "kind", "revision", *own))
    if revision is not None and place is not None:
        raise ValueError(f"revision={revision!r} is of the hub, but {data_set.name} is read from {place}: leave it out")
    with_files = bool(data_set.files) and (not own or bool(options.get("files")))
    origin, rows, commit = _read(data_set, split, place, with_files, revision)
    steps = data_set.steps if with_files else data_set.steps_without_files
    repairs: Repairs = Counter()
    tasks = list(_tasks(data_set, split, rows, steps, repairs))
    # After all rows were converted, so that the message can name the levels that exist.
    if levels:
        there = ", ".join(sorted({task.level for task in tasks})) or "no levels"
        tasks = [task for task in tasks if task.level in levels]
        if not tasks:
            raise ValueError(
                f"{origin}: no row of level {', '.join(sorted(levels))}; column {data_set.level!r} has {there}. "
                "Leave `level` out"
            )
    if kind is not None and not (tasks := [task for task in tasks if task.kind == kind]):
        raise ValueError(f"{origin}: no row of kind {kind!r}. Leave `kind` out")
    counts = {name: count for name, count in sorted(repairs.items()) if count}
    return DataSetSource(tasks, origin, split, commit, len(rows), counts)


PlacedRow = tuple[str, Row, tuple[Path, ...]]
"""Where a row stands, for messages; the row; and the folders of its attached files (none if they are not loaded)."""


def _read(
    data_set: DataSet, split: str, place: Path | None, with_files: bool, revision: str | None
) -> tuple[str, list[PlacedRow], str]:
    if place is None:
        hub, source, gated = data_set.hub, data_set.source, data_set.gated
        rows, commit = hub_rows(
            hub, data_set.configs, dict(data_set.splits)[split], data_set.columns, source, gated, revision
        )
        folders: tuple[Path, ...] = ()
        if with_files:
            chosen = [next(filter(None, (_names(row, column) for column in data_set.files)), []) for _, row in rows]
            if paths := sorted({name for names in chosen for name in names if _is_inside(name)}):
                folders = (hub_files(hub, paths, source, gated, commit or revision),)
        return hub, [(f"{hub}, {where}", row, folders) for where, row in rows], commit
    placed: list[PlacedRow] = []
    for file in files_of(place, split, data_set.split_names):
        folders = tuple(dict.fromkeys([place if place.is_dir() else file.parent, file.parent])) if with_files else ()
        placed += [(f"{file}, {where}", row, folders) for where, row in read_rows(file)]
    return str(place), placed, ""


def _tasks(
    data_set: DataSet, split: str, rows: Iterable[PlacedRow], steps: tuple[Step, ...], repairs: Repairs
) -> Iterator[Task]:
    ids: set[str] = set()
    seen: set[str] = set()
    for number, placed in enumerate(rows):
        task = _converted(data_set, split, number, placed, steps, repairs)
        if task is None:
            continue
        # The key of the comparison with other sets, so that punctuation alone makes no new question.
        key = question_key(task.question) if "duplicate question" in data_set.drops else ""
        if key and key in seen:
            repairs["left out: duplicate question"] += 1
            continue
        seen.add(key)
        if task.id in ids:  # the parts of a set may each number their rows from 0
            task = dataclasses.replace(task, id=f"{task.id}-row{number}")
        ids.add(task.id)
        yield task


def _converted(
    data_set: DataSet, split: str, number: int, placed: PlacedRow, steps: tuple[Step, ...], repairs: Repairs
) -> Task | None:
    """Return the task of a row; None if the set leaves it out.

    Raises:
        DataFileError: the row is broken; the message names its place.
    """
    where, row, folders = placed
    try:
        for step in steps:
            changed = step(row, repairs)
            if changed is None:
                return None
            row = changed
        kind = _kind(data_set, row)
        golds = answers((look_up(row, name) for name in data_set.answers), kind, repairs)
    except ValueError as error:
        raise DataFileError(f"{where}, {error}") from error
    question = clean(column(row, data_set.question, where), repairs)
    used = next(name for name in data_set.question if look_up(row, name) is not None)
    if used != data_set.question[0]:
        repairs[f"question in column {used!r}"] += 1
    # No right answer equals a formula that was cut off, so the task could only punish.
    fault = "no answer" if not golds else "cut-off answer" if kind == "math" and cut_off(golds[0]) else ""
    if fault in data_set.drops:
        repairs[f"left out: {fault}"] += 1
        return None
    if not golds:
        column(row, data_set.answers, where)  # names what is missing or blank; a list may have blanks alone
        named = " or ".join(repr(name) for name in data_set.answers if look_up(row, name) is not None)
        raise DataFileError(f"{where}, column {named}: holds no answer")

    def text(name: str) -> str:
        # a column without a name, as the index of a CSV file, is not meant
        return str(look_up(row, name) or "").strip() if name else ""

    given = look_up(row, data_set.row_id)
    return Task(
        id=f"{data_set.source}-{split}-{number if given in (None, '') else given}",
        question=question,
        answers=golds,
        kind=kind,
        language=_language(question),
        source=data_set.source,
        level=_level(look_up(row, data_set.level)) if data_set.level else "",
        category=text(data_set.category),
        files=attached_files(row, data_set.files, folders, where) if folders else (),
        start_url=text(data_set.start_url),
    )


def _kind(data_set: DataSet, row: Row) -> Kind:
    value = look_up(row, data_set.kind_column) if data_set.kind_column else None
    if value in (None, ""):  # a CSV file has a cell in every row
        # rows that `arpo synth` wrote say it in our words
        ours = [kind for kind in get_args(Kind) if data_set.kind_column and row.get("kind") == kind]
        return ours[0] if ours else data_set.kind
    kinds = dict(data_set.kinds)
    if value not in kinds:
        raise ValueError(f"column {data_set.kind_column!r}: {value!r} is none of {', '.join(map(repr, kinds))}")
    return kinds[value]


_CHINESE = re.compile("[\u3400-\u9fff]")
# A LaTeX command is matched as a whole, so that it can be told from a word.
_LATIN = re.compile(r"\\[a-zA-Z]+(?:\{[a-z*]+\})?|[a-zA-Z]{2,}")
# Chinese characters divided by Chinese characters and Latin words; LaTeX commands do not count as words
CHINESE_SHARE = 0.5


def _language(question: str) -> str:
    chinese = len(_CHINESE.findall(question))
    words = sum(not word.startswith("\\") for word in _LATIN.findall(question))
    # A question of formulas alone has neither characters nor words, and is not Chinese.
    return "zh" if chinese and chinese >= CHINESE_SHARE * (chinese + words) else "en"


def _level(value: Any) -> str:
    # Sets write "Level 5", "5" or 5.
    return "" if value is None else str(value).strip().lower().removeprefix("level").strip()


def _one_of(data_set: DataSet, what: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ValueError(f"{data_set.name} has the {what}s {', '.join(allowed) or '(none)'}; not {value!r}")
    return value


# Turns user-defined tasks into a task source: a list, a source, a function, a data file, or one of these per split.

Tasks = Iterable[Task] | TaskSource | Callable[..., Iterable[Task] | TaskSource] | str | Path | Mapping[str, Any]
_FOLDER_SPLITS = ("train", "validation", "test")


def own_loader(spec: EnvSpec, tasks: Tasks) -> Loader:
    """Return a loader of these tasks; its parameters are the options of the source (see `register_source`).

    The scorer of the spec decides the kind of tasks that come from a file without a column for it. A ValueError says
    that the tasks have no form that `arpo_env.register` accepts, or that there are none.
    """
    if isinstance(tasks, Mapping) and tasks:
        return _by_split(spec, tasks)
    if isinstance(tasks, str | Path):
        return _file(spec, tasks)
    # Before functions and iterables, since a source may be callable or iterable as well.
    if _is_source(tasks):
        source: Any = tasks
        return lambda: source
    if callable(tasks):
        return _function(spec, tasks)
    # Listed once and now: an iterator can be read only once, and faults show at registration.
    held = _listed(spec.id, tasks)
    return lambda: held


def own_splits(tasks: Tasks) -> tuple[str, ...]:
    """Return the splits of user-defined tasks, the default first; empty if they have no splits."""
    if isinstance(tasks, Mapping):
        return tuple(tasks)
    if isinstance(tasks, str | Path) and Path(tasks).expanduser().is_dir():
        return _FOLDER_SPLITS
    return ()


def _by_split(spec: EnvSpec, tasks: Mapping[str, Any]) -> Loader:
    loaders = {name: own_loader(spec, value) for name, value in tasks.items()}

    def load_split(split: str = next(iter(tasks))) -> TaskSource:
        if split not in loaders:
            raise ValueError(f"{spec.id} has the splits {', '.join(loaders)}; not {split!r}")
        return loaders[split]()

    return load_split


def row_reader(spec: EnvSpec) -> Callable[[Row, int, str], Task | None]:
    """Return a function that makes tasks of an environment from rows: `read(row, number, where)`.

    Rows are read as those of the environment's own data set, else as those of a user's file. None is a row that the set
    leaves out; a DataFileError begins with `where`.
    """
    data_set = DATA_SETS.get(spec.source)
    data_set = dataclasses.replace(data_set, steps=(as_question, *data_set.steps)) if data_set else _own_set(spec)
    steps = data_set.steps_without_files

    def read(row: Row, number: int, where: str) -> Task | None:
        return _converted(data_set, data_set.split_names[0], number, (where, row, ()), steps, Counter())

    return read


def as_question(row: Row, repairs: Repairs) -> Row:
    """Take the question out of `prompt`, a text or messages, and the answer out of `solution`, as TRL names them."""
    found = dict(row)
    if "prompt" in row and not {"question", "problem"} & row.keys():
        found["question"] = row["prompt"]
    for name in ("question", "problem"):
        if isinstance(found.get(name), list | dict):
            found[name] = _only_question(found[name])
    if "solution" in row and not {"answer", "answers", "golden_answers"} & row.keys():
        found["answer"] = row["solution"]
    return found


def _only_question(messages: Any) -> str:
    match messages:
        case [{"role": "user", "content": str() as question}]:
            return question
    raise ValueError(
        f"the question {messages!r:.80} is neither a text nor one message of the user with a text. The environment "
        "writes the instructions and plays the turns: leave the messages of the system and of the assistant out"
    )


def _own_set(spec: EnvSpec, splits: tuple[str, ...] = ("train",)) -> DataSet:
    # A grader object, or a scorer such as "judge", does not tell the kind.
    kind: Any = next((kind for kind in get_args(Kind) if kind == spec.scorer), "qa")
    # Own files are read like a published set; the hub and the limits of play are not used.
    return DataSet(
        name=spec.id,
        description=spec.description,
        hub="",
        splits=tuple((name, name) for name in splits),
        play={},
        size="",
        licence=spec.licence,
        level="level" if spec.levels else "",
        levels=spec.levels,
        category="category",
        kind=kind,
        kind_column="kind",
        kinds=tuple((kind, kind) for kind in get_args(Kind)),
        files=("files",),
        start_url="start_url",
        steps=(as_question,),
    )


def _file(spec: EnvSpec, path: str | Path) -> Loader:
    whole = not Path(path).expanduser().is_dir()
    data_set = _own_set(spec, ("train",) if whole else _FOLDER_SPLITS)

    # Two functions, since options are read from the signature, and a single file has no splits.
    def load_folder(*, split: str | None = None, data: str | Path = path, level: int | str | None = None) -> TaskSource:
        return load(data_set, split=split, data=data, level=level)

    def load_file(*, data: str | Path = path, level: int | str | None = None) -> TaskSource:
        return load(data_set, data=data, level=level)

    return load_file if whole else load_folder


def _function(spec: EnvSpec, function: Callable[..., Any]) -> Loader:
    @functools.wraps(function, assigned=("__module__", "__doc__"), updated=())
    def load_made(**options: Any) -> TaskSource:
        made = function(**options)
        return made if _is_source(made) else _listed(spec.id, made)

    # The parameters of the function become options of the environment, so they have to show through.
    load_made.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]  # a class has one, too
    return load_made


def _is_source(tasks: object) -> bool:
    # A class of sources has these attributes as well, but is a function that makes a source.
    return not inspect.isclass(tasks) and hasattr(tasks, "size") and callable(getattr(tasks, "task", None))


def _listed(env_id: str, tasks: Any) -> ListSource:
    held = list(tasks) if isinstance(tasks, Iterable) and not isinstance(tasks, str) else [tasks]
    wrong = next((task for task in held if not isinstance(task, Task)), None)
    if wrong is not None or not held:
        found = "an empty list" if not held else f"{wrong!r:.80}"
        raise ValueError(
            f"the tasks of {env_id} hold {found}: give a list of Task(id, question, answers), a source, a function "
            "that returns one of these, a data file, or one of these for each split"
        )
    return ListSource(held)
