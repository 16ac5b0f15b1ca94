"""The MultiHop world: entities with names and years, and the facts between them.

`make_world(seed, size)` gives the same world in every process and on every machine. `multihop_text` writes the
passages.
"""

from __future__ import annotations

import bisect
import functools
import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from envs_registry.generated.multihop_names import NameMaker
from envs_registry.generated.multihop_relations import KINDS, Relation

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
