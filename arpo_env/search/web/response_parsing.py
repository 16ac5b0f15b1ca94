"""Reads the JSON of search services into `Hit`s.

A single odd result never raises, since models read on without it; a reply of another shape does.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from arpo_env.net.http import Reply
from arpo_env.search.search_backend import Hit

_TAG = re.compile(r"</?(?:strong|b|em|i|mark)>")
SNIPPET = 500  # characters of a text that stand for a snippet where the service has none


@dataclass(frozen=True)
class HitFields:
    """Names of the fields of one result. For title, url, date and text the first field that is not empty counts.

    Attributes:
        title: of the page.
        url: of the page.
        snippet: all fields that are not empty are joined.
        date: as the service writes it.
        text: the whole page.
        score: a number.
        markup: whether texts hold HTML entities and emphasis.
    """

    title: tuple[str, ...] = ("title",)
    url: tuple[str, ...] = ("url",)
    snippet: tuple[str, ...] = ("snippet",)
    date: tuple[str, ...] = ("date",)
    text: tuple[str, ...] = ()
    score: str = ""
    markup: bool = False

    def hit(self, result: Mapping[str, Any]) -> Hit:
        """Read one result; a missing or odd field is empty."""
        text = self._first(result, self.text)
        snippet = one_line(" ".join(filter(None, (self._words(result, name) for name in self.snippet))))
        return Hit(
            title=one_line(self._first(result, self.title)),
            url=self._first(result, self.url),
            snippet=snippet or one_line(text[:SNIPPET]),
            date=one_line(self._first(result, self.date)),
            text=text,
            score=number(result.get(self.score)),
        )

    def _first(self, result: Mapping[str, Any], names: tuple[str, ...]) -> str:
        return next(filter(None, (self._words(result, name) for name in names)), "")

    def _words(self, result: Mapping[str, Any], name: str) -> str:
        words = json_text(result.get(name))
        return html.unescape(_TAG.sub("", words)) if self.markup else words


@dataclass(frozen=True)
class ReplyShape:
    """Where the results are in a reply.

    Attributes:
        path: to the list of results.
        columns: the fields of each result.
        marker: a key whose presence in a reply without that list means that nothing was found.
        leads: objects beside the list that answer the query directly: (key, fields).
    """

    path: tuple[str, ...]
    columns: HitFields = HitFields()
    marker: str = ""
    leads: tuple[tuple[str, HitFields], ...] = ()

    def hits(self, reply: Reply, data: Any) -> list[Hit]:
        """Return the hits of a reply, whose unpacked JSON is `data`.

        Raises:
            ServiceError: the reply has another shape.
        """
        if not isinstance(data, dict):
            raise reply.fault(f"answered {json_kind(data)}, expected an object with {self._place}")
        found = self._list(reply, data)
        results = [result for result in found if isinstance(result, dict)]
        # Some odd results are skipped, but a list of nothing else is another format.
        if found and not results:
            raise reply.fault(f"answered {json_kind(found[0])} in {self._place}, expected objects")
        # Direct answers come first, as on the page of the search engine.
        leads = [columns.hit(data[key]) for key, columns in self.leads if isinstance(data.get(key), dict)]
        return [lead for lead in leads if lead.snippet] + with_text(map(self.columns.hit, results))

    def _list(self, reply: Reply, data: dict[str, Any]) -> list[Any]:
        found: Any = data
        for key in self.path:
            found = found.get(key) if isinstance(found, dict) else None
        if isinstance(found, list):
            return found
        # Before the marker: a reply can hold both, and an error must not look like an empty result.
        said = error_in(data)
        if said:
            raise reply.fault(f"answered an error: {said}")
        if found is None and self.marker and self.marker in data:
            return []
        raise reply.fault(f"answered an object without the list {self._place}; it has {sorted(data)[:8]}")

    @property
    def _place(self) -> str:
        return ".".join(self.path)


def with_text(hits: Iterable[Hit]) -> list[Hit]:
    """Leave out hits without any text."""
    return [hit for hit in hits if hit.title or hit.snippet or hit.text]


def error_in(data: Mapping[str, Any]) -> str:
    """Return the error that a reply reports, or ""."""
    for key in ("error", "message", "detail"):
        said = one_line(json_text(data.get(key)))
        if said:
            return said[:300]
    return ""


def json_text(value: Any) -> str:
    """Return the text of a JSON value: strings and numbers, lists of them, and objects of them as `name: value`."""
    if isinstance(value, str):  # lone surrogates could be neither sent nor recorded
        return value.encode("utf-8", "replace").decode().strip()
    if isinstance(value, list):
        return " ".join(filter(None, (json_text(part) for part in value if isinstance(part, str | int | float))))
    # Such as the attributes in a knowledge graph of Serper.
    if isinstance(value, dict):
        parts = ((key, json_text(part)) for key, part in value.items() if isinstance(part, str | int | float))
        return "; ".join(f"{json_text(key)}: {part}" for key, part in parts if part)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return ""


def one_line(text: str) -> str:
    """Return the text with every run of white space as one space."""
    return " ".join(text.split())


def number(value: Any) -> float | None:
    """Return a finite number, or None for anything else."""
    # bool is a subclass of int; NaN and infinity are no valid JSON.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def json_kind(value: Any) -> str:
    """Name the kind of a JSON value."""
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")
