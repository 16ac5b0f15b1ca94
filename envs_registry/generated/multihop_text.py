"""The MultiHop corpus: one passage per entity of a world, and chronicles as distractors.

A passage gives the names of its subject and all facts about it, in varying order and wording. A chronicle mentions
several entities but no fact that a question asks for; it only shares words with relevant passages.
"""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass

from envs_registry.generated.multihop_names import NameMaker
from envs_registry.generated.multihop_relations import KINDS
from envs_registry.generated.multihop_world import Entity, World, make_world

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
    passages = [_about(rng, entity, world) for entity in world.things]
    # The same half of the words as the world, so that worlds of the other half share no title with it.
    names = NameMaker(rng, size, seed % 2)
    for number in range(size - len(passages)):
        passages.append(_chronicle(rng, f"chronicle-{number}", names.names("chronicle")[0], world.things))
    # The place of a passage should not tell what it is about.
    rng.shuffle(passages)
    return tuple(passages)


def _about(rng: random.Random, entity: Entity, world: World) -> Passage:
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
