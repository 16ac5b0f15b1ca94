"""A model's size without its weights: parameters, counted on the meta device, and the widths of its layers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from arpo_trainer.packing.support import why_not_packable, why_not_proven


@dataclass(frozen=True)
class ModelShape:
    """The sizes that memory depends on.

    Attributes:
        parameters: all parameters; tied ones count once.
        trained: parameters that are trained.
        largest: parameters of the largest layer, which sharded training gathers.
        layers: decoder layers.
        hidden: the width between layers.
        inner: the width inside the MLP; in a mixture of experts, of all experts that a token uses.
        queries: the width of all query heads.
        keys: the width of all key heads; values have the same width.
        vocabulary: rows of the head.
        heads: query heads.
        dtype: the type of the checkpoint's weights.
        normed: whether queries and keys have norms of their own (Qwen3).
        packable: whether its rows can be packed (`why_not_packable`).
        proven: whether tests have compared packed rows of its kind with flat ones (`why_not_proven`).
    """

    parameters: int
    trained: int
    largest: int
    layers: int
    hidden: int
    inner: int
    queries: int
    keys: int
    vocabulary: int
    heads: int = 1
    dtype: str = "float32"
    normed: bool = False
    packable: bool = True
    proven: bool = False

    @property
    def adapted(self) -> bool:
        """Whether adapters are trained instead of the weights."""
        return self.trained < self.parameters


def model_shape(
    path: str | Path, peft_config: Any = None, trust_remote_code: bool = False, revision: str = "main"
) -> ModelShape:
    """Return the shape of a model from its configuration alone.

    Args:
        path: a folder or a hub id.
        peft_config: the configuration of the adapters, if only those are trained.
        trust_remote_code: as in transformers.
        revision: as in transformers.

    Raises:
        OSError: the configuration is not available.
        ValueError: transformers does not know the model as a causal language model, or its widths have other names.
    """
    config = AutoConfig.from_pretrained(path, trust_remote_code=trust_remote_code, revision=revision)
    # meta tensors have a shape and no storage, so a model of any size can be counted here
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code)
    return shape_of(model, peft_config)


def shape_of(model: Any, peft_config: Any = None) -> ModelShape:
    """Return the shape of a loaded model, on any device.

    Raises:
        ValueError: its configuration does not say how wide its layers are.
    """
    # a model that also reads images keeps the widths of its decoder in a configuration inside its own
    config = model.config.get_text_config()
    try:
        heads, hidden = config.num_attention_heads, config.hidden_size
        # heads may be wider than their share of the hidden width, as in Qwen3
        head = getattr(config, "head_dim", None) or hidden // heads
        widths = {
            "layers": config.num_hidden_layers,
            "hidden": hidden,
            "inner": _inner(config),
            "queries": heads * head,
            "keys": (getattr(config, "num_key_value_heads", None) or heads) * head,
        }
    except AttributeError as error:
        raise ValueError(
            f"the configuration of {type(model).__name__} has no known names for the widths: {error}"
        ) from error
    largest = max(_count(layer) for name, layer in model.named_modules() if _is_layer(name))
    normed = any(name.endswith("q_norm.weight") for name, _ in model.named_parameters())
    parameters = _count(model)
    trained = _adapters(model, peft_config) if peft_config is not None else parameters
    dtype = str(getattr(config, "dtype", None) or "float32").removeprefix("torch.")
    return ModelShape(
        parameters=parameters,
        trained=trained,
        largest=largest,
        vocabulary=config.vocab_size,
        heads=heads,
        dtype=dtype,
        normed=normed,
        packable=why_not_packable(model) is None,
        proven=why_not_proven(model) is None,
        **widths,
    )


def _inner(config: Any) -> int:
    experts = getattr(config, "num_experts_per_tok", None)
    if not experts:
        return int(config.intermediate_size)
    # Qwen's experts have a width of their own; Mixtral's is called as that of a dense layer
    return int(getattr(config, "moe_intermediate_size", None) or config.intermediate_size) * int(experts)


def _count(module: Any) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _is_layer(name: str) -> bool:
    """Return whether a module is an item of a list, such as "model.layers.3", and not a part of one."""
    return name.rpartition(".")[2].isdigit() and not any(part.isdigit() for part in name.split(".")[:-1])


def _adapters(model: Any, peft_config: Any) -> int:
    from peft import get_peft_model

    with torch.device("meta"):
        adapted = get_peft_model(model, peft_config)
    return sum(parameter.numel() for parameter in adapted.parameters() if parameter.requires_grad)
