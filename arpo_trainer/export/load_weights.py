"""Loads the model of any checkpoint on the CPU: `load_model`. Adapters are merged, shards are put together.

    found = find_checkpoint_files("runs/mine/checkpoint-40")
    model, tokenizer = load_model(found, base=None, dtype=None)

Each format is read by the library that writes it: transformers, PEFT, accelerate (torch.distributed.checkpoint) and
DeepSpeed.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from arpo_trainer.demo_model import resolve_model
from arpo_trainer.training.checkpoints import broken, find_checkpoint

# What a checkpoint holds and where: `find_checkpoint_files` looks at files only and loads nothing.
#
# found = find_checkpoint_files("runs/mine")           # its model, or else its newest checkpoint found.kind,
# found.folder                              # "adapter", Path("runs/mine/checkpoint-40")

CheckpointKind = Literal["plain", "adapter", "fsdp", "fsdp-full", "zero"]
FSDP_SHARDS = "pytorch_model_fsdp_0"
FSDP_FULL = "pytorch_model_fsdp.bin"
_STATE = "trainer_state.json"
_RECORDS = ("run.json", "sft.json", "dpo.json")  # of `arpo train`, `arpo sft` and `arpo dpo`
_WEIGHTS = tuple(
    f"{name}{suffix}"
    for name in ("model.safetensors", "pytorch_model.bin")
    for suffix in ("", ".index.json")
)  # fmt: skip


@dataclass(frozen=True)
class CheckpointFiles:
    """A checkpoint that can be exported.

    Attributes:
        folder: its folder.
        kind: "plain" (transformers' files), "adapter" (PEFT's), "fsdp" (one file per process, written by
            torch.distributed.checkpoint), "fsdp-full" (one file of all weights), or "zero" (DeepSpeed's).
        run: the output folder of the run that wrote it, or None if none of their records is beside it.
        step: training steps taken, or None if the folder does not say.
    """

    folder: Path
    kind: CheckpointKind
    run: Path | None
    step: int | None

    def facts(self) -> dict[str, Any]:
        """Return the record of its run, or nothing if there is none or it cannot be read."""
        if self.run is None:
            return {}
        try:
            facts = json.loads(next(self.run / name for name in _RECORDS if (self.run / name).is_file()).read_bytes())
        except ValueError:  # a run that was killed while it wrote
            return {}
        if not isinstance(facts, dict):
            return {}
        settings = facts.get("settings") or {}
        # a supervised run has them in its settings only
        return {"model": settings.get("model"), "seed": settings.get("seed")} | facts


def find_checkpoint_files(path: str | Path) -> CheckpointFiles:
    """Return what a folder holds.

    Args:
        path: a checkpoint, a saved model, or the output folder of a run, which stands for its final model or else for
            its newest complete checkpoint.

    Raises:
        FileNotFoundError: there is no such folder, or no weights in it.
        ValueError: the checkpoint is not complete.
    """
    given = Path(path).expanduser()
    if not given.is_dir():
        raise FileNotFoundError(f"there is no folder {str(path)!r}: give a checkpoint or the output folder of a run")
    folder = given
    if kind_of(given) is None:
        final = given / "model"
        folder = final if kind_of(final) else _newest(given)
    kind = kind_of(folder)
    if kind is None:
        raise FileNotFoundError(
            f"{str(folder)!r} holds no weights: a checkpoint has {_WEIGHTS[0]}, adapter_config.json, {FSDP_SHARDS}/ or "
            "the files of DeepSpeed (`latest`)"
        )
    if folder.name.startswith("checkpoint-") and (reason := broken(folder)):
        raise ValueError(f"{str(folder)!r} is not a complete checkpoint: {reason}; give an earlier one")
    return CheckpointFiles(folder, kind, _run_of(folder), _step_of(folder))


def kind_of(folder: Path) -> CheckpointKind | None:
    """Return the kind of a checkpoint, or None if there are no weights."""
    if (folder / "adapter_config.json").is_file():
        return "adapter"
    if any((folder / name).is_file() for name in _WEIGHTS):
        return "plain"  # also under ZeRO, where the 16-bit weights were gathered
    if (folder / FSDP_SHARDS / ".metadata").is_file():
        return "fsdp"
    if (folder / FSDP_FULL).is_file():
        return "fsdp-full"
    return "zero" if (folder / "latest").is_file() and any(folder.glob("global_step*")) else None


def _newest(folder: Path) -> Path:
    try:
        return find_checkpoint("last", folder) or folder
    except FileNotFoundError:
        return folder


def _run_of(folder: Path) -> Path | None:
    places = (folder, folder.resolve().parent)
    return next((one for one in places if any((one / name).is_file() for name in _RECORDS)), None)


def _step_of(folder: Path) -> int | None:
    try:
        return int(json.loads((folder / _STATE).read_text(encoding="utf-8"))["global_step"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


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
