"""`SynthSettings`: what is sampled from the questions, and which samples are kept.

What decides the samples (environments, models, seed, sampling) is fixed once a folder has some. What decides how many
are played and which are kept may change: the files are written anew from the stored samples.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from arpo_trainer.evaluation.eval_settings import EvalSettings
from arpo_trainer.synthesis.hints import HINTS
from arpo_trainer.validation import check_name, check_types

FORMATS = ("sharegpt", "alpaca", "messages")
_PLAY = (
    *("environments", "env_options", "models", "tasks", "seed", "rollout", "chat_template_kwargs", "concurrency"),
    *("limits", "max_broken", "cache", "cache_mode"),
)
_SAMPLING = {"temperature": 0.8, "repetition_penalty": 1.0}  # several samples of a question should differ


@dataclass(frozen=True)
class SynthSettings:
    """The settings of a synthesis.

    Attributes:
        environments: ids of environments; their questions, tools and graders are used.
        env_options: options of all these environments.
        models: the facts of the models by label (`EvalModel.facts`).
        tasks: the first N questions of each environment; None is all.
        direct: samples without tools of each question and model.
        tir: samples with tools.
        hints: kinds of hints that are put into the samples without tools: "verify", "reflect".
        easy: a question whose samples without tools are right at least this often needs no tools. 0 disables this.
        hard: a question whose samples with tools are right at most this often is kept for reinforcement learning.
        all_questions: sample with tools also where a question needs none.
        min_score: the least score of a right answer, 0 to 1.
        max_calls: most tool calls of a sample (Tool-Star: 5).
        max_failed: most tool calls of a sample that may fail.
        max_tokens: most tokens of a sample after the prompt; 0 is any number.
        max_per_task: most samples of a question that are kept.
        against: evaluation sets, as ENV, ENV:SPLIT or ENV:SPLIT=PATH; questions that are in them are left out.
        format: "sharegpt", "alpaca" or "messages".
        seed: of everything that is drawn.
        rollout: fields of `RolloutSettings`, such as temperature.
        chat_template_kwargs: arguments for the chat template.
        concurrency: most episodes of one model at once.
        limits: most operations of one kind at once, such as {"python": 8}.
        max_broken: largest share of samples that may break before the command ends with an error status.
        cache: file that records what was generated and asked outside.
        cache_mode: "record" or "replay".

    Raises:
        ValueError: a setting is unknown, has the wrong type, or cannot work.
    """

    environments: tuple[str, ...]
    env_options: dict[str, Any] = field(default_factory=dict)
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    tasks: int | None = None
    direct: int = 2
    tir: int = 3
    hints: tuple[str, ...] = tuple(HINTS)
    easy: float = 0.5
    hard: float = 0.0
    all_questions: bool = False
    min_score: float = 1.0
    max_calls: int = 5
    max_failed: int = 1
    max_tokens: int = 0
    max_per_task: int = 4
    against: tuple[str, ...] = ()
    format: str = "sharegpt"
    seed: int = 0
    rollout: dict[str, Any] = field(default_factory=dict)
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    concurrency: int = 64
    limits: dict[str, int] = field(default_factory=dict)
    max_broken: float = 0.02
    cache: str | None = None
    cache_mode: str | None = None

    def __post_init__(self) -> None:
        check_types(self, SynthSettings.__annotations__)
        check_name("format", self.format, FORMATS)
        for hint in self.hints:
            check_name("hints", hint, HINTS)
        for name in ("direct", "tir", "max_failed", "max_tokens"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}")
        for name in ("max_calls", "max_per_task"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("easy", "hard", "min_score"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is a share, from 0 to 1; got {getattr(self, name)}")
        if not self.direct + self.tir:
            raise ValueError("nothing is sampled: set direct, tir, or both")
        _ = self.play  # checks what it shares with an evaluation

    @property
    def play(self) -> EvalSettings:
        """What decides the samples, as the settings of an evaluation."""
        values = {name: getattr(self, name) for name in _PLAY}
        return EvalSettings(**{**values, "rollout": {**_SAMPLING, **self.rollout}})

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as plain data."""
        return {
            name: list(value) if isinstance(value, tuple) else value for name, value in dataclasses.asdict(self).items()
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SynthSettings:
        """Read settings as `as_dict` or a user wrote them.

        Raises:
            ValueError: a name is unknown, or a value cannot work.
        """
        fields = [entry.name for entry in dataclasses.fields(cls)]
        for name in data:
            check_name("the settings of a synthesis", name, fields)
        if not data.get("environments"):
            raise ValueError("name the environments whose questions are taken")
        lists = ("environments", "hints", "against")
        return cls(**{**data, **{name: _several(data[name]) for name in lists if name in data}})


def _several(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value or ())
