"""The backends of this process, rows that join and leave and padded batches: the suite, and what is their own."""

import asyncio
import contextlib
import copy
import gc
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from transformers import GenerationConfig

from arpo_trainer.algorithms.branching import ESTIMATORS
from arpo_trainer.backends import PaddedBackend, TransformersBackend, transformers_backend
from arpo_trainer.backends.base import Backend, Generation, GenerationError, Request
from arpo_trainer.backends.in_process import few_rows
from tests.arpo_trainer.backends.conformance import CONTEXTS, BackendConformance, expected, rollout, under_way
from tests.conftest import tiny_llama


class TestTransformersBackend(BackendConformance):
    @pytest.fixture
    def reference(self, llama: Any) -> Any:
        return llama

    @pytest.fixture
    def backend(self, reference: Any, tokenizer: Any, eos_id: int) -> TransformersBackend:
        return TransformersBackend(reference, tokenizer, eos_token_ids={eos_id})


SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "initializer_range": 0.2, "tie_word_embeddings": False}
ENDS = {"eos_token_id": 2, "pad_token_id": 2, "bos_token_id": 1}


@pytest.fixture(scope="module")
def models(tokenizer: Any) -> dict[str, Any]:
    """One whose layers have a sliding window, and a recurrent one."""
    from transformers import MambaConfig, MambaForCausalLM, MistralConfig, MistralForCausalLM

    torch.manual_seed(0)
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 128, "sliding_window": 8}
    windows = MistralConfig(vocab_size=len(tokenizer), **heads, **SIZES, **ENDS)
    states = MambaConfig(vocab_size=len(tokenizer), state_size=8, **SIZES, **ENDS)
    return {"mistral": MistralForCausalLM(windows).eval(), "mamba": MambaForCausalLM(states).eval()}


@pytest.fixture
def mistral(models: dict[str, Any]) -> Any:
    return models["mistral"]


class TestPaddedBackend(BackendConformance):
    caches = False

    @pytest.fixture(params=["mistral", "mamba"])
    def reference(self, models: dict[str, Any], request: pytest.FixtureRequest) -> Any:
        return models[request.param]

    @pytest.fixture
    def backend(self, reference: Any, tokenizer: Any, eos_id: int) -> PaddedBackend:
        return PaddedBackend(reference, tokenizer, eos_token_ids={eos_id})


@pytest.fixture
def backend(llama: Any, tokenizer: Any) -> TransformersBackend:
    return TransformersBackend(llama, tokenizer, eos_token_ids={2})


def generate(backend: Backend, *requests: Request) -> list[Generation]:
    return asyncio.run(rollout(backend, requests))


@contextlib.contextmanager
def passes(model: Any) -> Iterator[list[tuple[int, int]]]:
    """Write down the shape, (rows, tokens), of each pass of the model."""
    seen: list[tuple[int, int]] = []
    handle = model.register_forward_pre_hook(
        lambda _, __, given: seen.append(tuple(given["input_ids"].shape)), with_kwargs=True
    )
    try:
        yield seen
    finally:
        handle.remove()


def words(seed: int, tokens: int) -> tuple[int, ...]:
    return tuple(torch.randint(3, 40_000, (tokens,), generator=torch.Generator().manual_seed(seed)).tolist())


def same_numbers(model: Any, requests: Sequence[Request], got: Sequence[Generation]) -> None:
    for request, one in zip(requests, got, strict=True):
        assert one.logprobs == pytest.approx(expected(model, request, one)[0], abs=1e-4)


# How contexts are computed.


def test_contexts_of_all_lengths_join_at_once(backend: TransformersBackend, llama: Any) -> None:
    requests = [Request(words(n, length), 3, seed=n) for n, length in enumerate((2, 3, 90, 130, 131, 400, 7))]
    with passes(llama) as seen:
        got = generate(backend, *requests)
    same_numbers(llama, requests, got)
    assert max(seen) == (7, 1)
    assert len(seen) <= 5 + 3  # fewer passes than contexts


def test_siblings_share_the_pass_over_their_prompt(backend: TransformersBackend, llama: Any) -> None:
    requests = [Request(words(task, 200), 2, seed=n) for task in range(2) for n in range(4)]
    with passes(llama) as seen:
        got = generate(backend, *requests)
    assert seen == [(2, 199), (8, 1), (8, 1)]
    same_numbers(llama, requests, got)
    assert sorted(one.cached for one in got) == [0, 0] + [199] * 6


def test_branches_with_different_kept_beginnings_join_at_once(backend: TransformersBackend, llama: Any) -> None:
    async def main() -> list[Generation]:
        await asyncio.gather(*(backend.generate(request) for request in first))
        return list(await asyncio.gather(*(backend.generate(request) for request in second)))

    first = [Request(words(n, 20 + 30 * n), 5, seed=n) for n in range(4)]
    second = [Request(one.ids + words(9 + n, 12), 4, seed=n) for n, one in enumerate(first)]
    with passes(llama) as seen:
        got = asyncio.run(main())
    assert (4, 11) in seen
    same_numbers(llama, second, got)
    assert [one.cached for one in got] == [len(one.ids) for one in first]


def test_requests_beyond_the_row_limit_wait_their_turn(
    backend: TransformersBackend, llama: Any, tokenizer: Any
) -> None:
    narrow = TransformersBackend(llama, tokenizer, max_rows=2, eos_token_ids={2})
    requests = [Request((5, 6, n), 3 + n, seed=n) for n in range(7)]
    with passes(llama) as seen:
        got = generate(narrow, *requests)
    assert max(rows for rows, _ in seen) == 2
    assert [one.ids for one in got] == [one.ids for one in generate(backend, *requests)]


def test_who_is_left_of_an_old_rollout_leaves_nothing_to_the_new_one(backend: TransformersBackend) -> None:
    async def main() -> int:
        await backend.begin()
        old = asyncio.create_task(backend.generate(Request(words(1, 100), 20)))
        await asyncio.sleep(0.02)
        await backend.begin()
        await old
        return (await backend.generate(Request(words(1, 100), 1))).cached

    assert asyncio.run(main()) == 0


# Coming and going.


def test_a_cancelled_request_leaves_at_the_next_token(backend: TransformersBackend, llama: Any) -> None:
    async def main(seen: list[tuple[int, int]]) -> int:
        other = asyncio.create_task(backend.generate(Request(CONTEXTS[1], 30, seed=2)))
        (await under_way(backend, Request(CONTEXTS[0], 400, seed=1, window=1))).cancel()
        before = len(seen)
        await other
        return [rows for rows, _ in seen[before:]].count(2)

    with passes(llama) as seen:
        assert asyncio.run(main(seen)) <= 2


def test_the_end_of_a_rollout_that_was_cancelled_leaves_the_model_at_rest(tokenizer: Any) -> None:
    model = tiny_llama(len(tokenizer)).train()
    backend = TransformersBackend(model, tokenizer, eos_token_ids={2})

    async def main() -> bool:
        task = await under_way(backend, Request((1, 2), 900, window=1))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await backend.end()
        return bool(model.training)

    assert asyncio.run(main())


def test_a_loop_that_was_closed_in_the_middle_is_forgotten(backend: TransformersBackend) -> None:
    gone = asyncio.new_event_loop()
    with pytest.raises(TimeoutError):
        gone.run_until_complete(asyncio.wait_for(backend.generate(Request((1, 2), 10_000)), 0.05))
    gone.close()
    backend._thread.submit(int).result()  # its last piece is over, and nothing but the backend holds the old worker

    async def main() -> Generation:
        await backend.begin()
        under_way = asyncio.create_task(backend.generate(Request((1, 2), 3)))
        await asyncio.sleep(0)  # the request waits, and another worker has taken the place of the old one
        gc.collect()
        return await under_way

    assert len(asyncio.run(main()).ids) == 3


def test_a_second_loop_is_refused_while_the_first_generates(backend: TransformersBackend) -> None:
    async def main() -> None:
        task = await under_way(backend, Request((1, 2), 900, window=1))
        with pytest.raises(GenerationError, match="another event loop"):
            await asyncio.to_thread(asyncio.run, backend.generate(Request((1, 2), 3)))
        task.cancel()
        await backend.end()

    asyncio.run(main())


# Where a model ends, and what it has set.


@pytest.fixture(scope="module")
def gpt(tokenizer: Any) -> Any:
    """A model with a table of 64 positions."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), n_positions=64, n_embd=32, n_layer=2, n_head=2)).eval()


@pytest.mark.parametrize("kind", [TransformersBackend, PaddedBackend])
def test_a_turn_ends_where_the_models_positions_do(gpt: Any, tokenizer: Any, kind: type[Any]) -> None:
    backend = kind(gpt, tokenizer, eos_token_ids={2})
    requests = [Request(words(1, 60), 30, seed=1), Request(words(2, 10), 40, seed=2)]
    got = generate(backend, *requests)
    assert [(len(one.ids), one.finish) for one in got] == [(4, "length"), (40, "length")]
    same_numbers(gpt, requests, got)
    with pytest.raises(ValueError, match="the model has 64 positions"):
        generate(backend, Request(words(1, 64), 1))


@pytest.mark.parametrize("kind", [TransformersBackend, PaddedBackend])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_weights_of_nan_are_named(tokenizer: Any, kind: type[Any], value: float) -> None:
    model = tiny_llama(len(tokenizer)).eval()
    torch.nn.init.constant_(model.lm_head.weight, value)
    with pytest.raises(GenerationError, match="its weights, or what it computes, hold NaN"):
        generate(kind(model, tokenizer, eos_token_ids={2}), Request((1, 2), 5))


def test_generation_configs_do_not_leak_in_and_come_back(mistral: Any, tokenizer: Any) -> None:
    """Also that of a model inside another: PEFT's overwrites the inner one's before it generates."""

    class Outer(torch.nn.Module):
        def __init__(self, ends: int) -> None:
            super().__init__()
            self.inner, self.config, self.device = mistral, mistral.config, mistral.device
            self.generation_config = GenerationConfig(top_k=1, repetition_penalty=5.0, eos_token_id=ends)

        def generate(self, *args: Any, **options: Any) -> Any:
            self.inner.generation_config = self.generation_config
            return self.inner.generate(*args, **options)

    request, kept = Request(CONTEXTS[0], 12, seed=1), mistral.generation_config
    [plain] = generate(PaddedBackend(mistral, tokenizer, eos_token_ids={2}), request)
    outer = Outer(plain.ids[3])
    [got] = generate(PaddedBackend(outer, tokenizer, eos_token_ids={2}), request)
    assert (got.ids, got.logprobs) == (plain.ids, plain.logprobs)
    assert outer.generation_config.top_k == 1
    assert mistral.generation_config is kept


# Entropy, and the choice of a backend.


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_each_estimator_gives_what_it_makes_of_the_models_logits(llama: Any, tokenizer: Any, estimator: str) -> None:
    backend = TransformersBackend(llama, tokenizer, eos_token_ids={2}, estimator=estimator, topk=15)
    requests = [Request(ids, 9, seed=n, temperature=0.3) for n, ids in enumerate(CONTEXTS)]
    for request, got in zip(requests, generate(backend, *requests), strict=True):
        assert got.entropies == pytest.approx(expected(llama, request, got, estimator, 15)[1], abs=1e-4)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layers other than full attention"),
        ({"layer_types": None, "sliding_window": 8}, "sliding_attention"),
        ({"_attn_implementation": "eager"}, "attn_implementation='eager' instead of 'sdpa'"),
        ({}, "takes no position_ids"),
    ],
)
def test_models_without_full_attention_or_positions_get_padded_batches(
    tokenizer: Any, change: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny_llama(64)
    for name, value in change.items():
        setattr(model.config, name, value)
    if not change:
        model.forward = lambda input_ids, logits_to_keep, **others: None
    with pytest.raises(ValueError, match=reason):
        TransformersBackend(model, tokenizer)
    assert isinstance(transformers_backend(model, tokenizer), PaddedBackend)
    assert reason in caplog.text


REQUESTS = [Request(tuple(range(5, 30 + 7 * n)), 6, seed=n) for n in range(3)]


@pytest.fixture(scope="module")
def mixed(tokenizer: Any) -> Iterator[Any]:
    """A model in float32 whose forward passes are computed in bfloat16, as the trainer prepares it."""
    # accelerate has one precision for each process, which the tests of another file may have set
    AcceleratorState._reset_state()
    yield Accelerator(mixed_precision="bf16", cpu=True).prepare(tiny_llama(len(tokenizer))).eval()
    AcceleratorState._reset_state()


async def without_a_rollout(backend: Any, requests: list[Request]) -> list[Generation]:
    return list(await asyncio.gather(*map(backend.generate, requests)))


@pytest.mark.parametrize("kind", [TransformersBackend, PaddedBackend])
def test_the_numbers_are_those_of_a_cast_at_every_token(mixed: Any, tokenizer: Any, kind: Any) -> None:
    each = asyncio.run(without_a_rollout(kind(mixed, tokenizer, eos_token_ids={2}), REQUESTS))
    once = asyncio.run(rollout(kind(mixed, tokenizer, eos_token_ids={2}), REQUESTS))
    for ours, plain in zip(once, each, strict=True):
        assert ours.ids == plain.ids
        assert ours.logprobs == pytest.approx(plain.logprobs, abs=0.02)  # bfloat16 has steps of 0.016 at logits of 2
        assert ours.entropies == pytest.approx(plain.entropies, abs=0.02)


@pytest.mark.parametrize("rows", [(1, 1), (3, 7), (300, 1)])
def test_products_of_few_rows_are_those_of_linear_layers(rows: tuple[int, int]) -> None:
    given = torch.randn(*rows, 48)
    for layer in (torch.nn.Linear(48, 80), torch.nn.Linear(48, 80, bias=False)):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            plain = layer(given)
            with few_rows(layer):
                ours = layer(given)
        assert (ours.dtype, ours.stride()) == (plain.dtype, plain.stride())
        assert torch.allclose(ours.float(), plain.float(), rtol=2**-7, atol=1e-3)


def test_weights_are_cast_once_and_again_for_the_next_rollout(mixed: Any, tokenizer: Any) -> None:
    """Weights that change within a rollout show whether a cast was kept: the trainer changes them only in between."""
    model = copy.deepcopy(mixed)
    backend = TransformersBackend(model, tokenizer, eos_token_ids={2}, prefix_tokens=1)
    weight = model.model.layers[0].mlp.down_proj.weight

    async def play() -> list[list[float]]:
        found = []
        for rollouts in (2, 1):
            await backend.begin()
            for _ in range(rollouts):
                found.append((await backend.generate(REQUESTS[0])).logprobs)
                with torch.no_grad():
                    weight.mul_(3)
            await backend.end()
        return found

    first, kept, new = asyncio.run(play())
    assert kept == pytest.approx(first, abs=1e-6)
    assert new != pytest.approx(first, abs=1e-3)


def test_gradients_flow_while_a_rollout_was_never_ended(mixed: Any, tokenizer: Any) -> None:
    """Casts are made without gradients: training elsewhere in the process must not be handed one of them."""
    backend = TransformersBackend(mixed, tokenizer, eos_token_ids={2})

    async def begun() -> None:
        await backend.begin()
        await backend.generate(REQUESTS[0])

    asyncio.run(begun())
    mixed(input_ids=torch.tensor([[5, 6, 7]])).logits.sum().backward()
    assert all(parameter.grad is not None for parameter in mixed.parameters())
    mixed.zero_grad()
    asyncio.run(backend.end())
    assert torch.get_autocast_dtype("cpu") == torch.bfloat16  # nothing is left switched
    assert not torch.is_autocast_enabled("cpu")
