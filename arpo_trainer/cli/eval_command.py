"""The `arpo eval` command: evaluates models on environments or suites, and goes on after any kill.

arpo eval arpo/GSM8K-v0 --env-set split=test --model FOLDER --tasks 100 -n 4 --output evals/gsm8k
arpo eval deepsearch --endpoint URL --endpoint-model NAME --model TOKENIZER --output evals/deepsearch
arpo eval --resume --output evals/gsm8k          # only what is missing
arpo eval retry evals/gsm8k                      # only what broke
arpo eval ... --shard 3/8 --output evals/gsm8k   # one of eight parts; `arpo eval merge evals/gsm8k` joins them
arpo eval compare evals/base evals/arpo          # task by task
arpo eval score evals/gaia --function my_graders:lenient --name lenient
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from arpo_trainer.cli.command_options import (
    AsJson,
    EnvSet,
    Flag,
    Limit,
    ModelOptions,
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
from arpo_trainer.evaluation.eval_settings import PAPER_SAMPLING, TREE_SIZE, EvalSettings
from arpo_trainer.inference_tools import PRICES, read_tools
from arpo_trainer.optional_dependencies import require
from arpo_trainer.rollout.settings import RolloutSettings
from arpo_trainer.run.recipes import parse_assignments

if TYPE_CHECKING:
    from arpo_env.grading import Grader
    from arpo_trainer.evaluation.episode_store import EvalRun
    from arpo_trainer.evaluation.eval_metrics import ChangedTask, RunComparison
    from arpo_trainer.evaluation.eval_settings import EvalModel
    from arpo_trainer.evaluation.eval_shard import EvalShard
    from arpo_trainer.evaluation.rescoring import Rescored, Scorer
    from arpo_trainer.statistics import PairedComparison

_USAGE = "arpo eval ENV_OR_SUITE ... --model MODEL ... --output FOLDER [options]"
Run = Annotated[Path, Parameter(help="the --output folder of `arpo eval`")]
Amount = options_of(EvalSettings, "tasks", "algorithm", "seed", samples="-n")
Running = options_of(EvalSettings, "concurrency", "max_broken", "cache", "cache_mode")
_LENGTH = "the model's context less 4096, at most 28672"
_USUAL = {**PAPER_SAMPLING, "max_completion_length": _LENGTH, "num_generations": TREE_SIZE}
_SAMPLING = ("temperature", "max_turn_length", "max_completion_length", "num_generations")
Rollout = options_of(RolloutSettings, *_SAMPLING, usual=_USUAL)
Shard = Annotated[
    str | None,
    Parameter(help="play part i of n as i/n, into FOLDER/shard-i-of-n; auto or auto/n: of SLURM, Kubernetes"),
]
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
    with_price: Annotated[tuple[float, ...], Parameter(show_default=False)] = ()
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
        from arpo_trainer.evaluation.suites import apply, preset

        if not self.preset:
            return {"env_options": env_options, "rollout": rollout}
        row = preset(self.preset)
        env_options, rollout = apply(row, env_options, rollout)
        template = dict(row.chat_template_kwargs)
        return {"env_options": env_options, "rollout": rollout, "chat_template_kwargs": template}


@evaluate.default
def eval_models(
    *names: Annotated[str, Parameter(help="ids of environments, or names of suites")],
    output: Annotated[Path | None, Parameter(help="where everything is written")] = None,
    models: ModelOptions | None = None,
    amount: Amount | None = None,  # type: ignore[valid-type]
    env_set: EnvSet = (),
    rollout: Rollout | None = None,  # type: ignore[valid-type]
    settings: set_option("other settings of rollouts: top_p=1 repetition_penalty=1") = (),  # type: ignore[valid-type]
    running: Running | None = None,  # type: ignore[valid-type]
    resume: Annotated[Flag, Parameter(help="go on with the folder: play only what is missing")] = False,
    shard: Shard = None,
    played: Played | None = None,
) -> int:
    """Evaluate models on environments and suites; without arguments, list the suites and the presets."""
    models, played = models or ModelOptions(), played or Played()
    if output is None and not (names or models.named or resume):
        return _list()
    if output is None:
        raise ValueError("say where the evaluation is written: --output FOLDER")
    require("train")
    from arpo_trainer.evaluation.eval_shard import read_shard

    part = read_shard(shard) if shard else None
    folder = part.folder(output) if part else output
    changed: dict[str, Any] = {**(amount or {}), **(running or {}), **played.limits()}
    if names:
        changed["environments"] = tuple(names)
    decided = played.deciding(parse_assignments(env_set, "--env-set"), given_with_set(rollout or {}, settings))
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


def _list() -> int:
    from arpo_trainer.evaluation.suites import preset_table, suite_table

    write_table(suite_table())
    sys.stdout.write("\n")
    write_table(preset_table())
    return 0


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
    from arpo_trainer.evaluation.suites import preset

    if "environments" not in changed:
        raise ValueError(f"name environments or suites: {_USAGE}")
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
    models = options.read() if options.named else options.again(settings.models)
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
        data = [_finite(dataclasses.asdict(each)) for each in found]
        sys.stdout.write(json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
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


@dataclass
class _Chosen:
    """What grades: the scorer, its description, and what has to be closed."""

    scorer: Scorer
    about: dict[str, Any]
    grader: Grader | None = None


@evaluate.command
def score(
    run: Run,
    /,
    *,
    scorer: str | None = None,
    function: str | None = None,
    reward: str | None = None,
    judge_model: str | None = None,
    judge_url: str | None = None,
    name: str | None = None,
    concurrency: int = 16,
    max_broken: float = 0.02,
) -> int:
    """Grade the stored answers of a run again, with another grader, judge, function or reward.

    Args:
        run: the run
        scorer: auto, math, qa, em, mcq, gaia or judge
        function: a function of (answer, task) as MODULE:NAME; may be async
        reward: paper, reference, {TERM: WEIGHT}, or MODULE:NAME
        judge_model: the model of --scorer judge
        judge_url: its server (default OPENAI_BASE_URL); key: OPENAI_API_KEY
        name: of the files in RUN/scores (default: what grades)
        concurrency: number of answers graded at once
        max_broken: share of answers without a verdict above which the status is not 0
    """
    from arpo_trainer.evaluation.episode_store import load_eval_run
    from arpo_trainer.evaluation.rescoring import write_rescored

    chosen({"--scorer": scorer, "--function": function, "--reward": reward}, needed=True)
    if concurrency < 1:
        raise ValueError(f"--concurrency must be at least 1, got {concurrency}")
    if not 0 <= max_broken <= 1:
        raise ValueError(f"--max-broken is a share between 0 and 1, got {max_broken}")
    if scorer != "judge" and (judge_model or judge_url):
        raise ValueError("--judge-model and --judge-url are options of --scorer judge")
    stored = load_eval_run(run)
    what = _grader(scorer, judge_model, judge_url, concurrency) if scorer else _function_or_reward(function, reward)
    found = asyncio.run(_rescore(stored, _file_name(name, what.about), what, concurrency))
    write_rescored(found)
    _write_rescored(found)
    if found.broken_share > max_broken:
        causes = ", ".join(f"{cause} {count}" for cause, count in found.broken.items())
        many = f"{sum(found.broken.values())} of {found.answers} answers have no verdict ({causes})"
        sys.stderr.write(f"{many}; the same command tries them again\n")
        return 1
    return 0


async def _rescore(run: EvalRun, name: str, what: _Chosen, concurrency: int) -> Rescored:
    from arpo_trainer.evaluation.rescoring import rescore

    try:
        return await rescore(run, name, what.scorer, what.about, concurrency)
    finally:
        if what.grader is not None:
            await what.grader.close()


def _function_or_reward(function: str | None, reward: str | None) -> _Chosen:
    from arpo_trainer.evaluation import rescoring as stored
    from envs_registry.spec import load_object

    if function:
        return _Chosen(stored.function_scorer(load_object(function, "--function")), {"function": function})
    scorer = stored.reward_scorer(stored.read_reward(str(reward)))
    return _Chosen(scorer, {"reward": reward})


def _grader(scorer: str, model: str | None, url: str | None, concurrency: int) -> _Chosen:
    from arpo_env.grading import make_grader
    from arpo_trainer.evaluation.rescoring import grader_scorer

    about: dict[str, Any] = {"scorer": scorer}
    if scorer != "judge":
        grader = make_grader(scorer)
    elif not model:
        raise ValueError("--scorer judge needs --judge-model NAME, and --judge-url or OPENAI_BASE_URL for its server")
    else:
        from arpo_env.chat_model import ChatModel
        from arpo_env.grading.llm_judge import VERSION

        grader = make_grader("judge", chat=ChatModel(model, url, concurrency=concurrency))
        about |= {"model": model, "prompt": VERSION}
    return _Chosen(grader_scorer(grader), about, grader)


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
