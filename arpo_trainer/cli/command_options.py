"""Options that several commands share.

Every command takes settings as `--set name=value` and options of an environment as `--env-set name=value`, with values
in YAML.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from arpo_trainer.run.recipes import parse_assignments

if TYPE_CHECKING:
    from arpo_trainer.evaluation.eval_settings import EvalModel, EvalSettings
    from arpo_trainer.ray_rollouts import RolloutWorkers


ENV_HELP = "environment id, such as arpo/Arithmetic-v0, or MODULE:ID of your own"


def add_command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], purpose: str, usage: str | None = None
) -> argparse.ArgumentParser:
    """Add a command, or an action of one, to a parser.

    Args:
        commands: the parsers of the commands.
        name: what the user types.
        run: does the work, and returns the exit status.
        purpose: one line for the list of commands and for the command's own help.
        usage: replaces argparse's usage, which puts ENV last, where `--set a=1 ENV` would take it for a setting.
    """
    parser: argparse.ArgumentParser = commands.add_parser(name, help=purpose, description=purpose, usage=usage)
    parser.set_defaults(run=run)
    return parser


def add_command_group(commands: Any, name: str, purpose: str) -> Any:
    """Add a command that has actions, and return what its actions are added to."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=purpose, description=purpose)
    return parser.add_subparsers(required=True, metavar="ACTION")


def add_set_option(parser: argparse.ArgumentParser, purpose: str) -> None:
    """Add `--set`."""
    parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="NAME=VALUE", help=purpose)


def add_env_options(parser: argparse.ArgumentParser) -> None:
    """Add `--env-set`."""
    purpose = "options of the environment, with values in YAML: level=2, tools=[python]"
    parser.add_argument("--env-set", nargs="+", action="extend", default=[], metavar="NAME=VALUE", help=purpose)


def read_env_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options of the environment that were given.

    Raises:
        ValueError: an option is not `name=value`.
    """
    return parse_assignments(arguments.env_set, "--env-set")


def read_counts(texts: Iterable[str], flag: str) -> dict[str, int]:
    """Return whole numbers that were given as NAME=NUMBER.

    Raises:
        ValueError: a text is not `name=value`, or its value is not a whole number.
    """
    found = parse_assignments(texts, flag)
    for name, value in found.items():
        # not isinstance: True is an int in Python, and `python=true` is a mistake
        if type(value) is not int:
            raise ValueError(f"{flag} {name}={value}: write a whole number, such as {name}=8")
    return found


# Tables on the terminal.

_WIDTH = 100  # characters per line


def write_table(rows: Sequence[Sequence[str]], notes: Sequence[str] = ()) -> None:
    """Print rows of equal length with aligned columns.

    Args:
        rows: the cells of each row.
        notes: a note below each row, indented and wrapped; an empty one is left out.
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row, note in itertools.zip_longest(rows, notes[: len(rows)], fillvalue=""):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        sys.stdout.write("  ".join(cells).rstrip() + "\n")
        sys.stdout.writelines(
            f"{line}\n" for line in textwrap.wrap(note, _WIDTH, initial_indent="  ", subsequent_indent="  ")
        )


# Options of commands that sample from models: which models, how they are sampled, and how much runs at once.

_ROLLOUT = ("temperature", "max_turn_length", "max_completion_length", "num_generations")


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name models."""
    help_of_model = (
        "folders, hub ids, or smollm2-135m-instruct; a trainer's output folder stands for its checkpoints; with a "
        "server or an endpoint only the tokenizer is loaded"
    )
    parser.add_argument("--model", nargs="+", action="extend", default=[], metavar="MODEL", help=help_of_model)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--vllm", action="store_true", help="generate with vLLM in this process")
    where.add_argument("--vllm-server", nargs="+", action="extend", metavar="URL", help="generate on vLLM servers")
    where.add_argument("--endpoint", metavar="URL", help="generate on an OpenAI-compatible endpoint")
    parser.add_argument(
        "--endpoint-model", nargs="+", action="extend", default=[], metavar="NAME", help="names at the endpoint"
    )
    prices = "US dollars for a million tokens of input and output, and of input from a cache (default: as input)"
    parser.add_argument("--price", nargs="+", type=float, metavar="USD", help=prices)


def add_sampling_options(parser: argparse.ArgumentParser, temperature: float = 0.6) -> None:
    """Add the options of sampling; `temperature` is the default that the help names."""
    parser.add_argument(
        "--temperature", type=float, metavar="T", help=f"of sampling; 0 is greedy (default {temperature})"
    )
    parser.add_argument("--max-turn-length", type=int, metavar="TOKENS", help="of one turn (default 4096)")
    parser.add_argument(
        "--max-completion-length",
        type=int,
        metavar="TOKENS",
        help="after the prompt, with results (default: the model's context less 4096, at most 28672)",
    )
    parser.add_argument("--seed", type=int, metavar="N", help="of all random choices (default 0)")
    add_set_option(parser, "other settings, with values in YAML: top_p=1, repetition_penalty=1, branch_quota=0")


def add_running_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of what runs at once and where, and of recordings."""
    parser.add_argument("--concurrency", type=int, metavar="N", help="most episodes at once (default 64)")
    limits = "most concurrent operations of a kind: python=8, search=16, generate=64"
    parser.add_argument("--limit", nargs="+", action="extend", default=[], metavar="KIND=N", help=limits)
    broken = "largest share of episodes that may break; above it the exit status is 1 (default 0.02)"
    parser.add_argument("--max-broken", type=float, metavar="SHARE", help=broken)
    parser.add_argument("--cache", metavar="FILE", help="record what was generated, searched, read and judged")
    parser.add_argument("--cache-mode", choices=("record", "replay"), help="replay: no network, no weights")
    parser.add_argument("--ray", metavar="ADDRESS", help="play on a Ray cluster: HOST:PORT, or auto")
    parser.add_argument(
        "--rollout-workers", type=int, default=0, metavar="N", help="Ray actors that play (default: one on each node)"
    )


@contextlib.contextmanager
def opened_workers(
    arguments: argparse.Namespace, settings: EvalSettings, models: Sequence[EvalModel]
) -> Iterator[RolloutWorkers | None]:
    """Start the Ray actors that the options ask for, and end them afterwards; None if they ask for none.

    Raises:
        ValueError: the actors could not play this.
        ModuleNotFoundError: Ray is not installed.
        RayClusterError: the cluster cannot be used.
        RolloutWorkerError: not all actors could be started.
    """
    if not (arguments.ray or arguments.rollout_workers):
        yield None
        return
    from arpo_trainer.evaluation.eval_session import check_for_workers
    from arpo_trainer.ray_rollouts import RolloutWorkers

    check_for_workers(settings, models)
    with RolloutWorkers(arguments.rollout_workers, arguments.ray) as workers:
        yield workers


def stored_model(label: str, facts: dict[str, Any]) -> EvalModel:
    """Return the model whose facts a folder keeps."""
    from arpo_trainer.evaluation.eval_settings import EvalModel

    price = facts["price"] and tuple(facts["price"][name] for name in ("input", "output", "cached"))
    return EvalModel(label, facts["kind"], facts["path"], tuple(facts["urls"]), facts["name"], price)


def moved_model(model: EvalModel, arguments: argparse.Namespace) -> EvalModel:
    """Return a stored model where it runs now, and at the price that is given."""
    from dataclasses import replace

    model = replace(model, price=read_price(arguments.price) or model.price)
    if arguments.endpoint:
        return replace(model, kind="endpoint", urls=(arguments.endpoint,))
    if not (arguments.vllm or arguments.vllm_server):
        return model
    # what an endpoint calls its model says nothing about these weights: then the settings differ
    name = "" if model.kind == "endpoint" else model.name
    kind: Any = "vllm" if arguments.vllm else "vllm-server"
    return replace(model, kind=kind, urls=tuple(arguments.vllm_server or ()), name=name)


def read_models(arguments: argparse.Namespace) -> list[EvalModel]:
    """Return the models that the options name.

    Raises:
        ValueError: options do not go together.
    """
    from arpo_trainer.evaluation.eval_settings import EvalModel, checkpoints, model_label

    price = read_price(arguments.price)
    if bool(arguments.endpoint) != bool(arguments.endpoint_model):
        raise ValueError("--endpoint URL and --endpoint-model NAME go together: give both, or neither")
    if arguments.endpoint:
        if len(arguments.model) != 1:
            raise ValueError(
                "an endpoint needs one --model whose tokenizer measures the texts; any similar one will do"
            )
        path, urls = arguments.model[0], (arguments.endpoint,)
        return [EvalModel(name, "endpoint", path, urls, name, price) for name in arguments.endpoint_model]
    urls = tuple(arguments.vllm_server or ())
    if urls and len(arguments.model) > 1:
        raise ValueError("vLLM servers serve one model: give one --model, the one that they serve")
    kind: Any = "vllm" if arguments.vllm else "vllm-server" if urls else "transformers"
    paths = [one for path in arguments.model for one in ([path] if urls else checkpoints(path))]
    return [EvalModel(model_label(path), kind, path, urls, price=price) for path in paths]


def read_price(given: list[float] | None) -> tuple[float, float, float] | None:
    """Return the prices of input, output and cached input from the amounts that were given."""
    if given is None:
        return None
    if len(given) not in (2, 3) or any(not price >= 0 for price in given):
        raise ValueError("--price takes two or three amounts of at least 0: input, output, and input from a cache")
    return given[0], given[1], given[2] if len(given) == 3 else given[0]


def read_rollout(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of rollouts that are given.

    Raises:
        ValueError: an option and a setting say the same.
    """
    flags = {name: value for name in _ROLLOUT if (value := getattr(arguments, name, None)) is not None}
    more = parse_assignments(arguments.set, "--set")
    if both := sorted(set(flags) & set(more)):
        raise ValueError(f"--set {both[0]} and --{both[0].replace('_', '-')} set the same: give only one of them")
    return {**flags, **more}


def read_running(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what is given of concurrency and recordings."""
    names = ("concurrency", "max_broken", "cache", "cache_mode")
    found = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    return found | ({"limits": read_counts(arguments.limit, "--limit")} if arguments.limit else {})
