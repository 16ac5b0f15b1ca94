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
from arpo_trainer.validation import look_up

_SEARCH = re.compile(r"<search>(.*?)</search>", re.DOTALL)
Files = Iterator[tuple[str, str]]  # name and text


@dataclass(frozen=True)
class ExportedEpisode:
    """One trajectory with everything that is stored of it."""

    row: UnitRow
    entry: EpisodeEntry
    path: list[Span]
    sample: int  # of its task, from 1, whether samples are units or roots of a tree
    tree: RolloutTree

    @property
    def text(self) -> str:
        """Everything after the prompt, results included."""
        return "".join(span.text for span in self.path)


@dataclass(frozen=True)
class ExportedSet:
    """What one model did in one environment."""

    run: EvalRun
    model: str
    env: str  # its label
    rows: list[UnitRow]
    about: Mapping[str, Any]  # what run.json says of the environment

    @property
    def name(self) -> str:
        """The label as the name of a file."""
        return file_name(self.env)

    @property
    def metrics(self) -> list[str]:
        """The metric of the environment, then accuracy."""
        return list(dict.fromkeys((self.about.get("metric", ACCURACY), ACCURACY)))

    def episodes(self) -> Iterator[ExportedEpisode]:
        """Yield the independent samples; trees are read one at a time."""
        seen: dict[str, int] = {}
        for row in self.rows:
            tree = self.run.tree(row)
            for number, entry in enumerate(row.episodes):
                if entry.counted:  # whoever reads an export takes means over it
                    seen[row.task] = seen.get(row.task, 0) + 1
                    yield ExportedEpisode(row, entry, tree.path(number), seen[row.task], tree)

    def stable_id(self, *parts: str) -> str:
        """Return an id of 22 characters; the same run always has the same ids, so that an export can be repeated."""
        return sha256_of("\n".join((self.run.folder.name, _started(self.run), *parts)))[:22]


def exported_sets(run: EvalRun, model: str) -> list[ExportedSet]:
    """Return the environments that a model has played."""
    rows = [row for row in run.rows if row.model == model]
    known = run.facts.get("environments", {})
    return [
        ExportedSet(run, model, env, [row for row in rows if row.env == env], known.get(env, {}))
        for env in dict.fromkeys(row.env for row in rows)
    ]


def _started(run: EvalRun) -> str:
    """Return when the run was started, as ISO 8601; the first second of 1970 if run.json does not say."""
    return str(run.facts.get("started", "1970-01-01T00:00:00+00:00"))


def file_name(text: str) -> str:
    """Return a label as a file name, such as "Qwen__Qwen3-8B"."""
    return re.sub(r"[^\w.-]+", "__", text).strip("_") or "model"


def sha256_of(text: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", errors="replace")).hexdigest()


def export_run(run: EvalRun, form: str, output: str | Path) -> list[Path]:
    """Write a run in a format of `FORMATS` to a folder, where files are replaced, and return the files."""
    write, written = look_up("format", form, FORMATS), []
    for model in dict.fromkeys(row.model for row in run.rows):
        for path, text in write(run, model):
            target = Path(output) / file_name(model) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8", errors="replace")
            written.append(target)
    return written


def _inspect(run: EvalRun, model: str) -> Files:
    """Yield an eval log of version 2 for each environment."""
    scores = {(each["model"], each["env"]): each for each in results(run.rows, run.facts)["scores"]}
    for one in exported_sets(run, model):
        samples = [_sample(played, one) for played in one.episodes()]
        score, ids = scores[model, one.env], list(dict.fromkeys(row.task for row in one.rows))
        values = {metric: each["mean"] for metric, each in score["metrics"].items()} | score["pass"]
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
                "eval_id": one.stable_id(model, one.env),
                "run_id": one.stable_id(model),
                "task_id": one.stable_id(one.env),
                "created": _started(run),
                "task": one.about.get("id", one.env),
                "dataset": {"name": one.env, "samples": len(ids), "sample_ids": ids},
                "model": model,
                "config": {"epochs": max((each["epoch"] for each in samples), default=1)},
                "metadata": {"arpo": {"environment": one.about}},
            },
            "results": {"total_samples": len(samples), "completed_samples": score["scored"], "scores": [entry]},
            "stats": {"started_at": _started(run), "completed_at": _started(run), "model_usage": {}},
            "samples": samples,
        }
        yield f"{one.name}.json", json.dumps(log, indent=1, ensure_ascii=False)


def _sample(played: ExportedEpisode, one: ExportedSet) -> dict[str, Any]:
    row, entry = played.row, played.entry
    sample: dict[str, Any] = {
        "id": row.task,
        "epoch": played.sample,
        "uuid": one.stable_id(row.model, one.env, row.task, str(played.sample)),
        "input": row.question,
        "target": row.answers,
        "messages": [{"role": "user", "content": row.question}, *(_message(span) for span in played.path)],
        "output": _output(played),
        "metadata": {"level": row.level, "category": row.category, "outcome": entry.outcome, "calls": entry.calls},
    }
    if entry.reward is None:
        error = entry.error or "not scored"
        return sample | {"error": {"message": error, "traceback": error, "traceback_ansi": error}}
    parts = {**entry.components, "reward": entry.reward}
    value = episode_value(entry, one.metrics[0])
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
    message = {"role": "assistant", "content": last[0].text if last else ""}
    usage = {
        "input_tokens": entry.context,
        "output_tokens": entry.tokens,
        "total_tokens": entry.context + entry.tokens,
        "input_tokens_cache_read": entry.cached,
    }
    choices = [{"message": message, "stop_reason": "max_tokens" if entry.outcome == "truncated" else "stop"}]
    return {"model": played.row.model, "choices": choices, "usage": usage}


def _papers(run: EvalRun, model: str) -> Files:
    """Yield a file for each set and each sample of its tasks, as `inference_engine.run` of the published code does."""
    for one in exported_sets(run, model):
        known = set_name(str(one.about.get("id", one.env)))
        name = known.lower() if known in PAPER_SETS else one.name
        turns: dict[int, list[dict[str, Any]]] = {}
        for played in one.episodes():
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


def _lm_eval(run: EvalRun, model: str) -> Files:
    sets, stamp = exported_sets(run, model), _started(run).replace(":", "-")
    found: dict[str, dict[str, Any]] = {}
    for one in sets:
        found[one.name] = {"name": one.name, "alias": one.env, "sample_len": len({row.task for row in one.rows})}
        for metric in one.metrics:
            if (each := interval_of(values_of(one.rows, metric))) is not None:
                found[one.name][f"{metric},none"] = each.mean
                # the interval is clustered by task, which the harness does not do by itself
                error = (each.high - each.low) / (2 * Z95) if each.tasks > 1 else "N/A"
                found[one.name][f"{metric}_stderr,none"] = error
        yield f"samples_{one.name}_{stamp}.jsonl", "".join(_lm_eval_samples(one))
    about = {
        "results": found,
        "group_subtasks": {},
        "configs": {one.name: {"task": one.name, "metadata": one.about} for one in sets},
        "versions": dict.fromkeys(found, 0),
        "n-shot": dict.fromkeys(found, 0),
        "higher_is_better": {one.name: dict.fromkeys(one.metrics, True) for one in sets},
        "n-samples": {
            name: {"original": each["sample_len"], "effective": each["sample_len"]} for name, each in found.items()
        },
        "config": {"model": "arpo-gym", "model_args": run.facts.get("models", {}).get(model, {}), "limit": None},
        "model_name": model,
        "model_name_sanitized": file_name(model),
    }
    yield f"results_{stamp}.json", json.dumps(about, indent=2, ensure_ascii=False)


def _lm_eval_samples(one: ExportedSet) -> Iterator[str]:
    """Yield a line for each task, with all its samples as repeats."""
    tasks: dict[str, list[ExportedEpisode]] = {}
    for played in one.episodes():
        if played.entry.reward is not None:
            tasks.setdefault(played.row.task, []).append(played)
    for number, samples in enumerate(tasks.values()):
        row, prompt = samples[0].row, samples[0].tree.prompt
        doc = {"id": row.task, "question": row.question, "answers": row.answers, "level": row.level}
        values = {
            metric: sum(episode_value(each.entry, metric) or 0.0 for each in samples) / len(samples)
            for metric in one.metrics
        }
        line = {
            "doc_id": number,
            "doc": doc,
            "target": str(row.answers[0]),
            "arguments": {"gen_args_0": {"arg_0": prompt, "arg_1": {}}},
            "resps": [[each.text for each in samples]],
            "filtered_resps": [each.entry.answer or "" for each in samples],
            "filter": "none",
            "metrics": one.metrics,
            "doc_hash": sha256_of(json.dumps(doc, ensure_ascii=False)),
            "prompt_hash": sha256_of(prompt),
            "target_hash": sha256_of(str(row.answers[0])),
            **values,
        }
        yield json.dumps(line, ensure_ascii=False) + "\n"


FORMATS: Mapping[str, Callable[[EvalRun, str], Files]] = {"papers": _papers, "lm-eval": _lm_eval, "inspect": _inspect}
