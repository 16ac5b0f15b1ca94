"""The transformers backend: the tokens, log-probabilities and entropies of plain transformers, batched on the fly."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from arpo_trainer.backends import TransformersBackend
from arpo_trainer.backends.kv import PrefixStore
from arpo_trainer.generation import Generation, GenerationError, Request
from tests.conftest import tiny_llama

CONTEXTS = [(5, 6, 7, 8), (5, 6, 9), (5, 6, 7, 8, 9, 10, 11), (30, 31)]


def generate(backend: TransformersBackend, requests: Sequence[Request]) -> list[Generation]:
    async def all_of_them() -> list[Generation]:
        return list(await asyncio.gather(*(backend.generate(request) for request in requests)))

    return asyncio.run(all_of_them())


@pytest.fixture(scope="module")
def model(tokenizer: Any) -> Any:
    return tiny_llama(len(tokenizer)).eval()


@pytest.fixture
def backend(model: Any, tokenizer: Any) -> TransformersBackend:
    return TransformersBackend(model, tokenizer, eos_token_ids={2})


def test_greedy_tokens_are_those_of_transformers(backend: TransformersBackend, model: Any) -> None:
    requests = [Request(ids, 12, temperature=0.0) for ids in CONTEXTS]
    for request, got in zip(requests, generate(backend, requests), strict=True):
        want = model.generate(torch.tensor([request.ids]), max_new_tokens=12, do_sample=False)
        assert got.ids == want[0, len(request.ids) :].tolist()


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_and_entropies_are_exact(backend: TransformersBackend, model: Any, temperature: float) -> None:
    requests = [Request(ids, 9, seed=n, temperature=temperature) for n, ids in enumerate(CONTEXTS)]
    for request, got in zip(requests, generate(backend, requests), strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([[*request.ids, *got.ids]])).logits[0, len(request.ids) - 1 : -1]
        logprobs = torch.log_softmax(logits / temperature, -1)
        chosen = logprobs.gather(-1, torch.tensor(got.ids)[:, None])[:, 0]
        assert got.logprobs == pytest.approx(chosen.tolist(), abs=1e-4)
        assert got.entropies == pytest.approx((-(logprobs.exp() * logprobs).sum(-1)).tolist(), abs=1e-4)


def test_tokens_do_not_depend_on_who_shares_the_batch(backend: TransformersBackend) -> None:
    requests = [Request(ids, 4 + 5 * n, seed=n) for n, ids in enumerate(CONTEXTS)]
    together = generate(backend, requests)
    for request, shared in zip(requests, together, strict=True):
        asyncio.run(backend.begin())
        assert generate(backend, [request])[0].ids == shared.ids


def test_requests_beyond_the_row_limit_wait_their_turn(model: Any, tokenizer: Any) -> None:
    narrow = TransformersBackend(model, tokenizer, max_rows=2, eos_token_ids={2})
    wide = TransformersBackend(model, tokenizer, eos_token_ids={2})
    requests = [Request((5, 6, n), 3 + n, seed=n) for n in range(7)]
    assert [g.ids for g in generate(narrow, requests)] == [g.ids for g in generate(wide, requests)]


def test_a_kept_prefix_changes_nothing(backend: TransformersBackend) -> None:
    first = generate(backend, [Request(CONTEXTS[0], 8, seed=1)])[0]
    longer = (*CONTEXTS[0], *first.ids[:5], 40, 41)  # agrees with what is kept, then goes another way
    warm = generate(backend, [Request(longer, 8, seed=2)])[0]
    asyncio.run(backend.begin())
    cold = generate(backend, [Request(longer, 8, seed=2)])[0]
    assert warm.ids == cold.ids
    assert warm.logprobs == pytest.approx(cold.logprobs, abs=1e-4)


def test_a_stop_string_that_spans_tokens_ends_the_turn(backend: TransformersBackend, tokenizer: Any) -> None:
    free = generate(backend, [Request(CONTEXTS[0], 30, seed=4)])[0]
    text = tokenizer.decode(free.ids[:6])
    stop = text[-5:]
    got = generate(backend, [Request(CONTEXTS[0], 30, stop=(stop,), seed=4)])[0]
    assert got.finish == "stop"
    assert stop in tokenizer.decode(got.ids)
    assert got.ids == free.ids[: len(got.ids)]
    assert len(got.ids) <= 6


def test_the_end_token_ends_the_turn(model: Any, tokenizer: Any) -> None:
    plain = TransformersBackend(model, tokenizer, eos_token_ids={2})
    third = generate(plain, [Request(CONTEXTS[0], 5, temperature=0.0)])[0].ids[2]
    ending = TransformersBackend(model, tokenizer, eos_token_ids={third})
    got = generate(ending, [Request(CONTEXTS[0], 5, temperature=0.0)])[0]
    assert got.finish == "eos"
    assert got.ids[-1] == third
    assert len(got.ids) <= 3


def test_sampling_follows_the_distribution(model: Any, tokenizer: Any) -> None:
    backend = TransformersBackend(model, tokenizer, eos_token_ids={2}, max_rows=500)
    draws = generate(backend, [Request(CONTEXTS[0], 1, seed=n, temperature=0.05) for n in range(500)])
    with torch.no_grad():
        wanted = torch.softmax(model(torch.tensor([CONTEXTS[0]])).logits[0, -1] / 0.05, -1)
    counts = torch.bincount(torch.tensor([draw.ids[0] for draw in draws]), minlength=len(wanted)) / 500
    for token in wanted.topk(3).indices:
        share = wanted[token].item()
        assert counts[token].item() == pytest.approx(share, abs=4 * (share * (1 - share) / 500) ** 0.5 + 1e-3)


def test_bad_requests_are_refused(backend: TransformersBackend) -> None:
    for request in (Request((1,), 5), Request((1, 2), 0)):
        with pytest.raises(ValueError, match="need 2 or more context ids"):
            generate(backend, [request])


def test_a_failing_model_fails_every_waiting_request(tokenizer: Any) -> None:
    model = tiny_llama(len(tokenizer))
    backend = TransformersBackend(model, tokenizer, eos_token_ids={2})
    model.model.layers[1].mlp.down_proj = None  # breaks in the middle of a forward pass
    with pytest.raises(GenerationError, match="generation failed"):
        generate(backend, [Request((1, 2), 5), Request((1, 3), 5)])


def test_a_cancelled_request_leaves_the_batch(backend: TransformersBackend) -> None:
    async def main() -> tuple[int, list[int]]:
        long = asyncio.create_task(backend.generate(Request(CONTEXTS[0], 400, seed=1)))
        other = asyncio.create_task(backend.generate(Request(CONTEXTS[1], 6, seed=2)))
        await asyncio.sleep(0.05)
        long.cancel()
        kept = (await other).ids
        worker = backend._worker
        assert worker is not None
        await asyncio.wait_for(worker, 5)  # 400 tokens would go on
        return len(backend._waiting), kept

    waiting, kept = asyncio.run(main())
    assert waiting == 0
    assert kept == generate(backend, [Request(CONTEXTS[1], 6, seed=2)])[0].ids


def test_training_mode_is_given_back(tokenizer: Any) -> None:
    model = tiny_llama(len(tokenizer)).train()
    generate(TransformersBackend(model, tokenizer, eos_token_ids={2}), [Request((1, 2), 3)])
    assert model.training


def test_models_without_full_attention_are_refused(tokenizer: Any) -> None:
    model = tiny_llama(64)
    model.config.layer_types = ["full_attention", "sliding_attention"]
    with pytest.raises(ValueError, match="full attention only"):
        TransformersBackend(model, tokenizer)
    eager = tiny_llama(64)
    eager.set_attn_implementation("eager")
    with pytest.raises(ValueError, match="needs attn_implementation='sdpa'"):
        TransformersBackend(eager, tokenizer)
    model.config.layer_types, model.config.sliding_window = None, 8
    with pytest.raises(ValueError, match="full attention only"):
        TransformersBackend(model, tokenizer)


def test_the_prefix_store_stays_within_its_capacity() -> None:
    store = PrefixStore(10)
    for n in range(5):
        store.put([n] * 4, [(torch.full((1, 4, 2), float(n)), torch.zeros(1, 4, 2))])
    assert store.longest([0, 0, 0, 0]) is None  # the oldest went
    found = store.longest([4, 4, 9])
    assert found is not None
    assert found[0][0].shape == (1, 2, 2)
    assert found[0][0].unique().tolist() == [4.0]
