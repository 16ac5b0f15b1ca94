"""Generated tasks: they never change, a data file chooses some of them, and a trail takes the calls it says."""

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from arpo_env import ToolEnv
from envs_registry import DataFileError, load_source
from envs_registry.generated.arithmetic import MOST_NOTES, ArithmeticSource
from envs_registry.generated.toolworld import FACTS, LEVELS, PLACES, ToolWorldSource, right_calls, steps_of, tool_world
from envs_registry.sources import LimitedSource
from envs_registry.task import check_setup

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


@pytest.mark.parametrize("index", [None, -1])
def test_other_options_and_a_row_without_an_index_are_refused(index: object, tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match="task 7 has another question here; give the options"):
        load_source("arithmetic", level=2, data=written(tmp_path / "d.jsonl", "arithmetic", level=1))
    for notes in (0, MOST_NOTES + 1):
        with pytest.raises(ValueError, match="notes must be a whole number from 1 to 7"):
            ArithmeticSource(notes=notes)
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


FROZEN = {
    "arithmetic": "5246139438e854c9",
    "bifurcation": "0ca95fa77907773f",
    "multihop": "fe9106b8ff920065",
    "toolworld": "b009a8a526035bca",
}


def digest(name: str) -> str:
    """A digest of some tasks of a generator, of both splits and of two seeds, asked for from the last to the first."""
    found = []
    for seed in (0, 5):
        for split in ("train", "test"):
            source: Any = load_source(name, split=split, seed=seed)
            found += [(source.task(index), source.solution(index)) for index in reversed(range(60))]
            found += [getattr(source, "passages", ()), getattr(source, "tool_documents", ())]
    return hashlib.sha256(repr(found).encode()).hexdigest()[:16]


@pytest.mark.parametrize("name", FROZEN)
def test_tasks_are_those_that_were_published(name: str) -> None:
    assert digest(name) == FROZEN[name]


@pytest.mark.parametrize("notes", [1, 3, MOST_NOTES])
def test_every_call_of_a_trail_is_needed(notes: int) -> None:
    source = ArithmeticSource(level=6, notes=notes)
    for index in range(20):
        task, names = source.task(index), dict[str, Any]()
        exec(task.setup, names)
        seen = [str(eval(cell, names)) for cell in source.solution(index)]
        assert len(seen) == notes + 2
        assert [seen[-1]] == list(task.answers)
        # each call names a variable that only the result before it shows
        for before, cell in zip(seen, source.solution(index)[1:], strict=False):
            assert cell.split()[0] in before
            assert cell.split()[0] not in task.question
        assert not any(task.answers[0] in text for text in seen[:-1])


# ToolWorld


def test_there_are_over_a_thousand_different_tools_in_fifty_families() -> None:
    world = tool_world(0)
    assert len(PLACES) == 50
    assert len({tool.name for tool in world.tools}) == len(world.tools) == len(PLACES) * len(FACTS) >= 1000
    assert len({str(document["description"]) for document in world.documents}) == len(world.tools)
    # worlds of other seeds call their tools otherwise, so that names cannot be learned by heart
    names = [{tool.name for tool in tool_world(seed).tools} for seed in (5, 6)]
    assert len(names[0] & names[1]) < len(names[0]) / 10


@pytest.mark.parametrize("level", LEVELS)
def test_the_calls_of_a_question_lead_to_its_answer_which_neither_it_nor_its_setup_holds(level: str) -> None:
    source = ToolWorldSource("test", level, seed=3)
    for index in range(150):
        task, steps = source.task(index), source.steps(index)
        assert [source.call_tool(step.tool, step.arguments) for step in steps] == [step.result for step in steps]
        assert len({step.tool for step in steps}) == len(steps) == int(source.level)
        numbers = [int(step.result) for step in steps if step.result.isdigit()]
        made = {sum(numbers), numbers[0], abs(numbers[0] - numbers[-1])}
        assert task.answers[0] in {str(number) for number in made}
        assert not any(step.result in task.question for step in steps)  # a place that has to be found is not named
        check_setup(task)
        assert steps_of(task.setup) == steps


def test_a_call_that_the_tool_understands_is_a_right_call() -> None:
    source = ToolWorldSource("test", "1")
    [step] = source.steps(0)
    arguments = {name: f" {value.upper()}" for name, value in step.arguments.items()}
    assert source.call_tool(step.tool, arguments) == step.result
    call = SimpleNamespace(name=step.tool, arguments=arguments, status="ok")
    episode = SimpleNamespace(task=source.task(0), turns=[SimpleNamespace(calls=[call])])
    assert right_calls(episode) == 1.0
