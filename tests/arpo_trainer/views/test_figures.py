"""`arpo plot`: figures say what the runs say, and the same run gives the same bytes."""

import json
import re
from pathlib import Path

import pytest

from arpo_trainer.report.run_data import load_run
from arpo_trainer.views.figures import learning_series, write_figure
from tests.arpo_trainer.views.sample_runs import make_run

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plots") / "evaluation"
    return make_run(folder, tasks=15, samples=4, models=("qwen2.5-3b", "b"), envs=("GSM8K", "$MATH_5^00$"), tokens=8)


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plots") / "training"
    folder.mkdir()
    (folder / "run.json").write_text('{"status": "finished", "name": "demo"}')
    steps = [{"step": step, "reward": 0.1 * step} for step in range(1, 6)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in steps))
    (folder / "eval.jsonl").write_text('{"step": 5, "accuracy": 0.5, "accuracy_low": 0.4, "accuracy_high": 0.6}\n')
    return folder


@pytest.mark.parametrize("kind", ["scores", "pass", "calls", "learning"])
def test_the_same_run_gives_the_same_bytes(kind: str, evaluation: Path, training: Path, tmp_path: Path) -> None:
    run = training if kind == "learning" else evaluation
    for suffix in ("svg", "pdf", "png"):
        files = [write_figure([run], tmp_path / f"{name}.{suffix}", kind=kind).read_bytes() for name in ("one", "two")]
        assert files[0] == files[1]
    svg = (tmp_path / "one.svg").read_text(encoding="utf-8")
    assert "<dc:date>" not in svg
    texts = re.findall(r"<text[^>]*>([^<]+)</text>", svg)
    wanted = {
        "scores": {"GSM8K", "$MATH_5^00$", "qwen2.5-3b", "b", "published (best, same base model)"},
        "pass": {"1", "2", "4", "qwen2.5-3b · GSM8K", "pass@k"},
        "calls": {"b · GSM8K", "accuracy"},
        "learning": {"reward", "held-out accuracy", "training step"},
    }[kind]
    assert wanted <= set(texts)


def test_the_learning_curve_is_that_of_the_files(training: Path) -> None:
    reward, held = learning_series([load_run(training)])
    assert (reward.x, reward.y) == ([1, 2, 3, 4, 5], [pytest.approx(0.1 * step) for step in range(1, 6)])
    assert (held.x, held.y, held.low, held.high) == ([5], [0.5], [0.4], [0.6])


def test_errors_name_the_cure(evaluation: Path, training: Path, tmp_path: Path) -> None:
    single = make_run(tmp_path / "single", tasks=3)
    with pytest.raises(ValueError, match="several samples of each task: evaluate with -n"):
        write_figure([single], tmp_path / "a.svg", kind="pass")
    with pytest.raises(ValueError, match=r"a figure is written as \.svg, \.pdf, \.png"):
        write_figure([single], tmp_path / "a.jpg")
    with pytest.raises(FileNotFoundError, match="holds no evaluation"):
        write_figure([training], tmp_path / "a.svg", kind="scores")
