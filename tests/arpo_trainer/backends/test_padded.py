"""The padded transformers backend: the suite of all backends on two kinds of model, and what is its own."""

import asyncio
from typing import Any

import pytest
import torch

from arpo_trainer.backends import PaddedBackend
from arpo_trainer.backends.base import Request
from tests.arpo_trainer.backends.conformance import CONTEXTS, BackendConformance, rollout

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


def test_the_models_generation_config_does_not_leak_in(mistral: Any, tokenizer: Any) -> None:
    request = Request(CONTEXTS[0], 12, seed=1)
    plain = asyncio.run(rollout(PaddedBackend(mistral, tokenizer, eos_token_ids={2}), [request]))[0]
    kept = mistral.generation_config
    mistral.generation_config = type(kept)(do_sample=True, top_k=1, repetition_penalty=5.0, eos_token_id=plain.ids[3])
    try:
        got = asyncio.run(rollout(PaddedBackend(mistral, tokenizer, eos_token_ids={2}), [request]))[0]
        assert mistral.generation_config.top_k == 1
    finally:
        mistral.generation_config = kept
    assert got.ids == plain.ids
    assert got.logprobs == plain.logprobs


def test_the_generation_config_of_a_model_inside_another_comes_back(mistral: Any, tokenizer: Any) -> None:
    """As PEFT does it: the outer model overwrites the inner one's before it generates."""

    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = mistral
            self.config, self.device, self.generation_config = mistral.config, mistral.device, mistral.generation_config

        def generate(self, *args: Any, **options: Any) -> Any:
            self.inner.generation_config = self.generation_config
            return self.inner.generate(*args, **options)

    kept = mistral.generation_config
    asyncio.run(rollout(PaddedBackend(Outer(), tokenizer, eos_token_ids={2}), [Request(CONTEXTS[0], 2)]))
    assert mistral.generation_config is kept
