"""A data file chooses some tasks of an endless source; they are the same, in the same world."""

import json
from pathlib import Path
from typing import Any

import pytest

from arpo_env import ToolEnv
from envs_registry import DataFileError, load_source
from envs_registry.sources import LimitedSource

INDICES = (7, 2, 11)


def written(path: Path, name: str, **options: Any) -> Path:
    source = load_source(name, **options)
    rows = [{"index": index, "question": source.task(index).question} for index in INDICES]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("name", ["arithmetic", "multihop"])
def test_they_are_the_tasks_of_the_whole_source(name: str, tmp_path: Path) -> None:
    whole: Any = load_source(name, level=2, seed=3)
    chosen: Any = load_source(name, level=2, seed=3, data=written(tmp_path / "d.jsonl", name, level=2, seed=3))
    assert chosen.size == 3
    assert [chosen.task(n) for n in range(4)] == [whole.task(n) for n in (*INDICES, INDICES[0])]
    assert [chosen.solution(n) for n in range(3)] == [whole.solution(n) for n in INDICES]
    assert chosen.solution_tool == whole.solution_tool


def test_other_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match="task 7 has another question here; give the options"):
        load_source("arithmetic", level=2, data=written(tmp_path / "d.jsonl", "arithmetic", level=1))


@pytest.mark.parametrize("index", [None, -1])
def test_a_row_without_an_index_is_refused(index: object, tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_text(json.dumps({"index": index, "question": "?"}))
    with pytest.raises(DataFileError, match="line 1, column 'index'"):
        load_source("arithmetic", data=tmp_path / "d.jsonl")


def test_chosen_questions_search_their_own_world(tmp_path: Path) -> None:
    data = written(tmp_path / "d.jsonl", "multihop", level=2, seed=5, world_size=300)
    env = ToolEnv("arpo/MultiHop-v0", data=data, level=2, seed=5, world_size=300, limit=2)
    assert isinstance(env.tasks, LimitedSource)
    env.reset(options={"index": 0})
    (query, *_) = env.tasks.tasks.solution(0)  # type: ignore[attr-defined]
    result, *_ = env.step(f"<think>I look.</think><search>{query}</search>")
    assert "<result>" in result
    assert "No calls" not in result
    env.close()
