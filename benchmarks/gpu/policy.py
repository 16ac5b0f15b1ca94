"""Models for the GPU script: the shapes of Qwen2 with random weights, and a policy that writes tags and calls search.

Nothing is downloaded, so that the script runs on machines without a network.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from arpo_env import ToolEnv
from benchmarks.rollout_world import small_tokenizer

SHAPES: dict[str, dict[str, int]] = {
    "0.5b": {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14},
    "1.5b": {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12},
    "tiny": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2},
}


def make_model(shape: str, device: str, dtype: torch.dtype | None = None, **settings: Any) -> Any:
    """Return a model of this shape with random weights; by default in bfloat16 on a GPU, in float32 on a CPU."""
    torch.manual_seed(0)
    defaults = {
        "vocab_size": 1_024 if shape == "tiny" else 151_936,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
    config = Qwen2Config(
        **{**defaults, **settings}, num_key_value_heads=2, max_position_embeddings=32_768, **SHAPES[shape]
    )
    config._attn_implementation = "sdpa"
    kind = dtype or (torch.bfloat16 if device == "cuda" else torch.float32)
    with torch.device(device):
        return Qwen2ForCausalLM(config).to(kind).eval()


def search_env() -> ToolEnv:
    """Return an environment that needs neither sandbox nor network: an invented world with a local search."""
    return ToolEnv("arpo/MultiHop-v0", tools=["search"], level=2, world_size=200, search_results=1, max_tool_calls=3)


def write_policy(folder: Path, tiny: bool) -> None:
    """Write model and tokenizer of a policy that learned the tags from demonstrations; half a minute on a GPU."""
    from arpo_trainer.run.sft_run import cold_start, demonstrated_traces, demonstrations

    env, count = search_env(), 16 if tiny else 48
    texts = [message["content"] for number in range(48) for message in env.messages(env.tasks.task(number))]
    tokenizer = small_tokenizer(texts)
    cuda = torch.cuda.is_available()
    # a head of its own and large weights: two layers learn the format in 48 steps
    ways = {"vocab_size": len(tokenizer), "initializer_range": 0.2, "tie_word_embeddings": False} if tiny else {}
    ways["eos_token_id"] = tokenizer.eos_token_id
    model = make_model("tiny" if tiny else "0.5b", "cuda" if cuda else "cpu", torch.float32, **ways)
    examples = list(demonstrations(env, tokenizer, demonstrated_traces(env, count, tool_share=0.9)))
    rate, epochs = (2e-2, 24) if tiny else (5e-4, 25)
    cold_start(model, tokenizer, examples, folder, epochs=epochs, batch_size=8, learning_rate=rate, bf16=cuda)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
