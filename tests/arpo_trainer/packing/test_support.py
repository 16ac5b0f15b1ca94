"""Models that packing cannot serve are refused with a reason and a cure."""

from typing import Any

import pytest
from transformers import AutoConfig, AutoModelForCausalLM, T5Config, T5ForConditionalGeneration

from arpo_trainer.packing import why_not_packable, why_not_padding_free
from tests.arpo_trainer.packing.batches import SIZES, tiny_model


def made(kind: str, **settings: Any) -> Any:
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **settings))


REFUSED = {
    "window": (lambda: tiny_model("mistral", sliding_window=16), "window.*sliding_window=None"),
    "some windows": (lambda: tiny_model("qwen2", use_sliding_window=True, max_window_layers=1), "window"),
    "recurrent": (
        lambda: made("mamba", vocab_size=61, hidden_size=32, num_hidden_layers=1, state_size=4),
        "state from token to token",
    ),
    "alibi": (lambda: made("bloom", vocab_size=61, hidden_size=32, n_layer=1, n_head=2), "positions cannot be set"),
    "encoder": (
        lambda: T5ForConditionalGeneration(
            T5Config(vocab_size=61, d_model=16, d_ff=16, d_kv=8, num_layers=1, num_heads=2)
        ),
        "no decoder of text alone",
    ),
    "dropout": (lambda: tiny_model("llama", attention_dropout=0.1), "attention_dropout=0.0"),
    "dropout by another name": (lambda: made("gpt2", vocab_size=61, n_embd=32, n_layer=1, n_head=2), "attn_pdrop=0.0"),
    "masks of its own": (lambda: tiny_model("doge"), "masks or positions of its own making"),
    "routers": (
        lambda: made(
            "mixtral", **SIZES | {"sliding_window": None, "output_router_logits": True, "num_local_experts": 2}
        ),
        "balancing loss",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_others_are_refused(name: str) -> None:
    import re

    make, reason = REFUSED[name]
    said = why_not_packable(make())
    assert said is not None
    assert re.search(reason, said)


def test_attention_without_masks_is_refused() -> None:
    for attention, cure in (("eager", "'sdpa'"), ("flex_attention", "CPU.*'sdpa'")):
        model = tiny_model()
        model.set_attn_implementation(attention)
        with pytest.raises(AssertionError, match=cure):
            raise AssertionError(why_not_packable(model))


@pytest.mark.parametrize(
    ("kind", "attention", "reason"),
    [
        ("llama", "flash_attention_2", None),
        ("llama", "sdpa", "need attn_implementation='flash_attention_2'"),
        ("gpt_neox", "flash_attention_2", "gpt_neox without padding have not been compared"),
        ("qwen3_next", "flash_attention_2", "carry a state from token to token"),
    ],
)
def test_rows_go_without_padding_where_attention_keeps_them_apart(
    kind: str, attention: str, reason: str | None
) -> None:
    """A layer with a state carries it on: transformers reads the rows' lengths only in kernels that are not here."""
    model = tiny_model(kind)
    model.config._attn_implementation = attention
    said = why_not_padding_free(model)
    assert said is None if reason is None else reason in str(said)
