"""The vLLM engine in this process: the suite of all backends, and what is its own."""

import asyncio
import contextlib
import gc
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")

import torch
from vllm.v1.engine import logprobs

from arpo_trainer.backends import VLLMEngineBackend, vllm_engine
from arpo_trainer.backends.base import Backend, Generation, GenerationError, Request
from tests.arpo_trainer.backends.conformance import CONTEXTS, BackendConformance, expected, rollout, under_way
from tests.vllm.conftest import load_weights

BOUND = 1e-4  # nats, float32 on both sides; measured: 2e-5


class TestVLLMEngineBackend(BackendConformance):
    bound = entropy_bound = BOUND
    estimator = "renormalised"

    @pytest.fixture
    def reference(self, llama: Any) -> Any:
        return llama

    @pytest.fixture
    def backend(self, llm: Any, eos_id: int) -> VLLMEngineBackend:
        return VLLMEngineBackend(llm, eos_token_ids={eos_id})

    def load(self, backend: Backend, reference: Any) -> None:
        assert isinstance(backend, VLLMEngineBackend)
        load_weights(backend.llm, reference)

    @contextlib.contextmanager
    def breaking(self, backend: Backend) -> Iterator[None]:
        assert isinstance(backend, VLLMEngineBackend)

        def fail() -> None:
            raise RuntimeError("broken for a test")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(backend.llm.llm_engine, "step", fail)
            yield


@pytest.mark.parametrize("estimator", ["renormalised", "tail", "nll", "raw10"])
def test_arrays_hold_what_the_engines_own_objects_say(llm: Any, llama: Any, estimator: str, monkeypatch: Any) -> None:
    """The same numbers to the last bit, without a decoded string for any of the most likely tokens."""
    requests = [Request(ids, 50, ("</search>",), seed=n, window=5 * n) for n, ids in enumerate(CONTEXTS)]
    requests.append(Request(CONTEXTS[2], 9, seed=4, top_p=0.5))  # most tokens have probability 0

    def play() -> tuple[list[Generation], list[list[float]]]:
        told: list[list[float]] = []
        backend = VLLMEngineBackend(llm, estimator=estimator)
        got = asyncio.run(rollout(backend, requests, on_window=lambda first: told.append(list(first))))
        return got, sorted(told)

    with monkeypatch.context() as patch:
        patch.setattr(vllm_engine, "_keep_arrays", lambda *_: False)
        wanted, windows = play()
    decoded = mock.Mock()
    monkeypatch.setattr(logprobs, "convert_ids_list_to_tokens", decoded)
    got, told = play()
    assert not decoded.called
    numbers = [[(one.ids, one.logprobs, one.entropies) for one in ones] for ones in (got, wanted)]
    assert numbers[0] == numbers[1]
    assert told == windows
    assert got[2].entropies == pytest.approx(expected(llama, requests[2], got[2], estimator)[1], abs=BOUND)


def test_a_rollout_does_not_begin_while_requests_are_under_way_and_a_cancelled_one_leaves_the_engine(llm: Any) -> None:
    backend = VLLMEngineBackend(llm)

    async def main() -> None:
        await backend.begin()
        task = await under_way(backend, Request(CONTEXTS[2] * 20, 800, seed=1, window=1))
        try:
            with pytest.raises(GenerationError, match="under way"):
                await backend.begin()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await backend.end()

    asyncio.run(main())
    assert not llm.llm_engine.has_unfinished_requests()


def test_a_loop_that_was_closed_in_the_middle_is_forgotten(llm: Any) -> None:
    backend, gone = VLLMEngineBackend(llm), asyncio.new_event_loop()
    with pytest.raises(TimeoutError):
        gone.run_until_complete(asyncio.wait_for(backend.generate(Request(CONTEXTS[0], 900)), 0.3))
    gone.close()
    backend._thread.submit(int).result()  # its last step is over, and nothing but the backend holds the old worker

    async def main() -> Generation:
        await backend.begin()
        under_way = asyncio.create_task(backend.generate(Request(CONTEXTS[0], 3)))
        await asyncio.sleep(0)  # the request waits, and another worker has taken the place of the old one
        gc.collect()
        return await under_way

    assert len(asyncio.run(main()).ids) == 3


def test_log_probabilities_that_are_none_are_named(llm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    step = llm.llm_engine.step

    def broken() -> list[Any]:
        outputs = step()
        for output in outputs:
            for row in output.outputs[0].logprobs:
                row.fill(float("nan"))
        return list(outputs)

    monkeypatch.setattr(llm.llm_engine, "step", broken)
    with pytest.raises(GenerationError, match="is NaN"):
        asyncio.run(rollout(VLLMEngineBackend(llm), [Request(CONTEXTS[0], 3)]))
    assert not llm.llm_engine.has_unfinished_requests()


def test_what_the_engine_cannot_serve_is_refused(llm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"max_logprobs \(20\).*max_logprobs=21"):
        VLLMEngineBackend(llm, topk=21)
    with pytest.raises(ValueError, match="estimator 'exact'"):
        VLLMEngineBackend(llm, estimator="exact")
    with pytest.raises(ValueError, match="vllm_max_model_length"):
        asyncio.run(rollout(VLLMEngineBackend(llm), [Request((7,) * 1024, 1)]))
    monkeypatch.setattr(llm.llm_engine.model_config, "logprobs_mode", "raw_logprobs")
    with pytest.raises(ValueError, match="logprobs_mode='processed_logprobs'"):
        VLLMEngineBackend(llm)


def test_sampling_filters_reach_the_engine(llm: Any, llama: Any) -> None:
    """One token kept is the most likely one, and the penalty is that of transformers."""
    backend = VLLMEngineBackend(llm)
    kept = Request(CONTEXTS[0], 9, seed=1, top_k=1)
    plain = Request(CONTEXTS[0], 9, temperature=0.0)
    penalised = Request(CONTEXTS[0], 9, temperature=0.0, repetition_penalty=1.5)
    one, greedy, other = asyncio.run(rollout(backend, [kept, plain, penalised]))
    assert one.ids == greedy.ids
    assert one.entropies == pytest.approx([0.0] * 9)
    ids = torch.tensor([CONTEXTS[0]])
    made = llama.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=9, do_sample=False, repetition_penalty=1.5
    )
    assert other.ids == made[0, len(CONTEXTS[0]) :].tolist()
