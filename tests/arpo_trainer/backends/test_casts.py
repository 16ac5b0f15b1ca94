"""Under mixed precision the weights are cast once per rollout, and products are turned round on a CPU: same numbers."""

import asyncio
import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from arpo_trainer.backends import PaddedBackend, TransformersBackend
from arpo_trainer.backends.base import Generation, Request
from arpo_trainer.backends.in_process import few_rows
from tests.arpo_trainer.backends.conformance import rollout
from tests.conftest import tiny_llama

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
    with torch.no_grad():
        for layer in (torch.nn.Linear(48, 80), torch.nn.Linear(48, 80, bias=False)):
            given = torch.randn(*rows, 48)
            with torch.autocast("cpu", torch.bfloat16):
                plain = layer(given)
                with few_rows(layer):
                    ours = layer(given)
            assert (ours.dtype, ours.stride()) == (plain.dtype, plain.stride())
            assert torch.allclose(ours.float(), plain.float(), rtol=2**-7, atol=1e-3)
            with few_rows(layer):
                assert torch.equal(layer(given), torch.nn.Linear.forward(layer, given))  # float32 is left alone


def test_weights_are_cast_once_and_again_for_the_next_rollout(mixed: Any, tokenizer: Any) -> None:
    """Weights that change within a rollout show whether a cast was kept: the trainer changes them only in between."""
    model = copy.deepcopy(mixed)
    backend = TransformersBackend(model, tokenizer, eos_token_ids={2}, prefix_tokens=1)
    weight = model.model.layers[0].mlp.down_proj.weight

    async def play() -> list[list[float]]:
        await backend.begin()
        found = [(await backend.generate(REQUESTS[0])).logprobs]
        with torch.no_grad():
            weight.mul_(3)
        found.append((await backend.generate(REQUESTS[0])).logprobs)
        await backend.end()
        await backend.begin()
        found.append((await backend.generate(REQUESTS[0])).logprobs)
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
