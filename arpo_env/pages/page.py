"""The results of reading a page: a `Page`, or a `PageError` whose reason the model can read."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Kind = Literal["html", "pdf", "text"]
_LONGEST_URL = 200


@dataclass(frozen=True)
class Page:
    """The text of one page.

    Attributes:
        url: its address after redirects.
        title: from its metadata, or "".
        text: its main text.
        date: of publication, as YYYY-MM-DD, or "" if the page does not tell it.
        kind: "html", "pdf" or "text".
        links: text and address of each link, in order, if the reader collects them.
    """

    url: str
    title: str
    text: str
    date: str
    kind: Kind
    links: tuple[tuple[str, str], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON data; `links` only where there are some."""
        data = asdict(self)
        return {name: value for name, value in data.items() if name != "links" or value}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Page:
        """Make a page from the result of `as_dict`."""
        return cls(**{**data, "links": tuple((text, url) for text, url in data.get("links", ()))})


class PageError(Exception):
    """Raised when a page cannot be read because of the page or its address. Failures on our side are other errors.

    Attributes:
        url: of the requested page.
        reason: a clause for the model, as in "there is no such page (status 404)", without text of the page.
    """

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"{shown(url)}: {reason}")
        self.url, self.reason = url, reason


def shown(url: str) -> str:
    """Return an address for a message, on one line and not too long."""
    line = "".join(character if character.isprintable() else "?" for character in url)
    return line if len(line) <= _LONGEST_URL else line[:_LONGEST_URL] + "..."
