"""The kinds and relations of the MultiHop world with their wording: one table without behaviour.

A relation maps an entity to exactly one other entity (a person, a town, ...) or to a year. In the table " | " separates
variants of a text; {s} is the subject and {o} the object.
"""

from __future__ import annotations

from dataclasses import dataclass


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
