"""`arpo synth`: what is sampled, what is dropped and why, killed and resumed; its files are read by what trains."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from arpo_trainer.cli.arpo_command import main
from arpo_trainer.evaluation.episode_store import rows_of
from arpo_trainer.sft.trace_data import TraceSettings, read_trace_files
from arpo_trainer.synthesis.difficulty import CLASSES
from arpo_trainer.synthesis.sample_checks import CAUSES
from envs_registry import load_source
from tests.arpo_env.chat_server import chat_server
from tests.arpo_trainer.evaluation.test_run_evaluation import kill_after
from tests.arpo_trainer.synthesis.scripted_teacher import WAYS, Teacher

TASKS = len(WAYS)


def questions(count: int = TASKS) -> dict[str, str]:
    source = load_source("arithmetic", level=1)
    return {task.question: task.answers[0] for task in map(source.task, range(count))}


def command(folder: Path, *more: str) -> list[str]:
    asked = ["synth", "arpo/Arithmetic-v0", "--env-set", "level=1", "--tasks", str(TASKS), "--output", str(folder)]
    return [*asked, "--direct", "1", "--tir", "2", *more]


def at(address: str, model: Path) -> list[str]:
    return ["--model", str(model), "--endpoint", address, "--endpoint-model", "teacher"]


@pytest.fixture(scope="module")
def made(model_folder: Path, isolation: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("synth") / "whole"
    with chat_server(Teacher(questions())) as server:
        assert main(command(folder, *at(server.address, model_folder))) == 0
    return folder


def report(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return found


def test_every_sample_and_every_question_is_counted_once(made: Path) -> None:
    found = report(made)
    rows = list(rows_of(made / "episodes.jsonl"))
    samples = found["samples"]
    assert samples["played"] == len(rows) == samples["kept"] + sum(samples["dropped"].values())
    assert found["questions"]["all"] == TASKS == sum(found["questions"][name] for name in CLASSES)
    for name, stage in found["stages"].items():
        played = sum(row.env.endswith(f"/{name}") for row in rows)
        assert stage["played"] == played == stage["kept"] + sum(stage["dropped"].values())
    assert set(samples["dropped"]) <= set(CAUSES)


def test_each_way_of_the_teacher_is_found_out(made: Path) -> None:
    found = report(made)
    dropped = set(found["samples"]["dropped"])
    assert {"too many calls", "repeated call", "last code fails", "no call", "refusal", "wrong answer"} <= dropped
    classes = {name: count for name, count in found["questions"].items() if count and name != "all"}
    assert classes == {"direct": 1, "tir": 6, "hard": 1, "unanswered": 2}
    kept = Counter(json.loads(line)["stage"] for line in (made / "sft.jsonl").read_text().splitlines())
    assert kept["direct"] == 1
    assert kept["tir"] >= 2
    assert kept["verify"] >= 1
    assert kept["reflect"] >= 1
