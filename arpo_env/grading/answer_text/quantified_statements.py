r"""Statements with a quantifier: "\exists x \in \mathbb{R}, x^2 < 0" and "there exists a real x such that x^2 < 0"."""

from __future__ import annotations

import re

_STATEMENT = re.compile(
    r"(?:the\s+statement\s*)?(?P<how>\\exists|\\forall|there\s+(?:exists|is)(?:\s+(?:an?|some|at\s+least\s+one))?|for\s+(?:all|every|any|each)|存在|任意|对任意|对任意的)"
    r"\s*(?P<real>(?:the\s+)?real(?:\s+numbers?)?|实数)?\s*(?P<name>[a-zA-Z])(?:_\{?0\}?)?\s*(?:\\in\s*(?P<where>\\mathbb\{[A-Z]\}|[RNZQ]|\([^()]*\)|\[[^\[\]]*\]))?"
    r"\s*[,:]?\s*(?:such\s+that|so\s+that|s\.t\.|with|for\s+which|we\s+have|使得?|都有|有)?\s*[,:]?\s*(?P<claim>\S.*)",
    re.IGNORECASE,
)


def matching_claims(answer: str, gold: str) -> tuple[str, str] | bool | None:
    """Return the claims of two statements with the same quantifier; False if only the gold answer is such a statement.

    None means that the gold answer is not a statement.
    """
    wanted, mine = _STATEMENT.fullmatch(gold), _STATEMENT.fullmatch(answer)
    if wanted is None:
        return None
    if mine is None or _head(mine) != _head(wanted):
        return False
    return _claim(mine), _claim(wanted)


def _head(match: re.Match[str]) -> tuple[bool, str, str]:
    """Return whether the statement is existential, the name of its variable, and the domain."""
    where = re.sub(r"\\mathbb\{(\w)\}", r"\1", match["where"] or ("R" if match["real"] else ""))
    return (
        match["how"].lower().startswith(("\\exists", "there", "存在")),
        match["name"],
        re.sub(r"\s", "", where) or "R",
    )


def _claim(match: re.Match[str]) -> str:
    return re.sub(rf"(?<![A-Za-z])({match['name']})_\{{?0\}}?", r"\1", match["claim"])
