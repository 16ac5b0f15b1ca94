"""The scripted teacher of examples/: what it says is what `arpo synth` sorts."""

import json
import runpy
import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from arpo_trainer.cli.arpo_command import main
from arpo_trainer.run.pipeline import Pipeline
from envs_registry import load_source

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "scripted_teacher.py"


def test_direct_questions_questions_for_the_tool_and_wrong_answers(served_model: Path, tmp_path: Path) -> None:
    script = SimpleNamespace(**runpy.run_path(str(SCRIPT)))
    options: dict[str, Any] = {"level": 2, "world_size": 200}
    teacher = script.Teacher(load_source("multihop", **options), 20)
    with script.Server(("127.0.0.1", 0), script.handler(teacher)) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        line = ["synth", "arpo/MultiHop-v0", "--env-set", *(f"{name}={value}" for name, value in options.items())]
        line += ["--tasks", "20", "--direct", "1", "--tir", "2", "--hints", "--output", str(tmp_path)]
        address = f"http://127.0.0.1:{server.server_port}/v1"
        line += ["--model", str(served_model), "--endpoint", address, "--endpoint-model", "teacher"]
        assert main(line) == 0
        server.shutdown()
    found = json.loads((tmp_path / "report.json").read_text())
    kept = Counter(json.loads(row)["stage"] for row in (tmp_path / "sft.jsonl").read_text().splitlines())
    assert kept["direct"] == found["questions"]["direct"] >= 4
    assert kept["tir"] >= 4
    assert found["samples"]["dropped"]["wrong answer"]


@pytest.mark.parametrize("name", ["path-arithmetic-cpu", "path-multihop-cpu", "path-bifurcation-cpu"])
def test_the_recipes_of_the_whole_path_evaluate_after_each_stage(name: str) -> None:
    stages = [stage.name for stage in Pipeline.read(name).stages]
    assert stages == ["synth", "eval-start", "sft", "eval-sft", "train", "eval-train", "dpo", "eval-dpo"]
