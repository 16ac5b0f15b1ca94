"""MultiHop questions: three forms over a world's facts, each with one answer by construction.

    Chain    "Who is the mayor of the town where X was born?"              every step leads to exactly one thing
    Compare  "Who was born earlier, A or the author of B?"                 two chains, and the years of their ends
    Meet     "Which book was brought out by P and written by someone ...?" only one thing meets both conditions

`draw` creates a question from a random generator, or returns None if the draw was a dead end. The number of hops is the
number of facts that are needed; each passage states one of them, or two at the ends of Compare and Meet.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from envs_registry.generated.multihop_relations import KINDS
from envs_registry.generated.multihop_world import Entity, Fact, World


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
