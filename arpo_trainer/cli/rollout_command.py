"""The `arpo rollout` command: plays tasks of an environment as trees, and records them.

arpo rollout arpo/MultiHop-v0 --model FOLDER --tasks 4 --output rollouts/multihop
arpo rollout arpo/GSM8K-v0 --model FOLDER --tasks 100 --num-generations 1 --temperature 0     # an evaluation
arpo rollout arpo/MultiHop-v0 --model FOLDER --vllm-server http://127.0.0.1:8000              # FOLDER: tokenizer
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arpo_trainer.algorithms.registry import ALGORITHMS
from arpo_trainer.cli.command_options import (
    ENV_HELP,
    add_command,
    add_env_options,
    add_set_option,
    read_counts,
    read_env_options,
    write_table,
)
from arpo_trainer.make_env import make_env
from arpo_trainer.optional_dependencies import require
from arpo_trainer.run.recipes import parse_assignments
from arpo_trainer.validation import nearest_names

if TYPE_CHECKING:
    from arpo_env import ToolEnv
    from arpo_trainer.rollout.settings import RolloutSettings
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


def add_rollout_command(commands: Any) -> None:
    """Add the command to a parser."""
    purpose, usage = "play tasks as trees, record them, and print a summary", "arpo rollout ENV --model MODEL [options]"
    rollout = add_command(commands, "rollout", _rollout, purpose, usage)
    rollout.add_argument("env", metavar="ENV", help=ENV_HELP)
    _add_model_options(rollout)
    add_env_options(rollout)
    rollout.add_argument("--tasks", type=int, default=4, metavar="N", help="play the first N tasks (default 4)")
    rollout.add_argument("--output", type=Path, default=Path("rollout"), metavar="FOLDER", help="default: rollout")
    _add_settings_options(rollout)


def _add_model_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        required=True,
        help="a folder, a hub id, or smollm2-135m-instruct; with a server or an endpoint only its tokenizer is loaded",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--vllm-server", nargs="+", action="extend", metavar="URL", help="generate on vLLM servers")
    where.add_argument("--endpoint", metavar="URL", help="generate on an OpenAI-compatible endpoint")
    parser.add_argument("--endpoint-model", metavar="NAME", help="the model's name at the endpoint")
    parser.add_argument("--ray", metavar="ADDRESS", help="play on a Ray cluster: HOST:PORT, or auto")
    parser.add_argument(
        "--rollout-workers", type=int, default=0, metavar="N", help="Ray actors that play (default: one on each node)"
    )


def _add_settings_options(parser: argparse.ArgumentParser) -> None:
    algorithms = f"{', '.join(name for name in ALGORITHMS if name != 'grpo')}, or grpo (default with an endpoint)"
    parser.add_argument("--algorithm", metavar="NAME", help=f"default arpo; one of {algorithms}")
    parser.add_argument("--num-generations", type=int, metavar="M", help="trajectories per task (default 8)")
    parser.add_argument("--initial-rollouts", type=int, metavar="N", help="of them from the prompt (default M / 2)")
    parser.add_argument("--temperature", type=float, metavar="T", help="of sampling; 0 is greedy (default 1)")
    parser.add_argument("--max-turn-length", type=int, metavar="TOKENS", help="of one turn (default 256)")
    parser.add_argument(
        "--max-completion-length", type=int, metavar="TOKENS", help="after the prompt, with results (default 4096)"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="of all random choices (default 0)")
    limits = "most concurrent operations of a kind: python=8, search=16, generate=64"
    parser.add_argument("--limit", nargs="+", action="extend", default=[], metavar="KIND=N", help=limits)
    add_set_option(parser, "other settings, with values in YAML: branch_quota=0, budget=aepo, entropy_estimator=nll")


def _rollout(arguments: argparse.Namespace) -> int:
    from arpo_trainer.rollout.live_trajectory import check_limits

    if bool(arguments.endpoint) != bool(arguments.endpoint_model):
        raise ValueError("--endpoint URL and --endpoint-model NAME go together: give both, or neither")
    if (arguments.ray or arguments.rollout_workers) and not (arguments.vllm_server or arguments.endpoint):
        raise ValueError(
            "--ray and --rollout-workers need --vllm-server or --endpoint: actors reach no model of this process"
        )
    if arguments.tasks < 1:
        raise ValueError(f"--tasks must be at least 1, got {arguments.tasks}")
    # settings and folder are checked before the training stack, the tasks and the model are loaded
    given, limits = _given_settings(arguments), read_counts(arguments.limit, "--limit")
    settings = _rollout_settings(given, arguments.endpoint)
    _check_folder(arguments.output)
    require("train")
    options = read_env_options(arguments)
    env = make_env(arguments.env, options)
    env.check()
    try:
        check_limits(limits, list(env.tools))
        facts = _facts(arguments, options, given, limits)
        trees = _play(arguments, env, settings, limits, facts)
    finally:
        env.close()
    write_table(summary_table(trees))
    sys.stdout.write(f"\narpo view timeline {arguments.output}\narpo report {arguments.output}\n")
    # a script can tell from the status that nothing could be scored
    return 0 if any(trajectory.valid for tree in trees for trajectory in tree.trajectories) else 1


def _given_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the settings by their names in `ARPOConfig`: defaults, flags and `--set`.

    Raises:
        ValueError: a setting is unknown, is given twice, or needs entropies from an endpoint.
    """
    more, known = parse_assignments(arguments.set, "--set"), (*_WITHOUT_FLAG, *_ENTROPIES, *_WITH_FLAG)
    flags = {name: getattr(arguments, name) for name in _WITH_FLAG if getattr(arguments, name) is not None}
    for name in more:
        if name not in known:
            raise ValueError(f"--set {name}: no such setting here; there is {nearest_names(name, known) or known}")
        if name in flags:
            raise ValueError(f"--set {name} and --{name.replace('_', '-')} set the same: give only one of them")
    if arguments.endpoint and (asked := sorted(set(more) & set(_ENTROPIES))):
        raise ValueError(f"--set {', '.join(asked)}: an endpoint returns no entropies")
    given = {"algorithm": "grpo" if arguments.endpoint else "arpo", **_DEFAULTS, **flags, **more}
    # a default that depends on another setting; a value that was given replaces it
    return {"initial_rollouts": max(1, given["num_generations"] // 2), **given}


def _rollout_settings(given: dict[str, Any], endpoint: str | None) -> RolloutSettings:
    """Return the settings of the engine; failures are counted and stop nothing, since nothing is trained.

    Raises:
        ValueError: the settings cannot work, or need entropies from an endpoint.
    """
    from arpo_trainer.rollout.settings import RolloutSettings

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
    arguments: argparse.Namespace,
    env: ToolEnv,
    settings: RolloutSettings,
    limits: dict[str, int],
    facts: dict[str, Any],
) -> list[RolloutTree]:
    from tqdm import tqdm

    from arpo_env.event_loop import run
    from arpo_trainer.ray_rollouts import RayEngine
    from arpo_trainer.rollout.engine import Engine
    from arpo_trainer.training.config import RolloutWorkerSettings, on_workers
    from arpo_trainer.training.evaluation import summarise
    from arpo_trainer.training.recorder import RunRecorder

    count = min(arguments.tasks, env.tasks.size or arguments.tasks)
    tokenizer, backend = _model(arguments, facts["settings"])
    workers = RolloutWorkerSettings(rollout_workers=arguments.rollout_workers, ray_address=arguments.ray)
    engine = on_workers(Engine(backend, tokenizer, env, settings, limits=limits), workers)
    recorder: RunRecorder | None = None
    # what run.json says if an error ends the rollout
    status = "failed"

    def keep(tree: RolloutTree) -> None:
        nonlocal recorder
        if recorder is None:  # not earlier: an earlier rollout is kept until there is something in its place
            for name in _FILES:
                (arguments.output / name).unlink(missing_ok=True)
            recorder = RunRecorder(arguments.output)
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
        logger.warning(f"complete trees are in {arguments.output}" if recorder else "no tree was complete")
        raise
    finally:
        if isinstance(engine, RayEngine):
            engine.workers.close()
        if recorder:
            recorder.write_facts(status=status)
    return trees


def _facts(
    arguments: argparse.Namespace, options: dict[str, Any], given: dict[str, Any], limits: dict[str, int]
) -> dict[str, Any]:
    """Return the contents of run.json, without the passwords and keys that URLs may contain."""
    from arpo_env.net import strip_credentials

    # the command line itself is not kept: it holds the URLs as they were typed
    shown = {name: strip_credentials(v) if isinstance(v, str) and "://" in v else v for name, v in options.items()}
    names = ("env", "tasks", "output", "model", "endpoint_model")
    settings = {
        **given,
        **{name: getattr(arguments, name) for name in names},
        "env_kwargs": shown,
        "limit": limits,
        "set": parse_assignments(arguments.set, "--set"),
        "endpoint": arguments.endpoint and strip_credentials(arguments.endpoint),
        "vllm_server": [strip_credentials(url) for url in arguments.vllm_server or []],
    }
    return {
        "name": arguments.output.resolve().name,
        "kind": _KIND,
        "env": {"id": arguments.env, "kwargs": shown},
        "seed": given["seed"],
        "model": arguments.endpoint_model or arguments.model,
        "algorithm": given["algorithm"],
        "settings": settings,
    }


def _model(arguments: argparse.Namespace, settings: dict[str, Any]) -> tuple[Any, Any]:
    """Return the tokenizer and the backend."""
    from transformers import AutoTokenizer

    from arpo_trainer.demo_model import resolve_model

    path = resolve_model(arguments.model)
    tokenizer = AutoTokenizer.from_pretrained(path)
    entropy = {_ENTROPIES[name]: value for name, value in settings.items() if name in _ENTROPIES}
    if arguments.vllm_server:
        from arpo_trainer.backends import VLLMServerBackend

        return tokenizer, VLLMServerBackend(arguments.vllm_server, tokenizer=tokenizer, **entropy)
    if arguments.endpoint:
        from arpo_trainer.backends import EndpointBackend

        return tokenizer, EndpointBackend(arguments.endpoint_model, arguments.endpoint, tokenizer=tokenizer)
    return tokenizer, _transformers_backend(path, tokenizer, entropy)


def _transformers_backend(path: str, tokenizer: Any, entropy: dict[str, Any]) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    from arpo_trainer.backends import transformers_backend

    gpu = torch.cuda.is_available()
    model = AutoModelForCausalLM.from_pretrained(path, dtype="auto" if gpu else torch.float32)
    return transformers_backend(model.to("cuda" if gpu else "cpu"), tokenizer, **entropy)
