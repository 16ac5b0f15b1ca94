"""The `arpo eval` command: evaluates models on environments or suites, and goes on after any kill.

arpo eval arpo/GSM8K-v0 --env-set split=test --model FOLDER --tasks 100 -n 4 --output evals/gsm8k
arpo eval deepsearch --endpoint URL --endpoint-model NAME --model TOKENIZER --output evals/deepsearch
arpo eval --resume --output evals/gsm8k          # only what is missing
arpo eval retry evals/gsm8k                      # only what broke
"""

from __future__ import annotations

import argparse
import functools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arpo_trainer.cli.command_options import (
    add_command,
    add_env_options,
    add_set_option,
    read_counts,
    read_env_options,
    read_settings_options,
)
from arpo_trainer.cli.eval_actions import add_eval_actions
from arpo_trainer.cli.eval_inference import add_inference_options, read_inference
from arpo_trainer.cli.eval_summary import eval_table
from arpo_trainer.cli.text_table import write_table
from arpo_trainer.optional_dependencies import require

if TYPE_CHECKING:
    from arpo_trainer.evaluation.episode_store import EvalRun
    from arpo_trainer.evaluation.eval_models import EvalModel
    from arpo_trainer.evaluation.eval_settings import EvalSettings

_USAGE = "arpo eval ENV_OR_SUITE ... --model MODEL ... --output FOLDER [options]"
_ROLLOUT = ("temperature", "max_turn_length", "max_completion_length", "num_generations")


def add_eval_command(commands: Any) -> None:
    """Add the command and its actions to a parser."""
    evaluate = add_command(commands, "eval", _list, "evaluate models on environments and suites; compare, re-score")
    actions: Any = evaluate.add_subparsers(metavar="ACTION")
    play = add_command(actions, "run", _eval, "evaluate models (`run` may be left out)", _USAGE)
    play.add_argument("names", nargs="*", metavar="ENV_OR_SUITE", help="ids of environments, or names of suites")
    _add_models(play)
    add_env_options(play)
    _add_amount(play)
    _add_sampling(play)
    _add_running(play)
    play.add_argument("--output", type=Path, metavar="FOLDER", help="where everything is written")
    play.add_argument("--resume", action="store_true", help="go on with the folder: play only what is missing")
    play.add_argument("--list", action="store_true", help="list the suites and the presets, and end")

    add_eval_actions(actions)
    retry = add_command(actions, "retry", _retry, "play the episodes that broke again, and nothing else")
    retry.add_argument("folder", type=Path, metavar="RUN", help="the folder of an evaluation")
    _add_models(retry)
    _add_running(retry)


def _add_models(parser: argparse.ArgumentParser) -> None:
    help_of_model = (
        "folders, hub ids, or smollm2-135m-instruct; a trainer's output folder stands for its checkpoints; with a "
        "server or an endpoint only the tokenizer is loaded"
    )
    parser.add_argument("--model", nargs="+", action="extend", default=[], metavar="MODEL", help=help_of_model)
    parser.add_argument("--preset", metavar="NAME", help="a published model: its prompt, tags, limits and sampling")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--vllm", action="store_true", help="generate with vLLM in this process")
    where.add_argument("--vllm-server", nargs="+", action="extend", metavar="URL", help="generate on vLLM servers")
    where.add_argument("--endpoint", metavar="URL", help="generate on an OpenAI-compatible endpoint")
    parser.add_argument(
        "--endpoint-model", nargs="+", action="extend", default=[], metavar="NAME", help="names at the endpoint"
    )
    prices = "US dollars for a million tokens of input and output, and of input from a cache (default: as input)"
    parser.add_argument("--price", nargs="+", type=float, metavar="USD", help=prices)


def _add_amount(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tasks", type=int, metavar="N", help="play the first N tasks of each environment")
    parser.add_argument("-n", "--samples", type=int, metavar="N", help="samples of each task (default 1)")
    parser.add_argument(
        "--algorithm", metavar="NAME", help="play trees, by arpo, aepo, ... (default grpo: independent samples)"
    )
    parser.add_argument("--num-generations", type=int, metavar="M", help="trajectories of a tree (default 8)")


def _add_sampling(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--temperature", type=float, metavar="T", help="of sampling; 0 is greedy (default 0.6)")
    parser.add_argument("--max-turn-length", type=int, metavar="TOKENS", help="of one turn (default 4096)")
    parser.add_argument(
        "--max-completion-length",
        type=int,
        metavar="TOKENS",
        help="after the prompt, with results (default: the model's context less 4096, at most 28672)",
    )
    parser.add_argument("--seed", type=int, metavar="N", help="of all random choices (default 0)")
    add_set_option(parser, "other settings, with values in YAML: top_p=1, repetition_penalty=1, branch_quota=0")
    add_inference_options(parser)


def _add_running(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--concurrency", type=int, metavar="N", help="most episodes at once (default 64)")
    limits = "most concurrent operations of a kind: python=8, search=16, generate=64"
    parser.add_argument("--limit", nargs="+", action="extend", default=[], metavar="KIND=N", help=limits)
    broken = "largest share of episodes that may break; above it the exit status is 1 (default 0.02)"
    parser.add_argument("--max-broken", type=float, metavar="SHARE", help=broken)
    parser.add_argument("--cache", metavar="FILE", help="record what was generated, searched, read and judged")
    parser.add_argument("--cache-mode", choices=("record", "replay"), help="replay: no network, no weights")
    parser.add_argument("--plain", action="store_true", help="show the progress as lines, not as a table")


def _list(arguments: argparse.Namespace) -> int:
    from arpo_trainer.evaluation.presets import preset_table
    from arpo_trainer.evaluation.suites import suite_table

    write_table(suite_table())
    sys.stdout.write("\n")
    write_table(preset_table())
    return 0


def _eval(arguments: argparse.Namespace) -> int:
    if arguments.list:
        return _list(arguments)
    if arguments.output is None:
        raise ValueError("say where the evaluation is written: --output FOLDER")
    require("train")
    settings, models = _resumed(arguments, arguments.output) if arguments.resume else _begun(arguments)
    return _play(arguments, settings, models, arguments.output, repeat_broken=False)


def _retry(arguments: argparse.Namespace) -> int:
    require("train")
    settings, models = _resumed(arguments, arguments.folder)
    return _play(arguments, settings, models, arguments.folder, repeat_broken=True)


def _play(
    arguments: argparse.Namespace, settings: EvalSettings, models: list[EvalModel], folder: Path, repeat_broken: bool
) -> int:
    from arpo_trainer.evaluation.eval_metrics import results
    from arpo_trainer.evaluation.eval_session import broken_share, run_evaluation
    from arpo_trainer.evaluation.live_display import LiveDisplay

    display = functools.partial(LiveDisplay, plain=arguments.plain)
    resume = repeat_broken or arguments.resume
    found = run_evaluation(settings, models, folder, resume=resume, repeat_broken=repeat_broken, display=display)
    rows, notes = eval_table(results(found.rows, found.facts))
    write_table(rows, notes)
    sys.stdout.write(f"\narpo view {folder}\n")
    return _status(found, broken_share(found), settings.max_broken, folder)


def _status(found: EvalRun, share: float, most: float, folder: Path) -> int:
    from arpo_trainer.evaluation.unit_row import broken_causes

    if not share:
        return 0
    causes = ", ".join(f"{cause} {count}" for cause, count in broken_causes(found.rows).most_common())
    sys.stderr.write(
        f"{100 * share:.1f} % of the episodes broke ({causes}) and are not scored; after mending the cause: "
        f"arpo eval retry {folder}\n"
    )
    return 1 if share > most else 0


def _begun(arguments: argparse.Namespace) -> tuple[EvalSettings, list[EvalModel]]:
    """Return settings and models from the options."""
    from arpo_trainer.evaluation.eval_settings import EvalSettings
    from arpo_trainer.evaluation.presets import preset

    if not arguments.names:
        raise ValueError(f"name environments or suites: {_USAGE}")
    decided = _deciding(arguments)
    if arguments.preset:
        arguments.model = arguments.model or [preset(arguments.preset).model]
    models = _models(arguments)
    if not models:
        raise ValueError("name the models: --model FOLDER_OR_HUB_ID ..., or --preset NAME of a published one")
    given = {name: getattr(arguments, name) for name in ("tasks", "samples", "algorithm", "seed")}
    settings = {name: value for name, value in given.items() if value is not None} | _running(arguments)
    settings["inference"] = read_inference(arguments)
    return EvalSettings(tuple(arguments.names), **decided, **settings), models


def _deciding(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return options of environments, of rollouts and of the chat template that are given, those of a preset too."""
    from arpo_trainer.evaluation.presets import apply, preset

    options = read_env_options(arguments) if hasattr(arguments, "env_set") else {}
    rollout = _rollout(arguments) if hasattr(arguments, "set") else {}
    if not arguments.preset:
        return {"env_options": options, "rollout": rollout}
    row = preset(arguments.preset)
    options, rollout = apply(row, options, rollout)
    return {"env_options": options, "rollout": rollout, "chat_template_kwargs": dict(row.chat_template_kwargs)}


def _resumed(arguments: argparse.Namespace, folder: Path) -> tuple[EvalSettings, list[EvalModel]]:
    """Return the settings and models of a stored evaluation; options that are given replace them."""
    from dataclasses import replace

    from arpo_trainer.evaluation.episode_store import load_eval_run
    from arpo_trainer.evaluation.eval_settings import EvalSettings

    if not (folder / "run.json").is_file() and getattr(arguments, "names", []):
        return _begun(arguments)  # nothing is there yet: the first sitting of a command that always says --resume
    settings = EvalSettings.from_dict(load_eval_run(folder).facts["settings"])
    changed: dict[str, Any] = dict(_running(arguments))
    for name in ("tasks", "samples", "algorithm", "seed"):
        if getattr(arguments, name, None) is not None:
            changed[name] = getattr(arguments, name)
    if getattr(arguments, "names", []):
        changed["environments"] = tuple(arguments.names)
    if inference := read_inference(arguments):
        changed["inference"] = {**settings.inference, **inference}
    for name, given in _deciding(arguments).items():
        changed[name] = {**getattr(settings, name), **given}
    if arguments.model or arguments.endpoint_model:
        return replace(settings, **changed), _models(arguments)
    stored = [_stored_model(label, facts) for label, facts in settings.models.items()]
    if arguments.vllm_server and len(stored) > 1:
        raise ValueError("vLLM servers serve one model, and the run has several: name the one with --model")
    return replace(settings, **changed), [_moved(model, arguments) for model in stored]


def _stored_model(label: str, facts: dict[str, Any]) -> EvalModel:
    from arpo_trainer.evaluation.eval_models import EvalModel

    price = facts["price"] and tuple(facts["price"][name] for name in ("input", "output", "cached"))
    return EvalModel(label, facts["kind"], facts["path"], tuple(facts["urls"]), facts["name"], price)


def _moved(model: EvalModel, arguments: argparse.Namespace) -> EvalModel:
    """Return a stored model where it runs now, and at the price that is given."""
    from dataclasses import replace

    model = replace(model, price=_price(arguments.price) or model.price)
    if arguments.endpoint:
        return replace(model, kind="endpoint", urls=(arguments.endpoint,))
    if not (arguments.vllm or arguments.vllm_server):
        return model
    # what an endpoint calls its model says nothing about these weights: then the settings differ
    name = "" if model.kind == "endpoint" else model.name
    kind: Any = "vllm" if arguments.vllm else "vllm-server"
    return replace(model, kind=kind, urls=tuple(arguments.vllm_server or ()), name=name)


def _models(arguments: argparse.Namespace) -> list[EvalModel]:
    """Return the models that the options name.

    Raises:
        ValueError: options do not go together.
    """
    from arpo_trainer.evaluation.eval_models import EvalModel, checkpoints, model_label

    price = _price(arguments.price)
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


def _price(given: list[float] | None) -> tuple[float, float, float] | None:
    if given is None:
        return None
    if len(given) not in (2, 3) or any(not price >= 0 for price in given):
        raise ValueError("--price takes two or three amounts of at least 0: input, output, and input from a cache")
    return given[0], given[1], given[2] if len(given) == 3 else given[0]


def _rollout(arguments: argparse.Namespace) -> dict[str, Any]:
    flags = {name: getattr(arguments, name) for name in _ROLLOUT if getattr(arguments, name) is not None}
    more = read_settings_options(arguments.set)
    if both := sorted(set(flags) & set(more)):
        raise ValueError(f"--set {both[0]} and --{both[0].replace('_', '-')} set the same: give only one of them")
    return {**flags, **more}


def _running(arguments: argparse.Namespace) -> dict[str, Any]:
    names = ("concurrency", "max_broken", "cache", "cache_mode")
    found = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    return found | ({"limits": read_counts(arguments.limit, "--limit")} if arguments.limit else {})
