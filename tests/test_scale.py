"""The simulation of scale: its clock, its servers, its steps, and the pages made from its results."""

from __future__ import annotations

import asyncio
import json
import random
import time
from pathlib import Path

import pytest

from arpo_env.net import RateLimiter
from arpo_trainer.backends.base import Request
from benchmarks.rollout_world import small_tokenizer
from benchmarks.scale_servers import BLOCK, MODELS, TOKENS_PER_ID, BlockCache, SimulatedServer, block_keys
from benchmarks.scale_world import KINDS
from benchmarks.virtual_time import run_virtual
from scripts.scale_tables import PAGES, RESULTS, page_with_tables


def test_waiting_takes_virtual_time_only() -> None:
    async def wait() -> float:
        limiter = RateLimiter(0.1)
        await asyncio.gather(*(limiter.acquire(1e6) for _ in range(101)))
        return time.monotonic()

    began = time.monotonic()
    assert run_virtual(wait()) == pytest.approx(1000)
    assert time.monotonic() - began < 5


def test_threads_and_waits_without_an_end_are_refused() -> None:
    async def thread() -> None:
        await asyncio.to_thread(time.sleep, 0)

    async def forever() -> None:
        await asyncio.Event().wait()

    for coroutine, words in ((thread(), "threads"), (forever(), "nothing would ever happen")):
        with pytest.raises(RuntimeError, match=words):
            run_virtual(coroutine)


def test_a_block_cache_never_holds_more_than_fits_and_keeps_what_is_held() -> None:
    rng, cache = random.Random(0), BlockCache(60)
    held: list[tuple[list[int], int]] = []
    for _ in range(500):
        if held and rng.random() < 0.5:
            keys, more = held.pop(rng.randrange(len(held)))
            cache.give_back(keys, more, [rng.randrange(10**6) for _ in range(more)])
        else:
            keys = block_keys([rng.randrange(3)] * BLOCK * rng.randrange(1, 20))
            if cache.take(keys, 2):
                held.append((keys, 2))
        assert all(cache.known(keys) == len(keys) for keys, _ in held)
        assert len(cache._held) + len(cache._idle) + cache._reserved <= cache.room


def test_a_lone_request_takes_its_prefill_and_its_steps_and_the_next_one_finds_its_context() -> None:
    tokenizer, model = small_tokenizer(), MODELS["7B"]
    server = SimulatedServer(model, KINDS["search"].script(tokenizer))
    context = tuple(range(100, 100 + 10 * BLOCK))

    async def ask() -> list[float]:
        moments = []
        for seed in (1, 2):
            made = await server.generate(Request(context, 200, seed=seed))
            moments += [time.monotonic(), len(made.ids) * TOKENS_PER_ID, made.cached]
        return moments

    first, length, cached, second, _, found = run_virtual(ask())
    tokens = len(context) * TOKENS_PER_ID
    steps = length * model.step(1, tokens)  # a step becomes slower as the context grows, by less than a percent
    assert first == pytest.approx(tokens * model.prefill + steps, rel=0.01)
    assert (cached, found) == (0, len(context))
    assert server.busy == pytest.approx(second)


def test_a_step_is_the_same_each_time_and_keeps_to_its_slots() -> None:
    from benchmarks.scale_step import Load, simulate

    measured = json.loads(RESULTS.read_text(encoding="utf-8"))["costs"]
    load = Load("search", "7B", workers=2, servers=1, groups=3, generations=4, searches=2.0, slots=2)
    first, second = (simulate(load, measured, small_tokenizer()) for _ in range(2))
    assert {**first, "simulated_in": 0} == {**second, "simulated_in": 0}
    assert first["void"] == 0
    assert 0 < first["sandboxes"] <= load.slots * load.workers


def test_virtual_and_real_time_agreed() -> None:
    check = json.loads(RESULTS.read_text(encoding="utf-8"))["check"]
    for pair in check.values():
        for name in ("seconds", "tokens_per_second"):
            assert pair["virtual"][name] == pytest.approx(pair["real"][name], rel=0.05)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_have_the_tables_of_the_results(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert page_with_tables(text) == text
