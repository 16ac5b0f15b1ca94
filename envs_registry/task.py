"""`Task`: one question with its gold answers, immutable. Every data set is converted to tasks."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

Kind = Literal["math", "qa", "mcq"]


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

    Raises:
        ValueError: the question or an answer is blank, `answers` is not a tuple, or the kind is unknown.
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

    def as_dict(self) -> dict[str, Any]:
        """Return the task as plain data, `answers` as a list."""
        return {**asdict(self), "answers": list(self.answers)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Task:
        """Read back what `as_dict` wrote."""
        return cls(**{**data, "answers": tuple(data["answers"])})
