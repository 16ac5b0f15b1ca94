"""The padded transformers backend: the suite of all backends on two kinds of model, and what is its own."""

import asyncio
from typing import Any

import pytest
import torch
from transformers import GenerationConfig

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
    [plain] = asyncio.run(rollout(PaddedBackend(mistral, tokenizer, eos_token_ids={2}), [request]))
    outer = Outer(plain.ids[3])
    [got] = asyncio.run(rollout(PaddedBackend(outer, tokenizer, eos_token_ids={2}), [request]))
    assert (got.ids, got.logprobs) == (plain.ids, plain.logprobs)
    assert outer.generation_config.top_k == 1
    assert mistral.generation_config is kept
