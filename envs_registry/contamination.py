"""Finds questions of one source that are also in another: contamination of an evaluation set by a training set.

Two questions are the same if they are equal after NFKC normalisation and case folding, without punctuation and white
space, except for the signs of numbers and formulas. Questions about variables of the interpreter match only if their
setup is the same. Near matches are counted separately: they share at least half of the 13-grams of words of the shorter
question (one word per CJK character). A near match may ask something different about the same thing.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from envs_registry.sources import ListSource, TaskSource
from envs_registry.task import Task

# Sources write the same minus with different characters.
_DASHES = re.compile("[\u2010-\u2015\u2212]")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
# A sign counts only where it belongs to a number: 3-2 is not 32, but "x-ray" is "x ray".
_SIGNS = re.compile(r"[*/^_](?=[\s({\\]*\d)|(?<![^\W\d_])(?<![^\W\d_]\s)-(?=[\s({\\]*\d)|(?<=\d)\.(?=\d)")
_BETWEEN_NUMBERS = re.compile(r" +(?!\d)|(?<!\d) +(?=\d)")  # white space that does not separate two numbers
OVERLAP = ("refuse", "drop", "allow")
"""What `keep_apart` may do."""
GRAM = 13  # words; the customary length, as in the GPT-3 report
NEAR = 0.5  # share of the shorter question's grams
_KEPT = {"Lu", "Ll", "Lt", "Lm", "Lo", "Nd", "Nl", "No", "Mn", "Mc", "Me", "Sm"}  # categories of Unicode
_WORD = re.compile(r"[\u3400-\u9fff]|[^\W_\u3400-\u9fff]+")

_log = logging.getLogger(__name__)

Pair = tuple[Task, Task]


@dataclass(frozen=True)
class Overlap:
    """The tasks that a training and an evaluation source have in common."""

    exact: tuple[Pair, ...]  # a training and an evaluation task with the same question
    near: tuple[Pair, ...]  # with similar questions
    evaluated: int  # number of evaluation tasks

    @property
    def count(self) -> int:
        """Number of evaluation tasks that are also training tasks."""
        return len({task.id for _, task in self.exact})

    @property
    def near_count(self) -> int:
        """Number of further evaluation tasks that are similar to a training task."""
        return len({task.id for _, task in self.near} - {task.id for _, task in self.exact})

    def __str__(self) -> str:
        examples = "; ".join(f"{task.question:.80}" for _, task in self.exact[:3])
        return f"{self.count} of {self.evaluated} evaluation tasks are trained on ({examples})"


def question_key(question: str) -> str:
    """Return the normalised form by which questions are compared: letters, marks, numbers and their signs."""
    folded = _THOUSANDS.sub("", _DASHES.sub("-", unicodedata.normalize("NFKC", question).casefold()))
    signs = {match.start() for match in _SIGNS.finditer(folded)}
    # besides signs: letters, numbers, marks and mathematical symbols
    kept = (c if n in signs or unicodedata.category(c)[:2] in _KEPT else " " for n, c in enumerate(folded))
    return _BETWEEN_NUMBERS.sub("", "".join(kept))


def overlap(train_source: TaskSource, eval_source: TaskSource) -> Overlap:
    """Compare two finite sources."""
    evaluation = list(_tasks(eval_source))
    # Both tables are indexed by content, so that the tasks are not compared pair by pair.
    same, grams = defaultdict(list), defaultdict(set)
    sizes = []
    for number, task in enumerate(evaluation):
        same[_key(task)].append(task)
        own = _grams(task)
        sizes.append(len(own))
        for gram in own:
            grams[gram].add(number)
    exact: list[Pair] = []
    near: list[Pair] = []
    for task in _tasks(train_source):
        key, own = _key(task), _grams(task)
        exact += [(task, other) for other in same.get(key, ())]
        shared = Counter(number for gram in own for number in grams.get(gram, ()))
        # The shorter question decides; the share of a long one would hide a question that it contains.
        close = [number for number, count in shared.items() if count >= NEAR * min(len(own), sizes[number])]
        others = [evaluation[number] for number in sorted(close)]
        # Equal keys are counted as exact already; with another setup the same words are another question.
        near += [(task, other) for other in others if _key(other) != key and other.setup == task.setup]
    return Overlap(tuple(exact), tuple(near), len(evaluation))


def without(source: TaskSource, found: Overlap) -> ListSource:
    """Return the training source without the overlapping tasks, exact and near."""
    ids = {task.id for task, _ in (*found.exact, *found.near)}
    left = [task for task in _tasks(source) if task.id not in ids]
    if not left:
        raise ValueError("every training task is also an evaluation task: nothing is left to train on")
    return ListSource(left)


def keep_apart(train_source: TaskSource, eval_source: TaskSource, setting: str) -> TaskSource:
    """Return the tasks to train on, where those of an evaluation are not to be trained on.

    What the two have in common, and what they ask alike, is logged. The setting "refuse" raises, "drop" leaves them out
    of the training, similar ones too, and "allow" keeps them.
    """
    if setting not in OVERLAP:
        raise ValueError(f"overlap must be one of {', '.join(map(repr, OVERLAP))}; not {setting!r}")
    found = overlap(train_source, eval_source)
    if found.exact and setting == "refuse":
        raise ValueError(
            f"{found}. Give the evaluation other tasks (eval_env, or eval_env_kwargs: {{data: test.jsonl}}); set "
            "overlap to 'drop', which leaves them out of the training, or to 'allow'; or turn evaluation off "
            "(no eval_env, or eval_tasks: 0)"
        )
    if not found.exact and not found.near:
        return train_source
    _log.warning("overlap %s: %s; %d more are similar", setting, found, found.near_count)
    return without(train_source, found) if setting == "drop" else train_source


def _tasks(source: TaskSource) -> Iterator[Task]:
    if source.size is None:
        raise ValueError("an endless source cannot be compared; give it a `limit`")
    return (source.task(number) for number in range(source.size))


def _key(task: Task) -> tuple[str, str]:
    # Questions without a single letter or number have an empty key, which would make them all equal.
    return question_key(task.question) or task.question, task.setup


def _grams(task: Task) -> set[str]:
    words = _WORD.findall(unicodedata.normalize("NFKC", task.question).casefold())
    return {" ".join(words[start : start + GRAM]) for start in range(len(words) - GRAM + 1)}
