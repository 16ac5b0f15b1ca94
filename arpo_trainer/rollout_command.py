"""The `arpo rollout` command: play tasks of an environment as trees, and write them down.

arpo rollout --env arpo/MultiHop-v0 --model FOLDER --tasks 4 --output rollouts/multihop
arpo rollout --env arpo/GSM8K-v0 --model FOLDER --tasks 100 --num-generations 1 --temperature 0     # an evaluation
arpo rollout --env arpo/MultiHop-v0 --model FOLDER --vllm-server http://127.0.0.1:8000              # FOLDER: tokenizer
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arpo_trainer.options import read_counts, read_options
from arpo_trainer.table import write_table

if TYPE_CHECKING:
    from arpo_env import ToolEnv
    from arpo_trainer.settings import RolloutSettings
    from arpo_trainer.tree import RolloutTree

_KIND = "rollout"


def add_rollout_command(commands: Any) -> None:
    """Add the command to a parser."""
    purpose = "play tasks as trees, write them down, and say how it went"
    rollout = commands.add_parser("rollout", help=purpose, description=purpose)
    rollout.add_argument("--env", required=True, help="environment id, such as arpo/MultiHop-v0")
    rollout.add_argument(
        "--env-kwargs", nargs="+", action="extend", default=[], metavar="NAME=VALUE", help="its options"
    )
    rollout.add_argument("--tasks", type=int, default=4, metavar="N", help="the first N of the environment (default 4)")
    rollout.add_argument("--output", type=Path, default=Path("rollout"), metavar="DIR", help="default: rollout")
    rollout.add_argument("--limit", nargs="+", action="extend", default=[], metavar="NAME=N",
                         help="at most so many at once: python=8, generate=32, trajectory=64")  # fmt: skip
    _add_model(rollout)
    _add_settings(rollout)
    rollout.set_defaults(run=_rollout)


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, help="a folder, a hub id, or smollm2-135m-instruct; with a server or "
                                                       "an endpoint only its tokenizer is loaded")  # fmt: skip
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--vllm-server", nargs="+", action="extend", metavar="URL", help="generate on vLLM servers")
    where.add_argument("--endpoint", metavar="URL", help="generate on an OpenAI-compatible endpoint")
    parser.add_argument("--endpoint-model", metavar="NAME", help="the model's name there")


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--algorithm", default="arpo", help="how trees grow: arpo (default), aepo, grpo, ...")
    parser.add_argument("--num-generations", type=int, default=8, metavar="M", help="trajectories a task (default 8)")
    parser.add_argument("--initial-rollouts", type=int, metavar="N", help="of them from the prompt (default half)")
    parser.add_argument("--temperature", type=float, default=1.0, help="of sampling; 0 is greedy (default 1)")
    parser.add_argument("--max-turn-tokens", type=int, default=256, help="of the model in one turn (default 256)")
    parser.add_argument("--max-completion-length", type=int, default=1024, help="tokens after the prompt, in all")
    parser.add_argument("--seed", type=int, default=0, help="of everything that is drawn (default 0)")


def _rollout(arguments: argparse.Namespace) -> int:
    if bool(arguments.endpoint) != bool(arguments.endpoint_model):
        raise ValueError("--endpoint URL and --endpoint-model NAME go together: give both, or neither")
    if arguments.tasks < 1:
        raise ValueError(f"--tasks must be at least 1, got {arguments.tasks}")
    settings, limits = _settings(arguments), read_counts(arguments.limit, "--limit")
    _check_folder(arguments.output)
    env = _open(arguments.env, read_options(arguments.env_kwargs, "--env-kwargs"))
    try:
        trees = _play(arguments, env, settings, limits)
    finally:
        env.close()
    write_table(summary_table(trees))
    sys.stdout.write(f"\narpo view timeline {arguments.output}\narpo report {arguments.output}\n")
    return 0 if any(trajectory.valid for tree in trees for trajectory in tree.trajectories) else 1


def _settings(arguments: argparse.Namespace) -> RolloutSettings:
    """Return the settings; nothing is learnt here, so failures are counted and end nothing."""
    from arpo_trainer.settings import RolloutSettings

    initial = arguments.initial_rollouts
    return RolloutSettings(
        arguments.algorithm,
        arguments.num_generations,
        max(1, arguments.num_generations // 2) if initial is None else initial,
        temperature=arguments.temperature,
        max_turn_tokens=arguments.max_turn_tokens,
        max_completion_length=arguments.max_completion_length,
        max_invalid=1.0,
        seed=arguments.seed,
    )


def _check_folder(folder: Path) -> None:
    """Refuse a folder in which something else than a rollout would be lost."""
    from arpo_trainer.report_data import read_facts

    there = [name for name in ("run.json", "traces.jsonl") if (folder / name).exists()]
    ours = "run.json" in there and read_facts(folder / "run.json").get("kind") == _KIND
    if there and not ours:
        raise ValueError(
            f"{str(folder)!r} holds another run ({', '.join(there)}); give a folder of its own as --output"
        )


def _open(env_id: str, options: dict[str, Any]) -> ToolEnv:
    import gymnasium

    import arpo_env  # noqa: F401  (registers the environments)
    from envs_registry import get_spec

    get_spec(env_id)
    env: ToolEnv = gymnasium.make(env_id, **options).unwrapped  # type: ignore[assignment]
    env.check()
    return env


def _play(
    arguments: argparse.Namespace, env: ToolEnv, settings: RolloutSettings, limits: dict[str, int]
) -> list[RolloutTree]:
    from tqdm import tqdm

    from arpo_env.background import run
    from arpo_trainer.engine import Engine
    from arpo_trainer.evaluation import summarise
    from arpo_trainer.recording import RunRecorder

    count = min(arguments.tasks, env.tasks.size or arguments.tasks)
    tokenizer, backend = _model(arguments)
    recorder, status = RunRecorder(arguments.output, _facts(arguments)), "failed"
    try:
        with tqdm(total=count * settings.num_generations, desc="rolling out", unit="trajectory") as bar:
            engine = Engine(backend, tokenizer, env, settings, on_trajectory=bar.update, limits=limits)
            trees = run(engine.rollout([env.tasks.task(number) for number in range(count)]))
        recorder.on_rollout(trees)
        if settings.num_generations == 1 and any(tree.trajectories[0].valid for tree in trees):
            recorder.add_evaluation(summarise(trees, _KIND))
        status = "finished"
    finally:
        recorder.write_facts(status=status)
    return trees


def _facts(arguments: argparse.Namespace) -> dict[str, Any]:
    settings = {name: value for name, value in vars(arguments).items() if name not in ("run", "traceback")}
    env = {"id": arguments.env, "kwargs": read_options(arguments.env_kwargs, "--env-kwargs")}
    named = {"name": arguments.output.name, "kind": _KIND, "env": env, "seed": arguments.seed}
    return {**named, "model": arguments.endpoint_model or arguments.model, "algorithm": arguments.algorithm,
            "settings": settings}  # fmt: skip


def _model(arguments: argparse.Namespace) -> tuple[Any, Any]:
    """Return the tokenizer and what generates."""
    from transformers import AutoTokenizer

    from arpo_trainer.models import check_model_folder
    from arpo_trainer.train import DEMO_MODEL, resolve_model

    if arguments.model != DEMO_MODEL:
        check_model_folder(arguments.model)
    path = resolve_model(arguments.model)
    tokenizer = AutoTokenizer.from_pretrained(path)
    if arguments.vllm_server:
        from arpo_trainer.backends import VLLMServerBackend

        return tokenizer, VLLMServerBackend(arguments.vllm_server, tokenizer=tokenizer)
    if arguments.endpoint:
        from arpo_trainer.backends import EndpointBackend

        return tokenizer, EndpointBackend(arguments.endpoint_model, arguments.endpoint, tokenizer=tokenizer)
    return tokenizer, _transformers(path, tokenizer)


def _transformers(path: str, tokenizer: Any) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    from arpo_trainer.backends import transformers_backend

    gpu = torch.cuda.is_available()
    model = AutoModelForCausalLM.from_pretrained(path, dtype="auto" if gpu else torch.float32)
    return transformers_backend(model.to("cuda" if gpu else "cpu"), tokenizer)


def summary_table(trees: Sequence[RolloutTree]) -> list[tuple[str, str]]:
    """Return how a rollout went, as rows of a table: what, and how much."""
    from arpo_trainer.rollout_metrics import invalid_causes, rollout_metrics

    seen = rollout_metrics(trees)
    trajectories = [trajectory for tree in trees for trajectory in tree.trajectories]
    causes = ", ".join(f"{name} {count}" for name, count in invalid_causes(trajectories).items())
    names = sorted(name.removeprefix("tool_calls/") for name in seen if name.startswith("tool_calls/"))
    calls = [f"{name} {seen[f'tool_calls/{name}']:.0f} ({seen[f'tool_seconds/{name}']:.2f} s)" for name in names]
    waits = [f"{name[5:]} {value:.2f} s" for name, value in seen.items() if name.startswith("wait/") and value >= 0.005]
    kept = seen["branches"] + seen["top_ups"]
    return [
        ("TASKS", f"{len(trees)}, {len(trajectories)} trajectories"),
        ("NOT SCORED", causes or "none"),
        *_scores(trees),
        ("BRANCHES", f"{seen['branches']:.0f} of {kept:.0f} that were kept for them; depth {seen['depth']:.0f}"),
        ("TOOL CALLS", ", ".join(calls) or "none"),
        ("WAITS", ", ".join(waits) + " a trajectory" if waits else "none"),
        ("WAITING", f"{100 * seen.get('wait_share', 0):.1f} % of a trajectory's life"),
        ("MODEL", f"{seen['tokens_generated']:,.0f} tokens, {seen.get('tokens_per_second', 0):,.0f} a second; "
                  f"idle {100 * seen.get('model_idle', 0):.1f} %; "
                  f"context from cache {100 * seen.get('cache_hits', 0):.1f} %"),
    ]  # fmt: skip


def _scores(trees: Sequence[RolloutTree]) -> list[tuple[str, str]]:
    """Return reward and accuracy, with 95 % intervals over the tasks: trajectories of one task are not independent."""
    from arpo_trainer.evaluation import bootstrap_interval, wilson_interval

    scored = [[t for t in tree.trajectories if t.valid] for tree in trees]
    scored = [valid for valid in scored if valid]
    if not scored:
        return []
    rewards = [_mean([t.reward or 0.0 for t in valid]) for valid in scored]
    right = [[float(t.components.get("accuracy", 0.0) >= 1.0) for t in valid] for valid in scored]
    shares = [_mean(of) for of in right]
    single = all(len(tree.trajectories) == 1 for tree in trees)
    low, high = wilson_interval(sum(shares), len(shares)) if single else bootstrap_interval(shares)
    rows = [("REWARD", _with_interval(_mean(rewards), *bootstrap_interval(rewards), len(scored))),
            ("ACCURACY", _with_interval(_mean(shares), low, high, len(scored)))]  # fmt: skip
    if not single:
        rows.append(("SOLVED", f"{sum(any(of) for of in right)} of {len(scored)} tasks at least once"))
    return rows


def _with_interval(value: float, low: float, high: float, tasks: int) -> str:
    return f"{value:.3f} [{low:.3f}, {high:.3f}], 95 % over tasks" if tasks > 1 else f"{value:.3f}"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
