"""The command `arpo synth`: cold-start data from questions, sampled from any model and checked.

arpo synth arpo/GSM8K-v0 --model TOKENIZER --endpoint URL --endpoint-model NAME --tasks 1000 --output data/gsm8k
arpo synth arpo/Reasoning10K-v0 --model FOLDER --vllm --against arpo/MATH500-v0 arpo/HotpotQA-v0 --output data/mine
arpo synth --resume --output data/gsm8k                # only what is missing; the files are written anew
arpo synth ... --shard 3/8 --output data/gsm8k         # an eighth of the questions; `arpo eval merge data/gsm8k` joins
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from arpo_trainer.cli.command_options import (
    Config,
    EnvSet,
    Flag,
    Limit,
    ModelOptions,
    Ray,
    RolloutWorkerCount,
    given_with_set,
    opened_workers,
    options_of,
    read_counts,
    set_option,
    write_table,
)
from arpo_trainer.optional_dependencies import require
from arpo_trainer.rollout.settings import RolloutSettings
from arpo_trainer.run.recipes import parse_assignments, read_settings
from arpo_trainer.synthesis.synth_settings import SynthSettings

Rollout = options_of(
    RolloutSettings,
    *("temperature", "max_turn_length", "max_completion_length"),
    usual={"temperature": 0.8, "max_turn_length": 4096, "max_completion_length": None},
)
Given = options_of(
    SynthSettings,
    *("tasks", "direct", "tir", "easy", "hard", "min_score", "max_calls", "max_failed", "max_tokens", "max_per_task"),
    *("hints", "all_questions", "against", "format", "seed", "concurrency", "max_broken", "cache", "cache_mode"),
)


def synth(
    *names: Annotated[str, Parameter(help="ids of environments whose questions are taken")],
    config: Config = None,
    output: Annotated[Path | None, Parameter(help="where everything is written")] = None,
    models: ModelOptions | None = None,
    env_set: EnvSet = (),
    given: Given | None = None,  # type: ignore[valid-type]
    rollout: Rollout | None = None,  # type: ignore[valid-type]
    settings: set_option("other settings of rollouts: top_p=1") = (),  # type: ignore[valid-type]
    limit: Limit = (),
    ray: Ray = None,
    rollout_workers: RolloutWorkerCount = 0,
    shard: Annotated[
        str | None, Parameter(help="take part i of n of the questions, as i/n; `arpo eval merge` joins")
    ] = None,
    resume: Annotated[Flag, Parameter(help="go on with the folder: sample only what is missing")] = False,
    retry: Annotated[Flag, Parameter(help="with --resume: sample what broke again, too")] = False,
) -> int:
    """Make cold-start data from questions with a model: `arpo synth ENV ... --model MODEL ... --output FOLDER`."""
    require("train")
    from arpo_trainer.evaluation.eval_session import Progress
    from arpo_trainer.evaluation.eval_shard import read_shard
    from arpo_trainer.synthesis.synth_session import NothingLeft, broken_samples, synthesise

    values, options, folder = _from_file(config, models or ModelOptions())
    output = output or folder
    if output is None:
        raise ValueError("say where the samples are written: --output FOLDER")
    part = read_shard(shard) if shard else None
    target = part.folder(output) if part else output
    stored = _stored(target) if resume else {}
    changed = {
        "env_options": parse_assignments(env_set, "--env-set"),
        "rollout": given_with_set(rollout or {}, settings),
    }
    base = {**stored, **values}
    merged = {name: {**(base.get(name) or {}), **found} for name, found in changed.items()}
    asked: dict[str, Any] = {**(given or {}), **({"limits": read_counts(limit, "--limit")} if limit else {})}
    asked |= {"environments": names} if names else {}
    made = SynthSettings.from_dict({**base, **merged, **asked, "models": {}})
    if not (options.named or stored):
        raise ValueError("name the models: --model FOLDER_OR_HUB_ID ...")
    chosen = options.read() if options.named else options.again(stored["models"])
    how: dict[str, Any] = {"resume": resume, "repeat_broken": retry, "shard": part, "progress": Progress().add}
    try:
        with opened_workers(ray, rollout_workers, made.play, chosen) as workers:
            report = synthesise(made, chosen, output, workers=workers, **how)
    except NothingLeft as fault:
        write_table(fault.report.table())
        raise
    write_table(report.table())
    if (share := broken_samples(report)) <= made.max_broken:
        return 0
    sys.stderr.write(
        f"{share:.1%} of the samples broke; after mending the cause: arpo synth --resume --retry --output {target}\n"
    )
    return 1


def _from_file(config: str | None, options: ModelOptions) -> tuple[dict[str, Any], ModelOptions, Path | None]:
    """Return the settings of a file, the models that options or else the file name, and the file's folder."""
    if config is None:
        return {}, options, None
    if not Path(config).is_file():
        raise FileNotFoundError(f"no settings file {config!r}")
    values = read_settings(config, command="synth")
    named = options.named
    for name in vars(options):
        value = values.pop(name, None)
        if value is not None and not named and not getattr(options, name):
            several = isinstance(getattr(options, name), tuple)
            value = value if not several else tuple(value) if isinstance(value, list) else (value,)
            setattr(options, name, value)
    folder = values.pop("output_dir", None)
    return values, options, folder and Path(folder)


def _stored(folder: Path) -> dict[str, Any]:
    """Return the settings that a folder was made with; what decides how many and which is replaced by options."""
    from arpo_trainer.synthesis.synth_session import stored_settings

    return stored_settings(folder).as_dict() if (folder / "run.json").is_file() else {}
