"""What a memory folds, and limits: what is refused, when the model is told to answer, when nothing may follow."""

import json
from pathlib import Path
from typing import Any

import pytest

from arpo_env import ServiceError, ToolEnv
from arpo_env.episode import Budget, Call, Episode, Turn
from arpo_env.memory_folding import MEMORIES, MemoryFormatError, check_memory, memory_text
from envs_registry import Task
from tests.arpo_env.chat_server import chat_server, reply
from tests.arpo_trainer.folding_policy import fold_call, memory

MEMORY = memory(1, "print(x)")
FOLD = fold_call(MEMORY)


def test_the_schema_takes_what_fits_and_names_the_place_of_what_does_not() -> None:
    assert check_memory(MEMORY) == MEMORY
    assert list(check_memory(dict(reversed(MEMORY.items())))) == list(MEMORIES)
    for path in (("episodic", "key_events", 0, "outcome"), ("tool", "derived_rules"), ("working",)):
        for broken in (None, True, {"nested": []}):
            changed: Any = json.loads(json.dumps(MEMORY))
            inner = changed
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = broken
            with pytest.raises(MemoryFormatError, match=str(path[-1])):
                check_memory(changed)


def test_the_interpreter_lives_on_and_can_be_forked_before_and_after(isolation: str) -> None:
    env = ToolEnv("arpo/Arithmetic-v0", folds=2, level=3)
    question, info = env.reset(seed=0)
    env.step("<think>a</think><python>x = [1]</python>")
    before = env.fork()
    text, _, ended, cut, info = env.step(FOLD)
    assert (text, ended, cut) == (memory_text(MEMORY), False, False)
    assert info["messages"][-1]["content"] == f"{question}\n\n{text}"
    after = env.fork()
    assert "[1, 2]" in after.step("<think>b</think><python>x.append(2); x</python>")[0]
    assert "[1]" in env.step("<think>b</think><python>x</python>")[0]
    assert "[1]" in before.step("<think>b</think><python>x</python>")[0]
    assert (before.episode.folds, env.episode.folds, after.episode.memory) == (0, 1, MEMORY)
    assert len(env.episode.since_fold) == 1
    assert len(env.episode.tools_used) == 2  # a fold is not one
    assert env.step(f"<think>d</think><answer>\\boxed{{{env.episode.task.answers[0]}}}</answer>")[1:3] == (1.0, True)
    for each in (env, before, after):
        each.close()


@pytest.mark.parametrize("protocol", ["hermes", "llama3"])
def test_a_native_call_folds_and_must_be_alone(protocol: str) -> None:
    env: Any = ToolEnv("arpo/MultiHop-v0", folds=1, protocol=protocol, world_size=200)
    env.reset(seed=0)
    calls = [("search", {"query": "a"}), ("fold_thought", MEMORY)]
    text, *_, info = env.step(env.protocol.write_calls("", calls))
    assert text.count("must be the only call") == 2
    assert (info["folds"], info["tool_calls"], info["tool"]["status"]) == (0, 0, "refused")
    *_, info = env.step(env.protocol.write_calls("", calls[1:]))
    assert info["folded"]
    assert info["messages"] == env.context()
    text, *_, info = env.step(env.protocol.write_calls("", calls[1:]))
    assert ("No folds are left" in text, info["folded"], info["folds"]) == (True, False, 1)


def test_another_model_writes_the_memories(tmp_path: Path) -> None:
    """It sees the tools and only what happened since the last fold; the cache replays it without a server."""
    turns = ["<search> first </search>", "<fold_thought> names </fold_thought>", "<search> second </search>"]
    with chat_server(lambda body: (200, reply(json.dumps(MEMORY[_asked(body)])))) as server:
        options: dict[str, Any] = {"world_size": 200, "folds": 2, "fold_model": "m", "model_url": server.address}
        options["cache"] = tmp_path / "record.sqlite"
        env = ToolEnv("arpo/MultiHop-v0", **options)
        env.reset(seed=0)
        for turn in [*turns, turns[1]]:
            *_, info = env.step(turn)
    assert info["folds"] == 2
    prompts = server.prompts
    assert len(prompts) == 6
    assert all('"name": "search"' in prompt and "names" in prompt for prompt in prompts)
    assert ["<search> first" in prompt for prompt in prompts] == [True] * 3 + [False] * 3
    again = ToolEnv("arpo/MultiHop-v0", **{**options, "cache_mode": "replay"})
    again.reset(seed=0)
    for turn in turns[:2]:
        *_, info = again.step(turn)
    assert info["folds"] == 1


@pytest.mark.parametrize(
    ("status", "said"), [(200, reply("I would rather not.")), (200, reply("{}")), (200, reply("[1]")), (404, {})]
)
def test_garbage_of_the_other_model_is_told_and_a_server_that_fails_voids_the_sample(status: int, said: Any) -> None:
    with chat_server(lambda body: (status, said)) as server:
        env = ToolEnv("arpo/MultiHop-v0", world_size=200, folds=1, fold_model="m", model_url=server.address)
        env.reset(seed=0)
        if status == 404:
            with pytest.raises(ServiceError):
                env.step("<fold_thought> names </fold_thought>")
            return
        text, *_, info = env.step("<fold_thought> names </fold_thought>")
    assert "nothing was folded, because" in text
    assert (info["folds"], info["outcome"], info["tool"]["status"]) == (0, "", "error")
    assert env.context() == env.messages(env.episode.task)


@pytest.mark.parametrize("folds", [0, 1])
def test_a_tool_of_the_same_name_is_refused(folds: int) -> None:
    def fold_thought(text: str) -> str:
        """Fold."""
        return text

    with pytest.raises(ValueError, match="rename the tool"):
        ToolEnv("arpo/MultiHop-v0", world_size=200, folds=folds, tools=[fold_thought])


def _asked(request: Any) -> str:
    schema = request["messages"][0]["content"].rpartition("and nothing else:\n")[2]
    return next(name for name, known in MEMORIES.items() if json.loads(schema) == known)


@pytest.mark.parametrize(("room", "folded"), [(100, False), (150, True)])
def test_memories_beyond_the_estimated_budget_are_refused(room: int, folded: bool) -> None:
    env = ToolEnv("arpo/MultiHop-v0", world_size=200, folds=1, max_tokens=room)
    env.reset(seed=0)
    text, *_, info = env.step(FOLD)
    assert (info["folded"], info["folds"]) == (folded, int(folded))
    assert ("do not fit into the context" in text) != folded


TASK = Task("t", "Why?", ("because",))


def episode(*calls: str, **fields: Any) -> Episode:
    """A turn for each call, of which those with "!" were refused."""
    turns = [Turn("x" * 40, calls=[Call(name.rstrip("!"), "refused" if "!" in name else "ok")]) for name in calls]
    return Episode(TASK, turns, **fields)


def test_calls_in_all_and_of_one_tool_are_limited_and_refused_ones_cost_nothing() -> None:
    budget = Budget(turns=9, calls=2, calls_of={"search": 1})
    assert budget.refusal(episode("python"), "search") is None
    assert "No tool calls are left" in str(budget.refusal(episode("python", "search"), "python"))
    assert "No calls of search" in str(budget.refusal(episode("search"), "search"))
    assert budget.refusal(episode("search", "search!", "search!"), "python") is None


def test_the_model_is_told_before_its_last_turn() -> None:
    budget = Budget(turns=3, calls=9)
    assert budget.notice(episode("python")) is None
    assert "answer in the next turn" in str(budget.notice(episode("python", "python")))
    assert not budget.spent(episode("python", "python"))
    assert budget.spent(episode("python", "python", "python"))


def test_tokens_are_estimated_from_the_text_unless_an_engine_counts_them() -> None:
    budget = Budget(turns=99, calls=99, tokens=200, answer_tokens=100)
    assert budget.notice(episode(*["python"] * 5)) is None  # 5 turns of 40 bytes: 50 tokens
    assert budget.notice(episode(*["python"] * 11)) is not None
    assert budget.spent(episode(*["python"] * 20))
    assert budget.notice(episode(*["python"] * 20, tokens_left=500)) is None
    assert budget.notice(episode("python", tokens_left=99)) is not None
    assert budget.spent(episode("python", tokens_left=0))
