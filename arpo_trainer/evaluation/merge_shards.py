"""Joins the shards of an evaluation or a synthesis into one folder: `merge_shards`.

    run = merge_shards(["evals/gsm8k"])           # evals/gsm8k/shard-0-of-8, shard-1-of-8, ... -> evals/gsm8k
    run = merge_shards(["from-a/shard-0-of-2", "from-b/shard-1-of-2"], "evals/gsm8k")

Episodes are written by model, environment, task and sample, so that the files do not depend on the number of shards,
apart from times. The shards stay as they are.
"""

from __future__ import annotations

import logging
import shutil
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from arpo_trainer.evaluation.episode_store import (
    FACTS,
    KIND,
    RESULTS,
    ROWS,
    TRACES,
    EpisodeStore,
    EvalRun,
    in_order,
    load_eval_run,
)
from arpo_trainer.evaluation.eval_metrics import write_results
from arpo_trainer.evaluation.eval_settings import differing_settings
from arpo_trainer.evaluation.eval_shard import EvalShard, UnitNumbers, shard_folders
from arpo_trainer.evaluation.eval_usage import usage_of
from arpo_trainer.evaluation.unit_row import UnitRow
from arpo_trainer.folder_lock import lock_folder
from arpo_trainer.report.run_data import write_facts

logger = logging.getLogger(__name__)
_SCRATCH = ".merging"
Shards = dict[EvalShard, EvalRun]


def merge_shards(folders: Sequence[str | Path], output: str | Path | None = None, partial: bool = False) -> EvalRun:
    """Join shards.

    Args:
        folders: folders of shards, or of evaluations with shards in them.
        output: the folder that is written; None is the folder that was given, if it is one with shards in it.
        partial: join what there is, instead of refusing shards that are missing or not finished. `--resume` plays the
            rest in the joined folder.

    Raises:
        FileNotFoundError: there are no shards.
        FileExistsError: the output folder holds an evaluation.
        ValueError: shards are missing, there twice, unfinished, or of different evaluations; names them.
    """
    if output is None and len(folders) != 1:
        raise ValueError("say where the joined evaluation is written: --output FOLDER")
    target = Path(folders[0]) if output is None else Path(output)
    # files that are not in their places yet are left from a process that was killed here
    if (target / FACTS).is_file() or ((target / ROWS).is_file() and not (target / _SCRATCH / FACTS).is_file()):
        raise FileExistsError(f"{str(target)!r} holds an evaluation; give another folder with --output")
    shards = find_shards(folders)
    refuse_others(shards)
    refuse_strays(shards)
    unfinished = missing_parts(shards)
    if unfinished and not partial:
        raise ValueError(
            f"{'; '.join(unfinished)}. Play what is missing with --resume (and --shard i/n), or join what there is "
            "with --partial"
        )
    for words in unfinished:
        logger.warning("%s", words)
    _write(target, shards, "stopped" if unfinished else "finished")
    return load_eval_run(target)


def find_shards(folders: Sequence[str | Path]) -> Shards:
    """Return the shards of folders, in the order of their indices.

    Raises:
        FileNotFoundError: a folder is no shard and has none.
        ValueError: a shard is there twice, or they are of different numbers.
    """
    found: Shards = {}
    for folder in map(Path, folders):
        for path in shard_folders(folder) or [folder]:
            if not (path / FACTS).is_file():
                continue  # killed before it had played anything
            run = load_eval_run(path)
            shard = EvalShard.of(run.facts)
            if shard is None:
                raise ValueError(f"{str(path)!r} is no shard, but a whole evaluation")
            if shard in found:
                raise ValueError(f"shard {shard} is there twice: {str(found[shard].folder)!r} and {str(path)!r}")
            found[shard] = run
    if not found:
        raise FileNotFoundError(f"no shards in {', '.join(map(str, folders))}; make them with `arpo eval --shard i/n`")
    if len({shard.count for shard in found}) > 1:
        pairs = ", ".join(f"{str(run.folder)!r} ({shard})" for shard, run in found.items())
        raise ValueError(f"these are shards of different numbers: {pairs}")
    return dict(sorted(found.items()))


def refuse_others(shards: Shards) -> None:
    """Refuse shards of different evaluations; other versions of libraries are logged.

    Raises:
        ValueError: names two shards and what differs.
    """
    (_, first), *others = shards.items()
    for _, run in others:
        names = f"{str(first.folder)!r} and {str(run.folder)!r}"
        kinds = first.facts["kind"], run.facts["kind"]
        differing = [] if kinds[0] == kinds[1] else [f"the kind was {kinds[0]!r} and is {kinds[1]!r}"]
        differing += differing_settings(first.facts["settings"], run.facts["settings"])
        differing += _differing(first.facts, run.facts, "environments") + _differing(
            first.facts, run.facts, "synthesis"
        )
        if differing:
            raise ValueError(f"{names} have other settings: {'; '.join(differing)}. Join shards of one evaluation")
        if versions := _differing(first.facts, run.facts, "versions"):
            logger.warning("%s were played by other versions: %s", names, "; ".join(versions))


def _differing(first: Mapping[str, Any], second: Mapping[str, Any], part: str) -> list[str]:
    """Return in words what differs in a part of two run.json; speed and records may."""
    one, two = (_deciding(facts.get(part) or {}) for facts in (first, second))
    return [
        f"{part} {name} was {one.get(name)!r} and is {two.get(name)!r}"
        for name in sorted({*one, *two})
        if one.get(name) != two.get(name)
    ]


def _deciding(part: Mapping[str, Any]) -> dict[str, Any]:
    free = ("concurrency", "limits", "max_broken", "cache", "cache_mode", "models")  # models are in the settings
    return {name: value for name, value in part.items() if name not in free}


def refuse_strays(shards: Shards) -> None:
    """Refuse units that belong to another shard, as after a folder was renamed or edited.

    Raises:
        ValueError: names the unit and the shard it belongs to.
    """
    for shard, run in shards.items():
        numbers = unit_numbers(run)
        for row in run.rows:
            try:
                number = row.index if numbers is None else numbers.number(row.env, row.index, row.sample)
            except ValueError as error:
                raise ValueError(f"{str(run.folder)!r}: {error}") from error
            if not shard.owns(number):
                raise ValueError(
                    f"{str(run.folder)!r} holds sample {row.sample} of {row.task!r} of {row.env}, which belongs to "
                    f"shard {number % shard.count}/{shard.count}: the folder was renamed or changed"
                )


def unit_numbers(run: EvalRun) -> UnitNumbers | None:
    """Return the numbers of the units of an evaluation; None for a synthesis, which is divided by tasks."""
    if run.facts["kind"] != KIND:
        return None
    settings, environments = run.facts["settings"], run.facts["environments"]
    tasks = {label: about["tasks"] for label, about in environments.items()}
    return UnitNumbers(tasks, settings["samples"], settings["first_task"])


def missing_parts(shards: Shards) -> list[str]:
    """Return in words which shards are missing, and what is missing in others."""
    count = next(iter(shards)).count
    there = {shard.index for shard in shards}
    absent = [str(EvalShard(index, count)) for index in range(count) if index not in there]
    found = [f"missing {'shards' if len(absent) > 1 else 'shard'} {', '.join(absent)}"] if absent else []
    for shard, run in shards.items():
        if words := _missing_in(shard, run):
            running = " and is running" if run.facts["status"] == "running" else ""
            found.append(f"shard {shard} ({str(run.folder)!r}) lacks {words}{running}")
    return found


def _missing_in(shard: EvalShard, run: EvalRun) -> str:
    numbers = unit_numbers(run)
    if numbers is None:  # what a synthesis plays depends on what it has played
        return "" if run.facts["status"] == "finished" else "samples, since it is not finished"
    have: dict[str, set[int]] = defaultdict(set)
    for row in (row for row in run.rows if row.trace[1]):
        have[row.model].add(numbers.number(row.env, row.index, row.sample))
    wanted = numbers.owned(shard)
    parts = {model: wanted - len(have[model]) for model in run.facts["models"]}
    return ", ".join(f"{lack} of {wanted} units of {model}" for model, lack in parts.items() if lack)


def _write(target: Path, shards: Shards, status: str) -> None:
    """Write the joined folder: all files beside it first, then into their places, run.json last.

    Raises:
        BlockingIOError: another process writes to the folder.
    """
    scratch = target / _SCRATCH
    target.mkdir(parents=True, exist_ok=True)
    with lock_folder(target):
        shutil.rmtree(scratch, ignore_errors=True)
        facts = _joined_facts(target, list(shards.values()), status)
        with EpisodeStore(scratch) as store:
            for run, row in _ordered(facts, shards.values()):
                store.copy(row, _whole_line(run, row))
            rows = list(store.rows.values())
        facts["usage"] = usage_of(facts, rows).as_dict()
        write_facts(scratch / FACTS, facts)
        if facts["kind"] == KIND:
            write_results(scratch, rows, facts)
        for name in (RESULTS, TRACES, ROWS, FACTS):
            if (scratch / name).is_file():
                (scratch / name).replace(target / name)
        shutil.rmtree(scratch, ignore_errors=True)


def _whole_line(run: EvalRun, row: UnitRow) -> str:
    """Return a unit's line of traces.jsonl.

    Raises:
        ValueError: it is not complete.
    """
    line = run.line(row)
    if line.startswith("{") and line.endswith("\n"):
        return line
    raise ValueError(
        f"the tree of sample {row.sample} of {row.task!r} of {row.env} is cut off in {str(run.folder / TRACES)!r}; "
        "--resume plays it again"
    )


def _joined_facts(target: Path, runs: Sequence[EvalRun], status: str) -> dict[str, Any]:
    """Return run.json: that of the first shard, with the times of all."""
    first = {name: value for name, value in runs[0].facts.items() if name != "shard"}
    about: dict[str, Any] = {"count": len(runs), "seconds": [run.facts.get("seconds", 0.0) for run in runs]}
    if any(_differing(first, run.facts, "versions") for run in runs):
        about["versions"] = [run.facts.get("versions") for run in runs]
    return first | {
        "name": target.resolve().name,
        "status": status,
        "started": min(run.facts["started"] for run in runs),
        "seconds": max(about["seconds"]),
        "sittings": sum(run.facts["sittings"] for run in runs),
        "shards": about,
    }


def _ordered(facts: dict[str, Any], runs: Iterable[EvalRun]) -> list[tuple[EvalRun, UnitRow]]:
    """Return all attempts of all units with the shard each is in, in an order that the shards do not change."""
    attempts = [(run, row) for run in runs for row in run.attempts if row.trace[1]]
    place = {row.key: number for number, row in enumerate(in_order(facts, [row for _, row in attempts]))}
    return sorted(attempts, key=lambda each: (place[each[1].key], each[1].attempt))
