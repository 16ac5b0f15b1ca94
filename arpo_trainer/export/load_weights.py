"""Loads the model of any checkpoint on the CPU: `load_model`. Adapters are merged, shards are put together.

    found = find_checkpoint_files("runs/mine/checkpoint-40")
    model, tokenizer = load_model(found, base=None, dtype=None)

Each format is read by the library that writes it: transformers, PEFT, accelerate (torch.distributed.checkpoint) and
DeepSpeed.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from arpo_trainer.demo_model import resolve_model
from arpo_trainer.export.checkpoint_kinds import FSDP_FULL, FSDP_SHARDS, CheckpointFiles

DTYPES = ("float32", "bfloat16", "float16")
_GIVE_BASE = "Export another checkpoint, or give the model that was trained with --base MODEL"
_WRAPPERS = ("_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_orig_mod.")  # inserted into names by wrappers


def load_model(found: CheckpointFiles, base: str | None = None, dtype: str | None = None) -> tuple[Any, Any]:
    """Return the model and its tokenizer.

    Args:
        found: the checkpoint.
        base: a folder or hub id: what adapters are merged into, or the model whose structure sharded weights have. By
            default what the checkpoint or its run names.
        dtype: one of `DTYPES`; None keeps that of the checkpoint, or of the base of an adapter.

    Raises:
        ValueError: the weights do not fit the structure, some are not finite, or no base is known.
        ModuleNotFoundError: DeepSpeed is needed and not installed.
    """
    model = _LOADERS[found.kind](found, base)
    if dtype is not None:
        model = model.to(getattr(torch, dtype))
    _check_finite(model)
    model.config.use_cache = True  # gradient checkpointing switches it off in training
    return model.eval(), _tokenizer(found, base)


def base_of(found: CheckpointFiles, base: str | None = None) -> str:
    """Return the folder or hub id of the base model.

    Raises:
        ValueError: neither the checkpoint nor its run names one.
    """
    named = base or _named_by_adapter(found.folder) or found.facts().get("model")
    if not named:
        raise ValueError(f"{found.folder} does not say which model it was trained from: give it with --base MODEL")
    return str(named)


def _plain(found: CheckpointFiles, base: str | None) -> Any:
    from transformers import AutoModelForCausalLM

    model, report = AutoModelForCausalLM.from_pretrained(found.folder, dtype="auto", output_loading_info=True)
    # transformers only warns of these, and leaves random numbers where weights are missing
    faults = [sorted(map(str, report.get(name, ()))) for name in ("missing_keys", "unexpected_keys", "mismatched_keys")]
    _check_complete(found.folder, faults[0] + faults[2], faults[1])
    return model


def _adapter(found: CheckpointFiles, base: str | None) -> Any:
    """Merge the adapters in float32, and return the type of the base's weights."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    path = resolve_model(base_of(found, base))
    whole = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    with warnings.catch_warnings(record=True) as heard:  # PEFT only warns of adapters that are not there
        warnings.simplefilter("always")
        adapted = PeftModel.from_pretrained(whole, found.folder)
    if lacking := next((str(one.message) for one in heard if "missing adapter keys" in str(one.message)), ""):
        raise ValueError(f"the adapters in {found.folder} do not fit {path}: {lacking[:200]}. {_GIVE_BASE}")
    return adapted.merge_and_unload().to(_dtype_of(path))


def _fsdp(found: CheckpointFiles, base: str | None) -> Any:
    from accelerate.utils import merge_fsdp_weights
    from safetensors.torch import load_file

    # beside the checkpoint there may be no room or no right to write
    with tempfile.TemporaryDirectory(prefix="arpo-export-") as scratch:
        merge_fsdp_weights(str(found.folder / FSDP_SHARDS), scratch)
        return _filled(found, base, load_file(Path(scratch) / "model.safetensors"))


def _fsdp_full(found: CheckpointFiles, base: str | None) -> Any:
    weights = torch.load(found.folder / FSDP_FULL, map_location="cpu", weights_only=True, mmap=True)
    return _filled(found, base, weights)


def _zero(found: CheckpointFiles, base: str | None) -> Any:
    try:
        from deepspeed.utils.zero_to_fp32 import (  # type: ignore[import-not-found,unused-ignore]
            get_fp32_state_dict_from_zero_checkpoint,
        )
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"{found.folder} holds the shards of DeepSpeed ZeRO, which DeepSpeed itself puts together. Run: "
            "pip install deepspeed",
            name="deepspeed",
        ) from None
    return _filled(found, base, get_fp32_state_dict_from_zero_checkpoint(str(found.folder)))


_LOADERS = {"plain": _plain, "adapter": _adapter, "fsdp": _fsdp, "fsdp-full": _fsdp_full, "zero": _zero}


def _filled(found: CheckpointFiles, base: str | None, weights: Mapping[str, torch.Tensor]) -> Any:
    """Return a model of the base's structure with these weights.

    Raises:
        ValueError: they are those of adapters, or of another structure.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    named = {_plain_name(name): value for name, value in weights.items()}
    if any(".lora_" in name for name in named):
        raise ValueError(
            f"{found.folder} holds adapters in shards, which PEFT does not read: save them whole, with "
            "fsdp_state_dict_type: FULL_STATE_DICT in the launch configuration"
        )
    structure = found.folder if (found.folder / "config.json").is_file() and not base else None
    config = AutoConfig.from_pretrained(structure or resolve_model(base_of(found, base)))
    kind = next(value.dtype for value in named.values() if value.is_floating_point())
    model = AutoModelForCausalLM.from_config(config, dtype=kind)
    lacking, unknown = model.load_state_dict(named, strict=False)
    held = {id(value) for name, value in _every_name(model).items() if name in named}
    lacking = [name for name in lacking if id(_every_name(model).get(name)) not in held]  # tied to one that is there
    _check_complete(structure or base_of(found, base), lacking, unknown)
    return model


def _check_complete(structure: Any, lacking: Sequence[str], unknown: Sequence[str]) -> None:
    """Check that a model got its weights, and that all of them were its own.

    Raises:
        ValueError: some are missing or unknown.
    """
    if lacking or unknown:
        raise ValueError(
            f"the weights are not of the structure of {structure}: {len(lacking)} are missing "
            f"({', '.join(lacking[:3])}), {len(unknown)} are unknown ({', '.join(unknown[:3])}). {_GIVE_BASE}"
        )


def _every_name(model: Any) -> dict[str, Any]:
    return dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))


def _plain_name(name: str) -> str:
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name.removeprefix("module.")


def _check_finite(model: Any) -> None:
    for name, value in model.named_parameters():
        if not bool(torch.isfinite(value).all()):
            raise ValueError(
                f"{name} holds NaN or infinity: the training broke, or the type is too narrow. Export an earlier "
                "checkpoint, or take --dtype bfloat16 instead of float16"
            )


def _named_by_adapter(folder: Path) -> str | None:
    from peft import PeftConfig

    if not (folder / "adapter_config.json").is_file():
        return None
    named: str | None = PeftConfig.from_pretrained(str(folder)).base_model_name_or_path
    return named


def _dtype_of(path: str | Path) -> torch.dtype:
    from transformers import AutoConfig

    return getattr(AutoConfig.from_pretrained(path), "dtype", None) or torch.float32


def _tokenizer(found: CheckpointFiles, base: str | None) -> Any:
    from transformers import AutoTokenizer

    own = (found.folder / "tokenizer_config.json").is_file()
    return AutoTokenizer.from_pretrained(found.folder if own else resolve_model(base_of(found, base)))
