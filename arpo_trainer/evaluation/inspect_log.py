"""An evaluation as Inspect's eval logs, one JSON file for each environment: `inspect view` shows them.

    for name, text in inspect_logs(run, "smollm2"):
        (folder / name).write_text(text)

Episodes that broke are samples with an error; they are in no metric.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from arpo_env.memory_folding import memory_text
from arpo_trainer.evaluation.episode_store import EvalRun
from arpo_trainer.evaluation.episode_values import episode_value
from arpo_trainer.evaluation.eval_metrics import results
from arpo_trainer.evaluation.exported_episodes import (
    ExportedEpisode,
    environment_id,
    environments_of,
    exported_episodes,
    file_name,
    reported_metrics,
    rows_of_set,
    stable_id,
    start_time,
)
from arpo_trainer.tree import Span


def inspect_logs(run: EvalRun, model: str) -> Iterator[tuple[str, str]]:
    """Yield a file name and an eval log of version 2 for each environment."""
    scores = {(each["model"], each["env"]): each for each in results(run.rows, run.facts)["scores"]}
    for env in environments_of(run, model):
        samples = [_sample(played, run, env) for played in exported_episodes(run, model, env)]
        rows, name, score = rows_of_set(run, model, env), file_name(env), scores[model, env]
        ids = list(dict.fromkeys(row.task for row in rows))
        values = {f"{metric}": each["mean"] for metric, each in score["metrics"].items()} | score["pass"]
        entry = {
            "name": "arpo",
            "scorer": "arpo",
            "params": {},
            "scored_samples": score["scored"],
            "unscored_samples": len(samples) - score["scored"],
            "metrics": {metric: {"name": metric, "value": value} for metric, value in values.items()},
        }
        log = {
            "version": 2,
            "status": "success",
            "eval": {
                "eval_id": stable_id(run, model, env),
                "run_id": stable_id(run, model),
                "task_id": stable_id(run, env),
                "created": start_time(run),
                "task": environment_id(run, env),
                "dataset": {"name": env, "samples": len(ids), "sample_ids": ids},
                "model": model,
                "config": {"epochs": max((each["epoch"] for each in samples), default=1)},
                "metadata": {"arpo": {"environment": run.facts.get("environments", {}).get(env, {})}},
            },
            "results": {"total_samples": len(samples), "completed_samples": score["scored"], "scores": [entry]},
            "stats": {"started_at": start_time(run), "completed_at": start_time(run), "model_usage": {}},
            "samples": samples,
        }
        yield f"{name}.json", json.dumps(log, indent=1, ensure_ascii=False)


def _sample(played: ExportedEpisode, run: EvalRun, env: str) -> dict[str, Any]:
    row, entry = played.row, played.entry
    sample: dict[str, Any] = {
        "id": row.task,
        "epoch": played.sample,
        "uuid": stable_id(run, row.model, env, row.task, str(played.sample)),
        "input": row.question,
        "target": row.answers,
        "messages": [{"role": "user", "content": row.question}, *(_message(span) for span in played.path)],
        "output": _output(played),
        "metadata": {"level": row.level, "category": row.category, "outcome": entry.outcome, "calls": entry.calls},
    }
    if entry.reward is None:
        error = entry.error or "not scored"
        return sample | {"error": {"message": error, "traceback": error, "traceback_ansi": error}}
    value = episode_value(entry, reported_metrics(run, env)[0])
    parts = {**entry.components, "reward": entry.reward}
    return sample | {"scores": {"arpo": {"value": value, "answer": entry.answer, "metadata": parts}}}


def _message(span: Span) -> dict[str, Any]:
    if span.kind == "model":
        return {"role": "assistant", "content": span.text}
    if span.tool:
        # a fold's own text is the whole new prompt
        content = memory_text(span.tool["memory"]) if span.kind == "fold" else span.text
        return {"role": "tool", "content": content, "function": span.tool.get("name")}
    return {"role": "user", "content": span.text}


def _output(played: ExportedEpisode) -> dict[str, Any]:
    entry, last = played.entry, [span for span in played.path if span.kind == "model"][-1:]
    reason = "max_tokens" if entry.outcome == "truncated" else "stop"
    message = {"role": "assistant", "content": last[0].text if last else ""}
    usage = {
        "input_tokens": entry.context,
        "output_tokens": entry.tokens,
        "total_tokens": entry.context + entry.tokens,
        "input_tokens_cache_read": entry.cached,
    }
    choices = [{"message": message, "stop_reason": reason}]
    return {"model": played.row.model, "choices": choices, "usage": usage}
