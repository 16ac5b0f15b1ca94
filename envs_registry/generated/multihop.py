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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from envs_registry.generated.chosen_tasks import ChosenTasks, chosen_tasks
from envs_registry.generated.multihop_world import KINDS, Entity, Fact, NameMaker, World, check_size, make_world
from envs_registry.sources import register_source
from envs_registry.task import Task

# MultiHop questions: three forms over a world's facts, each with one answer by construction.
#
#     Chain    "Who is the mayor of the town where X was born?"              every step leads to exactly one thing
#     Compare  "Who was born earlier, A or the author of B?"                 two chains, and the years of their ends
#     Meet     "Which book was brought out by P and written by someone ...?" only one thing meets both conditions
#
# `draw` creates a question from a random generator, or returns None if the draw was a dead end. The number of hops is
# the number of facts that are needed; each passage states one of them, or two at the ends of Compare and Meet.


@dataclass(frozen=True)
class Step:
    """One step between entities: along a relation, or against it to the only subject of kind `inverse`."""

    relation: str
    inverse: str = ""


@dataclass(frozen=True)
class Chain:
    """The entity or year that a sequence of steps from an entity leads to."""

    start: str
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Compare:
    """The earlier or the later of the ends of two chains."""

    first: Chain
    second: Chain
    earlier: bool


@dataclass(frozen=True)
class Meet:
    """The only entity of a kind from which each path of relations leads to its target."""

    kind: str
    conditions: tuple[tuple[tuple[str, ...], str], ...]


Form = Chain | Compare | Meet


@dataclass(frozen=True)
class Hop:
    """A required fact, and the search query that finds its passage."""

    fact: Fact
    query: str


@dataclass(frozen=True)
class Draft:
    """A question with the hops to its answer; `answer` is an entity's id or a year."""

    form: Form
    question: str
    answer: str
    hops: tuple[Hop, ...]


HOPS = (2, 3, 4)
_WEIGHTS = {"chain": 4, "compare": 1, "meet": 4}  # a draw of a comparison seldom fails, of the others often
_MOST_SUBJECTS = 4  # how many things one search has to tell apart, in a Meet


def draw(world: World, hops: int, rng: random.Random) -> Draft | None:
    """Draw a question with this number of hops; None if the draw was a dead end."""
    # A Meet has at least one fact on the first path and two on the second.
    forms = [form for form in _WEIGHTS if hops > 2 or form != "meet"]
    (form,) = rng.choices(forms, [_WEIGHTS[form] for form in forms])
    if form == "chain":
        return _chain(world, hops, rng)
    return _compare(world, hops, rng) if form == "compare" else _meet(world, hops, rng)


@dataclass(frozen=True)
class _Walk:
    """A partial chain: its current entity, the wording for it, and the names that a searcher knows for it."""

    chain: Chain
    at: Entity
    phrase: str
    known: tuple[str, ...]
    hops: tuple[Hop, ...] = ()


def _start(entity: Entity, rng: random.Random) -> _Walk:
    name, noun = rng.choice(entity.names), KINDS[entity.kind].noun
    said = entity.kind == "person" or noun.title() in name or rng.random() < 0.6
    return _Walk(Chain(entity.id, ()), entity, name if said else f"the {noun} {name}", (name,))


def _along(world: World, walk: _Walk, relation: str, rng: random.Random) -> _Walk:
    """Follow a relation to its object."""
    noun = rng.choice(KINDS[walk.at.kind].relations[relation].nouns)
    fact = world.facts[walk.at.id, relation]
    chain = Chain(walk.chain.start, (*walk.chain.steps, Step(relation)))
    hops = (*walk.hops, Hop(fact, _read(world, fact, walk.known[0])))
    # Only the name in the passage is known from here on; it may be an alias.
    return _Walk(chain, world.entities[fact.object], noun.format(s=walk.phrase), (fact.mention,), hops)


def _against(world: World, walk: _Walk, kind: str, relation: str) -> _Walk:
    """Go back to the only subject of a relation."""
    (subject,) = world.subjects[kind, relation, walk.at.id]
    fact, entity = world.facts[subject, relation], world.entities[subject]
    chain = Chain(walk.chain.start, (*walk.chain.steps, Step(relation, kind)))
    hops = (*walk.hops, Hop(fact, _found(world, fact)))
    # The search finds the passage about the subject, which gives all its names.
    return _Walk(chain, entity, _described("the", kind, relation, walk.phrase), entity.names, hops)


def _described(article: str, kind: str, relation: str, thing: str) -> str:
    clause = KINDS[kind].relations[relation].clause.format(o=thing)
    if kind == "person":
        return f"someone who {clause}" if article == "a" else f"the person who {clause}"
    return f"{article} {KINDS[kind].noun} that {clause}"


def _read(world: World, fact: Fact, known: str) -> str:
    """Return the query for a fact about a known subject."""
    kind, relation = _of(world, fact)
    return " ".join([known, *KINDS[kind].relations[relation].clause.format(o="").split()])


def _found(world: World, fact: Fact) -> str:
    """Return the query for the subject of a known fact."""
    kind, relation = _of(world, fact)
    clause = KINDS[kind].relations[relation].clause.format(o=fact.mention)
    return clause if kind == "person" else f"{KINDS[kind].noun} {clause}"  # passages call people by their professions


def _chain(world: World, hops: int, rng: random.Random) -> Draft | None:
    walk = _start(rng.choice(world.things), rng)
    seen = {walk.at.id}
    for left in range(hops, 0, -1):
        ways = _ways(world, walk, last=left == 1)
        if not ways:
            return None
        kind, relation = rng.choice(ways)
        if relation == "year" and not kind:
            return _ask_year(world, walk, rng)
        walk = _against(world, walk, kind, relation) if kind else _along(world, walk, relation, rng)
        # A chain that returns would ask about something that it has visited already.
        if walk.at.id in seen:
            return None
        seen.add(walk.at.id)
    asked = ("Who is {}?",) if walk.at.kind == "person" else ("What is the name of {}?", "Give the name of {}.")
    return Draft(walk.chain, rng.choice(asked).format(walk.phrase), walk.at.id, walk.hops)


def _ways(world: World, walk: _Walk, last: bool) -> list[tuple[str, str]]:
    """Return possible next steps of a chain: ("", relation) along it, (kind, relation) against it.

    After a step against a relation it does not go along one: both facts would be in the same passage.
    """
    ways = []
    for kind, name in _LEADING_TO.get(walk.at.kind, ()):
        subjects = world.subjects.get((kind, name, walk.at.id), ())
        # The passage must call the object by a known name, or the search for it finds nothing.
        if len(subjects) == 1 and world.facts[subjects[0], name].mention in walk.known:
            ways.append((kind, name))
    if not (walk.chain.steps and walk.chain.steps[-1].inverse):
        ways += [("", name) for name, relation in KINDS[walk.at.kind].relations.items() if relation.target or last]
    return ways


def _ask_year(world: World, walk: _Walk, rng: random.Random) -> Draft:
    fact, began = world.facts[walk.at.id, "year"], KINDS[walk.at.kind].began
    asked = rng.choice(("In which year was {} {}?", "What is the year in which {} was {}?"))
    chain = Chain(walk.chain.start, (*walk.chain.steps, Step("year")))
    hops = (*walk.hops, Hop(fact, _read(world, fact, walk.known[0])))
    return Draft(chain, asked.format(walk.phrase, began), fact.object, hops)


def _compare(world: World, hops: int, rng: random.Random) -> Draft | None:
    # With more than two hops an arm is described by a relation, so some relation has to lead to the kind.
    kind = rng.choice([name for name in KINDS if hops == 2 or name in _LEADING_TO])
    arms = [_arm(world, kind, longer, rng) for longer in (hops > 2, hops > 3)]
    rng.shuffle(arms)
    first, second = arms
    ends = {arm.chain.start for arm in arms} | {arm.at.id for arm in arms}
    # Equal years have no winner, and arms that share a thing need fewer hops.
    if first.at.year == second.at.year or len(ends) < hops:
        return None
    earlier = rng.random() < 0.5
    winner = first if (first.at.year < second.at.year) == earlier else second
    began = KINDS[kind].began
    which, order = "Who" if began == "born" else "Which", "earlier" if earlier else "later"
    question = f"{which} was {began} {order}, {first.phrase} or {second.phrase}?"
    years = [world.facts[arm.at.id, "year"] for arm in arms]
    hops_of = [(*arm.hops, Hop(year, _read(world, year, arm.known[0]))) for arm, year in zip(arms, years, strict=True)]
    form = Compare(first.chain, second.chain, earlier)
    return Draft(form, f"{question} Give the name." if hops > 2 else question, winner.at.id, (*hops_of[0], *hops_of[1]))


def _arm(world: World, kind: str, longer: bool, rng: random.Random) -> _Walk:
    """Return an entity of a kind, named directly or described by one step along a relation."""
    if not longer:
        return _start(rng.choice(world.by_kind[kind]), rng)
    subject, name = rng.choice(_LEADING_TO[kind])
    return _along(world, _start(rng.choice(world.by_kind[subject]), rng), name, rng)


def _meet(world: World, hops: int, rng: random.Random) -> Draft | None:
    entity = rng.choice(world.things)
    firsts = rng.sample(sorted(KINDS[entity.kind].relations), 2)
    paths = [_path(world, entity, first, length, rng) for first, length in zip(firsts, (hops - 2, 2), strict=True)]
    if not (paths[0] and paths[1]) or not _narrow(world, paths[0]):
        return None
    conditions = tuple((tuple(fact.relation for fact in path), path[-1].object) for path in paths)
    one, other = (_holders(world, entity.kind, path, target) for path, target in conditions)
    # Each condition alone has to leave several things, or the other one would not be needed.
    if one & other != {entity.id} or len(one) < 2 or len(other) < 2:
        return None
    described = [_condition(world, path) for path in paths]
    question = f"Which {KINDS[entity.kind].noun} {described[0]}, and also {described[1]}?"
    # The first condition is searched backwards to the candidates; the second one confirms the answer.
    found = [Hop(fact, _found(world, fact)) for fact in reversed(paths[0])]
    known = (entity.name, paths[1][0].mention)
    checked = [Hop(fact, _read(world, fact, name)) for fact, name in zip(paths[1], known, strict=True)]
    return Draft(Meet(entity.kind, conditions), question, entity.id, (*found, *checked))


def _path(world: World, entity: Entity, first: str, length: int, rng: random.Random) -> list[Fact]:
    """Return the facts of a walk along relations; [] if it ends early at a year or returns to an entity."""
    path = [world.facts[entity.id, first]]
    if length == 2:
        middle = world.entities.get(path[0].object)
        if middle is None:
            return []
        path.append(world.facts[middle.id, rng.choice(sorted(KINDS[middle.kind].relations))])
    return path if path[-1].object != entity.id else []


def _narrow(world: World, path: list[Fact]) -> bool:
    """Return whether each step back along a path leaves several candidates."""
    return all(len(world.subjects[(*_of(world, fact), fact.object)]) <= _MOST_SUBJECTS for fact in path)


def _holders(world: World, kind: str, path: Sequence[str], target: str) -> set[str]:
    """Return the ids of all entities of a kind from which a path leads to the target."""
    if len(path) == 1:
        return set(world.subjects.get((kind, path[0], target), ()))
    middle = KINDS[kind].relations[path[0]].target
    between = world.subjects.get((middle, path[1], target), ())
    return {subject for thing in between for subject in world.subjects.get((kind, path[0], thing), ())}


def _condition(world: World, path: list[Fact]) -> str:
    thing = path[-1].mention if len(path) == 1 else _described("a", *_of(world, path[1]), path[1].mention)
    return KINDS[world.entities[path[0].subject].kind].relations[path[0].relation].clause.format(o=thing)


def _of(world: World, fact: Fact) -> tuple[str, str]:
    return world.entities[fact.subject].kind, fact.relation


_LEADING_TO: dict[str, list[tuple[str, str]]] = {}  # the kinds and relations whose objects are of a kind
for _kind, _about in KINDS.items():
    for _name, _relation in _about.relations.items():
        if _relation.target:
            _LEADING_TO.setdefault(_relation.target, []).append((_kind, _name))


# The MultiHop corpus: one passage per entity of a world, and chronicles as distractors.
#
# A passage gives the names of its subject and all facts about it, in varying order and wording. A chronicle mentions
# several entities but no fact that a question asks for; it only shares words with relevant passages.

_WORK = ("novelist", "engineer", "navigator", "lawyer", "painter", "merchant", "composer", "gardener", "printer")
_NAMED = 0.3  # share of sentences that name the subject
_PASSING = (
    "In {y}, travellers spoke of {a} and of {b}.",
    "A page is missing where {a} should come after {b}.",
    "The writer liked {a}, though not {b}.",
    "Prices were noted in {y}, beside a drawing of {a}.",
    "Nobody who asked about {a} in {y} was told of {b}.",
)


@dataclass(frozen=True)
class Passage:
    """One text of the corpus.

    Attributes:
        id: that of the entity it is about, or "chronicle-3".
        title: the entity's proper name, or the chronicle's.
        text: 3 to 6 sentences.
    """

    id: str
    title: str
    text: str


@functools.lru_cache(4)
def write_passages(seed: int, size: int) -> tuple[Passage, ...]:
    """Return the corpus of a world, in mixed order."""
    world = make_world(seed, size)
    rng = random.Random(f"multihop/text/{seed}/{size}")
    passages = [_passage_about(rng, entity, world) for entity in world.things]
    # The same half of the words as the world, so that worlds of the other half share no title with it.
    names = NameMaker(rng, size, seed % 2)
    for number in range(size - len(passages)):
        passages.append(_chronicle(rng, f"chronicle-{number}", names.names("chronicle")[0], world.things))
    # The place of a passage should not tell what it is about.
    rng.shuffle(passages)
    return tuple(passages)


def _passage_about(rng: random.Random, entity: Entity, world: World) -> Passage:
    kind = KINDS[entity.kind]
    noun = rng.choice(_WORK) if entity.kind == "person" else kind.noun
    sentences = []
    for name, relation in kind.relations.items():
        subject = entity.name if rng.random() < _NAMED else f"the {noun}"
        fact = world.facts[entity.id, name]
        sentences.append(_capital(rng.choice(relation.sentences).format(s=subject, o=fact.mention)))
    other = rng.choice(world.by_kind[entity.kind])
    # With the opening and the filler a passage has at most six sentences.
    if other is not entity and len(sentences) < 5:
        sentences.append(_capital(rng.choice(kind.fillers).format(s=f"the {noun}", m=other.name)))
    rng.shuffle(sentences)
    return Passage(entity.id, entity.name, " ".join([_opening(rng, entity, noun), *sentences]))


def _opening(rng: random.Random, entity: Entity, noun: str) -> str:
    article = "an" if noun[0] in "aeiou" else "a"
    if len(entity.names) == 1:
        return f"{entity.name} is {article} {noun}."
    also = rng.choice(("also known as", "also called", "known to some as"))
    return f"{entity.name}, {also} {' and '.join(entity.names[1:])}, is {article} {noun}."


def _chronicle(rng: random.Random, number: str, title: str, things: list[Entity]) -> Passage:
    sentences = []
    for sentence in rng.sample(_PASSING, rng.randint(2, 4)):
        one, other = rng.sample(things, 2)
        sentences.append(sentence.format(a=rng.choice(one.names), b=rng.choice(other.names), y=rng.randint(1750, 2005)))
    return Passage(number, title, " ".join([f"Many hands kept {title}.", *sentences]))


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


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
