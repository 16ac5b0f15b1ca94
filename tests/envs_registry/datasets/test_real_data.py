"""The real files: every one loads, with the documented number of rows, and their known faults are mended."""

from collections import Counter
from pathlib import Path

import pytest

from envs_registry import load_source
from envs_registry.contamination import overlap
from envs_registry.datasets.loading import DataSetSource

EVALUATION = {
    "aime24": 30,
    "aime25": 30,
    "math500": 500,
    "gsm8k": 1319,
    "hotpotqa": 200,
    "2wiki": 200,
    "musique": 200,
    "bamboogle": 125,
    "webwalker": 200,
    "simpleqa": 500,
}


@pytest.fixture
def files(shared: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of training files; `ARPO_DATA` names that of the evaluation files."""
    monkeypatch.setenv("ARPO_DATA", str(shared / "data/arpo/eval"))
    return shared / "data/arpo/rl"


def source_of(name: str) -> DataSetSource:
    split = "validation" if name in ("hotpotqa", "2wiki", "musique") else "test"
    source = load_source(name, split=split)
    assert isinstance(source, DataSetSource)
    return source


def training(name: str, path: Path, split: str = "train") -> DataSetSource:
    source = load_source(name, split=split, data=path)
    assert isinstance(source, DataSetSource)
    return source


@pytest.mark.parametrize(("name", "rows"), EVALUATION.items())
def test_evaluation_files_load_whole(name: str, rows: int, files: Path) -> None:
    source = source_of(name)
    assert source.rows == source.size == rows
    assert len({task.id for task in source.tasks}) == rows
    for task in source.tasks:
        assert task.answers
        assert all(answer == answer.strip() for answer in task.answers)
        assert not set("\a\b\f\v\r\u200b\u200f") & set(task.question + "".join(task.answers))


def test_reasoning10k(files: Path) -> None:
    source = training("reasoning10k", files / "train_10k.parquet")
    out = {name: count for name, count in source.repairs.items() if name.startswith("left out")}
    assert source.rows == 10_000
    assert out == {"left out: cut-off answer": 10, "left out: duplicate question": 45, "left out: no answer": 1}
    assert source.size == 10_000 - 56
    assert Counter(task.kind for task in source.tasks) == {"math": 4953, "qa": 4991}
    assert not any("helpful assistant" in task.question for task in source.tasks)


def test_known_contamination(files: Path) -> None:
    reasoning = training("reasoning10k", files / "train_10k.parquet")
    search = training("deepsearch1k", files / "hard_search_1k.parquet")
    valid = training("reasoning10k", files / "valid.parquet", "validation")
    counts = {
        (name, against): overlap(source, source_of(against)).count
        for name, source, against in (
            ("train_10k", reasoning, "simpleqa"),
            ("hard_search_1k", search, "hotpotqa"),
            ("valid", valid, "math500"),
            ("valid", valid, "musique"),
        )
    }
    assert list(counts.values()) == [14, 15, 30, 1]
