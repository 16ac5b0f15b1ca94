"""Recorded generations: a replay needs no model and gives what was recorded; what is missing is named."""

import asyncio
import dataclasses
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from arpo_env.cache import Cache, CacheMiss
from arpo_trainer.backends import RecordedBackend
from arpo_trainer.backends.base import Backend, Generation, GenerationError, OnWindow, Request
from arpo_trainer.tree import Stopwatch
from tests.arpo_trainer.backends.conformance import rollout
from tests.arpo_trainer.text_policy import TextPolicy

ASKED = Request((5, 6, 7), 9, seed=3, window=3)
OTHERS: list[tuple[str, Any]] = [
    *(("ids", (5, 6)), ("stop", ("x",)), ("max_tokens", 8), ("seed", 7), ("temperature", 0.5), ("top_p", 0.9)),
    *(("top_k", 3), ("min_p", 0.1), ("repetition_penalty", 1.1)),
]


class Answering(TextPolicy):
    """Answers with numbers that are a function of the request, or fails whenever it is asked."""

    trains = wants_messages = False
    max_context = 99

    def __init__(self, fails: bool = False) -> None:
        self.fails, self.time = fails, Stopwatch()

    async def generate(self, request: Request, on_window: OnWindow | None = None) -> Generation:
        if self.fails:
            raise GenerationError("the model was asked")
        numbers = [random.Random(f"{request}/{n}").random() for n in range(request.max_tokens)]
        if on_window:
            on_window(numbers[: request.window])
        return Generation([int(99 * one) for one in numbers], [-one for one in numbers], numbers, "eos", cached=2)


def generate(backend: Backend, requests: Sequence[Request]) -> tuple[list[Generation], list[list[float]]]:
    told: list[list[float]] = []
    made = asyncio.run(rollout(backend, requests, on_window=lambda first: told.append(list(first))))
    return made, sorted(told)


def test_a_replay_gives_what_was_recorded_without_a_model(tmp_path: Path) -> None:
    requests = [ASKED, dataclasses.replace(ASKED, seed=2, window=20)]
    requests += [dataclasses.replace(ASKED, **{name: value}) for name, value in OTHERS]
    recorded = generate(RecordedBackend(Answering(), Cache(tmp_path / "c"), "m"), requests)
    assert recorded == generate(Answering(), requests)
    replay = Cache(tmp_path / "c", mode="replay")
    assert [(row["kind"], row["provider"], row["records"]) for row in replay.store.stats()] == [("generation", "m", 11)]
    replaying = RecordedBackend(None, replay, "m")
    assert generate(replaying, requests) == recorded
    assert replaying.max_context == Answering.max_context  # by which the engine ended trajectories


def test_what_is_recorded_is_not_generated_again(tmp_path: Path) -> None:
    first = generate(RecordedBackend(Answering(), Cache(tmp_path / "c"), "m"), [ASKED])
    again = RecordedBackend(Answering(fails=True), Cache(tmp_path / "c"), "m")
    assert generate(again, [ASKED]) == first
    with pytest.raises(GenerationError, match="asked"):
        generate(again, [dataclasses.replace(ASKED, seed=4)])
    assert Cache(tmp_path / "c", mode="replay").store.stats()[0]["records"] == 1  # a failure is not recorded


@pytest.mark.parametrize(("name", "value"), OTHERS)
def test_other_requests_and_other_models_miss(name: str, value: Any, tmp_path: Path) -> None:
    generate(RecordedBackend(Answering(), Cache(tmp_path / "c"), "m"), [ASKED])
    replay = Cache(tmp_path / "c", mode="replay")
    for model, request in (("m", dataclasses.replace(ASKED, **{name: value})), ("n", ASKED)):
        with pytest.raises(CacheMiss, match='mode="record"'):
            generate(RecordedBackend(None, replay, model), [request])


def test_a_recording_needs_a_model(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="give a backend"):
        RecordedBackend(None, Cache(tmp_path / "c"), "m")
