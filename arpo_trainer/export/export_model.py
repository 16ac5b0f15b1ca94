"""Writes a checkpoint of the trainer as a plain Hugging Face folder: `export_model`.

    export_model("runs/mine", "exports/mine-3b", dtype="bfloat16", licence="apache-2.0")

The folder has weights in safetensors, configuration, generation configuration, tokenizer with its chat template, and a
model card. transformers, vLLM and `arpo eval --model` load it like any other.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import shutil
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import jinja2
import torch
import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # public by its documentation

from arpo_env.net import redact_urls
from arpo_trainer.backends.full_copy import plain_name
from arpo_trainer.models import MODELS, resolve_model
from arpo_trainer.report.run_data import lines_of, read_facts
from arpo_trainer.rollout.model_protocol import learnt_protocol, marked
from arpo_trainer.training.resume import broken, checkpoint_step, find_checkpoint
from arpo_trainer.validation import check_name

# Each format is read by the library that writes it: transformers, PEFT, accelerate (torch.distributed.checkpoint) and
# DeepSpeed.

# transformers' files; PEFT's; one file per process, by torch.distributed.checkpoint; one of all weights; DeepSpeed's
CheckpointKind = Literal["plain", "adapter", "fsdp", "fsdp-full", "zero"]
FSDP_SHARDS = "pytorch_model_fsdp_0"
FSDP_FULL = "pytorch_model_fsdp.bin"
_RECORDS = ("run.json", "sft.json", "dpo.json")  # of `arpo train`, `arpo sft` and `arpo dpo`
_WEIGHTS = tuple(
    f"{name}{suffix}"
    for name in ("model.safetensors", "pytorch_model.bin")
    for suffix in ("", ".index.json")
)  # fmt: skip


@dataclass(frozen=True)
class CheckpointFiles:
    """A checkpoint that can be exported."""

    folder: Path
    kind: CheckpointKind
    run: Path | None  # the output folder of the run that wrote it; None if none of its records is beside it
    step: int | None  # training steps taken; None if the folder does not say

    def facts(self) -> dict[str, Any]:
        """Return the record of its run, or nothing if there is none or it cannot be read."""
        if self.run is None:
            return {}
        try:
            facts = read_facts(next(self.run / name for name in _RECORDS if (self.run / name).is_file()))
        except ValueError:  # a run that was killed while it wrote
            return {}
        settings = facts.get("settings") or {}
        # a supervised run has them in its settings only
        return {"model": settings.get("model"), "seed": settings.get("seed")} | facts


def find_checkpoint_files(path: str | Path) -> CheckpointFiles:
    """Return what a folder holds: a checkpoint, a saved model, or a run's output folder, whose final model counts."""
    given = Path(path).expanduser()
    if not given.is_dir():
        raise FileNotFoundError(f"there is no folder {str(path)!r}: give a checkpoint or the output folder of a run")
    folder = given
    if kind_of(given) is None:  # of a run that has not ended, its newest complete checkpoint
        final = given / "model"
        with contextlib.suppress(FileNotFoundError):
            folder = final if kind_of(final) else find_checkpoint("last", given) or given
    kind = kind_of(folder)
    if kind is None:
        raise FileNotFoundError(
            f"{str(folder)!r} holds no weights: a checkpoint has {_WEIGHTS[0]}, adapter_config.json, {FSDP_SHARDS}/ or "
            "the files of DeepSpeed (`latest`)"
        )
    if folder.name.startswith("checkpoint-") and (reason := broken(folder)):
        raise ValueError(f"{str(folder)!r} is not a complete checkpoint: {reason}; give an earlier one")
    step = checkpoint_step(folder) if broken(folder) is None else None
    return CheckpointFiles(folder, kind, _run_of(folder), step)


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


def _run_of(folder: Path) -> Path | None:
    places = (folder, folder.resolve().parent)
    return next((one for one in places if any((one / name).is_file() for name in _RECORDS)), None)


DTYPES = ("float32", "bfloat16", "float16")
_GIVE_BASE = "Export another checkpoint, or give the model that was trained with --base MODEL"


def load_model(found: CheckpointFiles, base: str | None = None, dtype: str | None = None) -> tuple[Any, Any]:
    """Return the model and its tokenizer; see `export_model`."""
    model = _LOADERS[found.kind](found, base)
    if dtype is not None:
        model = model.to(getattr(torch, dtype))
    _check_finite(model)
    model.config.use_cache = True  # gradient checkpointing switches it off in training
    return model.eval(), _tokenizer(found, base)


def base_of(found: CheckpointFiles, base: str | None = None) -> str:
    """Return the folder or hub id of the base model; ValueError if nobody names one."""
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
    """Return a model of the base's structure with these weights."""
    from transformers import AutoConfig, AutoModelForCausalLM

    named = {plain_name(name).removeprefix("module."): value for name, value in weights.items()}
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
    if lacking or unknown:
        raise ValueError(
            f"the weights are not of the structure of {structure}: {len(lacking)} are missing "
            f"({', '.join(lacking[:3])}), {len(unknown)} are unknown ({', '.join(unknown[:3])}). {_GIVE_BASE}"
        )


def _every_name(model: Any) -> dict[str, Any]:
    return dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))


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
    tokenizer = AutoTokenizer.from_pretrained(found.folder if own else resolve_model(base_of(found, base)))
    learnt = learnt_protocol(tokenizer, found.folder)  # known of a run's folder, which the exported one is not
    return marked(tokenizer, learnt[0]) if learnt else tokenizer


_TAGS = ("reinforcement-learning", "agents", "tool-use", "arpo-gym")
_SECRET = re.compile(
    r"token|key|passw|secret|url|host|port$|auth|credential|cookie|header|proxy|bearer|login", re.IGNORECASE
)
# keys of services that stand in a field of another name, or in a text
_LOOKS_SECRET = re.compile(r"\b(?:hf|sk|ghp|gsk|xai|pplx|tvly|github_pat)[_-][\w-]{16,}|\bBearer\s+\S+", re.IGNORECASE)
_PATH = re.compile(r"(?<![\w/.:~-])(?:~|/[\w.~-]+)(?:/[\w.~-]+)*/([\w.~-]+)")  # of this machine, in a text
_COUNTED = re.compile(r"max_tokens|max_new_tokens|prefix_tokens")  # tokens of text, not of access
_LEFT_OUT = ("output_dir", "logging_dir", "resume_from_checkpoint", "report_to", "hub_model_id")


def make_card(
    found: CheckpointFiles, name: str, *, licence: str | None = None, base: str | None = None, dtype: str = ""
) -> ModelCard:
    """Return the model card, which states only what run.json (or sft.json) and eval.jsonl say; see `export_model`.

    Secrets, addresses and paths of this machine are left out.
    """
    facts = found.facts()
    named = base or facts.get("model")
    model = MODELS[named].hub_id if named in MODELS else _hub_id(named)
    rows = _evaluations(found)
    algorithm = facts.get("algorithm") or facts.get("kind")
    data = ModelCardData(
        base_model=model,
        library_name="transformers",
        pipeline_tag="text-generation",
        license=licence or _licence_of(named),
        tags=[tag for tag in (*_TAGS, algorithm) if tag and (tag, algorithm) != (_TAGS[0], "sft")],
        datasets=_data_sets(facts) or None,
        model_name=name,
        eval_results=[_result(facts, rows[-1])] if rows and _is_of(rows[-1], found) else None,
    )
    env, settings = facts.get("env") or {}, facts.get("settings") or {}
    adapted = found.kind == "adapter" or bool(settings.get("lora_rank"))
    shards = "" if found.kind == "plain" else ", in shards that were put together"
    ways = {"sft": " on traces (supervised, a cold start)", "dpo": " on pairs of its own trajectories (DPO)"}
    learnt = facts.get("kind") == "sft" and {"kept", "rows", "learnt_tokens", "tokens"} <= facts.keys()
    training = {
        "run": facts.get("name"),
        "recipe": settings.get("base") or settings.get("recipe"),
        "algorithm": facts.get("algorithm"),
        "environment": _harmless(env.get("id")) if isinstance(env, Mapping) else None,
        "data sets": ", ".join(_data_sets(facts)) or None,
        "rows": _ROWS.format_map(facts) if learnt else None,
        "training steps": facts.get("steps") if found.step is None else found.step,
        "seed": facts.get("seed"),
        "status of the run": facts.get("status"),
        "begun": facts.get("started"),
    }
    shown = _harmless(settings)
    values = {
        "data": data.to_yaml(),
        "name": name,
        "model": model,
        "how": ways.get(str(facts.get("kind")), f" with `{facts['algorithm']}`" if facts.get("algorithm") else ""),
        "weights": "LoRA adapters were trained, and merged into it" if adapted else f"All weights were trained{shards}",
        "dtype": dtype,
        "facts": facts,
        "training": training,
        "rows": rows,
        "env": _eval_env(facts),
        "interval": _interval,
        "settings": redact_urls(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True)) if shown else "",
        "versions": facts.get("versions") or {},
    }
    template = resources.files("arpo_trainer.export").joinpath("model_card.md.jinja").read_text(encoding="utf-8")
    return ModelCard(jinja2.Template(template, keep_trailing_newline=True).render(values))


_ROWS = "{kept:,} of {rows:,} kept; {learnt_tokens:,} of {tokens:,} tokens learnt"


def _result(facts: Mapping[str, Any], row: Mapping[str, Any]) -> EvalResult:
    env = _eval_env(facts)
    interval = [round(row[f"accuracy_{end}"], 4) for end in ("low", "high")]
    return EvalResult(
        task_type="text-generation",
        dataset_type=_hub_of(env) or "generated",
        dataset_name=env or "held-out tasks",
        metric_type="accuracy",
        metric_value=round(row["accuracy"], 4),
        metric_args={"tasks": row["n"], "interval_95": interval},
    )


def _evaluations(found: CheckpointFiles) -> list[dict[str, Any]]:
    """Return the evaluations of the run up to this checkpoint."""
    file = found.run / "eval.jsonl" if found.run else None
    if file is None or not file.is_file():
        return []
    rows = [json.loads(line) for _, line in lines_of(file, running=True)]
    return [row for row in rows if found.step is None or row["step"] <= found.step]


def _is_of(row: Mapping[str, Any], found: CheckpointFiles) -> bool:
    """Return whether an evaluation is of these weights, and not of an earlier step."""
    return bool(row["name"] == "after" if found.step is None else row["step"] == found.step)


def _interval(row: Mapping[str, Any], name: str) -> str:
    return f"{row[name]:.3f} [{row[f'{name}_low']:.3f}, {row[f'{name}_high']:.3f}]"


def _eval_env(facts: Mapping[str, Any]) -> str | None:
    settings, env = facts.get("settings") or {}, facts.get("env") or {}
    named = settings.get("eval_env") or (env.get("id") if isinstance(env, Mapping) else None)
    return _harmless(named) if named else None


def _data_sets(facts: Mapping[str, Any]) -> list[str]:
    env = facts.get("env") or {}
    hub = _hub_of(env.get("id") if isinstance(env, Mapping) else None)
    given = (facts.get("settings") or {}).get("data") or [] if facts.get("kind") == "sft" else []
    # OWNER/NAME/FILE is on the hub, as `arpo sft` reads it
    files = [str(one) for one in ([given] if isinstance(given, str) else given) if not Path(str(one)).exists()]
    return [*([hub] if hub else []), *{one.rpartition("/")[0]: 0 for one in files if _hub_id(one.rpartition("/")[0])}]


def _hub_of(env_id: str | None) -> str | None:
    """Return the hub id of an environment's data set; None for generated tasks and environments of the user's own."""
    from envs_registry.datasets.question_sets import QUESTION_SETS

    return next((row.hub for row in QUESTION_SETS if env_id == f"arpo/{row.name}-v0"), None)


def _hub_id(model: str | None) -> str | None:
    """Return a model's name if it is one of the hub: a folder of this machine says nothing to others."""
    if not model or model.count("/") != 1 or Path(model).expanduser().exists():
        return None
    try:
        validate_repo_id(model)
    except HFValidationError:
        return None
    return model


def _licence_of(model: str | None) -> str | None:
    if model in MODELS:
        return MODELS[model].licence
    card = Path(model).expanduser() / "README.md" if model else None
    if card is None or not card.is_file():
        return None
    licence = ModelCard.load(card, ignore_metadata_errors=True).data.license
    return licence if isinstance(licence, str) else None


def _harmless(value: Any, name: str = "") -> Any:
    """Return settings without secrets, and with the last part of each path of this machine."""
    if isinstance(value, Mapping):
        return {key: _harmless(one, str(key)) for key, one in value.items() if _shown(str(key))}
    if isinstance(value, list | tuple):
        return [_harmless(one, name) for one in value]
    if isinstance(value, str) and value.startswith(("/", "~", "./", "../")):
        return Path(value).name
    if isinstance(value, str):
        return _LOOKS_SECRET.sub("***", _PATH.sub(r"\1", value))
    return value if isinstance(value, int | float | bool | None) else str(value)


def _shown(name: str) -> bool:
    return name not in _LEFT_OUT and (bool(_COUNTED.search(name)) or not _SECRET.search(name))


logger = logging.getLogger(__name__)


def export_model(
    checkpoint: str | Path,
    output: str | Path,
    *,
    base: str | None = None,
    dtype: str | None = None,
    licence: str | None = None,
    name: str | None = None,
) -> Path:
    """Write the folder, and return it.

    It is written as OUTPUT.unfinished and renamed at the end, so that OUTPUT is complete or not there at all.

    Args:
        checkpoint: a checkpoint, a saved model, adapters, or the output folder of a run.
        output: the new folder.
        base: what adapters are merged into, or whose structure sharded weights have; by default what the run says.
        dtype: of the written weights, one of `DTYPES`; by default that of the checkpoint, or of the base of adapters.
        licence: for the model card, as the hub names it.
        name: of the model in the card; by default the name of the folder.

    Raises:
        FileExistsError: there is something at `output` already.
        FileNotFoundError: there are no weights at `checkpoint`.
        ValueError: the checkpoint is incomplete, its weights do not fit, or the type is unknown.
        ModuleNotFoundError: the library that reads the checkpoint is not installed.
    """
    target = Path(output).expanduser()
    if dtype is not None:
        check_name("dtype", dtype, DTYPES)
    if target.exists():
        raise FileExistsError(f"{str(output)!r} exists already: choose another folder, or remove it first")
    found = find_checkpoint_files(checkpoint)
    model, tokenizer = load_model(found, base, dtype)
    _take_generation_config(model, found, base)
    scratch = target.with_name(f"{target.name}.unfinished")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    model.save_pretrained(scratch)
    tokenizer.save_pretrained(scratch)
    kind = str(model.dtype).removeprefix("torch.")
    make_card(found, name or target.name, licence=licence, base=base, dtype=kind).save(scratch / "README.md")
    scratch.rename(target)
    logger.info("%s (%s, %s) is %s", found.folder, found.kind, kind, target)
    return target


def _take_generation_config(model: Any, found: CheckpointFiles, base: str | None) -> None:
    """Give the model the generation settings of its checkpoint, or of its base."""
    from transformers import GenerationConfig

    for folder in (found.folder, None):
        try:
            model.generation_config = GenerationConfig.from_pretrained(folder or resolve_model(base_of(found, base)))
        except (OSError, ValueError, RuntimeError):  # it has none, or no base is known or at hand
            continue
        return
