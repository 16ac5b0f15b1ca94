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

import bisect
import functools
import itertools
import random
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from envs_registry.datasets.rows import ChosenTasks, chosen_tasks
from envs_registry.generated import check_split, in_split, levels_of
from envs_registry.sources import register_source
from envs_registry.task import Task

# Invented names: words out of syllables in four styles, and a pattern for each kind of thing. Names and aliases consist
# of letters and spaces and are unique. Surnames and first words are shared on purpose, so that similar names exist.
# Each name contains an invented word; worlds with even seeds and worlds with odd seeds use different words. Any
# resemblance to real names is coincidental.

# beginnings, two parts of the middle, ends
_STYLES = tuple(
    tuple(tuple(part.split()) for part in style.split(" / "))
    for style in (
        "Br Sk Th Hal Ul Gr Vest Od / a o e i y / nd rv ld sk gr lv / ik or und heim ast ven",
        "Ma Li Ro Sa Ve Ca Do Fi / r l n s v d / e i a o ia eo / nello ressa vano tora mira lindo",
        "Ka To Mi Hu Ya No Shi Re / k m r z n t / a u o e i ai / maru zuki reno shido tane kuro",
        "Zh Dr Kr Vol Mir Bel Pr Stan / a e u o y / sl dr zn rk vl mn / ovets anka imir osk ichev una",
    )
)
_NOUNS = ("Lantern", "Orchard", "Winter", "Compass", "Ferry", "Mirror", "Harvest", "Ladder", "Garden", "Bell", "Map")
_BIRDS = ("Kestrel", "Heron", "Petrel", "Swallow", "Curlew", "Osprey", "Plover", "Gannet", "Tern", "Skua")
_EPITHETS = ("Tall", "Younger", "Elder", "Quiet", "Red", "Grey", "Wanderer", "Left Handed")
_COLOURS = ("Grey", "Golden", "Black", "Crimson", "Silver", "Green", "Blue", "Amber")

# {base} is shared by many things, {word} is new; {given} and {surname} are a person's
_NAMES = {
    "country": ("{word}", "{word} Isles", "Greater {word}"),
    "town": ("{word}", "{word}", "New {base}", "Upper {base}", "{base} Bay", "Lower {base}"),
    "person": ("{given} {surname}",),
    "school": ("{base} College", "{base} Academy", "{base} Institute"),
    "press": ("{base} Press", "{base} Books", "{base} Publishing House"),
    "yard": ("{base} Shipyard", "{base} Dockyard", "{base} Boatworks"),
    "bank": ("{base} Bank", "{base} Savings Bank", "Bank of {base}"),
    "book": ("The {noun} of {base}", "A {noun} for {base}", "The {colour} {noun} of {base}"),
    "ship": ("{base} {bird}", "{colour} {base}", "{word}"),
    "bridge": ("{base} Bridge", "{base} Viaduct", "{base} Footbridge"),
    "painting": ("{noun} near {base}", "{noun} in {base}", "The {colour} {noun} by {base}"),
    "chronicle": ("The {base} Chronicle", "The {base} Letters", "The {base} Almanac"),
}
_ALIASES = {
    "country": ("Land of {word}",),
    "town": ("{word}", "Old {word}"),
    "person": ("{word} the {epithet}", "{given} {word}"),
    "school": ("{word} House", "{word} Hall"),
    "press": ("House of {word}",),
    "yard": ("{word} Slipway",),
    "bank": ("{word} Trust",),
    "book": ("The {word} Book", "{noun} and {word}"),
    "ship": ("The {colour} {word}",),
    "bridge": ("{word} Crossing",),
    "painting": ("The {word} Picture",),
}
_ALIAS_SHARE = 0.4  # of entities with at least one alias; a quarter of those have two


class NameMaker:
    """Generates unique names out of one `half` (0 or 1) of all words, for about `size` things."""

    def __init__(self, rng: random.Random, size: int, half: int) -> None:
        self._rng, self._half = rng, half
        self._given_out: set[str] = set()
        self._words: set[str] = set()
        # Fewer words than things, so that several things have similar names.
        self._shared = {
            "given": [self._word() for _ in range(max(8, size // 10))],
            "surname": [self._word() for _ in range(max(8, size // 6))],
            "base": [self._word() for _ in range(max(8, size // 4))],
        }

    def names(self, kind: str) -> tuple[str, ...]:
        """Return one to three new names of an entity, the proper name first."""
        aliases = 0
        if kind in _ALIASES and self._rng.random() < _ALIAS_SHARE:
            aliases = 1 + (self._rng.random() < 0.25)
        return (self._new(_NAMES[kind]), *(self._new(_ALIASES[kind]) for _ in range(aliases)))

    def _new(self, patterns: tuple[str, ...]) -> str:
        return _unseen(self._given_out, lambda: self._fill(self._rng.choice(patterns)))

    def _fill(self, pattern: str) -> str:
        parts: dict[str, str] = {key: self._rng.choice(pool) for key, pool in self._shared.items()}
        parts |= {"noun": self._rng.choice(_NOUNS), "bird": self._rng.choice(_BIRDS)}
        parts |= {"epithet": self._rng.choice(_EPITHETS), "colour": self._rng.choice(_COLOURS)}
        # A new word is used up for good, so it is only made for a pattern that needs one.
        return pattern.format(word=self._word() if "{word}" in pattern else "", **parts)

    def _word(self) -> str:
        return _unseen(self._words, self._of_this_half)

    def _of_this_half(self) -> str:
        # A checksum divides the words without a list of them, and the same way in every process.
        while True:
            word = self._syllables()
            if zlib.crc32(word.encode()) % 2 == self._half:
                return word

    def _syllables(self) -> str:
        start, *middle, end = self._rng.choice(_STYLES)
        parts = [self._rng.choice(part) for part in (start, *middle)]
        if self._rng.random() < 0.25:
            parts += [self._rng.choice(part) for part in middle]
        if parts[-1][-1] not in "aeiouy" and self._rng.choice(end)[0] not in "aeiouy":
            parts.append(self._rng.choice("aeo"))
        return "".join([*parts, self._rng.choice(end)])


def _unseen(seen: set[str], make: Callable[[], str]) -> str:
    while True:
        text = make()
        # Search ignores case: names that differ in nothing else could not be told apart.
        if text.casefold() not in seen:
            seen.add(text.casefold())
            return text


# Kinds and relations with their wording. A relation maps an entity to exactly one other entity (a person, a town, ...)
# or to a year. In the table " | " separates variants of a text; {s} is the subject and {o} the object.


@dataclass(frozen=True)
class Relation:
    """A relation of one kind of thing."""

    target: str  # kind of the object; "" for a year
    nouns: tuple[str, ...]  # the object, as in "the mayor of {s}"; the subject comes last, so that they can be nested
    clause: str  # the subject, as in "which {clause}"
    sentences: tuple[str, ...]  # how a passage states it
    gap: int | None = None  # the object is at least so many years older than the subject; None for any age


@dataclass(frozen=True)
class Kind:
    """A kind of thing."""

    noun: str  # "town"
    share: int  # of a world's passages, in percent
    years: tuple[int, int]  # first and last year that begins one
    began: str  # "founded", "born"
    relations: dict[str, Relation]  # by name; "year" is among them
    fillers: tuple[str, ...]  # sentences that state no relation; {s} is the thing, {m} another one of its kind


# A kind: name, noun, share of a world's passages in percent, what begins it, and the first and last year; fillers; and
# relations. A relation: name, kind of the object, and how many years older the object is at least; nouns; clause and a
# sentence. The gap makes a founder an adult; a school may be up to 16 years younger than its pupil. All towns are older
# than whatever else is in them. The shares add up to less than 100: the rest of the passages are chronicles.
_TABLE = """\
country, country, 1, founded, 900, 1500
{s} has sent ships to {m}. | The wool of {s} is sold as far as {m}.
ruler, person: the ruler of {s} | the person who rules {s}
    is ruled by {o} | {o} became ruler of {s} after a long vote.
anthem, person: the composer of the anthem of {s} | the person who composed the anthem of {s}
    has an anthem composed by {o} | {o} is the composer of the anthem of {s}.

town, town, 12, founded, 1000, 1690
{s} holds a winter fair that guests from {m} attend. | An old road joins {s} and {m}.
country, country: the country around {s} | the country of {s}
    lies in {o} | {s} lies in the east of {o}.
mayor, person: the mayor of {s}
    is governed by {o} | {s} is governed by its mayor, {o}.

person, person, 32, born, 1700, 1960
{s} wrote long letters to {m}. | {s} and {m} met once, by chance, on a journey.
birthplace, town, 0: the birthplace of {s}
    was born in {o} | {s} was born in a narrow house in {o}.
school, school, -16: the school attended by {s}
    studied at {o} | At {o}, {s} studied for four years.
teacher, person, 15: the teacher of {s} | the person who taught {s}
    was taught by {o} | It was {o} who taught {s}.

school, school, 6, founded, 1720, 1900
Pupils of {s} row against those of {m} each spring. | The roof of {s} was copied at {m}.
founder
town: stands
head, person: the head of {s} | the person who heads {s}
    is headed by {o} | {o} is the person who heads {s}.

press, publishing house, 4, founded, 1740, 1960
{s} shares a paper mill with {m}. | {s} lost a lawsuit against {m}.
founder
town: has its seat
owner

yard, shipyard, 4, founded, 1740, 1930
{s} buys its timber from the same forest as {m}. | {s} lent a crane to {m}.
founder
town: has its docks
owner

bank, bank, 3, founded, 1730, 1900
{s} prints its notes on the paper that {m} uses. | {s} lent money to {m}.
founder
town: has its vault

book, book, 11, published, 1745, 2005
Critics compared {s} with {m}. | {s} quotes a page of {m}.
author, person, 20: the author of {s} | the person who wrote {s}
    was written by {o} | {o} wrote {s} in a single summer.
publisher, press, 0: the publishing house that brought out {s} | the publisher of {s}
    was brought out by {o} | {o} brought out {s} in two volumes.
dedication, person: the person honoured by the dedication of {s}
    is dedicated to {o} | {o} is the person honoured by the dedication of {s}.

ship, ship, 8, launched, 1750, 1990
{s} once raced {m} and lost. | {s} carried mail that {m} had left behind.
builder, yard, 0: the shipyard that built {s} | the builder of {s}
    was built by {o} | {o} built {s} of oak and iron.
port, town: the home port of {s}
    has its home port in {o} | {o} is the home port of {s}.
captain, person, 20: the first captain of {s}
    was first sailed by {o} | {o} was named first captain of {s}.

bridge, bridge, 5, opened, 1740, 1995
{s} is a little longer than {m}. | The lamps of {s} were moved to {m}.
designer, person, 20: the designer of {s} | the person who designed {s}
    was designed by {o} | {o} designed {s} without pay.
town: stands

painting, painting, 5, painted, 1745, 2000
{s} was shown beside {m}. | {s} is smaller than {m}.
painter, person, 16: the painter of {s} | the person who painted {s}
    was painted by {o} | {o} painted {s} on a cracked board.
home, school: the school that displays {s}
    hangs in {o} | Since a fire, {s} hangs in {o}.
owner
"""
_SHARED = {
    "founder": "person, 20: the founder of {s} | the person who founded {s}\n"
    "was founded by {o} | It was {o} who founded {s}.",
    "owner": "bank: the bank that owns {s} | the owner of {s}\n"
    "is owned by {o} | {o} bought {s} and owns it to this day.",
    "town": "town: the home town of {s} | the town that is home to {s}\n{verb} in {o} | It is in {o} that {s} {verb}.",
}


def _relation(text: str) -> Relation:
    first, _, said = text.partition("\n")
    about, _, nouns = first.partition(": ")
    target, _, gap = about.partition(", ")
    clause, _, sentence = said.strip().partition(" | ")
    variants = tuple(nouns.split(" | "))
    sentences = (f"{{s}} {clause}.", f"{variants[0]} is {{o}}.", sentence)
    return Relation(target, variants, clause, sentences, int(gap) if gap else None)


def _kind(block: str) -> tuple[str, Kind]:
    head, fillers, *lines = block.splitlines()
    name, noun, share, began, first, last = head.split(", ")
    year = f": the year in which {{s}} was {began}\nwas {began} in {{o}} | In {{o}}, {{s}} was {began}."
    relations, rest = {"year": _relation(year)}, iter(lines)
    for line in rest:
        relation, comma, text = line.partition(", ")
        if comma:
            relations[relation] = _relation(f"{text}\n{next(rest)}")
        else:
            relation, _, verb = line.partition(": ")
            relations[relation] = _relation(_SHARED[relation].replace("{verb}", verb))
    return name, Kind(noun, int(share), (int(first), int(last)), began, relations, tuple(fillers.split(" | ")))


KINDS = dict(map(_kind, _TABLE.rstrip().split("\n\n")))


MIN_SIZE, MAX_SIZE = 200, 50_000  # passages; there are not enough names for more
_ALIAS_MENTIONS = 0.15  # share of mentions of other entities by an alias


@dataclass(frozen=True)
class Entity:
    """An entity of the world. The passage about it has the same id."""

    id: str  # "town-12"
    kind: str  # "town"
    names: tuple[str, ...]  # the proper name, then the aliases
    year: int  # in which it began

    @property
    def name(self) -> str:
        """The proper name."""
        return self.names[0]


@dataclass(frozen=True)
class Fact:
    """One fact, stated by the passage about its subject."""

    subject: str  # an entity's id
    relation: str  # its name in the table of relations
    object: str  # an entity's id, or a year
    mention: str  # how the passage writes the object


@dataclass(frozen=True)
class World:
    """All entities and facts."""

    entities: dict[str, Entity]  # by id
    facts: dict[tuple[str, str], Fact]  # by subject and relation

    @functools.cached_property
    def things(self) -> list[Entity]:
        """All entities."""
        return list(self.entities.values())

    @functools.cached_property
    def by_kind(self) -> dict[str, list[Entity]]:
        """The entities of each kind, oldest first."""
        return _by_kind(self.entities.values())

    @functools.cached_property
    def subjects(self) -> dict[tuple[str, str, str], tuple[str, ...]]:
        """Ids of the subjects, by their kind, the relation and the object."""
        found = defaultdict(list)
        for fact in self.facts.values():
            found[self.entities[fact.subject].kind, fact.relation, fact.object].append(fact.subject)
        return {key: tuple(ids) for key, ids in found.items()}


# The splits and levels of a seed share one world; the limit bounds the memory.
@functools.lru_cache(4)
def make_world(seed: int, size: int) -> World:
    """Return the world of a seed, for `size` passages."""
    rng = random.Random(f"multihop/world/{seed}/{size}")
    names = NameMaker(rng, size, seed % 2)
    entities = {}
    for kind, description in KINDS.items():
        # At least three of each kind, so that a relation always finds something other than its subject.
        for number in range(max(3, size * description.share // 100)):
            entity = Entity(f"{kind}-{number}", kind, names.names(kind), rng.randint(*description.years))
            entities[entity.id] = entity
    by_kind = _by_kind(entities.values())
    facts = {
        (entity.id, name): _fact(rng, entity, name, relation, by_kind)
        for entity in entities.values()
        for name, relation in KINDS[entity.kind].relations.items()
    }
    return World(entities, facts)


def _fact(rng: random.Random, subject: Entity, name: str, relation: Relation, by_kind: dict[str, list[Entity]]) -> Fact:
    if not relation.target:
        return Fact(subject.id, name, str(subject.year), str(subject.year))
    latest = None if relation.gap is None else subject.year - relation.gap
    target = _pick(rng, by_kind[relation.target], latest, subject)
    # An alias makes the policy connect two names of one thing.
    aliased = len(target.names) > 1 and rng.random() < _ALIAS_MENTIONS
    return Fact(subject.id, name, target.id, rng.choice(target.names[1:]) if aliased else target.name)


def _pick(rng: random.Random, pool: list[Entity], latest: int | None, subject: Entity) -> Entity:
    """Pick an entity that began by the year `latest` (or the oldest one), but not the subject itself."""
    # Pools are sorted by year.
    count = len(pool) if latest is None else bisect.bisect_right(pool, latest, key=lambda entity: entity.year)
    picked = pool[rng.randrange(max(1, count))]
    return picked if picked.id != subject.id else pool[1 if picked is pool[0] else 0]


def _by_kind(entities: Iterable[Entity]) -> dict[str, list[Entity]]:
    found: dict[str, list[Entity]] = {kind: [] for kind in KINDS}
    for entity in sorted(entities, key=lambda entity: (entity.year, entity.id)):
        found[entity.kind].append(entity)
    return found


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
for _subject, _about in KINDS.items():
    for _name, _link in _about.relations.items():
        if _link.target:
            _LEADING_TO.setdefault(_link.target, []).append((_subject, _name))


# The corpus: one passage per entity of a world, with its names and all facts about it in varying order and wording, and
# chronicles as distractors, which mention entities but no fact that a question asks for.

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
    """One text of the corpus, of 3 to 6 sentences."""

    id: str  # that of the entity it is about, or "chronicle-3"
    title: str  # the entity's proper name, or the chronicle's
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


WORLD_SIZE = 3000  # passages
DIFFERENT = 10_000  # distinct questions per number of hops, counted from the first
_MOST_DRAWS = 50  # consecutive repeated draws after which the questions of a small world count as exhausted


@dataclass(frozen=True)
class Proof:
    """The evidence for an answer."""

    passages: tuple[str, ...]  # ids of the gold passages without repetition, in the order of the hops
    facts: tuple[Fact, ...]  # of each hop; it is stated in the passage whose id is the fact's subject
    form: Form  # the content of the question, independent of its wording


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
        check_split("MultiHop", split)
        if not MIN_SIZE <= world_size <= MAX_SIZE:
            raise ValueError(f"a MultiHop world has {MIN_SIZE:,} to {MAX_SIZE:,} passages, got world_size={world_size}")
        self.split, self.seed, self.world_size = split, seed, world_size
        self.levels = levels_of("MultiHop", level, HOPS)
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
        draft = self._draft(hops, number)
        entity = self.world.entities.get(draft.answer)
        name = f"multihop-{self.split}-{self.seed}-{self.world_size}-{hops}-{number}"
        answers = entity.names if entity else (draft.answer,)
        return Task(name, draft.question, answers, source="multihop", level=str(hops))

    def proof(self, index: int) -> Proof:
        """Return the gold passages and facts of task number `index`."""
        draft = self._draft(*self._place(index))
        facts = tuple(hop.fact for hop in draft.hops)
        return Proof(tuple(dict.fromkeys(fact.subject for fact in facts)), facts, draft.form)

    def solution(self, index: int) -> tuple[str, ...]:
        """Return search queries that solve task number `index`, one per hop.

        Each query uses only the question and the passages found by earlier queries.
        """
        return tuple(hop.query for hop in self._draft(*self._place(index)).hops)

    def _place(self, index: int) -> tuple[int, int]:
        """Return a task's number of hops and its number among those tasks, which does not depend on `level`."""
        number, place = divmod(index, len(self.levels))
        return self.levels[place], number

    def _draft(self, hops: int, number: int) -> Draft:
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
            if draft is not None and in_split(_asked(draft.form), self.split):
                yield draft


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
