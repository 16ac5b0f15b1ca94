"""`Task`: one question with its gold answers. Every data set is mapped to it; it is immutable."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

Kind = Literal["math", "qa", "mcq"]


@dataclass(frozen=True)
class Task:
    r"""One question.

    Attributes:
        id: unique within its source and stable from run to run.
        question: what the policy is asked.
        answers: the accepted answers, best first; none of them blank.
        kind: how answers are compared.
        language: of the question, as in "en" or "zh".
        source: where it comes from: a data set's name, or the generator's.
        level: difficulty where the source has one ("1", "Level 5", ...), else "".
        setup: Python that is run in a fresh interpreter before the first tool call, else "". The policy does not
            see it; it meets what it defines. It must not hold an answer (`setup_check`).

    Raises:
        ValueError: the question or an answer is blank, the answers are no tuple, or the kind is none.
    """

    id: str
    question: str
    answers: tuple[str, ...]
    kind: Kind = "qa"
    language: str = "en"
    source: str = ""
    level: str = ""
    setup: str = ""

    def __post_init__(self) -> None:
        if not self.question.strip():
            raise ValueError(f"task {self.id!r} has a blank question")
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
