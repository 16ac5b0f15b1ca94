"""`Task`: one question with its gold answers, immutable. Every data set is converted to tasks.

`check_setup` rejects a task whose setup code contains its gold answer, where the policy's code could find it: it can
inspect all variables that a setup defines, and the constants of functions, even of deleted ones while their memory
lasts. So a setup may compute a gold answer, but must not contain it.
"""

from __future__ import annotations

import ast
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import Any, Literal, get_args

Kind = Literal["math", "qa", "mcq"]
_HALF = re.compile(
    "[\ud800-\udfff]"
)  # of a surrogate pair, as JSON can hold it; neither UTF-8 nor a tokenizer takes it
_OPTIONAL = ("files", "start_url")  # left out of `as_dict` where they are empty, as in rows of older versions


@dataclass(frozen=True)
class Task:
    r"""One question.

    Attributes:
        id: unique within its source and stable between runs.
        question: the question for the policy.
        answers: the accepted answers, best first; none is blank.
        kind: how answers are compared.
        language: language of the question, such as "en" or "zh".
        source: name of the data set or the generator.
        level: difficulty, if the source has levels ("1", "Level 5", ...), else "".
        setup: Python code that is run in a fresh interpreter before the first tool call, or "". The policy does not
            see the code, only the variables that it defines. It must not contain an answer (`check_setup`).
        category: subject or type of question, if the source has one ("Algebra", "bridge", "Physics", ...), else "".
        files: paths of the attached files on this machine. An episode has them under their names in the working
            directory of its interpreter. A question that does not name them gets a line that does.
        start_url: address of the web page at which the tool `browse` starts, or "".

    Raises:
        ValueError: the question or an answer is blank or no text, `answers` or `files` is no tuple, two files have the
            same name, a name has control characters, or the kind is unknown.
    """

    id: str
    question: str
    answers: tuple[str, ...]
    kind: Kind = "qa"
    language: str = "en"
    source: str = ""
    level: str = ""
    setup: str = ""
    category: str = ""
    files: tuple[str, ...] = ()
    start_url: str = ""

    def __post_init__(self) -> None:
        # A string would pass for a sequence of answers of one letter each.
        if not isinstance(self.answers, tuple):
            raise ValueError(f"task {self.id!r}: answers is a tuple, as in ('Paris',); got {self.answers!r:.80}")
        if isinstance(self.files, str):
            raise ValueError(f"task {self.id!r}: files is a tuple, as in ('a.csv',); got {self.files!r:.80}")
        for text in (self.question, *self.answers):
            if not isinstance(text, str):
                raise ValueError(
                    f"task {self.id!r}: its question and its answers are texts, as in '5'; got {text!r:.80}"
                )
            if _HALF.search(text):
                raise ValueError(f"task {self.id!r}: {text!a:.80} holds half of a surrogate pair; take it out")
        if not self.question.strip():
            raise ValueError(f"task {self.id!r} has a blank question")
        if self.kind not in get_args(Kind):
            raise ValueError(f"task {self.id!r}: kind must be one of {', '.join(get_args(Kind))}, not {self.kind!r}")
        if not any(answer.strip() for answer in self.answers):
            raise ValueError(f"task {self.id!r} has no answer: give at least one non-blank string in `answers`")
        if not all(answer.strip() for answer in self.answers):
            raise ValueError(f"task {self.id!r} has a blank answer, which an empty box would meet; leave it out")
        if self.files:
            self._check_files()
        if unnamed := [name for name in self.file_names if not _is_named(name, self.question)]:
            label = "Attached file" if len(unnamed) == 1 else "Attached files"
            object.__setattr__(self, "question", f"{self.question}\n\n{label}: {', '.join(unnamed)}")

    @property
    def file_names(self) -> tuple[str, ...]:
        """Names of the attached files, without their folders."""
        return tuple(PurePath(file).name for file in self.files)

    def _check_files(self) -> None:
        if any(unicodedata.category(character) in ("Cc", "Cs") for name in self.file_names for character in name):
            raise ValueError(
                f"task {self.id!r}: the name of a file has to be plain text on one line, not {self.file_names!r:.200}"
            )
        if twice := [name for name, count in Counter(self.file_names).items() if count > 1]:
            raise ValueError(f"task {self.id!r}: two files have the name {twice[0]!r}; rename one of them")

    def as_dict(self) -> dict[str, Any]:
        """Return the task as plain data, `answers` and `files` as lists; `files` and `start_url` only where given."""
        data = {**asdict(self), "answers": list(self.answers), "files": list(self.files)}
        return {name: value for name, value in data.items() if value or name not in _OPTIONAL}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Task:
        """Read back what `as_dict` wrote."""
        return cls(**{**data, "answers": tuple(data["answers"]), "files": tuple(data.get("files", ()))})


def _is_named(name: str, question: str) -> bool:
    # "data.csv" does not name "a.csv"
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)", question, re.ASCII) is not None


_LEAST = 4  # letters and digits; shorter answers ("5", "yes", "B") occur in any code by chance
# Long enough to be distinctive, but they occur in ordinary code as well.
_COMMON = frozenset({"true", "false", "none", "zero", "null"})
# a line that gives a value to something named like an answer: answer = 5, {"gold": "B"}, f(expected=4), def solution()
_TELLING = re.compile(
    r"(?<![^\W_])(?:answers?|golds?|golden|solutions?|expected|truth|correct|secret|hidden)(?:_\w*)?['\"]?\]?\s*[:=(]",
    re.IGNORECASE,
)


def check_setup(task: Task) -> None:
    """Raise if the setup of a task contains one of its answers.

    An answer of at least four letters or digits must not occur there, neither as a number of the same value, nor as
    whole words of a string, nor as a name. Shorter ones are rejected only in a line that gives a value to something
    named like an answer (`answer = 5`, `{"gold": "B"}`). Comments never reach the interpreter.
    """
    found = shown_answer(task.setup, task.answers) if task.setup else None
    if found is not None:
        answer, line = found
        raise ValueError(
            f"task {task.id!r}: line {line} of its setup holds the gold answer {answer!r}, where the policy's code can "
            "read it; compute it there from other values, or remove it"
        )


def shown_answer(setup: str, answers: tuple[str, ...]) -> tuple[str, int] | None:
    """Return an answer that the setup contains and its line; None if there is none or the setup is not valid Python."""
    try:
        tree = ast.parse(setup)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # the sandbox reports the syntax error
    literals, lines = list(_literals(tree)), setup.split("\n")
    named = [(value, line) for value, line in literals if _TELLING.search(lines[line - 1])]
    for answer in answers:
        letters = "".join(_words(answer))
        for value, line in literals if len(letters) >= _LEAST and letters not in _COMMON else named:
            if _holds(value, answer):
                return answer, line
    return None


def _literals(tree: ast.AST) -> Iterator[tuple[object, int]]:
    """Yield every constant and name within a piece of code, with its line."""
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 1)
        match node:
            case ast.Constant(value):
                yield value, line
            # Python's syntax has no negative literals: -5 is a minus in front of 5.
            case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as number)):
                yield -number, line
            # Each half alone says nothing, so the sum is one more literal to look at.
            case ast.BinOp(ast.Constant(str() as left), ast.Add(), ast.Constant(str() as right)):
                yield left + right, line
            case ast.Name(name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(name):
                yield name, line
            case ast.Attribute(attr=name) | ast.keyword(arg=str() as name):
                yield name, line


def _holds(value: object, answer: str) -> bool:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        wanted, text = _words(answer), _words(value)
        # An answer of signs alone, such as "+", has no words to compare.
        if not wanted:
            return answer.strip() in value
        return any(text[start : start + len(wanted)] == wanted for start in range(len(text) - len(wanted) + 1))
    # Before the numbers: bool is a subclass of int, and True would equal the answer 1.
    if isinstance(value, bool) or value is None:
        return str(value).casefold() == answer.strip().casefold()
    if isinstance(value, int | float):
        try:
            return float(answer.replace(",", "").strip(" $%")) == value
        except (ValueError, OverflowError):
            return False
    return False


def _words(text: str) -> list[str]:
    """Return the words of a text in lower case, without thousands separators in numbers."""
    text = unicodedata.normalize("NFKC", text).casefold()
    return re.findall(r"[^\W_]+", re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text))
