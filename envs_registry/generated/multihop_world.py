"""The MultiHop world: entities with names and years, and the facts between them.

`make_world(seed, size)` gives the same world in every process and on every machine. `multihop_text` writes the
passages.
"""

from __future__ import annotations

import bisect
import functools
import random
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

# Invented names for the MultiHop world: words out of syllables in four styles, and a pattern for each kind of thing.
#
# Names and aliases consist of letters and spaces and are unique. Surnames and first words are shared on purpose, so
# that similar names exist. Each name contains an invented word; worlds with even seeds and worlds with odd seeds use
# different words. Any resemblance to real names is coincidental.

_STYLES = (
    (
        ("Br", "Sk", "Th", "Hal", "Ul", "Gr", "Vest", "Od"),
        ("a", "o", "e", "i", "y"),
        ("nd", "rv", "ld", "sk", "gr", "lv"),
        ("ik", "or", "und", "heim", "ast", "ven"),
    ),
    (
        ("Ma", "Li", "Ro", "Sa", "Ve", "Ca", "Do", "Fi"),
        ("r", "l", "n", "s", "v", "d"),
        ("e", "i", "a", "o", "ia", "eo"),
        ("nello", "ressa", "vano", "tora", "mira", "lindo"),
    ),
    (
        ("Ka", "To", "Mi", "Hu", "Ya", "No", "Shi", "Re"),
        ("k", "m", "r", "z", "n", "t"),
        ("a", "u", "o", "e", "i", "ai"),
        ("maru", "zuki", "reno", "shido", "tane", "kuro"),
    ),
    (
        ("Zh", "Dr", "Kr", "Vol", "Mir", "Bel", "Pr", "Stan"),
        ("a", "e", "u", "o", "y"),
        ("sl", "dr", "zn", "rk", "vl", "mn"),
        ("ovets", "anka", "imir", "osk", "ichev", "una"),
    ),
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
    """Generates unique names.

    Args:
        rng: where the names come from.
        size: how many things will be named; fewer shared words for a smaller world.
        half: 0 or 1, which half of all words to use.
    """

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


# The kinds and relations of the MultiHop world with their wording: one table without behaviour.
#
# A relation maps an entity to exactly one other entity (a person, a town, ...) or to a year. In the table " | "
# separates variants of a text; {s} is the subject and {o} the object.


@dataclass(frozen=True)
class Relation:
    """A relation of one kind of thing.

    Attributes:
        target: kind of the object; "" for a year.
        nouns: the object, as in "the mayor of {s}"; the subject comes last, so that they can be nested.
        clause: the subject, as in "which {clause}".
        sentences: how a passage states it.
        gap: the object is at least so many years older than the subject; None for any age.
    """

    target: str
    nouns: tuple[str, ...]
    clause: str
    sentences: tuple[str, ...]
    gap: int | None = None


@dataclass(frozen=True)
class Kind:
    """A kind of thing.

    Attributes:
        noun: "town".
        share: of a world's passages, in percent.
        years: first and last year that begins one.
        began: "founded", "born".
        relations: by name; "year" is among them.
        fillers: sentences that state no relation; {s} is the thing, {m} another one of its kind.
    """

    noun: str
    share: int
    years: tuple[int, int]
    began: str
    relations: dict[str, Relation]
    fillers: tuple[str, ...]


def _relation(target: str, nouns: str, clause: str, sentence: str, gap: int | None = None) -> Relation:
    first, *_ = variants = tuple(nouns.split(" | "))
    return Relation(target, variants, clause, (f"{{s}} {clause}.", f"{first} is {{o}}.", sentence), gap)


def _kind(
    noun: str, share: int, years: tuple[int, int], began: str, fillers: str, relations: dict[str, Relation]
) -> Kind:
    year = _relation(
        "", f"the year in which {{s}} was {began}", f"was {began} in {{o}}", f"In {{o}}, {{s}} was {began}."
    )
    return Kind(noun, share, years, began, {"year": year, **relations}, tuple(fillers.split(" | ")))


def _seat(verb: str) -> Relation:
    nouns = "the home town of {s} | the town that is home to {s}"
    return _relation("town", nouns, f"{verb} in {{o}}", f"It is in {{o}} that {{s}} {verb}.")


# The gap makes a founder an adult when the thing begins.
_FOUNDER = _relation(
    "person",
    "the founder of {s} | the person who founded {s}",
    "was founded by {o}",
    "It was {o} who founded {s}.",
    gap=20,
)
_OWNER = _relation(
    "bank", "the bank that owns {s} | the owner of {s}", "is owned by {o}", "{o} bought {s} and owns it to this day."
)

# The shares add up to less than 100: the rest of the passages are chronicles.
KINDS = {
    "country": _kind(
        "country",
        1,
        (900, 1500),
        "founded",
        "{s} has sent ships to {m}. | The wool of {s} is sold as far as {m}.",
        {
            "ruler": _relation(
                "person",
                "the ruler of {s} | the person who rules {s}",
                "is ruled by {o}",
                "{o} became ruler of {s} after a long vote.",
            ),
            "anthem": _relation(
                "person",
                "the composer of the anthem of {s} | the person who composed the anthem of {s}",
                "has an anthem composed by {o}",
                "{o} is the composer of the anthem of {s}.",
            ),
        },
    ),
    # All towns are older than whatever else is in them, so that `_seat` needs no gap.
    "town": _kind(
        "town",
        12,
        (1000, 1690),
        "founded",
        "{s} holds a winter fair that guests from {m} attend. | An old road joins {s} and {m}.",
        {
            "country": _relation(
                "country",
                "the country around {s} | the country of {s}",
                "lies in {o}",
                "{s} lies in the east of {o}.",
            ),
            "mayor": _relation(
                "person", "the mayor of {s}", "is governed by {o}", "{s} is governed by its mayor, {o}."
            ),
        },
    ),
    "person": _kind(
        "person",
        32,
        (1700, 1960),
        "born",
        "{s} wrote long letters to {m}. | {s} and {m} met once, by chance, on a journey.",
        {
            "birthplace": _relation(
                "town",
                "the birthplace of {s}",
                "was born in {o}",
                "{s} was born in a narrow house in {o}.",
                gap=0,
            ),
            "school": _relation(
                "school",
                "the school attended by {s}",
                "studied at {o}",
                "At {o}, {s} studied for four years.",
                # Negative: a school may be up to 16 years younger than its pupil.
                gap=-16,
            ),
            "teacher": _relation(
                "person",
                "the teacher of {s} | the person who taught {s}",
                "was taught by {o}",
                "It was {o} who taught {s}.",
                gap=15,
            ),
        },
    ),
    "school": _kind(
        "school",
        6,
        (1720, 1900),
        "founded",
        "Pupils of {s} row against those of {m} each spring. | The roof of {s} was copied at {m}.",
        {
            "founder": _FOUNDER,
            "town": _seat("stands"),
            "head": _relation(
                "person",
                "the head of {s} | the person who heads {s}",
                "is headed by {o}",
                "{o} is the person who heads {s}.",
            ),
        },
    ),
    "press": _kind(
        "publishing house",
        4,
        (1740, 1960),
        "founded",
        "{s} shares a paper mill with {m}. | {s} lost a lawsuit against {m}.",
        {
            "founder": _FOUNDER,
            "town": _seat("has its seat"),
            "owner": _OWNER,
        },
    ),
    "yard": _kind(
        "shipyard",
        4,
        (1740, 1930),
        "founded",
        "{s} buys its timber from the same forest as {m}. | {s} lent a crane to {m}.",
        {
            "founder": _FOUNDER,
            "town": _seat("has its docks"),
            "owner": _OWNER,
        },
    ),
    "bank": _kind(
        "bank",
        3,
        (1730, 1900),
        "founded",
        "{s} prints its notes on the paper that {m} uses. | {s} lent money to {m}.",
        {
            "founder": _FOUNDER,
            "town": _seat("has its vault"),
        },
    ),
    "book": _kind(
        "book",
        11,
        (1745, 2005),
        "published",
        "Critics compared {s} with {m}. | {s} quotes a page of {m}.",
        {
            "author": _relation(
                "person",
                "the author of {s} | the person who wrote {s}",
                "was written by {o}",
                "{o} wrote {s} in a single summer.",
                gap=20,
            ),
            "publisher": _relation(
                "press",
                "the publishing house that brought out {s} | the publisher of {s}",
                "was brought out by {o}",
                "{o} brought out {s} in two volumes.",
                gap=0,
            ),
            "dedication": _relation(
                "person",
                "the person honoured by the dedication of {s}",
                "is dedicated to {o}",
                "{o} is the person honoured by the dedication of {s}.",
            ),
        },
    ),
    "ship": _kind(
        "ship",
        8,
        (1750, 1990),
        "launched",
        "{s} once raced {m} and lost. | {s} carried mail that {m} had left behind.",
        {
            "builder": _relation(
                "yard",
                "the shipyard that built {s} | the builder of {s}",
                "was built by {o}",
                "{o} built {s} of oak and iron.",
                gap=0,
            ),
            "port": _relation(
                "town", "the home port of {s}", "has its home port in {o}", "{o} is the home port of {s}."
            ),
            "captain": _relation(
                "person",
                "the first captain of {s}",
                "was first sailed by {o}",
                "{o} was named first captain of {s}.",
                gap=20,
            ),
        },
    ),
    "bridge": _kind(
        "bridge",
        5,
        (1740, 1995),
        "opened",
        "{s} is a little longer than {m}. | The lamps of {s} were moved to {m}.",
        {
            "designer": _relation(
                "person",
                "the designer of {s} | the person who designed {s}",
                "was designed by {o}",
                "{o} designed {s} without pay.",
                gap=20,
            ),
            "town": _seat("stands"),
        },
    ),
    "painting": _kind(
        "painting",
        5,
        (1745, 2000),
        "painted",
        "{s} was shown beside {m}. | {s} is smaller than {m}.",
        {
            "painter": _relation(
                "person",
                "the painter of {s} | the person who painted {s}",
                "was painted by {o}",
                "{o} painted {s} on a cracked board.",
                gap=16,
            ),
            "home": _relation(
                "school", "the school that displays {s}", "hangs in {o}", "Since a fire, {s} hangs in {o}."
            ),
            "owner": _OWNER,
        },
    ),
}


MIN_SIZE, MAX_SIZE = 200, 50_000  # passages; there are not enough names for more
_ALIAS_MENTIONS = 0.15  # share of mentions of other entities by an alias


@dataclass(frozen=True)
class Entity:
    """An entity of the world. The passage about it has the same id.

    Attributes:
        id: "town-12".
        kind: "town".
        names: the proper name, then the aliases.
        year: the year in which it began.
    """

    id: str
    kind: str
    names: tuple[str, ...]
    year: int

    @property
    def name(self) -> str:
        """The proper name."""
        return self.names[0]


@dataclass(frozen=True)
class Fact:
    """One fact, stated by the passage about its subject.

    Attributes:
        subject: an entity's id.
        relation: its name in the table of relations.
        object: an entity's id, or a year.
        mention: how the passage writes the object.
    """

    subject: str
    relation: str
    object: str
    mention: str


@dataclass(frozen=True)
class World:
    """All entities and facts.

    Attributes:
        seed: of the world.
        size: passages.
        entities: by id.
        facts: by subject and relation.
    """

    seed: int
    size: int
    entities: dict[str, Entity]
    facts: dict[tuple[str, str], Fact]

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


def check_size(size: int) -> None:
    """Check the number of passages.

    Raises:
        ValueError: too few, or too many.
    """
    if not MIN_SIZE <= size <= MAX_SIZE:
        raise ValueError(f"a MultiHop world has {MIN_SIZE:,} to {MAX_SIZE:,} passages, got world_size={size}")


# The splits and levels of a seed share one world; the limit bounds the memory.
@functools.lru_cache(4)
def make_world(seed: int, size: int) -> World:
    """Return the world of a seed, for `size` passages.

    Raises:
        ValueError: a size that is too small or too large.
    """
    check_size(size)
    rng = random.Random(f"multihop/world/{seed}/{size}")
    names = NameMaker(rng, size, seed % 2)
    entities = {}
    for kind, description in KINDS.items():
        # At least three of each kind, so that a relation always finds something other than its subject.
        for number in range(max(3, size * description.share // 100)):
            entity = Entity(f"{kind}-{number}", kind, names.names(kind), rng.randint(*description.years))
            entities[entity.id] = entity
    return World(seed, size, entities, _facts(rng, entities))


def _facts(rng: random.Random, entities: dict[str, Entity]) -> dict[tuple[str, str], Fact]:
    by_kind = _by_kind(entities.values())
    facts = {}
    for entity in entities.values():
        for name, relation in KINDS[entity.kind].relations.items():
            facts[entity.id, name] = _fact(rng, entity, name, relation, by_kind)
    return facts


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
