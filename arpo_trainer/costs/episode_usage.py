"""What episodes may use at most: tokens, tool calls, searches, verdicts. The environment's limits set the bounds.

A bound holds for every model, except that replays after a failure (`retries`) are not counted. A guess with a stated
assumption is given in addition: the lengths of trajectories are not known before a run.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from arpo_env import ToolEnv
from arpo_env.search.backend_registry import VARIABLE, backend_names
from arpo_env.search.search_backend import search_price
from arpo_trainer.algorithms.budgets import generated_tokens
from arpo_trainer.training.config import ARPOConfig

ROOM_USED = 0.5  # assumed share of the token limit that a trajectory fills
SHARED = 0.5  # assumed share of a branch that it has in common with its parent
PAGES_READ = 5  # per search, if pages are read


@dataclass(frozen=True)
class EpisodeLimits:
    """The limits of one trajectory.

    Attributes:
        turns: model turns.
        room: tokens of model and environment after the prompt, in one context.
        sampled: tokens that the model writes, in all contexts if it may fold.
        calls: tool calls that are executed.
        calls_of: the same for each tool.
    """

    turns: int
    room: int
    sampled: int
    calls: int
    calls_of: dict[str, int] = field(default_factory=dict)


def episode_limits(env: ToolEnv, args: ARPOConfig) -> EpisodeLimits:
    """Return what one trajectory may use at most."""
    budget, tools = env.budget, list(env.tools)
    room = min(limit for limit in (args.max_completion_length, budget.tokens) if limit is not None)
    # a call in the last turn is not executed, since no turn may follow; a native turn may hold several calls
    calls = budget.calls if env.protocol.native else min(budget.calls, budget.turns - 1)
    limits = {name: min(calls, budget.calls_of.get(name, calls)) for name in tools}
    return EpisodeLimits(
        turns=budget.turns,
        room=room,
        sampled=min(room * (budget.folds + 1), budget.turns * (args.max_turn_length or room)),
        # all tools together may allow fewer calls than the episode does
        calls=min(calls, sum(limits.values())),
        calls_of=limits,
    )


@dataclass(frozen=True)
class GroupTokens:
    """Tokens that are sampled for a group; tokens that trajectories share count once.

    Attributes:
        most: if every trajectory has its full length and shares nothing.
        assumed: with all branches and without any, if a trajectory fills half of its limit and a branch shares half.
    """

    most: int
    assumed: tuple[int, int]


def group_tokens(episode: EpisodeLimits, args: ARPOConfig) -> GroupTokens:
    """Return the tokens that are sampled for the trajectories of one prompt."""
    total = args.num_generations or 1
    length = episode.sampled * ROOM_USED
    low = generated_tokens(total, expected_roots(args), length, SHARED)
    return GroupTokens(total * episode.sampled, (round(low), round(total * length)))


def expected_roots(args: ARPOConfig) -> int:
    """Return how many trajectories start at the prompt; AEPO, which decides during play, counts at equal entropies."""
    total, budget = args.num_generations or 1, args.rollout_settings().parts.budget_rule
    return budget.expected_roots(total, args.initial_rollouts or total, args.budget_beta)


@dataclass(frozen=True)
class ServiceUse:
    """What one trajectory may request from external services at most.

    Attributes:
        backend: the search backend: a provider, "local", "world" (part of the tasks), "recorded", or "" for no search.
        searches: the number of searches.
        usd: the price of 1,000 searches; None if it is not known.
        price: the source of the price.
        pages: the number of fetched pages.
        page_model: the model that reads pages, once per search; "" if there is none.
        judge_model: the model that judges answers, once per trajectory (again if its reply is unreadable); "" if none.
    """

    backend: str = ""
    searches: int = 0
    usd: float | None = 0.0
    price: str = ""
    pages: int = 0
    page_model: str = ""
    judge_model: str = ""


def service_use(env: ToolEnv, episode: EpisodeLimits, usd: float | None = None) -> ServiceUse:
    """Return what one trajectory may request from external services.

    Args:
        env: the environment.
        episode: the limits of a trajectory.
        usd: the price of 1,000 searches, if it is not the list price.
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
    """Return the name of an environment's search backend, without opening it."""
    services = env.services
    if services.record is not None and services.record.mode == "replay":
        return "recorded"
    where: Any = services.search
    if where is None:
        # tasks that bring their passages are their own search; a limited source holds them in `tasks`
        if hasattr(getattr(env.tasks, "tasks", env.tasks), "passages"):
            return "world"
        where = os.environ.get(VARIABLE, "")
    name = str(getattr(where, "name", where)).partition(":")[0]
    return name if name in backend_names() else "local" if where else "not configured"
