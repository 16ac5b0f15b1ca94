"""The `score` action of `arpo eval`: grades the stored answers of a run again, without generating.

arpo eval score evals/gaia --scorer judge --judge-model Qwen2.5-72B-Instruct
arpo eval score evals/gaia --function my_graders:lenient --name lenient
arpo eval score evals/gaia --reward '{accuracy: 1, format: 0.2}'
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import re
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arpo_trainer.cli.command_options import add_command
from arpo_trainer.cli.text_table import write_table

if TYPE_CHECKING:
    from arpo_env.grading import Grader
    from arpo_trainer.evaluation.rescoring import Rescored
    from arpo_trainer.evaluation.stored_episodes import Scorer
    from arpo_trainer.evaluation.verdict_file import Verdict

logger = logging.getLogger(__name__)
_SHOWN = 5
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
        _write(found)
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
    from arpo_trainer.evaluation import stored_episodes as stored
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


def _write(found: Rescored) -> None:
    from arpo_trainer.views.terminal_view import visible

    rows = [("MODEL", "ENVIRONMENT", "ACCURACY", "MEAN SCORE", "ANSWERS", "BROKEN", "AGREEMENT", "KAPPA")]
    for each in found.scores:
        both = each["agreement"] or {}
        agreed = (f"{both['share']:.3f}", f"{both['kappa']:.3f}") if both else ("-", "-")
        samples = str(each["value"]["samples"]) if each["value"] else "0"
        cells = (_interval(each["accuracy"]), _interval(each["value"]), samples, str(each["broken"]))
        rows.append((each["model"], each["env"], *cells, *agreed))
    write_table(rows)
    if found.agreement is not None:
        both_graded = f"of {found.agreement.answers} answers that both graded"
        sys.stdout.write(f"\n{len(found.disagreements)} {both_graded} have another verdict than in the run\n")
    for each in found.disagreements[:_SHOWN]:
        text = {name: each[name] for name in ("question", "answers", "answer", "before", "now")}
        # JSON has no escapes for some control characters
        sys.stdout.write("  " + visible(json.dumps(text, ensure_ascii=False)) + "\n")
    sys.stdout.write(f"{found.path}\n{found.path.with_suffix('.disagreements.jsonl')}\n")


def _interval(data: dict[str, Any] | None) -> str:
    if data is None:
        return "-"
    if data["low"] is None:
        return f"{data['mean']:.3f}"
    return f"{data['mean']:.3f} [{data['low']:.3f}, {data['high']:.3f}]"
