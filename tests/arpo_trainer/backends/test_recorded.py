"""Recorded generations: a replay needs no model and gives what was recorded; what is missing is named."""

import asyncio
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from arpo_env.cache import Cache, CacheMiss, export_jsonl, import_jsonl
from arpo_trainer.backends import RecordedBackend, TransformersBackend
from arpo_trainer.backends.base import Backend, Generation, GenerationError, Request
from arpo_trainer.tree import Stopwatch
from tests.arpo_trainer.backends.conformance import rollout
from tests.arpo_trainer.byte_policy import write_byte_policy
from tests.arpo_trainer.text_policy import TextPolicy

REQUESTS = [
    Request((5, 6, 7), 9, seed=1, window=3),
    Request((5, 6, 7), 9, seed=2, window=20),
    Request((5, 6, 7), 9, seed=1, top_p=0.5),
    Request((5, 6, 8), 9, seed=1),
    Request((5, 6, 7), 9, ("e",), seed=1),
    Request((5, 6, 7), 4, seed=1),
]


@pytest.fixture(scope="module")
def byte_policy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = write_byte_policy(tmp_path_factory.mktemp("bytes"))
    return AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


def shown(made: Sequence[Generation]) -> list[Generation]:
    return [dataclasses.replace(one, queued=0.0) for one in made]


def generate(backend: Backend, requests: Sequence[Request] = REQUESTS) -> tuple[list[Generation], list[list[float]]]:
    told: list[list[float]] = []
    made = asyncio.run(rollout(backend, requests, on_window=lambda first: told.append(list(first))))
    return shown(made), sorted(told)


def test_a_replay_gives_what_was_recorded_without_a_model(byte_policy: Any, tmp_path: Path) -> None:
    plain = generate(TransformersBackend(*byte_policy))
    recorded = generate(RecordedBackend(TransformersBackend(*byte_policy), Cache(tmp_path / "c"), "m"))
    assert [(one.ids, one.finish) for one in recorded[0]] == [(one.ids, one.finish) for one in plain[0]]
    replay = Cache(tmp_path / "c", mode="replay")
    assert [(row["kind"], row["provider"], row["records"]) for row in replay.store.stats()] == [("generation", "m", 6)]
    assert generate(RecordedBackend(None, replay, "m")) == recorded
    assert sorted(map(len, recorded[1])) == [3, 9]

    # in another file, through the export
    export_jsonl(replay, tmp_path / "c.jsonl")
    import_jsonl(Cache(tmp_path / "other"), tmp_path / "c.jsonl")
    assert generate(RecordedBackend(None, Cache(tmp_path / "other", mode="replay"), "m")) == recorded


def test_what_is_recorded_is_not_generated_again(byte_policy: Any, tmp_path: Path) -> None:
    first = generate(RecordedBackend(TransformersBackend(*byte_policy), Cache(tmp_path / "c"), "m"), REQUESTS[:2])
    again = RecordedBackend(Failing(), Cache(tmp_path / "c"), "m")
    assert generate(again, REQUESTS[:2]) == first
    with pytest.raises(GenerationError, match="asked"):
        generate(again, REQUESTS[2:3])
    assert Cache(tmp_path / "c", mode="replay").store.stats()[0]["records"] == 2  # a failure is not recorded


OTHERS = dict(max_tokens=8, seed=7, temperature=0.5, top_p=0.9, top_k=3, min_p=0.1, repetition_penalty=1.1)


@pytest.mark.parametrize(("name", "value"), [("ids", (5, 6)), ("stop", ("x",)), *OTHERS.items()])
def test_other_requests_and_other_models_miss(name: str, value: Any, tmp_path: Path) -> None:
    asked, answer = Request((5, 6, 7), 9, seed=3), Generation([1], [-0.5], [0.25], "eos")
    asyncio.run(rollout(RecordedBackend(Answering(answer), Cache(tmp_path / "c"), "m"), [asked]))
    replay = Cache(tmp_path / "c", mode="replay")
    assert asyncio.run(rollout(RecordedBackend(None, replay, "m"), [asked])) == [answer]
    for model, request in (("m", dataclasses.replace(asked, **{name: value})), ("n", asked)):
        with pytest.raises(CacheMiss, match='mode="record"'):
            asyncio.run(rollout(RecordedBackend(None, replay, model), [request]))
    with pytest.raises(ValueError, match="give a backend"):
        RecordedBackend(None, Cache(tmp_path / "c"), "m")


class Answering(TextPolicy):
    """Gives one answer."""

    trains = wants_messages = False

    def __init__(self, answer: Generation) -> None:
        self.answer, self.time = answer, Stopwatch()

    async def generate(self, request: Request, on_window: Any = None) -> Generation:
        return self.answer


class Failing(Answering):
    """Fails whenever it is asked."""

    def __init__(self) -> None:
        super().__init__(Generation())

    async def generate(self, request: Request, on_window: Any = None) -> Generation:
        raise GenerationError("the model was asked")
