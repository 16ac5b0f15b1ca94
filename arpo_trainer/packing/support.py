"""Which models can be packed, and why the others cannot.

A packed tree needs three things of a model: attention that takes any mask, positions that can be set for each token,
and no other way for tokens to influence each other. `why_not_packable` says which of them is missing.

`why_not_proven` is stricter. It lets a model pass only if tests have compared packed rows with flat ones for its kind,
values and gradients. `packing="auto"` asks both, `packing=True` only the first.

Where a model cannot be packed, "auto" at least leaves the padding out, if `why_not_padding_free` knows nothing against
it: rows one behind the other, which FlashAttention keeps apart by their lengths. Layers with a state cannot: without
their own kernels transformers carries the state from one row into the next and does not say so.
"""

from __future__ import annotations

import inspect
from typing import Any

ATTENTION = ("sdpa", "flex_attention")
DROPOUTS = ("attention_dropout", "attn_pdrop", "attention_probs_dropout_prob")
# not as the ways of others: their masks are made in their layers, or their positions do not begin at 0
OWN_WAYS = ("doge", "falcon", "bert", "camembert", "data2vec-text", "electra", "ernie", "roberta",
            "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl")  # fmt: skip
# tests/arpo_trainer/packing/test_forward.py compares each of these with flat rows: branch by branch as on a CPU, and
# with FlexAttention as on CUDA, without its compiler
PROVEN = ("gemma", "glm4", "granite", "llama", "mistral", "olmo2", "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe",
          "smollm3")  # fmt: skip
PROVEN_ON = ("cpu", "cuda")


def why_not_packable(model: Any) -> str | None:
    """Return why a model cannot be trained on packed trees, and what to do about it if something can be done, or None.

    Args:
        model: a transformers model, wrapped by PEFT or not; unwrap what accelerate wrapped around it.
    """
    if any(
        getattr(entry, "is_prompt_learning", False) for entry in (getattr(model, "peft_config", None) or {}).values()
    ):
        return "its PEFT adapter puts virtual tokens before each row; use LoRA instead"
    base = _base(model)
    return _why_not(base, base.config.get_text_config())


def why_not_proven(model: Any) -> str | None:
    """Return why nobody has shown that a model has the same numbers on packed rows as on flat ones, or None.

    Args:
        model: as in `why_not_packable`, which has let it pass.
    """
    base = _base(model)
    kind = base.config.get_text_config().model_type
    if kind not in PROVEN:
        return f"packed rows of {kind} have not been compared with flat ones in tests"
    if getattr(base, "is_quantized", False):
        return "packed rows of quantised weights have not been compared with flat ones in tests"
    import torch  # only here: the checks above work without it

    if any(isinstance(part, torch.nn.Dropout) and part.p > 0 for part in model.modules()):
        return "it drops activations at random, and rows would share what is dropped"
    return None


def why_not_padding_free(model: Any) -> str | None:
    """Return why the rows of a batch cannot be one row without padding, each with attention to itself, or None.

    Args:
        model: as in `why_not_packable`.
    """
    base = _base(model)
    config = base.config.get_text_config()
    if reason := _no_plain_decoder(base, config):
        return reason
    if config.model_type not in PROVEN:
        return f"rows of {config.model_type} without padding have not been compared with padded ones in tests"
    if "flash" not in str(config._attn_implementation):
        return "rows without padding need attn_implementation='flash_attention_2' or 'flash_attention_3'"
    return None


def _base(model: Any) -> Any:
    return model.get_base_model() if hasattr(model, "peft_config") and hasattr(model, "get_base_model") else model


def _no_plain_decoder(model: Any, config: Any) -> str | None:
    """Return what of a model is in the way of every form of packing, or None."""
    kinds = getattr(config, "layer_types", None) or []
    parameters = inspect.signature(type(model).forward).parameters
    # a text configuration inside another one belongs to a model that also reads images or sound
    if config is not model.config or config.is_encoder_decoder:
        return f"it is no decoder of text alone ({model.config.model_type})"
    if getattr(model, "_is_stateful", False) or any(_mixes(kind) for kind in kinds):
        others = sorted(set(kinds) - {"full_attention"})
        return f"its layers carry a state from token to token ({', '.join(others) or config.model_type})"
    if "position_ids" not in parameters or getattr(config, "alibi", False):
        return "positions cannot be set for each token (ALiBi, or counted by the model itself)"
    return None


def _why_not(model: Any, config: Any) -> str | None:
    if reason := _no_plain_decoder(model, config):
        return reason
    attention = config._attn_implementation
    windows = set(getattr(config, "layer_types", None) or []) - {"full_attention"}
    if windows or getattr(config, "sliding_window", None) or getattr(config, "attention_chunk_size", None):
        return "its attention is cut to a window; set sliding_window=None if all rows are shorter than it"
    if attention not in ATTENTION:
        return f"its attention ({attention!r}) takes no mask of its own; load it with attn_implementation='sdpa'"
    if attention == "flex_attention" and model.device.type == "cpu":
        return "FlexAttention does not train on a CPU; load the model with attn_implementation='sdpa'"
    if config.model_type in OWN_WAYS:
        return f"{config.model_type} has masks or positions of its own making"
    for name in DROPOUTS:
        if getattr(config, name, 0.0):
            return f"it drops attention weights at random; set {name}=0.0 in its config"
    if getattr(config, "output_router_logits", False):
        return "its routers' balancing loss counts tokens, and shared ones would count once"
    return None


def _mixes(kind: str) -> bool:
    return any(word in kind for word in ("linear", "mamba", "conv", "recurrent", "delta", "ssm"))


# The setting `packing`: True, False or "auto", also as text.

_WORDS: dict[str, bool | str] = {"auto": "auto", "true": True, "false": False}


def packing_setting(value: object) -> bool | str:
    """Return a value of the setting as True, False or "auto".

    Args:
        value: one of these, or text: "true" and "false" as a command line gives them.

    Raises:
        ValueError: anything else.
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _WORDS:
        return _WORDS[value.lower()]
    raise ValueError(f"packing must be True, False or 'auto', got {value!r}")
