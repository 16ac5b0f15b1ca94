"""The `arpo rollout` command: plays tasks of an environment as trees, and records them.

arpo rollout arpo/MultiHop-v0 --model FOLDER --tasks 4 --output rollouts/multihop
arpo rollout arpo/GSM8K-v0 --model FOLDER --tasks 100 --num-generations 1 --temperature 0     # an evaluation
arpo rollout arpo/MultiHop-v0 --model FOLDER --vllm-server http://127.0.0.1:8000              # FOLDER: tokenizer
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from arpo_trainer.cli.command_options import (
    Env,
    EnvSet,
    Limit,
    Ray,
    RolloutWorkerCount,
    Words,
    check_endpoint,
    chosen,
    given_with_set,
    options_of,
    read_counts,
    set_option,
    write_table,
)
from arpo_trainer.make_env import make_env
from arpo_trainer.optional_dependencies import require
from arpo_trainer.rollout.settings import RolloutSettings
from arpo_trainer.run.recipes import parse_assignments
from arpo_trainer.validation import nearest_names

if TYPE_CHECKING:
    from arpo_env import ToolEnv
    from arpo_trainer.tree import RolloutTree


# The summary that `arpo rollout` prints: scores, branches, tool calls, waits and speed.
#
# `rollout.metrics` computes the same numbers under the names of a training log.


def summary_table(trees: Sequence[RolloutTree]) -> list[tuple[str, str]]:
    """Return the summary as rows of a table: name, value."""
    from arpo_trainer.rollout.metrics import invalid_causes, rollout_metrics

    seen = rollout_metrics(trees)
    trajectories = [trajectory for tree in trees for trajectory in tree.trajectories]
    causes = ", ".join(f"{name} {count}" for name, count in invalid_causes(trajectories).items())
    names = sorted(name.removeprefix("tool_calls/") for name in seen if name.startswith("tool_calls/"))
    calls = [f"{name} {seen[f'tool_calls/{name}']:.0f} ({seen[f'tool_seconds/{name}']:.2f} s)" for name in names]
    # shorter waits would be shown as 0.00 s
    waits = [f"{name[5:]} {value:.2f} s" for name, value in seen.items() if name.startswith("wait/") and value >= 0.005]
    return [
        ("TASKS", f"{len(trees)}, {len(trajectories)} trajectories"),
        ("NOT SCORED", causes or "none"),
        *_scores(trees),
        *_tree_rows(seen),
        ("TOOL CALLS", ", ".join(calls) or "none"),
        *_withheld_rows(seen),
        ("WAITS", ", ".join(waits) + " per trajectory" if waits else "none"),
        ("WAITING", f"{100 * seen.get('wait_share', 0):.1f} % of a trajectory's time"),
        ("MODEL", _model_use(seen)),
    ]


def _tree_rows(seen: Mapping[str, float]) -> list[tuple[str, str]]:
    kept = seen["branches"] + seen["top_ups"]
    if not kept:
        return [("BRANCHES", "none: all trajectories started at the prompt")]
    rows = [("BRANCHES", f"{seen['branches']:.0f} of the {kept:.0f} in the budget; depth {seen['depth']:.0f}")]
    if "fork_contrast" in seen:
        contrast, result = 100 * seen["fork_contrast"], seen["fork_result"]
        rows.append(("FORKS", f"rewards differ at {contrast:.0f} % of them; on average after result {result:.1f}"))
    return rows


def _withheld_rows(seen: Mapping[str, float]) -> list[tuple[str, str]]:
    many = seen["withheld"]
    return [("WITHHELD", f"{many:.0f} results did not fit: raise max_completion_length")] if many else []


def _model_use(seen: Mapping[str, float]) -> str:
    return (
        f"{seen['tokens_generated']:,.0f} tokens, {seen.get('tokens_per_second', 0):,.0f} per second; "
        f"idle {100 * seen.get('model_idle', 0):.1f} %; context from cache {100 * seen.get('cache_hits', 0):.1f} %"
    )


def _scores(trees: Sequence[RolloutTree]) -> list[tuple[str, str]]:
    """Return reward and accuracy of the independent samples, with 95 % intervals over tasks."""
    from arpo_trainer.statistics import bootstrap_interval, wilson_interval

    samples = [[tree.trajectories[number] for number in tree.samples()] for tree in trees]
    scored = [valid for each in samples if (valid := [t for t in each if t.valid])]
    if not scored:
        return []
    rewards = [_mean([t.reward or 0.0 for t in valid]) for valid in scored]
    # partly right answers do not count, as in evaluations
    right = [[float(t.components.get("accuracy", 0.0) >= 1.0) for t in valid] for valid in scored]
    shares = [_mean(of) for of in right]
    single = all(len(tree.trajectories) == 1 for tree in trees)
    # Wilson's interval is for one yes or no per task; with several trajectories a task has a share
    low, high = wilson_interval(sum(shares), len(shares)) if single else bootstrap_interval(shares)
    rows = [
        ("REWARD", _with_interval(_mean(rewards), *bootstrap_interval(rewards), len(scored))),
        ("ACCURACY", _with_interval(_mean(shares), low, high, len(scored))),
    ]
    if not single:
        solved = sum(any(t.components.get("accuracy", 0.0) >= 1.0 for t in tree.trajectories) for tree in trees)
        rows.append(("SOLVED", f"{solved} of {len(trees)} tasks at least once, branches included"))
    return rows


def _with_interval(value: float, low: float, high: float, tasks: int) -> str:
    # one task tells nothing about the spread between tasks
    return f"{value:.3f} [{low:.3f}, {high:.3f}], 95 % over tasks" if tasks > 1 else f"{value:.3f}"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


logger = logging.getLogger(__name__)

_KIND = "rollout"
_FILES = ("run.json", "traces.jsonl", "metrics.jsonl", "eval.jsonl")
_DEFAULTS = {"num_generations": 8, "temperature": 1.0, "max_turn_length": 256, "max_completion_length": 4096, "seed": 0}
_WITH_FLAG = ("algorithm", "initial_rollouts", *_DEFAULTS)
_WITHOUT_FLAG = (
    *("branch_alpha", "branch_beta", "branch_threshold", "branch", "branch_width", "branch_penalty", "branch_quota"),
    *("budget", "budget_beta", "entropy_window", "turn_timeout", "retries"),
)
_ENTROPIES = {"entropy_estimator": "estimator", "entropy_topk": "topk"}  # settings of the backend, by its names
_WITHOUT_ENTROPY = (None, "random", "tree-grpo")  # branch methods
Given = options_of(RolloutSettings, *_WITH_FLAG, usual={**_DEFAULTS, "initial_rollouts": "M / 2"})


@Parameter(name="*")
@dataclass
class Where:
    """Which model plays, and where.

    Attributes:
        model: a folder, a hub id, or smollm2-135m-instruct; with a server or an endpoint only its tokenizer is loaded
        vllm_server: generate on vLLM servers at these addresses
        endpoint: generate on an OpenAI-compatible endpoint at this address
        endpoint_model: the model's name at the endpoint
        ray: play on a Ray cluster
        rollout_workers: Ray actors that play
    """

    model: str
    vllm_server: Words = ()
    endpoint: str | None = None
    endpoint_model: str | None = None
    ray: Ray = None
    rollout_workers: RolloutWorkerCount = 0

    def check(self) -> None:
        """Refuse options that do not go together."""
        chosen({"--vllm-server": self.vllm_server, "--endpoint": self.endpoint})
        check_endpoint(self.endpoint, self.endpoint_model)
        if (self.ray or self.rollout_workers) and not (self.vllm_server or self.endpoint):
            raise ValueError(
                "--ray and --rollout-workers need --vllm-server or --endpoint: actors reach no model of this process"
            )


def rollout(
    env: Env,
    /,
    *,
    where: Where,
    env_set: EnvSet = (),
    tasks: Annotated[int, Parameter(help="play the first N tasks")] = 4,
    output: Annotated[Path, Parameter(help="folder of the records")] = Path("rollout"),
    flags: Given | None = None,  # type: ignore[valid-type]
    limit: Limit = (),
    settings: set_option("other settings: branch_quota=0 budget=aepo entropy_estimator=nll") = (),  # type: ignore[valid-type]
) -> int:
    """Play tasks as trees, record them, and print a summary."""
    from arpo_trainer.rollout.live_trajectory import check_limits

    where.check()
    if tasks < 1:
        raise ValueError(f"--tasks must be at least 1, got {tasks}")
    # settings and folder are checked before the training stack, the tasks and the model are loaded
    given, limits = given_settings(flags or {}, settings, where.endpoint), read_counts(limit, "--limit")
    grown = _rollout_settings(given, where.endpoint)
    _check_folder(output)
    require("train")
    options = parse_assignments(env_set, "--env-set")
    made = make_env(env, options)
    made.check()
    try:
        check_limits(limits, list(made.tools))
        facts = _facts(env, options, tasks, output, where, given, limits)
        trees = _play(where, made, grown, limits, facts, tasks, output)
    finally:
        made.close()
    write_table(summary_table(trees))
    sys.stdout.write(f"\narpo view timeline {output}\narpo report {output}\n")
    # a script can tell from the status that nothing could be scored
    return 0 if any(trajectory.valid for tree in trees for trajectory in tree.trajectories) else 1


def given_settings(flags: Mapping[str, Any], texts: Sequence[str], endpoint: str | None = None) -> dict[str, Any]:
    """Return the settings by their names in `ARPOConfig`: defaults, flags and `--set`."""
    known = (*_WITHOUT_FLAG, *_ENTROPIES, *_WITH_FLAG)
    more = given_with_set(flags, texts)
    for name in more:
        if name not in known:
            raise ValueError(f"--set {name}: no such setting here; there is {nearest_names(name, known) or known}")
    if endpoint and (asked := sorted(set(more) & set(_ENTROPIES))):
        raise ValueError(f"--set {', '.join(asked)}: an endpoint returns no entropies")
    given = {"algorithm": "grpo" if endpoint else "arpo", **_DEFAULTS, **more}
    # a default that depends on another setting; a value that was given replaces it
    return {"initial_rollouts": max(1, given["num_generations"] // 2), **given}


def _rollout_settings(given: dict[str, Any], endpoint: str | None) -> RolloutSettings:
    """Return the settings of the engine; failures are counted and stop nothing, since nothing is trained."""
    settings = RolloutSettings(**{n: value for n, value in given.items() if n not in _ENTROPIES}, max_invalid=1.0)
    parts = settings.parts
    if endpoint and (parts.branch not in _WITHOUT_ENTROPY or parts.budget_rule.needs_entropies):
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


def _play(
    where: Where,
    env: ToolEnv,
    settings: RolloutSettings,
    limits: dict[str, int],
    facts: dict[str, Any],
    tasks: int,
    output: Path,
) -> list[RolloutTree]:
    from tqdm import tqdm

    from arpo_env.event_loop import run
    from arpo_trainer.ray_rollouts import RayEngine
    from arpo_trainer.rollout.engine import Engine
    from arpo_trainer.training.config import RolloutWorkerSettings, on_workers
    from arpo_trainer.training.evaluation import summarise
    from arpo_trainer.training.recorder import RunRecorder

    count = min(tasks, env.tasks.size or tasks)
    tokenizer, backend = _model(where, facts["settings"])
    workers = RolloutWorkerSettings(rollout_workers=where.rollout_workers, ray_address=where.ray)
    engine = on_workers(Engine(backend, tokenizer, env, settings, limits=limits), workers)
    recorder: RunRecorder | None = None
    # what run.json says if an error ends the rollout
    status = "failed"

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
    where: Where,
    given: dict[str, Any],
    limits: dict[str, int],
) -> dict[str, Any]:
    """Return the contents of run.json, without the passwords and keys that URLs may contain."""
    from arpo_env.net import strip_credentials

    # the command line itself is not kept: it holds the URLs as they were typed
    shown = {name: strip_credentials(v) if isinstance(v, str) and "://" in v else v for name, v in options.items()}
    settings = {
        **given,
        **{"env": env, "tasks": tasks, "output": output, "env_kwargs": shown, "limit": limits},
        **{"model": where.model, "endpoint_model": where.endpoint_model},
        "endpoint": where.endpoint and strip_credentials(where.endpoint),
        "vllm_server": [strip_credentials(url) for url in where.vllm_server],
    }
    return {
        "name": output.resolve().name,
        "kind": _KIND,
        "env": {"id": env, "kwargs": shown},
        "seed": given["seed"],
        "model": where.endpoint_model or where.model,
        "algorithm": given["algorithm"],
        "settings": settings,
    }


def _model(where: Where, settings: dict[str, Any]) -> tuple[Any, Any]:
    """Return the tokenizer and the backend."""
    from transformers import AutoTokenizer

    from arpo_trainer.demo_model import resolve_model

    path = resolve_model(where.model)
    tokenizer = AutoTokenizer.from_pretrained(path)
    entropy = {_ENTROPIES[name]: value for name, value in settings.items() if name in _ENTROPIES}
    if where.vllm_server:
        from arpo_trainer.backends import VLLMServerBackend

        return tokenizer, VLLMServerBackend(list(where.vllm_server), tokenizer=tokenizer, **entropy)
    if where.endpoint:
        from arpo_trainer.backends import EndpointBackend

        return tokenizer, EndpointBackend(str(where.endpoint_model), where.endpoint, tokenizer=tokenizer)
    return tokenizer, _transformers_backend(path, tokenizer, entropy)


def _transformers_backend(path: str, tokenizer: Any, entropy: dict[str, Any]) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    from arpo_trainer.backends import transformers_backend

    gpu = torch.cuda.is_available()
    model = AutoModelForCausalLM.from_pretrained(path, dtype="auto" if gpu else torch.float32)
    return transformers_backend(model.to("cuda" if gpu else "cpu"), tokenizer, **entropy)
