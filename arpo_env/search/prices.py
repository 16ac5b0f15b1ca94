"""List prices of web searches, with their source and the month in which they were read.

Prices are those of the smallest paid plan, for up to ten results per search; larger plans cost less. They change: a run
that has to keep to a budget sets `search_price`. A price that is not listed here is not known; none is estimated.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SearchPrice:
    """The price of a provider.

    Attributes:
        usd: US dollars for 1,000 searches.
        source: page that names the price.
        read: the month it was read, as in "2026-11".
    """

    usd: float
    source: str
    read: str


PRICES = {
    "brave": SearchPrice(5.0, "https://api-dashboard.search.brave.com/app/plans", "2026-11"),
    "exa": SearchPrice(7.0, "https://exa.ai/docs/reference/pricing", "2026-11"),
    "serper": SearchPrice(1.0, "https://serper.dev", "2026-08"),
    "tavily": SearchPrice(8.0, "https://docs.tavily.com/documentation/api-credits", "2026-11"),
}
# Backends that the user runs, that need no key, or that replay a recording.
UNPAID = frozenset(
    ["ddgs", "elasticsearch", "flashrag", "local", "opensearch", "recorded", "search-r1", "searxng", "world"]
)


def search_price(backend: str) -> SearchPrice | None:
    """Return the price of a backend's searches, or None if it is not known. Backends that the user runs cost 0."""
    return SearchPrice(0.0, "your own", "") if backend in UNPAID else PRICES.get(backend)
