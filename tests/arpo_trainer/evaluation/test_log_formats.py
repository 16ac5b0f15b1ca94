"""Exports: each stored episode is in each format as its readers want it, and what broke is never a wrong answer."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from arpo_trainer.evaluation.episode_store import load_eval_run
from arpo_trainer.evaluation.eval_metrics import results
from arpo_trainer.evaluation.log_formats import export_run
from tests.arpo_trainer.evaluation.made_rows import FACTS, play

MODEL = "org/model"
ABOUT = {
    **FACTS,
    "started": "2026-11-22T10:00:00+00:00",
    "models": {MODEL: {}},
    "environments": {**FACTS["environments"], "HotpotQA": {"id": "arpo/HotpotQA-v0", "metric": "em"}},
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    answers: dict[str, list[tuple[str | None, float | None]]] = {
        "t0": [("12", 1.0), ("13", 0.0)],
        "t1": [("\\frac{24}{2} \ud83d", 1.0), (None, 0.0)],  # half of a surrogate pair
        "t2": [("12", None), ("12", 1.0)],
    }
    play(tmp_path / "run", answers, model=MODEL, facts=ABOUT)
    return play(tmp_path / "run", {"t0": [("12", 1.0)]}, env="HotpotQA", model=MODEL, facts=ABOUT)


def exported(run: Path, form: str) -> dict[str, Any]:
    files = export_run(load_eval_run(run), form, run.parent / form)
    texts = {str(path.relative_to(run.parent / form)): path.read_text(encoding="utf-8") for path in files}
    again = export_run(load_eval_run(run), form, run.parent / "again")
    assert [path.read_text(encoding="utf-8") for path in again] == list(texts.values())
    return {
        name: [json.loads(line) for line in text.splitlines()] if name.endswith("jsonl") else json.loads(text)
        for name, text in texts.items()
    }


def test_the_papers_files(run: Path) -> None:
    files = exported(run, "papers")
    assert list(files) == [
        "org__model/gsm8k/gsm8k_output_1.json",
        "org__model/gsm8k/gsm8k_output_2.json",
        "org__model/hotpotqa/hotpotqa_output_1.json",
    ]
    first, second = (files[f"org__model/gsm8k/gsm8k_output_{turn}.json"] for turn in (1, 2))
    assert [item["input"] for item in first] == ["What is t0?", "What is t1?"]  # the one that broke is left out
    assert [item["prediction"] for item in second] == ["13", "", "12"]
    assert set(first[0]) == {
        *("instruction", "input", "output", "prediction", "answer", "logs", "search_query_history")
    }
    assert first[0]["answer"] == "12"
    assert first[0]["output"] == "".join(first[0]["logs"])


def test_the_files_of_lm_eval(run: Path) -> None:
    files = exported(run, "lm-eval")
    about = files["org__model/results_2026-11-22T10-00-00+00-00.json"]
    assert about["results"]["GSM8K"]["accuracy,none"] == pytest.approx(3 / 5)
    assert about["results"]["GSM8K"]["accuracy_stderr,none"] > 0
    assert about["results"]["HotpotQA"] | {"name": 0} == {
        **{"name": 0, "alias": "HotpotQA", "sample_len": 1},
        **{"em,none": 1.0, "em_stderr,none": "N/A", "accuracy,none": 1.0, "accuracy_stderr,none": "N/A"},
    }
    for part in ("configs", "versions", "n-shot", "higher_is_better", "n-samples"):
        assert set(about[part]) == {"GSM8K", "HotpotQA"}
    lines = files["org__model/samples_GSM8K_2026-11-22T10-00-00+00-00.jsonl"]
    assert [(line["doc"]["id"], line["accuracy"]) for line in lines] == [("t0", 0.5), ("t1", 0.5), ("t2", 1.0)]
    assert [len(line["resps"][0]) for line in lines] == [2, 2, 1]
    assert lines[0]["target"] == "12"


def test_inspects_logs(run: Path) -> None:
    files = exported(run, "inspect")
    log = files["org__model/GSM8K.json"]
    assert Counter("error" in sample for sample in log["samples"]) == {False: 5, True: 1}
    assert [(sample["id"], sample["epoch"]) for sample in log["samples"]] == [
        (f"t{t}", e) for t in range(3) for e in (1, 2)
    ]
    assert [message["role"] for message in log["samples"][0]["messages"]] == ["user", "assistant", "tool", "assistant"]
    [score] = log["results"]["scores"]
    [mine, _] = results(load_eval_run(run).rows, ABOUT)["scores"]
    assert score["metrics"]["accuracy"]["value"] == mine["score"]["mean"]
    assert (score["scored_samples"], score["unscored_samples"]) == (5, 1)


def test_inspect_reads_its_logs(run: Path) -> None:
    log = pytest.importorskip("inspect_ai.log", reason="inspect-ai is not installed")
    for path in export_run(load_eval_run(run), "inspect", run.parent / "out"):
        read = log.read_eval_log(str(path))
        assert read.status == "success"
        assert read.samples[0].scores["arpo"].value == 1.0
