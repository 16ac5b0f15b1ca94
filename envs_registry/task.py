"""`Task`: one question with its gold answers, immutable. Every data set is converted to tasks."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import Any, Literal, get_args

Kind = Literal["math", "qa", "mcq"]
_OPTIONAL = ("files", "start_url")  # left out of `as_dict` where they are empty, as in rows of older versions


def _is_named(name: str, question: str) -> bool:
    """Return whether a text names a file: "data.csv" does not name "a.csv"."""
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)", question, re.ASCII) is not None


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
        category: subject or type of question, if the source has one ("Algebra", "bridge", "Physics", ...), else "".
        setup: Python code that is run in a fresh interpreter before the first tool call, or "". The policy does not
            see the code, only the variables that it defines. It must not contain an answer (`answer_leak_check`).
        files: paths of the attached files on this machine. An episode has them under their names in the working
            directory of its interpreter. A question that does not name them gets a line that does.
        start_url: address of the web page at which the tool `browse` starts, or "".

    Raises:
        ValueError: the question or an answer is blank, `answers` or `files` is not a tuple, two files have the same
            name, a name has control characters, or the kind is unknown.
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
        if not self.question.strip():
            raise ValueError(f"task {self.id!r} has a blank question")
        # A string would pass for a sequence of answers of one letter each.
        if not isinstance(self.answers, tuple):
            raise ValueError(f"task {self.id!r}: answers is a tuple, as in ('Paris',); got {self.answers!r:.80}")
        if self.kind not in get_args(Kind):
            raise ValueError(f"task {self.id!r}: kind must be one of {', '.join(get_args(Kind))}, not {self.kind!r}")
        if not any(answer.strip() for answer in self.answers):
            raise ValueError(f"task {self.id!r} has no answer: give at least one non-blank string in `answers`")
        if not all(answer.strip() for answer in self.answers):
            raise ValueError(f"task {self.id!r} has a blank answer, which an empty box would meet; leave it out")
        self._check_files()
        if unnamed := [name for name in self.file_names if not _is_named(name, self.question)]:
            label = "Attached file" if len(unnamed) == 1 else "Attached files"
            object.__setattr__(self, "question", f"{self.question}\n\n{label}: {', '.join(unnamed)}")

    @property
    def file_names(self) -> tuple[str, ...]:
        """Names of the attached files, without their folders."""
        return tuple(PurePath(file).name for file in self.files)

    def _check_files(self) -> None:
        if not isinstance(self.files, tuple) or not all(isinstance(file, str) and file for file in self.files):
            raise ValueError(f"task {self.id!r}: files is a tuple of paths, as in ('a.xlsx',); got {self.files!r:.80}")
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
