"""The MultiHop recipes evaluate in a world that was not trained on, and show what a task needs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from arpo_env.search.local_search import WorldSearch
from arpo_trainer.run.recipes import read_settings
from envs_registry.generated.multihop import MultiHopSource

SOURCE = ("level", "world_size", "seed", "split")
TASKS = 100


@pytest.fixture(params=["multihop-cpu", "arpo-qwen3-8b-multihop-lora"])
def settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    return read_settings(request.param, [])


def source(options: Mapping[str, Any]) -> MultiHopSource:
    return MultiHopSource(**{key: value for key, value in options.items() if key in SOURCE})


def sources(settings: Mapping[str, Any]) -> tuple[MultiHopSource, MultiHopSource]:
    assert "eval_env" not in settings
    return source(settings["env_kwargs"]), source({**settings["env_kwargs"], **settings["eval_env_kwargs"]})


def test_evaluation_is_in_another_world(settings: dict[str, Any]) -> None:
    train, test = sources(settings)
    names = [{name.casefold() for thing in one.world.things for name in thing.names} for one in (train, test)]
    assert not names[0] & names[1]
    asked = [one.task(index).question for one, count in ((train, 2 * TASKS), (test, TASKS)) for index in range(count)]
    assert len(set(asked)) == 3 * TASKS


def test_the_searches_of_a_solution_show_all_gold_passages(settings: dict[str, Any]) -> None:
    async def share(one: MultiHopSource) -> float:
        search = WorldSearch(one.passages, one.seed)
        found = 0
        for index in range(TASKS):
            hits = [
                await search.search(query, settings["env_kwargs"]["search_results"]) for query in one.solution(index)
            ]
            found += set(one.proof(index).passages) <= {hit.url for some in hits for hit in some}
        return found / TASKS

    for one in sources(settings):
        assert asyncio.run(share(one)) >= 0.95
