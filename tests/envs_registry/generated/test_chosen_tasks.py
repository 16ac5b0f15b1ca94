"""Generated tasks: they never change, a data file chooses some of them, and a trail takes the calls it says."""

import hashlib
import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from arpo_env import ToolEnv
from arpo_env.episode import Call, Episode, Turn
from envs_registry import DataFileError, load_source
from envs_registry.generated.arithmetic import MOST_NOTES, ArithmeticSource
from envs_registry.generated.toolworld import FACTS, LEVELS, PLACES, ToolWorldSource, right_calls, steps_of, tool_world
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
    (tmp_path / "d.jsonl").write_text(json.dumps({"index": index, "question": "?"}))
    with pytest.raises(DataFileError, match="line 1, column 'index'"):
        load_source("arithmetic", data=tmp_path / "d.jsonl")


def test_chosen_and_limited_tasks_search_the_world_of_their_source(tmp_path: Path) -> None:
    options: dict[str, Any] = {"level": 2, "seed": 5, "world_size": 300}
    env = ToolEnv("arpo/MultiHop-v0", data=written(tmp_path / "d.jsonl", "multihop", **options), limit=2, **options)
    [query, *_] = env.tasks.tasks.solution(0)  # type: ignore[attr-defined]
    env.reset(options={"index": 0})
    assert "Page 1:" in env.step(f"<think>I look.</think><search>{query}</search>")[0]
    env.close()


FROZEN = {
    "arithmetic": "5246139438e854c9",
    "bifurcation": "0ca95fa77907773f",
    "multihop": "fe9106b8ff920065",
    "toolworld": "b009a8a526035bca",
}


@pytest.mark.parametrize("name", FROZEN)
def test_tasks_are_those_that_were_published(name: str) -> None:
    """Some of both splits and of two seeds, asked for from the last to the first."""
    found = []
    for seed, split in product((0, 5), ("train", "test")):
        source: Any = load_source(name, split=split, seed=seed)
        found += [(source.task(index), source.solution(index)) for index in reversed(range(60))]
        found += [getattr(source, "passages", ()), getattr(source, "tool_documents", ())]
    assert hashlib.sha256(repr(found).encode()).hexdigest()[:16] == FROZEN[name]


@pytest.mark.parametrize("notes", [1, 3, MOST_NOTES])
def test_every_call_of_a_trail_is_needed(notes: int) -> None:
    source = ArithmeticSource(level=6, notes=notes)
    for index in range(20):
        task, cells, names = source.task(index), source.solution(index), dict[str, Any]()
        exec(task.setup, names)
        *seen, last = [str(eval(cell, names)) for cell in cells]
        assert len(cells) == notes + 2
        assert (last,) == task.answers
        # each call names a variable that only the result before it shows
        for before, cell in zip(seen, cells[1:], strict=True):
            assert cell.split()[0] in before
            assert cell.split()[0] not in task.question
        assert not any(last in text for text in seen)


# ToolWorld


def test_there_are_over_a_thousand_different_tools_in_fifty_families_and_seeds_name_them_otherwise() -> None:
    world = tool_world(0)
    assert len(PLACES) == 50
    assert len({tool.name for tool in world.tools}) == len(world.tools) == len(PLACES) * len(FACTS) >= 1000
    assert len({str(document["description"]) for document in world.documents}) == len(world.tools)
    names = [{tool.name for tool in tool_world(seed).tools} for seed in (5, 6)]
    assert len(names[0] & names[1]) < len(names[0]) / 10


@pytest.mark.parametrize("level", LEVELS)
def test_the_calls_of_a_question_lead_to_its_answer_which_neither_it_nor_its_setup_holds(level: str) -> None:
    source = ToolWorldSource("test", level, seed=3)
    for index in range(150):
        task, steps = source.task(index), source.steps(index)
        known = task.question
        for step in steps:  # the arguments come from the question and from earlier results
            assert all(value in known for value in step.arguments.values())
            assert source.call_tool(step.tool, step.arguments) == step.result
            known += f" {step.result}"
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
    episode = Episode(source.task(0))
    episode.turns.append(Turn("", calls=[Call(step.tool, "ok", arguments=arguments)]))
    assert right_calls(episode) == 1.0
