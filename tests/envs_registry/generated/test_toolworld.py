"""ToolWorld: the same everywhere, over a thousand tools, and each question needs as many of them as its level says."""

from types import SimpleNamespace

import pytest

from envs_registry import load_source
from envs_registry.generated.toolworld import FACTS, LEVELS, PLACES, ToolWorldSource, right_calls, steps_of, tool_world
from envs_registry.task import check_setup

SOME = range(150)


@pytest.fixture(params=LEVELS)
def source(request: pytest.FixtureRequest) -> ToolWorldSource:
    return ToolWorldSource("test", request.param, seed=3)


def test_there_are_over_a_thousand_different_tools_in_fifty_families() -> None:
    world = tool_world(0)
    assert len(PLACES) == 50
    assert len({tool.name for tool in world.tools}) == len(world.tools) == len(PLACES) * len(FACTS) >= 1000
    assert len({str(document["description"]) for document in world.documents}) == len(world.tools)


def test_the_calls_of_a_question_say_what_the_steps_say_and_lead_to_its_answer(source: ToolWorldSource) -> None:
    for index in SOME:
        task, steps = source.task(index), source.steps(index)
        assert [source.call_tool(step.tool, step.arguments) for step in steps] == [step.result for step in steps]
        assert len({step.tool for step in steps}) == len(steps) == int(source.level)
        numbers = [int(step.result) for step in steps if step.result.isdigit()]
        made = {sum(numbers), numbers[0], abs(numbers[0] - numbers[-1])}
        assert task.answers[0] in {str(number) for number in made}


def test_no_name_of_a_place_that_has_to_be_found_stands_in_the_question(source: ToolWorldSource) -> None:
    for index in SOME:
        told = [step.result for step in source.steps(index)]
        assert not any(name in source.task(index).question for name in told)


def test_the_setup_leads_to_the_steps_and_holds_no_answer(source: ToolWorldSource) -> None:
    for index in SOME:
        task = source.task(index)
        check_setup(task)
        assert steps_of(task.setup) == source.steps(index)


def test_a_call_that_the_tool_understands_is_a_right_call() -> None:
    source = ToolWorldSource("test", "1")
    [step] = source.steps(0)
    arguments = {name: f" {value.upper()}" for name, value in step.arguments.items()}
    assert source.call_tool(step.tool, arguments) == step.result
    call = SimpleNamespace(name=step.tool, arguments=arguments, status="ok")
    episode = SimpleNamespace(task=source.task(0), turns=[SimpleNamespace(calls=[call])])
    assert right_calls(episode) == 1.0


def test_tasks_follow_from_seed_split_level_and_number_alone() -> None:
    one = load_source("toolworld", seed=5).task(7)
    assert one == ToolWorldSource(seed=5).task(7)
    others = [load_source("toolworld", seed=6), load_source("toolworld", split="test", seed=5)]
    assert one.question not in {other.task(7).question for other in others}
    # worlds of other seeds call their tools otherwise, so that names cannot be learned by heart
    names = [{tool.name for tool in tool_world(seed).tools} for seed in (5, 6)]
    assert len(names[0] & names[1]) < len(names[0]) / 10
