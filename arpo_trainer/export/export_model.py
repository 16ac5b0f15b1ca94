"""Writes a checkpoint of the trainer as a plain Hugging Face folder: `export_model`.

    export_model("runs/mine", "exports/mine-3b", dtype="bfloat16", licence="apache-2.0")

The folder has weights in safetensors, configuration, generation configuration, tokenizer with its chat template, and a
model card. transformers, vLLM and `arpo eval --model` load it like any other.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # public by its documentation

from arpo_env.net import redact_urls
from arpo_trainer.demo_model import DEMO_MODEL, resolve_model
from arpo_trainer.export.load_weights import DTYPES, CheckpointFiles, base_of, find_checkpoint_files, load_model
from arpo_trainer.report.run_data import lines_of
from arpo_trainer.validation import check_name

# The model card of an exported model, made from what its run recorded: `make_card`.
#
#     card = make_card(find_checkpoint_files("runs/mine"), name="mine-3b")
#     card.save("exports/mine-3b/README.md")
#
# It states only what run.json (or sft.json) and eval.jsonl say. Secrets, addresses and paths of this machine are left
# out.

_DEMO_HUB = "HuggingFaceTB/SmolLM2-135M-Instruct"
_TAGS = ("reinforcement-learning", "agents", "tool-use", "arpo-gym")
_SECRET = re.compile(
    r"token|key|passw|secret|url|host|port$|auth|credential|cookie|header|proxy|bearer|login", re.IGNORECASE
)
# keys of services that stand in a field of another name, or in a text
_LOOKS_SECRET = re.compile(r"\b(?:hf|sk|ghp|gsk|xai|pplx|tvly|github_pat)[_-][\w-]{16,}|\bBearer\s+\S+", re.IGNORECASE)
_PATH = re.compile(r"(?<![\w/.:~-])(?:~|/[\w.~-]+)(?:/[\w.~-]+)*/([\w.~-]+)")  # of this machine, in a text
_COUNTED = re.compile(r"max_tokens|max_new_tokens|prefix_tokens|packing_tokens")  # tokens of text, not of access
_LEFT_OUT = ("output_dir", "logging_dir", "resume_from_checkpoint", "report_to", "hub_model_id")


def make_card(
    found: CheckpointFiles, name: str, *, licence: str | None = None, base: str | None = None, dtype: str = ""
) -> ModelCard:
    """Return the card.

    Args:
        found: the checkpoint that was exported.
        name: of the model.
        licence: of the model, as the hub names it ("apache-2.0"); None takes that of a local base's card, if it has
            one.
        base: hub id or folder of the base, if it is not the run's.
        dtype: of the exported weights.
    """
    facts = found.facts()
    named = base or facts.get("model")
    model = _DEMO_HUB if named == DEMO_MODEL else _hub_id(named)
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
        eval_results=_results(facts, [row for row in rows[-1:] if _is_of(row, found)]) or None,
    )
    parts = [f"# {name}", _introduction(found, facts, model, dtype), _how_to_use(name)]
    parts += [_training(facts, found.step), _measured(facts, rows), _settings(facts), _versions(facts)]
    return ModelCard(f"---\n{data.to_yaml()}\n---\n\n" + "\n\n".join(part for part in parts if part) + "\n")


def _introduction(found: CheckpointFiles, facts: Mapping[str, Any], model: str | None, dtype: str) -> str:
    adapted = found.kind == "adapter" or bool((facts.get("settings") or {}).get("lora_rank"))
    shards = "" if adapted or found.kind == "plain" else ", in shards that were put together"
    kind = "LoRA adapters were trained, and merged into it" if adapted else f"All weights were trained{shards}"
    from_base = f" from [{model}](https://huggingface.co/{model})" if model else ""
    how = f" with `{facts['algorithm']}`" if facts.get("algorithm") else ""
    of_rows = {"sft": " on traces (supervised, a cold start)", "dpo": " on pairs of its own trajectories (DPO)"}
    how = of_rows.get(str(facts.get("kind")), how)
    weights = f" The weights are {dtype}." if dtype else ""
    return f"A tool-using language model, trained{from_base}{how} by arpo-gym. {kind}.{weights}"


def _how_to_use(name: str) -> str:
    code = (
        "from transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
        f'model = AutoModelForCausalLM.from_pretrained("{name}")\n'
        f'tokenizer = AutoTokenizer.from_pretrained("{name}")'
    )
    return f"```python\n{code}\n```"


def _training(facts: Mapping[str, Any], step: int | None) -> str:
    if not facts:
        return "No run.json or sft.json was found beside the checkpoint, so how it was trained is not stated."
    env, settings = facts.get("env") or {}, facts.get("settings") or {}
    rows = {
        "run": facts.get("name"),
        "recipe": settings.get("base") or settings.get("recipe"),
        "algorithm": facts.get("algorithm"),
        "environment": _harmless(env.get("id")) if isinstance(env, Mapping) else None,
        "data sets": ", ".join(_data_sets(facts)) or None,
        "rows": _rows_learnt(facts),
        "training steps": facts.get("steps") if step is None else step,
        "seed": facts.get("seed"),
        "status of the run": facts.get("status"),
        "begun": facts.get("started"),
    }
    lines = [f"| {what} | {value} |" for what, value in rows.items() if value is not None]
    return "\n".join(["## Training", "", "| | |", "|---|---|", *lines])


def _rows_learnt(facts: Mapping[str, Any]) -> str | None:
    """Return the counts of a supervised run."""
    if facts.get("kind") != "sft" or not {"kept", "rows", "learnt_tokens", "tokens"} <= facts.keys():
        return None
    return (
        f"{facts['kept']:,} of {facts['rows']:,} kept; {facts['learnt_tokens']:,} of {facts['tokens']:,} tokens learnt"
    )


def _measured(facts: Mapping[str, Any], rows: list[dict[str, Any]]) -> str:
    if not rows:
        return ""
    env = _eval_env(facts)
    lines = [
        f"| {row['name']} | {row['step']} | {row['n']} | {_interval(row, 'accuracy')} | {_interval(row, 'reward')} | "
        f"{row['tool_calls']:.2f} | {row['invalid']} |"
        for row in rows
    ]
    return "\n".join(
        [
            "## Evaluation",
            "",
            f"Greedy, on held-out tasks{f' of `{env}`' if env else ''}; 95 % intervals in brackets. Tasks that could "
            "not be scored because something failed are counted apart.",
            "",
            "| evaluation | step | tasks | accuracy | reward | tool calls per task | not scored |",
            "|---|---|---|---|---|---|---|",
            *lines,
        ]
    )


def _settings(facts: Mapping[str, Any]) -> str:
    shown = _harmless(facts.get("settings") or {})
    if not shown:
        return ""
    text = redact_urls(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True))
    return f"## Settings\n\n```yaml\n{text}```"


def _versions(facts: Mapping[str, Any]) -> str:
    found = facts.get("versions") or {}
    return "## Versions\n\n" + ", ".join(f"{name} {version}" for name, version in found.items()) if found else ""


def _results(facts: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> list[EvalResult]:
    env = _eval_env(facts)
    hub = _hub_of(env)
    return [
        EvalResult(
            task_type="text-generation",
            dataset_type=hub or "generated",
            dataset_name=env or "held-out tasks",
            metric_type="accuracy",
            metric_value=round(row["accuracy"], 4),
            metric_args={
                "tasks": row["n"],
                "interval_95": [round(row[f"accuracy_{end}"], 4) for end in ("low", "high")],
            },
        )
        for row in rows
    ]


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
    from envs_registry.catalogue import DATA_SETS

    return next((row.hub for row in DATA_SETS if env_id == f"arpo/{row.name}-v0"), None)


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
