"""`SynthSettings`: what is sampled from the questions, and which samples are kept.

What decides the samples (environments, models, seed, sampling) is fixed once a folder has some. What decides how many
are played and which are kept may change: the files are written anew from the stored samples.
"""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from arpo_env.protocols.protocol import tool_names
from arpo_env.tools.tool import JsonSchema
from arpo_trainer.evaluation.eval_settings import EvalSettings
from arpo_trainer.rollout.rendering import Renderer
from arpo_trainer.validation import check_lowest, check_name, check_types

# Hints that are put into reasoning without tools, so that the model goes on with tools (Tool-Star, sec. 3.1).
#
# "verify" follows a sentence that sounds uncertain; "reflect" stands where the answer would be given. The text is cut
# there, and the model continues behind the hint. Of the sampled tokens, those before the cut are kept as they are; only
# the characters of a token that the cut divides, and the hint, are tokenised.
#
#     opening(renderer, schemas, "reflect", generation.ids, generation.entropies, "42", random.Random(0))

_UNCERTAIN = re.compile(
    r"\b(?:wait|hmm+|maybe|perhaps|probably|possibly|presumably|alternatively|roughly|approximately|i think|i believe"
    r"|i guess|i recall|i assume|(?:not|un)[ -]?(?:sure|certain)|might|should be|seems?|if i remember"
    r"|let me (?:check|verify|double[- ]check|recompute|recalculate|re-?check|think again))\b"
    r"|等等|等一下|可能|也许|或许|大概|大约|似乎|应该是|不确定|我想|我记得|让我(?:检查|验证|再)",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?](?=\s|<|$)|[。！？\n]")
_TOOLS = {"en": {"python": "Python", "search": "a search"}, "zh": {"python": "Python", "search": "搜索"}}
HINTS: dict[str, dict[str, tuple[str, ...]]] = {
    "verify": {
        "en": (
            "I am not certain of this step, so I check it with {tools} before I go on.",
            "This has to be verified: I use {tools} for it.",
            "I should not rely on this from memory. {tools} can tell, so I ask before I continue.",
        ),
        "zh": ("这一步我不确定，先用{tools}验证再继续。", "这里需要核实：我用{tools}来检查。"),
    },
    "reflect": {
        "en": (
            "My answer so far is {answer}. Before I give it, I check it with {tools}.",
            "So far I get {answer}. I look at it again with {tools} first.",
        ),
        "zh": (
            "目前的答案是{answer}。作答之前，我先用{tools}检查一遍。",
            "到这里得到{answer}，先用{tools}再验证一次。",
        ),
    },
}
_MOST_ANSWER = 200  # characters that are quoted
_MOST_SENTENCES = 16  # whose entropies are compared, each of which decodes the turn some times


class NoPlaceForHint(ValueError):
    """Raised where a hint cannot be put; the message is the cause, by which they are counted."""


def opening(
    renderer: Renderer,
    schemas: Sequence[JsonSchema],
    kind: str,
    ids: Sequence[int],
    entropies: Sequence[float],
    answer: str | None,
    rng: random.Random,
    language: str = "en",
) -> list[int]:
    """Return the ids that a turn with tools begins with: the sample up to the cut, and the hint.

    Args:
        renderer: of the model, and of the protocol with tools.
        schemas: of the tools that the continuation has.
        kind: a key of `HINTS`.
        ids: ids of the turn without tools.
        entropies: of these tokens, in nats; zeros where they are not known.
        answer: the answer that the turn gave.
        rng: chooses the wording, and the place where the entropies do not.
        language: of the question: "en" or "zh".
    """
    turn, native, tools = SampledTurn(renderer, ids, entropies), renderer.protocol.native, tool_names(schemas)
    place = -1 if native else turn.text.rfind("<answer>")
    end = len(turn.text.rstrip()) if place < 0 else place  # where the answer begins, or the text ends
    marks = "|".join(map(re.escape, (*tools, "answer", "result", "tool_call", "tool_response")))
    if re.search(rf"</?(?:{marks})>", turn.text[:end]):
        raise NoPlaceForHint("marks of tools in the text")
    if kind == "verify":
        end = _uncertain_end(turn, end, rng)
    elif answer is None or not answer.strip():
        raise NoPlaceForHint("no answer to reflect on")
    kept, rest = turn.cut(end)
    hint = _hint(kind, turn.text[:end], answer or "", tools, language, native, rng)
    # `first` would take a thought that begins here for the one that a template has opened
    return [*kept, *renderer.turn_ids(rest + hint, first=False)]


def _hint(
    kind: str, before: str, answer: str, tools: Sequence[str], language: str, native: bool, rng: random.Random
) -> str:  # fmt: skip
    language = language if language in _TOOLS else "en"
    english, words = language == "en", _TOOLS[language]
    # an answer with tags would be read as one
    quotable = len(answer) <= _MOST_ANSWER and "<" not in answer
    quoted = answer if quotable else "this" if english else "如此"
    named = (" or " if english else "或").join(words.get(name, name) for name in tools)
    text = rng.choice(HINTS[kind][language]).format(tools=named, answer=quoted)
    text = text[0].upper() + text[1:]
    space = "" if not before or before[-1].isspace() else " "
    if before.rfind("<think>") > before.rfind("</think>"):
        return f"{space}{text}</think>\n"
    return f"{space}{text}\n" if native else f"{space}<think>{text}</think>\n"


class SampledTurn:
    """The text of a sampled turn, and which tokens its characters come from."""

    def __init__(self, renderer: Renderer, ids: Sequence[int], entropies: Sequence[float]) -> None:
        self._renderer, self._ids, self._entropies = renderer, list(ids), entropies
        self.text = self._decoded(len(ids))
        # an end token adds no text, and nothing may follow it
        while self._ids and self._decoded(len(self._ids) - 1) == self.text:
            self._ids.pop()

    def cut(self, place: int) -> tuple[list[int], str]:
        """Return the tokens that lie before a place in the text as a whole, and the characters between them and it."""
        number = self.token(place)
        while number and not self.text.startswith(self._decoded(number)):  # it ends in the middle of a character
            number -= 1
        return self._ids[:number], self.text[len(self._decoded(number)) : place]

    def token(self, place: int) -> int:
        """Return how many tokens end at or before a place in the text."""
        low, high = 0, len(self._ids)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if len(self._decoded(middle)) <= place else (low, middle - 1)
        return low

    def entropy(self, begin: int, end: int) -> float:
        """Return the mean entropy of the tokens between two places in the text, in nats."""
        values = self._entropies[self.token(begin) : self.token(end)]
        return sum(values) / len(values) if values else 0.0

    def _decoded(self, number: int) -> str:
        return self._renderer.turn_text(self._ids[:number], first=True)


def _uncertain_end(turn: SampledTurn, end: int, rng: random.Random) -> int:
    """Return the end of the uncertain sentence that the model was the least sure of, by the entropies of its tokens."""
    sentences: list[tuple[int, int]] = []
    for match in _UNCERTAIN.finditer(turn.text, 0, end):
        if sentences and match.start() < sentences[-1][1]:
            continue  # the same sentence; a teacher that loops writes thousands of such words
        stop = _SENTENCE_END.search(turn.text, match.end(), end)
        place = stop.end() if stop else end
        # a sentence may go on into the end of the thought
        closing = turn.text.find("</think>", match.end(), place)
        sentences.append((match.start(), closing if closing >= 0 else place))
    if not sentences:
        raise NoPlaceForHint("no uncertain phrase")
    if len(sentences) > _MOST_SENTENCES:
        sentences = rng.sample(sentences, _MOST_SENTENCES)
    return max((turn.entropy(*sentence), rng.random(), sentence[1]) for sentence in sentences)[2]


FORMATS = ("sharegpt", "alpaca", "messages")
_OF_EVALUATIONS = ("first_task", "samples", "algorithm", "inference")  # the stages say these here
_SAMPLING = {"temperature": 0.8, "repetition_penalty": 1.0}  # several samples of a question should differ
_LOWEST = {**dict.fromkeys(("direct", "tir", "max_failed", "max_tokens"), 0), "max_calls": 1, "max_per_task": 1}


@dataclass(frozen=True)
class SynthSettings(EvalSettings):
    """The settings of a synthesis: those of an evaluation that say what is played and how, and these.

    Attributes:
        direct: samples without tools of each question and model.
        tir: samples with tools.
        opening: text that each sample with tools begins with, for a teacher that does not call tools by itself, such as
            "<think>I compute this with Python.</think><python>"; the rows have it, too.
        hints: kinds of hints that are put into the samples without tools: "verify", "reflect".
        easy: a question whose samples without tools are right at least this often needs no tools. 0 disables this.
        hard: a question whose samples with tools are right at most this often is kept for reinforcement learning.
        all_questions: sample with tools also where a question needs none.
        min_score: least score of a right answer, 0 to 1.
        max_calls: maximum number of tool calls of a sample (Tool-Star: 5).
        max_failed: maximum number of tool calls of a sample that may fail.
        max_tokens: maximum number of tokens of a sample after the prompt; 0 is any number.
        max_per_task: maximum number of samples of a question that are kept.
        against: evaluation sets, as ENV, ENV:SPLIT or ENV:SPLIT=PATH; questions that are in them are left out.
        format: "sharegpt", "alpaca" or "messages".
    """

    direct: int = 2
    tir: int = 3
    opening: str = ""
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

    def __post_init__(self) -> None:
        super().__post_init__()
        check_types(self, SynthSettings.__annotations__)
        check_name("format", self.format, FORMATS)
        for hint in self.hints:
            check_name("hints", hint, HINTS)
        check_lowest(self, _LOWEST)
        for name in ("easy", "hard", "min_score"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is a share, from 0 to 1; got {getattr(self, name)}")
        if not self.direct + self.tir:
            raise ValueError("nothing is sampled: set direct, tir, or both")

    @property
    def play(self) -> EvalSettings:
        """What decides the samples, as the settings of an evaluation."""
        values = {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(EvalSettings)}
        return EvalSettings(**{**values, "rollout": {**_SAMPLING, **self.rollout}})

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as plain data."""
        values = {name: value for name, value in dataclasses.asdict(self).items() if name not in _OF_EVALUATIONS}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SynthSettings:
        """Read settings as `as_dict` or a user wrote them."""
        known = [entry.name for entry in dataclasses.fields(cls) if entry.name not in _OF_EVALUATIONS]
        for name in data:
            check_name("the settings of a synthesis", name, known)
        if not data.get("environments"):
            raise ValueError("name the environments whose questions are taken")
        lists = {name: data[name] for name in ("environments", "hints", "against") if name in data}
        several = {name: (one,) if isinstance(one, str) else tuple(one or ()) for name, one in lists.items()}
        return cls(**{**data, **several})


# The stages of a synthesis: direct answers, samples with tools, and continuations after hints. The samples of a stage
# are stored under a label of their own, such as "GSM8K-v0/tir".

DIRECT, TIR = "direct", "tir"
STAGES = (DIRECT, TIR, *HINTS)


def stage_of(label: str) -> tuple[str, str]:
    """Return the environment and the stage of a label."""
    env, _, stage = label.rpartition("/")
    return env, stage
