"""Shards of an evaluation: `read_shard` names the part that a process plays, `merge_shards` joins them.

    shard = read_shard("3/8")                     # the fourth of eight; indices begin at 0
    shard = read_shard("auto/8")                  # the index from SLURM (array) or Kubernetes (Indexed Job)
    shard.folder("evals/gsm8k")                   # evals/gsm8k/shard-3-of-8
    run = merge_shards(["evals/gsm8k"])           # evals/gsm8k/shard-0-of-8, shard-1-of-8, ... -> evals/gsm8k

The units of an evaluation are counted in their order, and shard i of n has those whose number is i modulo n. What a
unit draws depends on its task and sample alone, so the shards together are the evaluation that one process plays.
"""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arpo_trainer.evaluation.episode_store import (
    FACTS,
    KIND,
    ROWS,
    TRACES,
    EpisodeStore,
    EvalRun,
    in_order,
    load_eval_run,
)
from arpo_trainer.evaluation.eval_metrics import usage_of, write_results
from arpo_trainer.evaluation.eval_settings import SPEED, differing_settings
from arpo_trainer.report.run_data import write_facts

logger = logging.getLogger(__name__)
_SLURM, _KUBERNETES = "SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX"
_NAME = re.compile(r"shard-(\d+)-of-(\d+)")


@dataclass(frozen=True, order=True)
class EvalShard:
    """Part `index` (from 0) of `count` parts of an evaluation."""

    index: int
    count: int

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise ValueError(
                f"shard {self}: the indices of {self.count} shards are 0 to {self.count - 1} "
                f"(an array of SLURM for them is --array=0-{self.count - 1})"
            )

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    def folder(self, output: str | Path) -> Path:
        """Return the folder of the shard in that of the evaluation."""
        return Path(output) / f"shard-{self.index}-of-{self.count}"

    def owns(self, number: int) -> bool:
        """Return whether the unit of a number belongs to the shard."""
        return number % self.count == self.index

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> EvalShard | None:
        """Return the shard that a run.json is of, or None if it is of a whole evaluation."""
        return cls(**facts["shard"]) if facts.get("shard") else None


def read_shard(text: str, environ: Mapping[str, str] = os.environ) -> EvalShard:
    """Return the shard of "i/n", "auto/n" (the index from SLURM or Kubernetes) or "auto" (in an array of SLURM)."""
    found = re.fullmatch(r"(auto|\d+)(?:/(\d+))?", text.strip())
    if found is None or (found[1] != "auto" and found[2] is None):
        raise ValueError(f"--shard {text!r}: write i/n with i from 0 to n-1, such as 0/8, or auto, or auto/8")
    if found[1] != "auto":
        return EvalShard(int(found[1]), int(found[2]))
    given = [environ[name] for name in (_SLURM, _KUBERNETES) if environ.get(name)]
    if len(given) != 1 or not given[0].isdecimal():
        there = f"both are set, {given}" if len(given) > 1 else f"it is {given[0]!r}" if given else "neither is set"
        raise ValueError(
            f"--shard {text}: the index is read from {_SLURM} (sbatch --array=0-7) or {_KUBERNETES} (an Indexed Job), "
            f"and {there}; write it out, such as --shard 0/8"
        )
    return EvalShard(int(given[0]), int(found[2]) if found[2] else _array_size(environ))


def _array_size(environ: Mapping[str, str]) -> int:
    """Return the number of shards of an array of SLURM; a part of an array does not say how many there are."""
    count, low, high = (environ.get(f"SLURM_ARRAY_TASK_{name}", "?") for name in ("COUNT", "MIN", "MAX"))
    if not (count.isdecimal() and low == "0" and high == str(int(count) - 1)):
        raise ValueError(
            f"--shard auto: an array of {count} tasks from {low} to {high} does not say the number of shards; write "
            "--shard auto/8 with an array of --array=0-7 or a part of it"
        )
    return int(count)


def shard_folders(output: str | Path) -> dict[Path, EvalShard]:
    """Return the folders in an evaluation's folder whose names are those of shards, in the order of the indices."""
    named = {
        path: EvalShard(int(found[1]), int(found[2]))
        for path in Path(output).glob("shard-*-of-*")
        if (found := _NAME.fullmatch(path.name)) and int(found[1]) < int(found[2])
    }
    return dict(sorted(named.items(), key=lambda each: (each[1].count, each[1].index)))


def refuse_other_count(output: str | Path, shard: EvalShard) -> None:
    """Refuse to begin a shard beside shards of another number."""
    for path, other in shard_folders(output).items():
        if other.count != shard.count:
            raise ValueError(
                f"{str(path)!r} is one of {other.count} shards, and {shard} one of {shard.count}: go on with --shard "
                f"{shard.index}/{other.count}, or give another folder with --output"
            )


def merge_shards(folders: Sequence[str | Path], output: str | Path | None = None, partial: bool = False) -> EvalRun:
    """Join the shards of an evaluation or a synthesis into one folder; the shards stay as they are.

    Episodes are written by model, environment, task and sample: the files do not depend on the number of shards.

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
    if (target / FACTS).is_file():
        raise FileExistsError(f"{str(target)!r} holds an evaluation; give another folder with --output")
    if (target / ROWS).is_file():
        raise FileExistsError(
            f"{str(target)!r} has episodes, but no {FACTS}: if a killed merge left them, delete {ROWS} and {TRACES}"
        )
    shards = _find_shards(folders)
    runs = list(shards.values())
    _refuse_others(runs)
    unfinished = _missing_parts(shards)
    if unfinished and not partial:
        raise ValueError(
            f"{'; '.join(unfinished)}. Play what is missing with --resume (and --shard i/n), or join what there is "
            "with --partial"
        )
    for words in unfinished:
        logger.warning("%s", words)
    target.mkdir(parents=True, exist_ok=True)
    facts = _joined_facts(target, runs, "stopped" if unfinished else "finished")
    attempts = [(run, row) for run in runs for row in run.attempts]
    place = {row.key: number for number, row in enumerate(in_order(facts, [row for _, row in attempts]))}
    with EpisodeStore(target) as store:
        for run, row in sorted(attempts, key=lambda each: (place[each[1].key], each[1].attempt)):
            line = run.line(row)
            if not (line.startswith("{") and line.endswith("\n")):
                raise ValueError(f"a tree is cut off in {str(run.folder / TRACES)!r}; --resume plays it again")
            store.copy(row, line)
        rows = list(store.rows.values())
        facts["usage"] = usage_of(facts, rows)
        if facts["kind"] == KIND:
            write_results(target, rows, facts)
        write_facts(target / FACTS, facts)  # at the end: it says that the others are whole
    return load_eval_run(target)


def _find_shards(folders: Sequence[str | Path]) -> dict[EvalShard, EvalRun]:
    """Return the shards of folders, in the order of their indices."""
    found: dict[EvalShard, EvalRun] = {}
    for path in (path for folder in map(Path, folders) for path in shard_folders(folder) or [folder]):
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


def _refuse_others(runs: Sequence[EvalRun]) -> None:
    """Refuse shards of different evaluations; other versions of libraries are logged."""
    first = runs[0]
    for run in runs[1:]:
        names = f"{str(first.folder)!r} and {str(run.folder)!r}"
        differing = differing_settings(first.facts["settings"], run.facts["settings"])
        for part in ("environments", "synthesis", "protocols"):
            differing += _differing(first.facts, run.facts, part)
        if differing or first.facts["kind"] != run.facts["kind"]:
            raise ValueError(f"{names} have other settings: {'; '.join(differing)}. Join shards of one evaluation")
        if others := _differing(first.facts, run.facts, "versions"):
            logger.warning("%s were played by other versions: %s", names, "; ".join(others))


def _differing(first: Mapping[str, Any], second: Mapping[str, Any], part: str) -> list[str]:
    """Return in words what differs in a part of two run.json; speed and records may."""
    one, two = (facts.get(part) or {} for facts in (first, second))
    # a shard that has no unit of a model has no protocols of it
    names = {*one} & {*two} if part == "protocols" else {*one, *two}
    return [
        f"{part} {name} was {one.get(name)!r} and is {two.get(name)!r}"
        for name in sorted(names - {*SPEED, "models"})  # models are in the settings
        if one.get(name) != two.get(name)
    ]


def _missing_parts(shards: Mapping[EvalShard, EvalRun]) -> list[str]:
    """Return in words which shards are missing, and what is missing in others."""
    count = next(iter(shards)).count
    absent = [f"{index}/{count}" for index in range(count) if EvalShard(index, count) not in shards]
    found = [f"missing shards {', '.join(absent)}"] if absent else []
    for shard, run in shards.items():
        if words := _missing_in(shard, run):
            running = " and is running" if run.facts["status"] == "running" else ""
            found.append(f"shard {shard} ({str(run.folder)!r}) lacks {words}{running}")
    return found


def _missing_in(shard: EvalShard, run: EvalRun) -> str:
    if run.facts["kind"] != KIND:  # what a synthesis plays depends on what it has played
        return "" if run.facts["status"] == "finished" else "samples, since it is not finished"
    tasks = sum(about["tasks"] for about in run.facts["environments"].values())
    wanted = len(range(shard.index, tasks * run.facts["settings"]["samples"], shard.count))
    have = Counter(row.model for row in run.rows)
    parts = {model: wanted - have[model] for model in run.facts["models"]}
    return ", ".join(f"{lack} of {wanted} units of {model}" for model, lack in parts.items() if lack)


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
        "protocols": {label: each for run in runs for label, each in run.facts.get("protocols", {}).items()},
        "shards": about,
    }
