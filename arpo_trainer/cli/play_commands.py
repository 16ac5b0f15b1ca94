"""The commands that let models play tasks: `arpo rollout`, `arpo eval` with what it does to stored runs, `arpo synth`.

arpo rollout arpo/MultiHop-v0 --model FOLDER --tasks 4 --output rollouts/multihop
arpo eval arpo/GSM8K-v0 --env-set split=test --model FOLDER --tasks 100 -n 4 --output evals/gsm8k
arpo eval --resume --output evals/gsm8k          # only what is missing; `arpo eval retry evals/gsm8k`: only what broke
arpo eval ... --shard 3/8 --output evals/gsm8k   # one of eight parts; `arpo eval merge evals/gsm8k` joins them
arpo eval compare evals/base evals/arpo          # task by task
arpo synth arpo/GSM8K-v0 --model TOKENIZER --endpoint URL --endpoint-model NAME --tasks 1000 --output data/gsm8k
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from arpo_trainer.cli.command_options import (
    AsJson,
    Config,
    Env,
    EnvSet,
    Flag,
    Limit,
    ModelOptions,
    Price,
    Ray,
    RolloutWorkerCount,
    chosen,
    given_with_set,
    new_app,
    opened_workers,
    options_of,
    read_counts,
    read_price,
    set_option,
    write_lines,
    write_table,
)
from arpo_trainer.evaluation.eval_settings import (
    PAPER_SAMPLING,
    TREE_SIZE,
    EvalModel,
    EvalSettings,
    check_for_workers,
    load_tokenizer,
    open_backend,
)
from arpo_trainer.evaluation.eval_shard import EvalShard, read_shard
from arpo_trainer.evaluation.suites import apply, environment_rows, preset, preset_table, suite_table
from arpo_trainer.inference_tools import PRICES, read_tools
from arpo_trainer.make_env import make_env
from arpo_trainer.optional_dependencies import require
from arpo_trainer.rollout.settings import RolloutSettings
from arpo_trainer.run.recipes import parse_assignments, read_settings
from arpo_trainer.synthesis.synth_settings import SynthSettings
from arpo_trainer.validation import nearest_names

if TYPE_CHECKING:
    from arpo_env import ToolEnv
    from arpo_trainer.evaluation.episode_store import EvalRun
    from arpo_trainer.evaluation.eval_metrics import ChangedTask, RunComparison
    from arpo_trainer.evaluation.rescoring import Rescored
    from arpo_trainer.statistics import PairedComparison
    from arpo_trainer.tree import RolloutTree

logger = logging.getLogger(__name__)
Resume = Annotated[Flag, Parameter(help="go on with the folder: play only what is missing")]
Shard = Annotated[str | None, Parameter(help="play part i of n, as i/n; auto or auto/n: of SLURM or Kubernetes")]
Output = Annotated[Path | None, Parameter(help="where everything is written")]

# `arpo rollout`: tasks as trees, recorded as a run.

_KIND = "rollout"
_FILES = ("run.json", "traces.jsonl", "metrics.jsonl", "eval.jsonl")
_DEFAULTS = {"num_generations": 8, "temperature": 1.0, "max_turn_length": 256, "max_completion_length": 4096, "seed": 0}
_ENTROPIES = {"entropy_estimator": "estimator", "entropy_topk": "topk"}  # settings of the backend, by its names
_TEMPLATE = "chat_template_kwargs"
_WITHOUT_ENTROPY = (None, "random", "tree-grpo")  # branch methods
Trees = options_of(RolloutSettings, "algorithm", "num_generations", "temperature", "seed", usual=_DEFAULTS)


def rollout(
    env: Env,
    /,
    *,
    models: ModelOptions | None = None,
    env_set: EnvSet = (),
    tasks: Annotated[int, Parameter(help="play the first N tasks")] = 4,
    output: Annotated[Path, Parameter(help="folder of the records")] = Path("rollout"),
    flags: Trees | None = None,  # type: ignore[valid-type]
    settings: set_option("other settings: max_turn_length=512 branch_quota=0 budget=aepo entropy_estimator=nll") = (),  # type: ignore[valid-type]
    limit: Limit = (),
    ray: Ray = None,
    rollout_workers: RolloutWorkerCount = 0,
) -> int:
    """Play tasks as trees, record them, and print a summary."""
    from arpo_trainer.rollout.live_trajectory import check_limits

    several = (models or ModelOptions()).read()
    if len(several) != 1:
        raise ValueError("give one model: --model FOLDER_OR_HUB_ID")
    [model] = several
    if ray or rollout_workers:
        check_for_workers(several)
    if tasks < 1:
        raise ValueError(f"--tasks must be at least 1, got {tasks}")
    # settings and folder are checked before the training stack, the tasks and the model are loaded
    endpoint = model.kind == "endpoint"
    given, limits = given_settings(flags or {}, settings, endpoint), read_counts(limit, "--limit")
    grown = _rollout_settings(given, endpoint)
    _check_folder(output)
    require("train")
    options = parse_assignments(env_set, "--env-set")
    with contextlib.closing(make_env(env, options)) as made:
        made.check()
        check_limits(limits, list(made.tools))
        facts = _facts(env, options, tasks, output, model, given, limits)
        trees = _roll_out(model, made, grown, limits, facts, tasks, output, ray, rollout_workers)
    write_table(summary_table(trees))
    sys.stdout.write(f"\narpo view timeline {output}\narpo report {output}\n")
    # a script can tell from the status that nothing could be scored
    return 0 if any(trajectory.valid for tree in trees for trajectory in tree.trajectories) else 1


def given_settings(flags: Mapping[str, Any], texts: Sequence[str], endpoint: bool = False) -> dict[str, Any]:
    """Return the settings by their names in `ARPOConfig`: defaults, flags and `--set`."""
    more = given_with_set(flags, texts)
    known = [entry.name for entry in dataclasses.fields(RolloutSettings)] + [*_ENTROPIES, _TEMPLATE]
    for name in more:
        if name not in known:
            raise ValueError(f"--set {name}: no such setting here; there is {nearest_names(name, known) or known}")
    if endpoint and (asked := sorted(set(more) & set(_ENTROPIES))):
        raise ValueError(f"--set {', '.join(asked)}: an endpoint returns no entropies")
    given = {"algorithm": "grpo" if endpoint else "arpo", **_DEFAULTS, **more}
    # a default that depends on another setting; a value that was given replaces it
    return {"initial_rollouts": max(1, given["num_generations"] // 2), **given}


def _rollout_settings(given: dict[str, Any], endpoint: bool) -> RolloutSettings:
    """Return the settings of the engine; failures are counted and stop nothing, since nothing is trained."""
    others = (*_ENTROPIES, _TEMPLATE)
    settings = RolloutSettings(**{"max_invalid": 1.0, **{n: v for n, v in given.items() if n not in others}})
    parts = settings.parts
    if endpoint and (parts.branch not in _WITHOUT_ENTROPY or parts.budget_rule.decide):
        raise ValueError(
            f"--algorithm {settings.algorithm} needs entropies, which an endpoint does not return; take grpo, random "
            "or tree-grpo, or use a vLLM server with --vllm-server"
        )
    return settings


def _check_folder(folder: Path) -> None:
    """Refuse a folder in which something else than a rollout would be lost."""
    from arpo_trainer.report.run_data import read_facts

    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--output {str(folder)!r} is a file; give a folder")
    there = [name for name in _FILES if (folder / name).exists()]
    # a new rollout may replace an older one, but never the records of a training run
    ours = "run.json" in there and read_facts(folder / "run.json").get("kind") == _KIND
    if there and not ours:
        raise ValueError(f"{str(folder)!r} holds another run ({', '.join(there)}); give another folder with --output")


def _roll_out(
    model: EvalModel,
    env: ToolEnv,
    settings: RolloutSettings,
    limits: dict[str, int],
    facts: dict[str, Any],
    tasks: int,
    output: Path,
    ray: str | None,
    rollout_workers: int,
) -> list[RolloutTree]:
    from tqdm import tqdm

    from arpo_env.event_loop import run
    from arpo_trainer.ray_rollouts import RayEngine
    from arpo_trainer.rollout.engine import Engine
    from arpo_trainer.rollout.model_protocol import with_model_protocol
    from arpo_trainer.training.config import RolloutWorkerSettings, on_workers
    from arpo_trainer.training.evaluation import summarise
    from arpo_trainer.training.recorder import RunRecorder

    count, given, tokenizer = min(tasks, env.tasks.size or tasks), facts["settings"], load_tokenizer(model)
    backend = open_backend(model, tokenizer, **{_ENTROPIES[n]: v for n, v in given.items() if n in _ENTROPIES})
    workers = RolloutWorkerSettings(rollout_workers=rollout_workers, ray_address=ray)
    template = given.get(_TEMPLATE) or {}
    env = with_model_protocol(env, settings, tokenizer, template, model.endpoint)
    engine = on_workers(Engine(backend, tokenizer, env, settings, template, limits=limits), workers)
    facts["protocol"] = engine.env.protocol.name
    recorder: RunRecorder | None = None
    status = "failed"  # what run.json says if an error ends the rollout

    def keep(tree: RolloutTree) -> None:
        nonlocal recorder
        if recorder is None:  # not earlier: an earlier rollout is kept until there is something in its place
            for name in _FILES:
                (output / name).unlink(missing_ok=True)
            recorder = RunRecorder(output)
            recorder.begin(facts)
        recorder.on_rollout([tree])

    # each tree is written when it is complete, so an interrupted rollout keeps those before it
    engine.on_tree = keep
    try:
        with tqdm(total=count * settings.num_generations, desc="rolling out", unit="trajectory") as bar:
            engine.on_trajectory = bar.update
            trees = run(engine.rollout([env.tasks.task(number) for number in range(count)]))
        # an evaluation has one answer per task, and `summarise` raises an error if none was scored
        if recorder and settings.num_generations == 1 and any(tree.trajectories[0].valid for tree in trees):
            recorder.on_evaluation(summarise(trees, _KIND))
        status = "finished"
    except KeyboardInterrupt:
        status = "interrupted"
        logger.warning(f"complete trees are in {output}" if recorder else "no tree was complete")
        raise
    finally:
        if isinstance(engine, RayEngine):
            engine.workers.close()
        if recorder:
            recorder.write_facts(status=status)
    return trees


def _facts(
    env: str,
    options: dict[str, Any],
    tasks: int,
    output: Path,
    model: EvalModel,
    given: dict[str, Any],
    limits: dict[str, int],
) -> dict[str, Any]:
    """Return the contents of run.json, without the passwords and keys that URLs may contain."""
    from arpo_env.net import strip_credentials

    # the command line itself is not kept: it holds the URLs as they were typed
    shown = {name: strip_credentials(v) if isinstance(v, str) and "://" in v else v for name, v in options.items()}
    about = {"tasks": tasks, "output": output, "limit": limits, "model": model.facts()}
    return {
        "name": output.resolve().name,
        "kind": _KIND,
        "env": {"id": env, "kwargs": shown},
        "seed": given["seed"],
        "model": model.name or model.model_id,
        "algorithm": given["algorithm"],
        "settings": {**given, "env": env, "env_kwargs": shown, **about},
    }


def summary_table(trees: Sequence[RolloutTree]) -> list[tuple[str, str]]:
    """Return what is printed, as rows of a table: scores, branches, tool calls, waits and speed."""
    from arpo_trainer.evaluation.eval_metrics import interval_of
    from arpo_trainer.rollout.metrics import invalid_causes, rollout_metrics

    seen = rollout_metrics(trees)
    trajectories = [trajectory for tree in trees for trajectory in tree.trajectories]
    causes = ", ".join(f"{name} {count}" for name, count in invalid_causes(trajectories).items())
    rows = [("TASKS", f"{len(trees)}, {len(trajectories)} trajectories"), ("NOT SCORED", causes or "none")]
    # of the independent samples, as in evaluations, where partly right answers do not count
    samples = [[t for number in tree.samples() if (t := tree.trajectories[number]).valid] for tree in trees]
    rewards = {number: [t.reward or 0.0 for t in each] for number, each in enumerate(samples)}
    right = {n: [float(t.components.get("accuracy", 0.0) >= 1.0) for t in each] for n, each in enumerate(samples)}
    for name, values in (("REWARD", rewards), ("ACCURACY", right)):
        if interval := interval_of(values):
            # one task tells nothing about the spread between tasks
            text = f"{interval}, 95 % over tasks" if interval.tasks > 1 else f"{interval.mean:.3f}"
            rows.append((name, text))
    if kept := seen["branches"] + seen["top_ups"]:
        rows.append(("BRANCHES", f"{seen['branches']:.0f} of the {kept:.0f} in the budget; depth {seen['depth']:.0f}"))
    if "fork_contrast" in seen:
        rows.append(("FORKS", f"rewards differ at {100 * seen['fork_contrast']:.0f} % of them"))
    names = sorted(name.removeprefix("tool_calls/") for name in seen if name.startswith("tool_calls/"))
    calls = [f"{name} {seen[f'tool_calls/{name}']:.0f} ({seen[f'tool_seconds/{name}']:.2f} s)" for name in names]
    rows.append(("TOOL CALLS", ", ".join(calls) or "none"))
    if seen["withheld"]:
        rows.append(("WITHHELD", f"{seen['withheld']:.0f} results did not fit: raise max_completion_length"))
    # shorter waits would be shown as 0.00 s
    waits = [f"{name[5:]} {value:.2f} s" for name, value in seen.items() if name.startswith("wait/") and value >= 0.005]
    share = f"{100 * seen.get('wait_share', 0):.1f} % of a trajectory's time"
    rows.append(("WAITS", f"{share}: {', '.join(waits)}" if waits else share))
    speed = f"{seen['tokens_generated']:,.0f} tokens, {seen.get('tokens_per_second', 0):,.0f} per second"
    cached = f"context from cache {100 * seen.get('cache_hits', 0):.1f} %"
    rows.append(("MODEL", f"{speed}; idle {100 * seen.get('model_idle', 0):.1f} %; {cached}"))
    return rows


# `arpo eval`.

Run = Annotated[Path, Parameter(help="the --output folder of `arpo eval`")]
Amount = options_of(EvalSettings, "tasks", "algorithm", "seed", samples="-n")
Running = options_of(EvalSettings, "concurrency", "max_broken", "cache", "cache_mode")
Sampling = options_of(
    RolloutSettings, "temperature", "num_generations", usual={**PAPER_SAMPLING, "num_generations": TREE_SIZE}
)
evaluate = new_app("eval", "evaluate models on environments and suites; compare, re-score")


@Parameter(name="*")
@dataclass
class Played:
    """How models are played: the options that `arpo eval` and `arpo eval retry` share.

    Attributes:
        preset: a published model: its prompt, tags, limits and sampling
        tools: tools at inference time: debugger, backtracer, refiner, with commas; debugger=2 allows two uses a sample
        with_model: name of the model that helps them, at an OpenAI-compatible server (default: the policy itself)
        with_url: address of that server (default: OPENAI_BASE_URL)
        with_price: what it costs: US dollars for a million tokens of input and output, and of input from a cache
        refine_above: shorten thoughts when a sample has so many tokens (default 8192)
        limit: maximum number of concurrent operations of a kind
        ray: play on a Ray cluster
        rollout_workers: Ray actors that play
    """

    preset: str | None = None
    tools: Annotated[str | None, Parameter(name="--with")] = None
    with_model: str | None = None
    with_url: str | None = None
    with_price: Price = ()
    refine_above: int | None = None
    limit: Limit = ()
    ray: Ray = None
    rollout_workers: RolloutWorkerCount = 0

    def inference(self) -> dict[str, Any]:
        """Return fields of `InferenceSettings` that were given."""
        fields: dict[str, Any] = dict(read_tools(self.tools)) if self.tools else {}
        fields |= {"model": self.with_model, "url": self.with_url, "refine_above": self.refine_above}
        price = read_price(self.with_price)
        fields["price"] = price and dict(zip(PRICES, price, strict=True))
        return {name: value for name, value in fields.items() if value is not None}

    def limits(self) -> dict[str, Any]:
        """Return the setting `limits`, if it was given."""
        return {"limits": read_counts(self.limit, "--limit")} if self.limit else {}

    def deciding(self, env_options: dict[str, Any], rollout: dict[str, Any]) -> dict[str, Any]:
        """Return options of environments, of rollouts and of the chat template, with those of the preset below them."""
        template = rollout.pop(_TEMPLATE, {})
        if not isinstance(template, dict):
            raise ValueError(f"--set {_TEMPLATE}: give names and values, as in {_TEMPLATE}={{enable_thinking: false}}")
        if self.preset:
            row = preset(self.preset)
            env_options, rollout = apply(row, env_options, rollout)
            template = {**row.chat_template_kwargs, **template}
        return {"env_options": env_options, "rollout": rollout, _TEMPLATE: template}


@evaluate.default
def eval_models(
    *names: Annotated[str, Parameter(help="ids of environments, or names of suites")],
    output: Output = None,
    models: ModelOptions | None = None,
    price: Price = (),
    amount: Amount | None = None,  # type: ignore[valid-type]
    env_set: EnvSet = (),
    sampling: Sampling | None = None,  # type: ignore[valid-type]
    settings: set_option("other settings of rollouts: top_p=1 max_turn_length=1024") = (),  # type: ignore[valid-type]
    running: Running | None = None,  # type: ignore[valid-type]
    resume: Resume = False,
    shard: Shard = None,
    played: Played | None = None,
) -> int:
    """Evaluate models on environments and suites; without arguments, list the suites and the presets."""
    models, played = models or ModelOptions(), played or Played()
    models.price = price
    if output is None and not (names or models.named or resume):
        write_table(suite_table())
        sys.stdout.write("\n")
        write_table(preset_table())
        return 0
    if output is None:
        raise ValueError("say where the evaluation is written: --output FOLDER")
    require("train")
    part = read_shard(shard) if shard else None
    folder = part.folder(output) if part else output
    changed: dict[str, Any] = {**(amount or {}), **(running or {}), **played.limits()}
    if names:
        environment_rows(names)  # a wrong name is refused before the training stack is imported, which takes seconds
        changed["environments"] = tuple(names)
    decided = played.deciding(parse_assignments(env_set, "--env-set"), given_with_set(sampling or {}, settings))
    # nothing is there yet at the first sitting of a command that always says --resume
    if resume and ((folder / "run.json").is_file() or not names):
        found = _stored(folder, changed, decided, played, models)
    else:
        found = _new(changed, decided, played, models)
    return _play(*found, output, played, part, resume=resume)


@evaluate.command
def retry(
    folder: Run,
    /,
    *,
    models: ModelOptions | None = None,
    running: Running | None = None,  # type: ignore[valid-type]
    played: Played | None = None,
) -> int:
    """Play the episodes that broke again, and nothing else."""
    require("train")
    models, played = models or ModelOptions(), played or Played()
    found = _stored(folder, {**(running or {}), **played.limits()}, played.deciding({}, {}), played, models)
    return _play(*found, folder, played, None, resume=True, repeat_broken=True)


def _play(
    settings: EvalSettings, models: list[EvalModel], folder: Path, played: Played, shard: EvalShard | None, **how: bool
) -> int:
    from arpo_trainer.evaluation.eval_session import run_evaluation

    with opened_workers(played.ray, played.rollout_workers, settings, models) as workers:
        found = run_evaluation(settings, models, folder, **how, shard=shard, workers=workers)
    return write_summary(found, settings.max_broken)


def _new(
    changed: dict[str, Any], decided: dict[str, Any], played: Played, options: ModelOptions
) -> tuple[EvalSettings, list[EvalModel]]:
    """Return settings and models from the options."""
    if "environments" not in changed:
        raise ValueError("name environments or suites: arpo eval ENV_OR_SUITE ... --model MODEL ... --output FOLDER")
    if played.preset and not options.model:
        options = dataclasses.replace(options, model=(preset(played.preset).model,))
    models = options.read()
    if not models:
        raise ValueError("name the models: --model FOLDER_OR_HUB_ID ..., or --preset NAME of a published one")
    return EvalSettings(**decided, **changed, inference=played.inference()), models


def _stored(
    folder: Path, changed: dict[str, Any], decided: dict[str, Any], played: Played, options: ModelOptions
) -> tuple[EvalSettings, list[EvalModel]]:
    """Return the settings and models of a stored evaluation; options that are given replace them."""
    from arpo_trainer.evaluation.episode_store import load_eval_run

    settings = EvalSettings.from_dict(load_eval_run(folder).facts["settings"])
    if inference := played.inference():
        changed["inference"] = {**settings.inference, **inference}
    changed |= {name: {**getattr(settings, name), **given} for name, given in decided.items()}
    models = options.again(settings.models)
    return dataclasses.replace(settings, **changed), models


# What `arpo eval` prints: the table of `arpo view --text`, and notes that only this command has.


def write_summary(found: EvalRun, most: float) -> int:
    """Write the table of a run and what broke; return 1 if more than the share `most` of the episodes broke."""
    from arpo_trainer.evaluation.episode_store import broken_causes
    from arpo_trainer.evaluation.eval_session import broken_share
    from arpo_trainer.views.run_page import score_lines
    from arpo_trainer.views.terminal_view import score_rows

    write_table(score_rows([found]), ["", *map(_notes, score_lines(found))])
    sys.stdout.write(f"\narpo view {found.folder}\n")
    share = broken_share(found)
    if not share:
        return 0
    causes = ", ".join(f"{cause} {count}" for cause, count in broken_causes(found.rows).most_common())
    sys.stderr.write(
        f"{100 * share:.1f} % of the episodes broke ({causes}) and are not scored; after mending the cause: "
        f"arpo eval retry {found.folder}\n"
    )
    return 1 if share > most else 0


def _notes(line: Mapping[str, Any]) -> str:
    """Return pass@k and pass^k, the use of tools at inference time, and why published numbers are not comparable."""
    said = [f"{name} {100 * value:.1f}" for name, value in line["pass"].items() if not name.endswith(("@1", "^1"))]
    for name, each in line.get("inference_tools", {}).items():
        failed = f", failed {each['failed']}x" if each["failed"] else ""
        said.append(f"{name} in {each['episodes']} of {line['scored']} episodes{failed}")
    if helper := line.get("helper"):  # not in the columns, which are of the policy
        cost = "" if helper["cost"] is None else f", {helper['cost']:.4g} USD"
        said.append(
            f"helper: {helper['requests']} requests, {helper['context']:,} tokens in, {helper['tokens']:,} out{cost}"
        )
    if (published := line["published"]) and published["differs"]:
        said.append(f"published numbers are not comparable: {'; '.join(published['differs'])}")
    for each in published["reproductions"] if published else ():
        about = (
            f"{each['method']} {100 * each['value']:.1f} ({', '.join(filter(None, (each['note'], each['source'])))})"
        )
        said.append(f"others measured {about}")
    return "; ".join(said)


# Stored runs: compared, joined, exported, and graded again.

_SHOWN_TASKS = 10  # of the tasks gained, and of those lost
_QUESTION = 90  # characters


@evaluate.command
def compare(
    first: Path,
    second: Path | None = None,
    /,
    *,
    models: tuple[str, str] | None = None,
    metric: str = "accuracy",
    common: Flag = False,
    all: Flag = False,
    as_json: AsJson = False,
) -> None:
    """Compare two runs task by task: difference, interval, test, tasks gained and lost.

    Args:
        first: the --output folder of `arpo eval`
        second: another one; without it two --models
        models: labels of a model in each of the runs
        metric: accuracy, reward, f1, em, correct, ...
        common: compare the common tasks of runs on different tasks
        all: list every task gained or lost, not the first 10
        as_json: write JSON
    """
    from arpo_trainer.evaluation.episode_store import load_eval_run
    from arpo_trainer.evaluation.eval_metrics import compare_runs

    run = load_eval_run(first)
    found = compare_runs(run, load_eval_run(second) if second else run, metric, models, common)
    if as_json:
        # JSON has no number for a bound that is not known
        data = json.loads(json.dumps([dataclasses.asdict(each) for each in found]), parse_constant=lambda _: None)
        sys.stdout.write(json.dumps(data, indent=1, ensure_ascii=False) + "\n")
        return
    for each in found:
        _write_comparison(each, None if all else _SHOWN_TASKS)


def _write_comparison(found: RunComparison, shown: int | None) -> None:
    rows = [_row(env, each) for env, each in found.environments.items()]
    rows += [_row("all", found.overall)] if len(rows) > 1 else []
    sys.stdout.write(f"{found.metric}: {found.first} -> {found.second}\n")
    write_table([("ENVIRONMENT", "TASKS", "FIRST", "SECOND", "DIFFERENCE, 95 %", "P"), *rows])
    if found.unscored:
        sys.stdout.write(f"left out, since all samples of one of the models broke: {found.unscored}\n")
    if found.apart:
        sys.stdout.write(f"left out, since they are in one of the runs only: {found.apart}\n")
    _write_tasks("gained", found.gained, shown)
    _write_tasks("lost", found.lost, shown)


def _row(env: str, each: PairedComparison) -> tuple[str, ...]:
    from arpo_trainer.views.terminal_view import bounds

    interval = f"{each.difference:+.3f} {bounds(each.low, each.high)}"
    return env, f"{each.tasks:,}", f"{each.first:.3f}", f"{each.second:.3f}", interval, f"{each.p_value:.4f}"


def _write_tasks(what: str, tasks: Sequence[ChangedTask], shown: int | None) -> None:
    from arpo_trainer.views.terminal_view import one_line, visible

    sys.stdout.write(f"\ntasks {what}: {len(tasks)}\n")
    kept = tasks[:shown]
    if kept:
        rows = [(f"  {each.env}", visible(each.task), f"{each.first:.2f} -> {each.second:.2f}") for each in kept]
        write_table([(*row, one_line(each.question, _QUESTION)) for row, each in zip(rows, kept, strict=True)])
    if len(kept) < len(tasks):
        sys.stdout.write(f"  and {len(tasks) - len(kept)} more: --all lists them\n")


@evaluate.command
def merge(*folders: Path, output: Path | None = None, partial: Flag = False) -> int:
    """Join the shards of an evaluation or of a synthesis.

    Args:
        folders: a folder with shards, or the shards
        output: where the whole is written (default: the folder)
        partial: join what there is, though parts are missing
    """
    from arpo_trainer.evaluation.episode_store import KIND
    from arpo_trainer.evaluation.eval_shard import merge_shards

    found = merge_shards(folders, output, partial)
    if found.facts["kind"] == KIND:
        return write_summary(found, found.facts["settings"]["max_broken"])
    sys.stdout.write(f"{len(found.rows)} samples in {found.folder}; choose and write the training rows with\n")
    sys.stdout.write(f"arpo synth --resume --output {found.folder}\n")
    return 0


@evaluate.command
def export(run: Run, /, *, format: str, output: Path) -> None:
    """Write a run in the format of the papers' code, of lm-evaluation-harness, or of Inspect.

    Args:
        run: the run
        format: papers, lm-eval or inspect
        output: the folder where the files go
    """
    from arpo_trainer.evaluation.episode_store import load_eval_run
    from arpo_trainer.evaluation.log_formats import export_run

    write_lines(export_run(load_eval_run(run), format, output))


_SHOWN_DISAGREEMENTS = 5


@evaluate.command
def score(
    run: Run,
    /,
    *,
    scorer: str | None = None,
    function: str | None = None,
    reward: str | None = None,
    judge_model: str | None = None,
    name: str | None = None,
    max_broken: float = 0.02,
) -> int:
    """Grade the stored answers of a run again, with another grader, judge, function or reward.

    Args:
        run: the run
        scorer: auto, math, qa, em, mcq, gaia or judge
        function: a function of (answer, task) as MODULE:NAME; may be async
        reward: paper, reference, {TERM: WEIGHT}, or MODULE:NAME
        judge_model: the model of --scorer judge, at OPENAI_BASE_URL with the key OPENAI_API_KEY
        name: of the files in RUN/scores (default: what grades)
        max_broken: share of answers without a verdict above which the status is not 0
    """
    from arpo_trainer.evaluation import rescoring
    from arpo_trainer.evaluation.episode_store import load_eval_run
    from envs_registry.spec import load_object

    chosen({"--scorer": scorer, "--function": function, "--reward": reward}, needed=True)
    if not 0 <= max_broken <= 1:
        raise ValueError(f"--max-broken is a share between 0 and 1, got {max_broken}")
    if (scorer == "judge") != bool(judge_model):
        raise ValueError("--scorer judge and --judge-model NAME go together")
    stored = load_eval_run(run)
    if scorer:
        what, about = _grader(scorer, judge_model)
    elif function:
        what, about = rescoring.function_scorer(load_object(function, "--function")), {"function": function}
    else:
        what, about = rescoring.reward_scorer(rescoring.read_reward(str(reward))), {"reward": reward}
    found = asyncio.run(rescoring.rescore(stored, _file_name(name, about), what, about))
    rescoring.write_rescored(found)
    _write_rescored(found)
    broken = sum(found.broken.values())
    if broken / max(1, found.answers) > max_broken:
        causes = ", ".join(f"{cause} {count}" for cause, count in found.broken.items())
        many = f"{broken} of {found.answers} answers have no verdict ({causes})"
        sys.stderr.write(f"{many}; the same command tries them again\n")
        return 1
    return 0


def _grader(scorer: str, model: str | None) -> tuple[Any, dict[str, Any]]:
    from arpo_env.chat_model import ChatModel
    from arpo_env.grading import make_grader
    from arpo_env.grading.llm_judge import VERSION
    from arpo_trainer.evaluation.rescoring import function_scorer

    if not model:
        return function_scorer(make_grader(scorer).grade), {"scorer": scorer}
    judge = make_grader("judge", chat=ChatModel(model))
    return function_scorer(judge.grade), {"scorer": scorer, "model": model, "prompt": VERSION}


def _file_name(name: str | None, about: Mapping[str, Any]) -> str:
    if name is not None:
        if not re.fullmatch(r"[\w-][\w.-]*", name):
            raise ValueError(f"--name {name!r}: use letters, digits, '-', '_' and '.'")
        return name
    words = "-".join(str(about[key]) for key in ("scorer", "model", "function", "reward") if key in about)
    return re.sub(r"[^\w.-]+", "-", words).strip("-.")


def _write_rescored(found: Rescored) -> None:
    from arpo_trainer.views.terminal_view import visible

    rows = [("MODEL", "ENVIRONMENT", "ACCURACY", "MEAN SCORE", "ANSWERS", "BROKEN", "AGREEMENT", "KAPPA")]
    for each in found.scores:
        both = each["agreement"] or {}
        agreed = (f"{both['share']:.3f}", f"{both['kappa']:.3f}") if both else ("-", "-")
        samples = str(each["value"]["samples"]) if each["value"] else "0"
        cells = (_stored_interval(each["accuracy"]), _stored_interval(each["value"]), samples, str(each["broken"]))
        rows.append((each["model"], each["env"], *cells, *agreed))
    write_table(rows)
    if found.agreement is not None:
        both_graded = f"of {found.agreement.answers} answers that both graded"
        sys.stdout.write(f"\n{len(found.disagreements)} {both_graded} have another verdict than in the run\n")
    for each in found.disagreements[:_SHOWN_DISAGREEMENTS]:
        text = {name: each[name] for name in ("question", "answers", "answer", "before", "now")}
        # JSON has no escapes for some control characters
        sys.stdout.write("  " + visible(json.dumps(text, ensure_ascii=False)) + "\n")
    sys.stdout.write(f"{found.path}\n{found.path.with_suffix('.disagreements.jsonl')}\n")


def _stored_interval(data: dict[str, Any] | None) -> str:
    if data is None:
        return "-"
    if data["low"] is None:
        return f"{data['mean']:.3f}"
    return f"{data['mean']:.3f} [{data['low']:.3f}, {data['high']:.3f}]"


# `arpo synth`: cold-start data from questions, sampled from any model and checked.

_MADE = (
    "tasks direct tir opening easy hard min_score max_calls max_failed max_tokens max_per_task hints all_questions "
    "against format seed concurrency max_broken cache cache_mode"
)
Made = options_of(SynthSettings, *_MADE.split())


def synth(
    *names: Annotated[str, Parameter(help="ids of environments whose questions are taken")],
    config: Config = None,
    output: Output = None,
    models: ModelOptions | None = None,
    price: Price = (),
    env_set: EnvSet = (),
    given: Made | None = None,  # type: ignore[valid-type]
    temperature: Annotated[float | None, Parameter(help="of sampling; 0 is greedy (default 0.8)")] = None,
    settings: set_option("other settings of rollouts: top_p=1 max_turn_length=1024") = (),  # type: ignore[valid-type]
    limit: Limit = (),
    ray: Ray = None,
    rollout_workers: RolloutWorkerCount = 0,
    shard: Shard = None,
    resume: Resume = False,
    retry: Annotated[Flag, Parameter(help="with --resume: sample what broke again, too")] = False,
) -> int:
    """Make cold-start data from questions with a model: `arpo synth ENV ... --model MODEL ... --output FOLDER`."""
    require("train")
    from arpo_trainer.evaluation.eval_session import progress
    from arpo_trainer.synthesis.synth_session import NothingLeft, broken_samples, stored_settings, synthesise

    models = models or ModelOptions()
    models.price = price
    values, folder = _from_file(config, models)
    output = output or folder
    if output is None:
        raise ValueError("say where the samples are written: --output FOLDER")
    part = read_shard(shard) if shard else None
    target = part.folder(output) if part else output
    # what decides how many and which is replaced by options
    stored = stored_settings(target).as_dict() if resume and (target / "run.json").is_file() else {}
    changed = {
        "env_options": parse_assignments(env_set, "--env-set"),
        "rollout": given_with_set({} if temperature is None else {"temperature": temperature}, settings),
    }
    base = {**stored, **values}
    merged = {name: {**(base.get(name) or {}), **found} for name, found in changed.items()}
    asked: dict[str, Any] = {**(given or {}), **({"limits": read_counts(limit, "--limit")} if limit else {})}
    asked |= {"environments": names} if names else {}
    made = SynthSettings.from_dict({**base, **merged, **asked, "models": {}})
    if not (models.named or stored):
        raise ValueError("name the models: --model FOLDER_OR_HUB_ID ...")
    played = models.again(stored["models"]) if stored else models.read()
    how: dict[str, Any] = {"resume": resume, "repeat_broken": retry, "shard": part}
    try:
        with opened_workers(ray, rollout_workers, made.play, played) as workers, progress() as add:
            report = synthesise(made, played, output, workers=workers, progress=add, **how)
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


def _from_file(config: str | None, options: ModelOptions) -> tuple[dict[str, Any], Path | None]:
    """Return the settings of a file and its folder; models that it names become options, if those name none."""
    if config is None:
        return {}, None
    if not Path(config).is_file():
        raise FileNotFoundError(f"no settings file {config!r}")
    values, named = read_settings(config, command="synth"), options.named
    for name, given in list(vars(options).items()):
        value = values.pop(name, None)
        if value is not None and not named and not given:
            value = tuple(value) if isinstance(value, list) else (value,) if isinstance(given, tuple) else value
            setattr(options, name, value)
    folder = values.pop("output_dir", None)
    return values, folder and Path(folder)
