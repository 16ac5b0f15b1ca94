"""The `arpo rollout` command: play tasks of an environment as trees, and write them down.

arpo rollout --env arpo/MultiHop-v0 --model FOLDER --tasks 4 --output rollouts/multihop
arpo rollout --env arpo/GSM8K-v0 --model FOLDER --tasks 100 --num-generations 1 --temperature 0     # an evaluation
arpo rollout --env arpo/MultiHop-v0 --model FOLDER --vllm-server http://127.0.0.1:8000              # FOLDER: tokenizer
"""

from __future__ import annotations

import argparse
import difflib
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arpo_trainer.cli.name_value_options import read_counts, read_options
from arpo_trainer.cli.rollout_summary import summary_table
from arpo_trainer.cli.text_table import write_table
from arpo_trainer.optional_dependencies import require

if TYPE_CHECKING:
    from arpo_env import ToolEnv
    from arpo_trainer.rollout.settings import RolloutSettings
    from arpo_trainer.tree import RolloutTree

logger = logging.getLogger(__name__)

_KIND = "rollout"
_FILES = ("run.json", "traces.jsonl", "metrics.jsonl", "eval.jsonl")
_OTHERS = {  # settings that have no flag, by their names in `ARPOConfig`
    "branch_alpha": "alpha",
    "branch_beta": "beta",
    "branch_threshold": "tau",
    **{name: name for name in ("budget", "branch", "branch_width", "branch_penalty", "branch_quota", "budget_beta",
                               "entropy_window", "turn_timeout", "retries")},
}  # fmt: skip
_ENTROPIES = {"entropy_estimator": "estimator", "entropy_topk": "topk"}  # of those, what the backend takes
_WORDS = ("budget", "branch", "entropy_estimator")  # all others are numbers
_WITHOUT_ENTROPY = (None, "random", "tree-grpo")  # branch methods


def add_rollout_command(commands: Any) -> None:
    """Add the command to a parser."""
    purpose = "play tasks as trees, write them down, and say how it went"
    rollout = commands.add_parser("rollout", help=purpose, description=purpose)
    rollout.add_argument(
        "--env", required=True, help="environment id, such as arpo/MultiHop-v0 or my_envs:mine/Task-v0"
    )
    rollout.add_argument(
        "--env-kwargs", nargs="+", action="extend", default=[], metavar="NAME=VALUE", help="its options"
    )
    rollout.add_argument("--tasks", type=int, default=4, metavar="N", help="the first N of the environment (default 4)")
    rollout.add_argument("--output", type=Path, default=Path("rollout"), metavar="DIR", help="default: rollout")
    rollout.add_argument("--limit", nargs="+", action="extend", default=[], metavar="NAME=N",
                         help="at most so many at once: python=8, search=16, generate=64")  # fmt: skip
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
    parser.add_argument("--algorithm", help="how trees grow: arpo (default), aepo, arpo-ranked, tree-grpo, random, "
                                            "arpo-reference, aepo-reference, or grpo, the default with an "
                                            "endpoint")  # fmt: skip
    parser.add_argument("--num-generations", type=int, default=8, metavar="M", help="trajectories a task (default 8)")
    parser.add_argument("--initial-rollouts", type=int, metavar="N", help="of them from the prompt (default half)")
    parser.add_argument(
        "--temperature", type=float, default=1.0, metavar="T", help="of sampling; 0 is greedy (default 1)"
    )
    parser.add_argument(
        "--max-turn-tokens", type=int, default=256, metavar="N", help="of the model in one turn (default 256)"
    )
    parser.add_argument("--max-completion-length", type=int, default=4096, metavar="TOKENS",
                        help="after the prompt; a search result may have 1000 (default 4096)")  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="of everything that is drawn (default 0)")
    parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="NAME=VALUE",
                        help="more of ARPOConfig: branch_quota=0, budget=aepo, entropy_estimator=nll")  # fmt: skip


def _rollout(arguments: argparse.Namespace) -> int:
    from arpo_trainer.rollout.concurrency import check_limits

    if bool(arguments.endpoint) != bool(arguments.endpoint_model):
        raise ValueError("--endpoint URL and --endpoint-model NAME go together: give both, or neither")
    if arguments.tasks < 1:
        raise ValueError(f"--tasks must be at least 1, got {arguments.tasks}")
    arguments.algorithm = arguments.algorithm or ("grpo" if arguments.endpoint else "arpo")
    settings, limits = _settings(arguments), read_counts(arguments.limit, "--limit")
    _check_folder(arguments.output)
    require("train")
    env = _open(arguments.env, read_options(arguments.env_kwargs, "--env-kwargs"))
    try:
        check_limits(limits, list(env.tools))
        trees = _play(arguments, env, settings, limits)
    finally:
        env.close()
    write_table(summary_table(trees))
    sys.stdout.write(f"\narpo view timeline {arguments.output}\narpo report {arguments.output}\n")
    return 0 if any(trajectory.valid for tree in trees for trajectory in tree.trajectories) else 1


def _settings(arguments: argparse.Namespace) -> RolloutSettings:
    """Return the settings; nothing is learnt here, so failures are counted and end nothing.

    Raises:
        ValueError: settings that cannot work, or need entropies from an endpoint, which tells none.
    """
    from arpo_trainer.rollout.settings import RolloutSettings

    initial = arguments.initial_rollouts
    settings = RolloutSettings(
        arguments.algorithm,
        arguments.num_generations,
        max(1, arguments.num_generations // 2) if initial is None else initial,
        temperature=arguments.temperature,
        max_turn_tokens=arguments.max_turn_tokens,
        max_completion_length=arguments.max_completion_length,
        max_invalid=1.0,
        seed=arguments.seed,
        **{_OTHERS[name]: value for name, value in _more(arguments).items() if name in _OTHERS},
    )
    parts = settings.parts
    if arguments.endpoint and (parts.branch not in _WITHOUT_ENTROPY or parts.budget.startswith("aepo")):
        raise ValueError(
            f"--algorithm {arguments.algorithm} goes by entropies, which an endpoint does not tell; take grpo, random "
            "or tree-grpo, or give a vLLM server as --vllm-server"
        )
    return settings


def _more(arguments: argparse.Namespace) -> dict[str, Any]:
    """Read --set.

    Raises:
        ValueError: no such setting; names the nearest.
    """
    found, known = read_options(arguments.set, "--set"), {**_OTHERS, **_ENTROPIES}
    for name in found:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1) or [", ".join(known)]
            raise ValueError(f"--set {name}: no such setting here, or it has a flag of its own; there is {near[0]}")
        if name not in _WORDS and type(found[name]) not in (int, float):
            raise ValueError(f"--set {name}={found[name]}: write a number")
    if arguments.endpoint and set(found) & set(_ENTROPIES):
        raise ValueError(f"--set {', '.join(sorted(set(found) & set(_ENTROPIES)))}: an endpoint tells no entropies")
    return found


def _check_folder(folder: Path) -> None:
    """Refuse a folder in which something else than a rollout would be lost."""
    from arpo_trainer.report.run_data import read_facts

    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--output {str(folder)!r} is a file; give a folder")
    there = [name for name in _FILES if (folder / name).exists()]
    ours = "run.json" in there and read_facts(folder / "run.json").get("kind") == _KIND
    if there and not ours:
        raise ValueError(
            f"{str(folder)!r} holds another run ({', '.join(there)}); give a folder of its own as --output"
        )


def _open(env_id: str, options: dict[str, Any]) -> ToolEnv:
    from arpo_trainer.run.train import make_env

    env = make_env(env_id, options)
    env.check()
    return env


def _play(
    arguments: argparse.Namespace, env: ToolEnv, settings: RolloutSettings, limits: dict[str, int]
) -> list[RolloutTree]:
    from tqdm import tqdm

    from arpo_env.event_loop import run
    from arpo_trainer.rollout.engine import Engine
    from arpo_trainer.run.recorder import RunRecorder
    from arpo_trainer.training.evaluation import summarise

    count = min(arguments.tasks, env.tasks.size or arguments.tasks)
    tokenizer, backend = _model(arguments)
    engine = Engine(backend, tokenizer, env, settings, limits=limits)
    recorder: RunRecorder | None = None
    status = "failed"

    def keep(tree: RolloutTree) -> None:
        nonlocal recorder
        if recorder is None:  # only now: it replaces an earlier rollout
            recorder = RunRecorder(arguments.output, _facts(arguments, limits))
        recorder.on_rollout([tree])

    engine.on_tree = keep
    try:
        with tqdm(total=count * settings.num_generations, desc="rolling out", unit="trajectory") as bar:
            engine.on_trajectory = bar.update
            trees = run(engine.rollout([env.tasks.task(number) for number in range(count)]))
        if recorder and settings.num_generations == 1 and any(tree.trajectories[0].valid for tree in trees):
            recorder.add_evaluation(summarise(trees, _KIND))
        status = "finished"
    except KeyboardInterrupt:
        status = "interrupted"
        kept = f"the trees that were complete are in {arguments.output}" if recorder else "no tree was complete"
        logger.warning(kept)
        raise
    finally:
        if recorder:
            recorder.write_facts(status=status)
    return trees


def _facts(arguments: argparse.Namespace, limits: dict[str, int]) -> dict[str, Any]:
    """Return what run.json says of it, without the passwords and keys that addresses may hold."""
    from arpo_env.net.http_errors import bare

    options = {
        name: bare(value) if isinstance(value, str) and "://" in value else value
        for name, value in read_options(arguments.env_kwargs, "--env-kwargs").items()
    }
    settings = {name: value for name, value in vars(arguments).items() if name not in ("run", "traceback")}
    settings |= {"env_kwargs": options, "limit": limits, "set": _more(arguments)}
    settings["endpoint"] = arguments.endpoint and bare(arguments.endpoint)
    settings["vllm_server"] = [bare(url) for url in arguments.vllm_server or []]
    named = {"name": arguments.output.resolve().name, "kind": _KIND, "env": {"id": arguments.env, "kwargs": options}}
    return {**named, "seed": arguments.seed, "model": arguments.endpoint_model or arguments.model,
            "algorithm": arguments.algorithm, "settings": settings}  # fmt: skip


def _model(arguments: argparse.Namespace) -> tuple[Any, Any]:
    """Return the tokenizer and what generates."""
    from transformers import AutoTokenizer

    from arpo_trainer.run.demo_model import check_model_folder
    from arpo_trainer.run.train import DEMO_MODEL, resolve_model

    if arguments.model != DEMO_MODEL:
        check_model_folder(arguments.model)
    path = resolve_model(arguments.model)
    tokenizer = AutoTokenizer.from_pretrained(path)
    entropy = {_ENTROPIES[name]: value for name, value in _more(arguments).items() if name in _ENTROPIES}
    if arguments.vllm_server:
        from arpo_trainer.backends import VLLMServerBackend

        return tokenizer, VLLMServerBackend(arguments.vllm_server, tokenizer=tokenizer, **entropy)
    if arguments.endpoint:
        from arpo_trainer.backends import EndpointBackend

        return tokenizer, EndpointBackend(arguments.endpoint_model, arguments.endpoint, tokenizer=tokenizer)
    return tokenizer, _transformers(path, tokenizer, entropy)


def _transformers(path: str, tokenizer: Any, entropy: dict[str, Any]) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    from arpo_trainer.backends import transformers_backend

    gpu = torch.cuda.is_available()
    model = AutoModelForCausalLM.from_pretrained(path, dtype="auto" if gpu else torch.float32)
    return transformers_backend(model.to("cuda" if gpu else "cpu"), tokenizer, **entropy)
