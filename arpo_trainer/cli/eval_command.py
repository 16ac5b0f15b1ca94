"""The `arpo eval` command: evaluates models on environments or suites, and goes on after any kill.

arpo eval arpo/GSM8K-v0 --env-set split=test --model FOLDER --tasks 100 -n 4 --output evals/gsm8k
arpo eval deepsearch --endpoint URL --endpoint-model NAME --model TOKENIZER --output evals/deepsearch
arpo eval --resume --output evals/gsm8k          # only what is missing
arpo eval retry evals/gsm8k                      # only what broke
arpo eval ... --shard 3/8 --output evals/gsm8k   # one of eight parts; `arpo eval merge evals/gsm8k` joins them
arpo eval ... --vllm-server URL --ray 10.0.0.1:6379 --rollout-workers 16     # episodes on the nodes of a Ray cluster
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import math
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arpo_trainer.cli.command_options import (
    add_command,
    add_env_options,
    add_model_options,
    add_running_options,
    add_sampling_options,
    moved_model,
    opened_workers,
    read_env_options,
    read_models,
    read_rollout,
    read_running,
    stored_model,
    write_table,
)
from arpo_trainer.optional_dependencies import require

if TYPE_CHECKING:
    from arpo_env.grading import Grader
    from arpo_trainer.evaluation.episode_store import EvalRun
    from arpo_trainer.evaluation.eval_metrics import ChangedTask, RunComparison
    from arpo_trainer.evaluation.eval_settings import EvalModel, EvalSettings
    from arpo_trainer.evaluation.eval_shard import EvalShard
    from arpo_trainer.evaluation.rescoring import Rescored, Scorer, Verdict
    from arpo_trainer.statistics import PairedComparison


# The options of `arpo eval` for tools at inference time: `--with`, `--with-...` for their model, `--refine-above`.

_FIELDS = {"with_model": "model", "with_url": "url", "refine_above": "refine_above"}


def add_inference_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to a parser."""
    parser.add_argument(
        "--with",
        dest="inference",
        metavar="TOOLS",
        help="tools at inference time: debugger, backtracer, refiner, with commas; debugger=2 allows two uses a sample",
    )
    model = "name of the model that helps them, at an OpenAI-compatible server (default: the policy itself)"
    parser.add_argument("--with-model", metavar="NAME", help=model)
    parser.add_argument("--with-url", metavar="URL", help="address of that server (default: OPENAI_BASE_URL)")
    price = "what it costs: US dollars for a million tokens of input and output, and of input from a cache"
    parser.add_argument("--with-price", nargs="+", type=float, metavar="USD", help=price)
    above = "shorten thoughts when a sample has so many tokens (default 8192)"
    parser.add_argument("--refine-above", type=int, metavar="TOKENS", help=above)


def read_inference(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return fields of `InferenceSettings` that were given.

    Raises:
        ValueError: a tool is unknown, with the nearest name; or a price is none.
    """
    from arpo_trainer.cli.command_options import read_price
    from arpo_trainer.inference_tools import PRICES, read_tools

    text = getattr(arguments, "inference", None)
    fields: dict[str, Any] = {} if text is None else dict(read_tools(text))
    for option, name in _FIELDS.items():
        if getattr(arguments, option, None) is not None:
            fields[name] = getattr(arguments, option)
    if price := read_price(getattr(arguments, "with_price", None)):
        fields["price"] = dict(zip(PRICES, price, strict=True))
    return fields


# The `compare` action of `arpo eval`: two runs, or two models of a run, task by task.
#
# arpo eval compare evals/base evals/arpo arpo eval compare evals/both --models base arpo --metric f1 --all

_SHOWN_TASKS = 10  # of the tasks gained, and of those lost
_QUESTION = 90  # characters


def add_compare_action(actions: Any) -> None:
    """Add the action to a parser."""
    purpose = "compare two runs task by task: difference, interval, test, tasks gained and lost"
    compare = add_command(actions, "compare", _compare, purpose)
    compare.add_argument("first", type=Path, metavar="RUN", help="the --output folder of `arpo eval`")
    compare.add_argument("second", type=Path, nargs="?", metavar="RUN2", help="another one; without it two --models")
    compare.add_argument("--models", nargs=2, metavar=("A", "B"), help="labels of a model in each of the runs")
    compare.add_argument("--metric", default="accuracy", help="accuracy (default), reward, f1, em, correct, ...")
    compare.add_argument("--common", action="store_true", help="compare the common tasks of runs on different tasks")
    told = f"list every task gained or lost, not the first {_SHOWN_TASKS}"
    compare.add_argument("--all", action="store_true", help=told)
    compare.add_argument("--json", action="store_true", help="write JSON")


def _compare(arguments: argparse.Namespace) -> int:
    from arpo_trainer.evaluation.episode_store import load_eval_run
    from arpo_trainer.evaluation.eval_metrics import compare_runs

    first = load_eval_run(arguments.first)
    second = first if arguments.second is None else load_eval_run(arguments.second)
    models = None if arguments.models is None else (arguments.models[0], arguments.models[1])
    found = compare_runs(first, second, arguments.metric, models, arguments.common)
    if arguments.json:
        data = [_finite(each.as_dict()) for each in found]
        sys.stdout.write(json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
        return 0
    for each in found:
        _write_comparison(each, None if arguments.all else _SHOWN_TASKS)
    return 0


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
    interval = f"{each.difference:+.3f} [{each.low:+.3f}, {each.high:+.3f}]"
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


def _finite(data: Any) -> Any:
    """Return plain data with None for a bound that is not known, which JSON has no number for."""
    if isinstance(data, dict):
        return {name: _finite(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


# The `score` action of `arpo eval`: grades the stored answers of a run again, without generating.
#
# arpo eval score evals/gaia --scorer judge --judge-model Qwen2.5-72B-Instruct arpo eval score evals/gaia --function
# my_graders:lenient --name lenient arpo eval score evals/gaia --reward '{accuracy: 1, format: 0.2}'

logger = logging.getLogger(__name__)
_SHOWN_DISAGREEMENTS = 5
_EVERY = 200  # verdicts between two lines of progress


def add_score_action(actions: Any) -> None:
    """Add the action to a parser."""
    purpose = "grade the stored answers of a run again, with another grader, judge, function or reward"
    score = add_command(actions, "score", _score, purpose)
    score.add_argument("run_folder", type=Path, metavar="RUN", help="the --output folder of `arpo eval`")
    what = score.add_mutually_exclusive_group(required=True)
    what.add_argument("--scorer", metavar="NAME", help="auto, math, qa, em, mcq, gaia or judge")
    what.add_argument("--function", metavar="MODULE:NAME", help="a function of (answer, task); may be async")
    what.add_argument("--reward", metavar="REWARD", help="paper, reference, {TERM: WEIGHT}, or MODULE:NAME")
    score.add_argument("--judge-model", metavar="NAME", help="the model of --scorer judge")
    score.add_argument("--judge-url", metavar="URL", help="its server (default OPENAI_BASE_URL); key: OPENAI_API_KEY")
    score.add_argument("--name", metavar="NAME", help="of the files in RUN/scores (default: what grades)")
    score.add_argument("--concurrency", type=int, default=16, metavar="N", help="graded at once (default 16)")
    share = "share of answers without a verdict above which the status is not 0 (default 0.02)"
    score.add_argument("--max-broken", type=float, default=0.02, metavar="SHARE", help=share)
    score.add_argument("--json", action="store_true", help="write JSON")


@dataclass
class _Chosen:
    """What grades: the scorer, its description, a name for files, and what has to be closed."""

    scorer: Scorer
    about: dict[str, Any]
    name: str
    grader: Grader | None = None


def _score(arguments: argparse.Namespace) -> int:
    from arpo_trainer.evaluation.episode_store import load_eval_run
    from arpo_trainer.evaluation.rescoring import write_rescored

    if arguments.concurrency < 1:
        raise ValueError(f"--concurrency must be at least 1, got {arguments.concurrency}")
    if not 0 <= arguments.max_broken <= 1:
        raise ValueError(f"--max-broken is a share between 0 and 1, got {arguments.max_broken}")
    if arguments.scorer != "judge" and (arguments.judge_model or arguments.judge_url):
        raise ValueError("--judge-model and --judge-url are options of --scorer judge")
    run = load_eval_run(arguments.run_folder)
    parts = {name for row in run.rows for entry in row.episodes for name in entry.components}
    found = asyncio.run(_rescore(run, _chosen(arguments, parts), arguments.concurrency))
    write_rescored(found)
    if arguments.json:
        sys.stdout.write(found.path.with_suffix(".json").read_text(encoding="utf-8"))
    else:
        _write_rescored(found)
    if found.broken_share > arguments.max_broken:
        causes = ", ".join(f"{name} {count}" for name, count in found.broken.items())
        many = f"{sum(found.broken.values())} of {found.answers} answers have no verdict ({causes})"
        sys.stderr.write(f"{many}; the same command tries them again\n")
        return 1
    return 0


async def _rescore(run: Any, chosen: _Chosen, concurrency: int) -> Rescored:
    from arpo_trainer.evaluation.rescoring import rescore

    done = 0

    def note(verdict: Verdict) -> None:
        nonlocal done
        done += 1
        if done % _EVERY == 0:
            logger.info("%d answers graded", done)

    try:
        return await rescore(run, chosen.name, chosen.scorer, chosen.about, concurrency, note)
    finally:
        if chosen.grader is not None:
            await chosen.grader.close()


def _chosen(arguments: argparse.Namespace, components: Collection[str]) -> _Chosen:
    from arpo_trainer.evaluation import rescoring as stored
    from envs_registry.spec import load_object

    if arguments.function:
        function = load_object(arguments.function, "--function")
        scorer, about = stored.function_scorer(function), {"function": arguments.function}
    elif arguments.reward:
        rewards = stored.read_reward(arguments.reward, components)
        scorer, about = stored.reward_scorer(rewards), {"reward": arguments.reward}
    else:
        grader, about = _grader(arguments)
        return _Chosen(stored.grader_scorer(grader), about, _file_name(arguments, about), grader)
    return _Chosen(scorer, about, _file_name(arguments, about))


def _grader(arguments: argparse.Namespace) -> tuple[Grader, dict[str, Any]]:
    from arpo_env.grading import make_grader

    if arguments.scorer != "judge":
        return make_grader(arguments.scorer), {"scorer": arguments.scorer}
    if not arguments.judge_model:
        raise ValueError("--scorer judge needs --judge-model NAME, and --judge-url or OPENAI_BASE_URL for its server")
    from arpo_env.chat_model import ChatModel
    from arpo_env.grading.llm_judge import VERSION

    chat = ChatModel(arguments.judge_model, arguments.judge_url, concurrency=arguments.concurrency)
    return make_grader("judge", chat=chat), {"scorer": "judge", "model": arguments.judge_model, "prompt": VERSION}


def _file_name(arguments: argparse.Namespace, about: dict[str, Any]) -> str:
    if arguments.name is not None:
        if not re.fullmatch(r"[\w-][\w.-]*", arguments.name):
            raise ValueError(f"--name {arguments.name!r}: use letters, digits, '-', '_' and '.'")
        return str(arguments.name)
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


# The table that `arpo eval` prints: the score of each model on each environment, beside the published numbers.

_COLUMNS = ("MODEL", "ENVIRONMENT", "MEASURE", "SCORE [95 %]", "TASKS", "SAMPLES", "BROKEN", "CALLS", "TOKENS")
_SHOWN = 4  # published numbers below a score


def write_summary(found: EvalRun, most: float) -> int:
    """Write the table of a run and what broke, and return the exit status of the command.

    Args:
        found: the run.
        most: largest share of episodes that may have broken for status 0.
    """
    from arpo_trainer.evaluation.episode_store import broken_causes
    from arpo_trainer.evaluation.eval_metrics import results
    from arpo_trainer.evaluation.eval_session import broken_share

    rows, notes = eval_table(results(found.rows, found.facts))
    write_table(rows, notes)
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


def eval_table(results: Mapping[str, Any]) -> tuple[list[tuple[str, ...]], list[str]]:
    """Return results.json as rows of a table, and a note below each row."""
    rows: list[tuple[str, ...]] = [_COLUMNS]
    notes = [""]
    for entry in results["scores"]:
        score = entry["score"] or {}
        calls = sum(entry["calls"].values())
        rows.append(
            (
                entry["model"],
                entry["env"],
                entry["metric"],
                _interval(score),
                str(score.get("tasks", 0)),
                str(score.get("samples", 0)),
                ", ".join(f"{cause} {count}" for cause, count in entry["broken"].items()) or "-",
                f"{calls:.1f}",
                f"{entry['tokens']:,.0f}" if entry["tokens"] is not None else "-",
            )
        )
        helped = _inference_tools(entry.get("inference_tools", {}), entry["scored"]) + _helper(entry.get("helper", {}))
        notes.append("; ".join([*_passes(entry["pass"]), *helped, *_published(entry["published"])]))
    return rows, notes


def _interval(score: Mapping[str, Any]) -> str:
    if not score:
        return "nothing scored"
    if score["low"] is None:
        return f"{100 * score['mean']:.1f}"
    return f"{100 * score['mean']:.1f} [{100 * score['low']:.1f}, {100 * score['high']:.1f}]"


def _passes(passes: Mapping[str, float]) -> list[str]:
    """Return pass@k and pass^k; for k = 1 both are the accuracy."""
    return [f"{name} {100 * value:.1f}" for name, value in passes.items() if not name.endswith(("@1", "^1"))]


def _inference_tools(tools: Mapping[str, Mapping[str, int]], scored: int) -> list[str]:
    """Return how often each tool at inference time was used."""
    return [
        f"{name} in {each['episodes']} of {scored} episodes" + (f", failed {each['failed']}x" if each["failed"] else "")
        for name, each in tools.items()
    ]


def _helper(helper: Mapping[str, float | None]) -> list[str]:
    """Return what the model that helps these tools has used; it is not in the columns, which are of the policy."""
    if not helper:
        return []
    cost = "" if helper["cost"] is None else f", {helper['cost']:.4g} USD"
    return [f"helper: {helper['requests']} requests, {helper['context']:,} tokens in, {helper['tokens']:,} out{cost}"]


def _published(published: Mapping[str, Any]) -> list[str]:
    rows: Sequence[Mapping[str, Any]] = [row for row in published.get("rows", ()) if not row["part"]]
    if not rows:
        return []
    named = ", ".join(f"{row['model']} {row['method']} {row['value']:g}" for row in _best(rows))
    reasons = "; ".join(published["differs"])
    return [f"published ({published['metric']}): {named}" + (f" (not comparable: {reasons})" if reasons else "")]


def _best(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the results of the papers' own methods; without any, the first rows."""
    own = [row for row in rows if row["method"] in ("ARPO", "AEPO", "Tool-Star") and "pass" not in row["metric"]]
    return (own or list(rows))[:_SHOWN]


# The actions of `arpo eval` on stored runs: compare, score, merge, export.
#
# arpo eval merge evals/gaia                       # joins evals/gaia/shard-0-of-8, shard-1-of-8, ... arpo eval export
# evals/gaia --format inspect --output exported


def add_eval_actions(actions: Any) -> None:
    """Add the actions to a parser."""
    add_compare_action(actions)
    add_score_action(actions)
    merge = add_command(actions, "merge", _merge, "join the shards of an evaluation or of a synthesis")
    merge.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="a folder with shards, or the shards")
    merge.add_argument("--output", type=Path, metavar="FOLDER", help="where the whole is written (default: FOLDER)")
    merge.add_argument("--partial", action="store_true", help="join what there is, though parts are missing")
    purpose = "write a run in the format of the papers' code, of lm-evaluation-harness, or of Inspect"
    export = add_command(actions, "export", _export, purpose)
    export.add_argument("run_folder", type=Path, metavar="RUN", help="the --output folder of `arpo eval`")
    export.add_argument("--format", required=True, metavar="FORMAT", help="papers, lm-eval or inspect")
    export.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="where the files go")


def _merge(arguments: argparse.Namespace) -> int:
    from arpo_trainer.evaluation.episode_store import KIND
    from arpo_trainer.evaluation.eval_shard import merge_shards

    found = merge_shards(arguments.folders, arguments.output, arguments.partial)
    if found.facts["kind"] == KIND:
        return write_summary(found, found.facts["settings"]["max_broken"])
    sys.stdout.write(f"{len(found.rows)} samples in {found.folder}; choose and write the training rows with\n")
    sys.stdout.write(f"arpo synth --resume --output {found.folder}\n")
    return 0


def _export(arguments: argparse.Namespace) -> int:
    from arpo_trainer.evaluation.episode_store import load_eval_run
    from arpo_trainer.evaluation.log_formats import export_run

    for path in export_run(load_eval_run(arguments.run_folder), arguments.format, arguments.output):
        sys.stdout.write(f"{path}\n")
    return 0


_USAGE = "arpo eval ENV_OR_SUITE ... --model MODEL ... --output FOLDER [options]"


def add_eval_command(commands: Any) -> None:
    """Add the command and its actions to a parser."""
    evaluate = add_command(commands, "eval", _list, "evaluate models on environments and suites; compare, re-score")
    actions: Any = evaluate.add_subparsers(metavar="ACTION")
    play = add_command(actions, "run", _eval, "evaluate models (`run` may be left out)", _USAGE)
    play.add_argument("names", nargs="*", metavar="ENV_OR_SUITE", help="ids of environments, or names of suites")
    add_model_options(play)
    _add_own(play)
    add_env_options(play)
    _add_amount(play)
    add_sampling_options(play)
    add_inference_options(play)
    add_running_options(play)
    play.add_argument("--output", type=Path, metavar="FOLDER", help="where everything is written")
    play.add_argument("--resume", action="store_true", help="go on with the folder: play only what is missing")
    shard = "play part i of n, i from 0, into FOLDER/shard-i-of-n; auto or auto/n: i from SLURM or Kubernetes"
    play.add_argument("--shard", metavar="i/n", help=shard)
    play.add_argument("--list", action="store_true", help="list the suites and the presets, and end")

    add_eval_actions(actions)
    retry = add_command(actions, "retry", _retry, "play the episodes that broke again, and nothing else")
    retry.add_argument("folder", type=Path, metavar="RUN", help="the folder of an evaluation")
    add_model_options(retry)
    _add_own(retry)
    add_inference_options(retry)
    add_running_options(retry)


def _add_own(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--preset", metavar="NAME", help="a published model: its prompt, tags, limits and sampling")
    parser.add_argument("--plain", action="store_true", help="show the progress as lines, not as a table")


def _add_amount(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tasks", type=int, metavar="N", help="play the first N tasks of each environment")
    parser.add_argument("-n", "--samples", type=int, metavar="N", help="samples of each task (default 1)")
    parser.add_argument(
        "--algorithm",
        metavar="NAME",
        help="play trees, by arpo, aepo, ..., and score their roots (default grpo: independent samples)",
    )
    parser.add_argument("--num-generations", type=int, metavar="M", help="trajectories of a tree (default 8)")


def _list(arguments: argparse.Namespace) -> int:
    from arpo_trainer.evaluation.suites import preset_table, suite_table

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
    shard = _shard(arguments)
    folder = shard.folder(arguments.output) if shard else arguments.output
    settings, models = _resumed(arguments, folder) if arguments.resume else _begun(arguments)
    return _play(arguments, settings, models, arguments.output, repeat_broken=False)


def _retry(arguments: argparse.Namespace) -> int:
    require("train")
    settings, models = _resumed(arguments, arguments.folder)
    return _play(arguments, settings, models, arguments.folder, repeat_broken=True)


def _play(
    arguments: argparse.Namespace, settings: EvalSettings, models: list[EvalModel], folder: Path, repeat_broken: bool
) -> int:
    from arpo_trainer.evaluation.eval_session import run_evaluation

    asked: dict[str, Any] = {"resume": repeat_broken or arguments.resume, "repeat_broken": repeat_broken}
    asked["plain"] = arguments.plain
    with opened_workers(arguments, settings, models) as workers:
        shard = _shard(arguments)
        found = run_evaluation(settings, models, folder, **asked, shard=shard, workers=workers)
    return write_summary(found, settings.max_broken)


def _shard(arguments: argparse.Namespace) -> EvalShard | None:
    from arpo_trainer.evaluation.eval_shard import read_shard

    return read_shard(arguments.shard) if getattr(arguments, "shard", None) else None


def _begun(arguments: argparse.Namespace) -> tuple[EvalSettings, list[EvalModel]]:
    """Return settings and models from the options."""
    from arpo_trainer.evaluation.eval_settings import EvalSettings
    from arpo_trainer.evaluation.suites import preset

    if not arguments.names:
        raise ValueError(f"name environments or suites: {_USAGE}")
    decided = _deciding(arguments)
    if arguments.preset:
        arguments.model = arguments.model or [preset(arguments.preset).model]
    models = read_models(arguments)
    if not models:
        raise ValueError("name the models: --model FOLDER_OR_HUB_ID ..., or --preset NAME of a published one")
    given = {name: getattr(arguments, name) for name in ("tasks", "samples", "algorithm", "seed")}
    settings = {name: value for name, value in given.items() if value is not None} | read_running(arguments)
    settings["inference"] = read_inference(arguments)
    return EvalSettings(tuple(arguments.names), **decided, **settings), models


def _deciding(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return options of environments, of rollouts and of the chat template that are given, those of a preset too."""
    from arpo_trainer.evaluation.suites import apply, preset

    options = read_env_options(arguments) if hasattr(arguments, "env_set") else {}
    rollout = read_rollout(arguments) if hasattr(arguments, "set") else {}
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
    changed: dict[str, Any] = dict(read_running(arguments))
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
        return replace(settings, **changed), read_models(arguments)
    stored = [stored_model(label, facts) for label, facts in settings.models.items()]
    if arguments.vllm_server and len(stored) > 1:
        raise ValueError("vLLM servers serve one model, and the run has several: name the one with --model")
    return replace(settings, **changed), [moved_model(model, arguments) for model in stored]
