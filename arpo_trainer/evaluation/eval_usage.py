"""What an evaluation has used: tokens, calls and money. Prices are those of run.json; others are not known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from arpo_trainer.evaluation.unit_row import HELPER_TOKENS, UnitRow

_MILLION, _THOUSAND = 1e6, 1e3


@dataclass
class EvalUsage:
    """Counts what episodes use.

    Attributes:
        facts: run.json, with the prices of models and searches.
        episodes: number of episodes.
        generated: tokens that models generated, shared ones once.
        context: tokens of context of all requests, those from a cache included.
        cached: of them, tokens from a cache.
        calls: executed calls by tool.
        model_usd: cost of the models; None if a price is not known.
        search_usd: cost of the searches; None if a price is not known.
        helper: requests and tokens of the model that helps tools at inference time, see `EpisodeEntry.helper`.
        helper_usd: its cost; None if its price is not known. It is in no other sum.
    """

    facts: Mapping[str, Any]
    episodes: int = 0
    generated: int = 0
    context: int = 0
    cached: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    model_usd: float | None = 0.0
    search_usd: float | None = 0.0
    helper: Counter[str] = field(default_factory=Counter)
    helper_usd: float | None = 0.0

    def add(self, row: UnitRow) -> None:
        """Count a unit."""
        context, cached = (sum(getattr(e, name) for e in row.episodes) for name in ("context", "cached"))
        calls, helper = Counter[str](), Counter[str]()
        for episode in row.episodes:
            calls.update(episode.calls)
            helper.update(episode.helper)
        self.episodes += len(row.episodes)
        self.generated += row.generated
        self.context += context
        self.cached += cached
        self.calls += calls
        model, environment = (
            self.facts.get(n, {}).get(k, {}) for n, k in (("models", row.model), ("environments", row.env))
        )
        self.model_usd = _sum(self.model_usd, _model_cost(model, context, cached, row.generated))
        searches, each = calls["search"], environment.get("search_price")
        self.search_usd = _sum(self.search_usd, 0.0 if not searches else each and each * searches / _THOUSAND)

        if helper:
            self.helper.update(helper)  # += would drop what is 0
            cost = _model_cost(self._helping(model), *(helper[name] for name in HELPER_TOKENS))
            self.helper_usd = _sum(self.helper_usd, cost)

    def _helping(self, model: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the facts of the model that helps: one at a server, or the policy itself."""
        inference = self.facts.get("settings", {}).get("inference", {})
        return {"kind": "endpoint", "price": inference.get("price")} if inference.get("model") else model

    @property
    def usd(self) -> float | None:
        """The cost of models and searches, or None if a price is not known."""
        return _sum(self.model_usd, self.search_usd)

    def as_dict(self) -> dict[str, Any]:
        """Return the counts as plain data."""
        names = ("episodes", "generated", "context", "cached", "model_usd", "search_usd", "usd")
        helped = {"helper": dict(self.helper), "helper_usd": self.helper_usd} if self.helper else {}
        return {**{name: getattr(self, name) for name in names}, "calls": dict(sorted(self.calls.items())), **helped}


def usage_of(facts: Mapping[str, Any], rows: Iterable[UnitRow]) -> EvalUsage:
    """Return what rows have used together."""
    usage = EvalUsage(facts)
    for row in rows:
        usage.add(row)
    return usage


def _model_cost(model: Mapping[str, Any], context: int, cached: int, generated: int) -> float | None:
    """Return the cost of requests in US dollars; models that run here cost 0."""
    price = model.get("price")
    if price is None:
        return None if model.get("kind") == "endpoint" else 0.0
    spent = (context - cached) * price["input"] + cached * price["cached"] + generated * price["output"]
    return float(spent) / _MILLION


def _sum(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first + second
