"""What episodes may use: tokens, tool calls, searches, verdicts. Bounds that the environment's limits set.

A bound holds whatever the model does, except for what is played a second time after a failure (`retries`). Beside it
stands a guess, with its assumption named: nobody knows before a run how long its trajectories are.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from arpo_env import ToolEnv
from arpo_env.search.backend_registry import VARIABLE, backend_names
from arpo_env.search.prices import search_price
from arpo_trainer.algorithms.budgets import generated_tokens
from arpo_trainer.training.config import ARPOConfig

ROOM_USED = 0.5  # assumed share of the room that a trajectory fills
SHARED = 0.5  # assumed share of a branch that is its parent's
PAGES_READ = 5  # of a search, where pages are read


@dataclass(frozen=True)
class EpisodeLimits:
    """The limits of one trajectory.

    Attributes:
        turns: of the model.
        room: tokens of model and environment after the prompt.
        sampled: tokens the model writes.
        calls: tool calls that run.
        calls_of: the same of each tool.
    """

    turns: int
    room: int
    sampled: int
    calls: int
    calls_of: dict[str, int] = field(default_factory=dict)


def episode_limits(env: ToolEnv, args: ARPOConfig) -> EpisodeLimits:
    """Return what one trajectory may use at most; a call in the last turn is not run, since nothing may follow it."""
    budget, tools = env.budget, list(env.tools)
    room = min(limit for limit in (args.max_completion_length, budget.tokens) if limit is not None)
    calls = budget.calls if env.protocol.native else min(budget.calls, budget.turns - 1)
    limits = {name: min(calls, budget.calls_of.get(name, calls)) for name in tools}
    return EpisodeLimits(
        turns=budget.turns,
        room=room,
        sampled=min(room, budget.turns * (args.max_turn_length or room)),
        calls=min(calls, sum(limits.values())),
        calls_of=limits,
    )


@dataclass(frozen=True)
class GroupTokens:
    """Tokens that a group of trajectories costs to sample, those that are shared once.

    Attributes:
        most: every trajectory is as long as it can be, and shares nothing.
        assumed: between every place for a branch used and none, where a trajectory fills half its room and a branch
            shares half of it.
    """

    most: int
    assumed: tuple[int, int]


def group_sampling(episode: EpisodeLimits, args: ARPOConfig) -> GroupTokens:
    """Return what one prompt's trajectories cost to sample."""
    total = args.num_generations or 1
    length = episode.sampled * ROOM_USED
    low = generated_tokens(total, expected_roots(args), length, SHARED)
    return GroupTokens(total * episode.sampled, (round(low), round(total * length)))


def expected_roots(args: ARPOConfig) -> int:
    """Return how many trajectories start at the prompt; for AEPO, which decides as it plays, at equal entropies."""
    total, budget = args.num_generations or 1, args.rollout_settings().parts.budget_rule
    return budget.expected_roots(total, args.initial_rollouts or total, args.budget_beta)


@dataclass(frozen=True)
class ServiceUse:
    """What one trajectory may ask of services outside.

    Attributes:
        backend: of searches: a provider, "local", "world" (comes with the tasks), "recorded", or "" without searches.
        searches: at most.
        usd: for 1,000 searches; None if not known.
        price: where the price is from.
        pages: fetched at most.
        page_model: model that reads pages, once a search; "" if none.
        judge_model: model that gives verdicts, once a trajectory (again where its reply cannot be read); "" if none.
    """

    backend: str = ""
    searches: int = 0
    usd: float | None = 0.0
    price: str = ""
    pages: int = 0
    page_model: str = ""
    judge_model: str = ""


def asked(env: ToolEnv, episode: EpisodeLimits, usd: float | None = None) -> ServiceUse:
    """Return what one trajectory may ask outside.

    Args:
        env: with the tools.
        episode: its limits.
        usd: the price of 1,000 searches, instead of the list price.
    """
    services, searches = env.services, episode.calls_of.get("search", 0)
    if "search" not in env.tools:
        return ServiceUse(judge_model=services.judge_model)
    backend = search_backend(env)
    known = search_price(backend)
    price = "search_price" if usd is not None else f"{known.source} {known.read}".strip() if known else ""
    pages = 0 if services.pages == "snippets" else min(PAGES_READ, services.search_results)
    return ServiceUse(
        backend=backend,
        searches=searches,
        usd=usd if usd is not None else known.usd if known else None,
        price=price,
        pages=searches * pages,
        page_model=services.page_model,
        judge_model=services.judge_model,
    )


def search_backend(env: ToolEnv) -> str:
    """Return the name of what an environment searches, without opening it."""
    services = env.services
    if services.record is not None and services.record.mode == "replay":
        return "recorded"
    where: Any = services.search
    if where is None:
        if hasattr(getattr(env.tasks, "tasks", env.tasks), "passages"):
            return "world"
        where = os.environ.get(VARIABLE, "")
    name = str(getattr(where, "name", where)).partition(":")[0]
    return name if name in backend_names() else "local" if where else "not configured"
