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

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arpo_env.memory_folding import memory_text
from arpo_trainer.evaluation.episode_store import EpisodeEntry, EvalRun, UnitRow
from arpo_trainer.evaluation.eval_metrics import ACCURACY, episode_value, interval_of, results, values_of
from arpo_trainer.evaluation.suites import PAPER_SETS, set_name
from arpo_trainer.statistics import Z95
from arpo_trainer.tree import RolloutTree, Span
from envs_registry.nearest_name import nearest_hint


@dataclass(frozen=True)
class ExportedEpisode:
    """One trajectory with everything that is stored of it.

    Attributes:
        row: its unit.
        entry: its entry in the row.
        path: its spans.
        sample: number of the sample of its task, from 1, whether samples are units or roots of a tree.
        tree: the unit's tree.
    """

    row: UnitRow
    entry: EpisodeEntry
    path: list[Span]
    sample: int
    tree: RolloutTree

    @property
    def text(self) -> str:
        """Everything after the prompt, results included."""
        return "".join(span.text for span in self.path)


def exported_episodes(run: EvalRun, model: str, env: str) -> Iterator[ExportedEpisode]:
    """Yield the independent samples of a model in an environment; trees are read one at a time."""
    seen: dict[str, int] = {}
    for row in rows_of_set(run, model, env):
        tree = run.tree(row)
        for number, entry in enumerate(row.episodes):
            if entry.counted:  # whoever reads an export takes means over it
                seen[row.task] = seen.get(row.task, 0) + 1
                yield ExportedEpisode(row, entry, tree.path(number), seen[row.task], tree)


def rows_of_set(run: EvalRun, model: str, env: str) -> list[UnitRow]:
    """Return the rows of a model in an environment."""
    return [row for row in run.rows if (row.model, row.env) == (model, env)]


def environments_of(run: EvalRun, model: str) -> list[str]:
    """Return the labels of the environments that a model has played."""
    return list(dict.fromkeys(row.env for row in run.rows if row.model == model))


def described(run: EvalRun, env: str) -> dict[str, Any]:
    """Return what run.json says of an environment."""
    about: dict[str, Any] = run.facts.get("environments", {}).get(env, {})
    return about


def reported_metrics(run: EvalRun, env: str) -> list[str]:
    """Return the metric of an environment, then accuracy."""
    return list(dict.fromkeys((described(run, env).get("metric", ACCURACY), ACCURACY)))


def start_time(run: EvalRun) -> str:
    """Return when the run was started, as ISO 8601; the first second of 1970 if run.json does not say."""
    return str(run.facts.get("started") or "1970-01-01T00:00:00+00:00")


def file_name(text: str) -> str:
    """Return a label as a file name, such as "Qwen__Qwen3-8B"."""
    return re.sub(r"[^\w.-]+", "__", text).strip("_") or "model"


def stable_id(run: EvalRun, *parts: str) -> str:
    """Return an id of 22 characters; the same run always has the same ids, so that an export can be repeated."""
    return sha256_of("\n".join((run.folder.name, start_time(run), *parts)))[:22]


def sha256_of(text: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", errors="replace")).hexdigest()


def inspect_logs(run: EvalRun, model: str) -> Iterator[tuple[str, str]]:
    """Yield a file name and an eval log of version 2 of Inspect for each environment; what broke has an error."""
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
                "task": described(run, env).get("id", env),
                "dataset": {"name": env, "samples": len(ids), "sample_ids": ids},
                "model": model,
                "config": {"epochs": max((each["epoch"] for each in samples), default=1)},
                "metadata": {"arpo": {"environment": described(run, env)}},
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


_SEARCH = re.compile(r"<search>(.*?)</search>", re.DOTALL)


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
        known = set_name(str(described(run, env).get("id", env)))
        name = known.lower() if known in PAPER_SETS else file_name(env)
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
        "configs": {names[env]: {"task": names[env], "metadata": described(run, env)} for env in envs},
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
