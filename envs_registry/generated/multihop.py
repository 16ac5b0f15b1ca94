"""MultiHop: an endless, seeded supply of questions of 2 to 4 hops over an invented world, with the corpus to search.

    source = load_source("multihop", split="test", level="2,3")
    source.task(0), source.proof(0), source.solution(0), source.passages

The world is invented and nothing is downloaded, so no model has seen it. Task number i is always the same. The train
and test splits share the world and its passages, but no question: the content of a question, independent of its
wording, decides its split. The first 10,000 questions of each number of hops are distinct. A small world has fewer
distinct questions (about 600 test questions of two hops for 300 passages) and repeats questions after those.

Each seed gives a different world. A model that trains long enough on one world memorises it, so evaluate on another
one: a world with an even seed and a world with an odd seed have no names in common, and therefore no questions.
"""

from __future__ import annotations

import functools
import itertools
import random
import re
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from envs_registry.generated.chosen_tasks import ChosenTasks, chosen_tasks
from envs_registry.generated.multihop_questions import HOPS, Compare, Draft, Form, Meet, draw
from envs_registry.generated.multihop_text import Passage, write_passages
from envs_registry.generated.multihop_world import Fact, World, check_size, make_world
from envs_registry.sources import register_source
from envs_registry.task import Task

SPLITS = ("train", "test")
TEST_SHARE = 10  # one question in ten belongs to the test split
WORLD_SIZE = 3000  # passages
DIFFERENT = 10_000  # distinct questions per number of hops, counted from the first
_MOST_DRAWS = 50  # consecutive repeated draws after which the questions of a small world count as exhausted
_TITLE_WORDS_LEFT_OUT = frozenset({"the", "of", "for", "near", "in", "by", "a", "and"})


@dataclass(frozen=True)
class Proof:
    """The evidence for an answer.

    Attributes:
        passages: ids of the gold passages without repetition, in the order of the hops.
        facts: the fact of each hop; it is stated in the passage whose id is the fact's subject.
        form: the content of the question, independent of its wording.
        distractors: ids of other passages whose title shares a word with a gold passage.
    """

    passages: tuple[str, ...]
    facts: tuple[Fact, ...]
    form: Form
    distractors: tuple[str, ...]


class MultiHopSource:
    """The tasks of one split and level, and their world.

    Args:
        split: "train" or "test".
        level: number of hops: 2, 3 or 4, several as in "2,3", or "mixed" for all of them in turn.
        seed: seed of the world.
        world_size: number of passages.

    Raises:
        ValueError: there is no such split, level or size.
    """

    size = None
    solution_tool = "search"

    def __init__(
        self, split: str = "train", level: int | str = "mixed", seed: int = 0, world_size: int = WORLD_SIZE
    ) -> None:
        if split not in SPLITS:
            raise ValueError(f"MultiHop has the splits {' and '.join(SPLITS)}, not {split!r}")
        check_size(world_size)
        self.split, self.seed, self.world_size = split, seed, world_size
        self.levels = _levels(level)
        self._drafts: dict[int, list[Draft]] = defaultdict(list)  # number of hops -> questions in order
        self._asked: set[str] = set()
        self._exhausted: set[int] = set()  # numbers of hops

    @property
    def world(self) -> World:
        """The world: all entities and facts."""
        return make_world(self.seed, self.world_size)

    @property
    def passages(self) -> tuple[Passage, ...]:
        """The corpus, generated at first use (0.2 CPU s for 3,000 passages)."""
        return write_passages(self.seed, self.world_size)

    def task(self, index: int) -> Task:
        """Return task number `index`."""
        hops, number = self._place(index)
        draft = self._draft(index)
        entity = self.world.entities.get(draft.answer)
        name = f"multihop-{self.split}-{self.seed}-{self.world_size}-{hops}-{number}"
        answers = entity.names if entity else (draft.answer,)
        return Task(name, draft.question, answers, source="multihop", level=str(hops))

    def proof(self, index: int) -> Proof:
        """Return the gold passages and facts of task number `index`."""
        draft = self._draft(index)
        facts = tuple(hop.fact for hop in draft.hops)
        gold = tuple(dict.fromkeys(fact.subject for fact in facts))
        near = {other: None for passage in gold for other in self._alike(passage) if other not in gold}
        return Proof(gold, facts, draft.form, tuple(near))

    def solution(self, index: int) -> tuple[str, ...]:
        """Return search queries that solve task number `index`, one per hop.

        Each query uses only the question and the passages found by earlier queries.
        """
        return tuple(hop.query for hop in self._draft(index).hops)

    def _place(self, index: int) -> tuple[int, int]:
        """Return a task's number of hops and its number among those tasks, which does not depend on `level`."""
        number, place = divmod(index, len(self.levels))
        return self.levels[place], number

    def _draft(self, index: int) -> Draft:
        hops, number = self._place(index)
        drafts = self._drafts[hops]
        # In order from the first, since whether a question is new depends on all that were drawn before.
        while len(drafts) <= number < DIFFERENT and hops not in self._exhausted:
            self._add_new(hops, drafts)
        return drafts[number] if 0 <= number < len(drafts) else next(self._draws(hops, number))

    def _add_new(self, hops: int, drafts: list[Draft]) -> None:
        """Add a question that has not occurred yet, or mark this number of hops as exhausted."""
        for draft in itertools.islice(self._draws(hops, len(drafts)), _MOST_DRAWS):
            asked = _asked(draft.form)
            if asked not in self._asked:
                self._asked.add(asked)
                drafts.append(draft)
                return
        self._exhausted.add(hops)

    def _draws(self, hops: int, number: int) -> Iterator[Draft]:
        """Yield random questions of the split."""
        rng = random.Random(f"multihop/{self.seed}/{self.world_size}/{self.split}/{hops}/{number}")
        while True:
            draft = draw(self.world, hops, rng)
            if draft is not None and _belongs(draft.form, self.split):
                yield draft

    def _alike(self, passage: str) -> list[str]:
        words = _words(self.world.entities[passage].name)
        return [other for word in words for other in self._by_word[word]]

    @functools.cached_property
    def _by_word(self) -> Mapping[str, list[str]]:
        found = defaultdict(list)
        for passage in self.passages:
            for word in _words(passage.title):
                found[word].append(passage.id)
        return found


def _words(title: str) -> list[str]:
    return [word for word in re.findall(r"\w+", title.lower()) if word not in _TITLE_WORDS_LEFT_OUT]


def _levels(level: int | str) -> list[int]:
    if level == "mixed":
        return list(HOPS)
    parts = [part.strip() for part in str(level).split(",")]
    known = {str(hops): hops for hops in HOPS}
    if not all(part in known for part in parts):
        raise ValueError(f"MultiHop has the levels {', '.join(known)}, 'mixed', or several as in '2,3'; not {level!r}")
    return list(dict.fromkeys(known[part] for part in parts))


def _belongs(form: Form, split: str) -> bool:
    # A checksum and not hash(), whose value for a text differs between processes.
    in_test = zlib.crc32(_asked(form).encode()) % TEST_SHARE == 0
    return in_test == (split == "test")


def _asked(form: Form) -> str:
    """Return a key of a question's content that does not depend on order or wording."""
    if isinstance(form, Compare):
        return repr(sorted(map(repr, (form.first, form.second))))
    if isinstance(form, Meet):
        return repr((form.kind, sorted(form.conditions)))
    return repr(form)


def load(
    *,
    split: str = "train",
    data: str | Path | None = None,
    level: int | str = "mixed",
    seed: int = 0,
    world_size: int = WORLD_SIZE,
) -> MultiHopSource | ChosenTasks:
    """Return the generated tasks; `data` names a file that chooses some of them (`chosen_tasks`)."""
    source = MultiHopSource(split, level, seed, world_size)
    return source if data is None else chosen_tasks(source, data)


register_source("multihop", load)
