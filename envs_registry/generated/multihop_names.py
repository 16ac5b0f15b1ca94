"""Invented names for the MultiHop world: words out of syllables in four styles, and a pattern for each kind of thing.

Names and aliases consist of letters and spaces and are unique. Surnames and first words are shared on purpose, so that
similar names exist. Each name contains an invented word; worlds with even seeds and worlds with odd seeds use different
words. Any resemblance to real names is coincidental.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable

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
