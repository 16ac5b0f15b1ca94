"""Writes the files of a synthesis; each replaces the old one as a whole."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from arpo_trainer.synthesis.question_sets import QuestionSet
from arpo_trainer.synthesis.selection import Selection
from arpo_trainer.synthesis.training_rows import dataset_info

SFT, HARD, REPORT, INFO = "sft.jsonl", "hard", "report.json", "dataset_info.json"


def write_files(folder: Path, chosen: Selection, form: str, sets: Sequence[QuestionSet]) -> None:
    """Write the training rows, the hard questions and the report; a file without rows is removed.

    Args:
        folder: the output folder.
        chosen: what is written; its report gets the names of the files.
        form: format of the training rows.
        sets: the environments.
    """
    files = {SFT: chosen.rows}
    files |= {f"{HARD}/{label.replace('/', '-')}.jsonl": rows for label, rows in chosen.hard.items()}
    for name, rows in files.items():
        if rows:
            _replace(folder / name, _lines(rows))
            chosen.report.files[name] = len(rows)
        else:
            (folder / name).unlink(missing_ok=True)
    info = dataset_info(folder.resolve().name, SFT, form, sets[0].env.protocol)
    _replace(folder / INFO, json.dumps(info, indent=2) + "\n")
    _replace(folder / REPORT, json.dumps(chosen.report.as_dict(), indent=2, ensure_ascii=False) + "\n")


def _lines(rows: Iterable[dict[str, Any]]) -> str:
    return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f"{path.name}.unfinished")
    # a model may write half of a surrogate pair, which UTF-8 cannot encode
    scratch.write_text(text, encoding="utf-8", errors="replace")
    scratch.replace(path)
