"""GSM8K: 8.8 thousand word problems of school mathematics (MIT). Hub id `openai/gsm8k`, or a local file."""

from __future__ import annotations

import os
from typing import Any

from envs_registry.files import DataFileError, Rows, column, read_rows
from envs_registry.sources import ListSource, TaskSource, register_source
from envs_registry.task import Task

HUB_ID = "openai/gsm8k"
VARIABLE = "ARPO_DATA_GSM8K"
SPLITS = ("train", "test")


def load(*, split: str = "train", data: str | None = None) -> TaskSource:
    """Return GSM8K's tasks from `data`, else from the file that `ARPO_DATA_GSM8K` names, else from the hub.

    Raises:
        ValueError: no such split.
        DataFileError: a row without question or without `#### answer`; names the line.
        RuntimeError: the hub could not be reached; says how to give a local file.
    """
    if split not in SPLITS:
        raise ValueError(f"GSM8K has the splits {' and '.join(SPLITS)}, not {split!r}")
    path = data or os.environ.get(VARIABLE)
    rows = read_rows(path) if path else _from_hub(split)
    tasks = [_task(row, number, f"{path or HUB_ID}, {place}", split) for number, (place, row) in enumerate(rows)]
    return ListSource(tasks)


def _task(row: dict[str, Any], number: int, where: str, split: str) -> Task:
    question = column(row, ("question", "problem"), where)
    rationale = column(row, ("answer",), where)
    _, mark, answer = rationale.rpartition("####")
    answer = answer.strip().replace(",", "")
    if not mark or not answer:
        raise DataFileError(f"{where}, column 'answer': should end in '#### ' and the number")
    return Task(f"gsm8k-{split}-{row.get('idx', number)}", question.strip(), (answer,), kind="math", source="gsm8k")


def _from_hub(split: str) -> Rows:
    try:
        import datasets
    except ImportError as error:
        raise RuntimeError(f"loading {HUB_ID} needs `datasets`: pip install 'arpo-gym[data]'") from error
    try:
        rows = datasets.load_dataset(HUB_ID, "main", split=split)
    except Exception as error:  # the hub client raises many kinds; the cure is the same for all
        raise RuntimeError(
            f"could not load {HUB_ID} from the hub ({type(error).__name__}: {error}). Without a network give a local "
            f"file: data='gsm8k.jsonl', or set {VARIABLE} to its path."
        ) from error
    return [(f"row {number}", row) for number, row in enumerate(rows, start=1)]


register_source("gsm8k", load)
