"""Writes an evaluation in the formats of other harnesses: the papers' code, lm-evaluation-harness, Inspect.

    export_run(load_eval_run("evals/gaia"), "inspect", "exported")      # -> the files that were written

| format | files, for each model | checked with |
|---|---|---|
| `papers` | SET/SET_output_TURN.json, which the published evaluate.py takes | that script's own evaluator |
| `lm-eval` | results_TIME.json and samples_SET_TIME.jsonl | `make_table` of lm-eval 0.4.13 |
| `inspect` | SET.json, an eval log of version 2 | `read_eval_log` of inspect-ai 0.3 |

Episodes that broke are left out of the first two, whose readers would count them as wrong; Inspect's log has errors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from arpo_trainer.evaluation.episode_store import EvalRun
from arpo_trainer.evaluation.episode_values import episode_value, interval_of, values_of
from arpo_trainer.evaluation.exported_episodes import (
    ExportedEpisode,
    environment_id,
    environments_of,
    exported_episodes,
    file_name,
    reported_metrics,
    rows_of_set,
    sha256_of,
    start_time,
)
from arpo_trainer.evaluation.inspect_log import inspect_logs
from arpo_trainer.evaluation.published_results import paper_set
from arpo_trainer.statistics.intervals import Z95
from envs_registry.nearest_name import nearest_hint

_SEARCH = re.compile(r"<search>(.*?)</search>", re.DOTALL)
_PAPERS_NAMES = {"SimpleQA": "SimpleQA"}  # of their folders; the others are in lower case


def export_run(run: EvalRun, form: str, output: str | Path) -> list[Path]:
    """Write a run in another format, and return the files.

    Args:
        run: the run.
        form: "papers", "lm-eval" or "inspect".
        output: the folder, which is created; files in it are replaced.

    Raises:
        ValueError: the format is unknown, the run has no episode, or its traces are missing.
    """
    if form not in FORMATS:
        raise ValueError(f"no format {form!r}; there is {', '.join(FORMATS)}{nearest_hint(form, FORMATS)}")
    if not run.rows:
        raise ValueError(f"{run.folder} has no finished episode")
    written = []
    for model in dict.fromkeys(row.model for row in run.rows):
        folder = Path(output) / file_name(model)
        for path, text in FORMATS[form](run, model):
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8", errors="replace")
            written.append(target)
    return written


def _papers(run: EvalRun, model: str) -> Iterator[tuple[str, str]]:
    """Yield a file for each set and each sample of its tasks, as `inference_engine.run` of the published code does."""
    for env in environments_of(run, model):
        known = paper_set(environment_id(run, env))
        name = _PAPERS_NAMES.get(known.name, known.name.lower()) if known else file_name(env)
        turns: dict[int, list[dict[str, Any]]] = {}
        for played in exported_episodes(run, model, env):
            if played.entry.reward is not None:
                turns.setdefault(played.sample, []).append(_papers_item(played))
        for turn, items in turns.items():
            yield f"{name}/{name}_output_{turn}.json", json.dumps(items, indent=4, ensure_ascii=False)


def _papers_item(played: ExportedEpisode) -> dict[str, Any]:
    golds = played.row.answers
    written = [span.text for span in played.path if span.kind == "model"]
    return {
        "instruction": played.tree.prompt,
        "input": played.row.question,
        "output": played.text,
        "prediction": played.entry.answer or "",
        # its mathematics takes one answer, its questions take a list
        "answer": golds[0] if len(golds) == 1 or played.tree.task.get("kind") == "math" else golds,
        "logs": [span.text for span in played.path],
        "search_query_history": [query.strip() for text in written for query in _SEARCH.findall(text)],
    }


def _lm_eval(run: EvalRun, model: str) -> Iterator[tuple[str, str]]:
    envs, stamp = environments_of(run, model), start_time(run).replace(":", "-")
    names = {env: file_name(env) for env in envs}
    found: dict[str, dict[str, Any]] = {}
    for env in envs:
        rows = rows_of_set(run, model, env)
        found[names[env]] = {"name": names[env], "alias": env, "sample_len": len({row.task for row in rows})}
        for metric in reported_metrics(run, env):
            if (each := interval_of(values_of(rows, metric))) is not None:
                found[names[env]][f"{metric},none"] = each.mean
                # the interval is clustered by task, which the harness does not do by itself
                found[names[env]][f"{metric}_stderr,none"] = (
                    (each.high - each.low) / (2 * Z95) if each.tasks > 1 else "N/A"
                )
        yield f"samples_{names[env]}_{stamp}.jsonl", "".join(_lm_eval_samples(run, model, env))
    about = {
        "results": found,
        "group_subtasks": {},
        "configs": {
            names[env]: {"task": names[env], "metadata": run.facts.get("environments", {}).get(env, {})} for env in envs
        },
        "versions": dict.fromkeys(names.values(), 0),
        "n-shot": dict.fromkeys(names.values(), 0),
        "higher_is_better": {names[env]: dict.fromkeys(reported_metrics(run, env), True) for env in envs},
        "n-samples": {
            name: {"original": each["sample_len"], "effective": each["sample_len"]} for name, each in found.items()
        },
        "config": {"model": "arpo-gym", "model_args": run.facts.get("models", {}).get(model, {}), "limit": None},
        "model_name": model,
        "model_name_sanitized": file_name(model),
    }
    yield f"results_{stamp}.json", json.dumps(about, indent=2, ensure_ascii=False)


def _lm_eval_samples(run: EvalRun, model: str, env: str) -> Iterator[str]:
    """Yield a line for each task, with all its samples as repeats."""
    tasks: dict[str, list[ExportedEpisode]] = {}
    for played in exported_episodes(run, model, env):
        if played.entry.reward is not None:
            tasks.setdefault(played.row.task, []).append(played)
    for number, samples in enumerate(tasks.values()):
        row, metrics = samples[0].row, reported_metrics(run, env)
        doc = {"id": row.task, "question": row.question, "answers": row.answers, "level": row.level}
        values = {
            metric: sum(episode_value(each.entry, metric) or 0.0 for each in samples) / len(samples)
            for metric in metrics
        }
        line = {
            "doc_id": number,
            "doc": doc,
            "target": str(row.answers[0]),
            "arguments": {"gen_args_0": {"arg_0": samples[0].tree.prompt, "arg_1": {}}},
            "resps": [[each.text for each in samples]],
            "filtered_resps": [each.entry.answer or "" for each in samples],
            "filter": "none",
            "metrics": metrics,
            "doc_hash": sha256_of(json.dumps(doc, ensure_ascii=False)),
            "prompt_hash": sha256_of(samples[0].tree.prompt),
            "target_hash": sha256_of(str(row.answers[0])),
            **values,
        }
        yield json.dumps(line, ensure_ascii=False) + "\n"


_Writer = Callable[[EvalRun, str], Iterator[tuple[str, str]]]
FORMATS: Mapping[str, _Writer] = {"papers": _papers, "lm-eval": _lm_eval, "inspect": inspect_logs}
