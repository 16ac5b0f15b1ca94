"""A new data set, search provider or grader is one row of a table, which a user adds from outside."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from arpo_env import Grader, Score
from arpo_env.grading import GRADERS
from arpo_env.search import backends
from arpo_env.search.backends import HitFields, ProviderRow, ReplyShape, Request, SearchQuery, register_provider
from envs_registry import DataSet, register_data_sets
from tests.arpo_env.local_server import Call, LocalServer


@pytest.fixture(autouse=True)
def tables_as_before(own_names: None) -> Iterator[None]:
    tables: list[dict[Any, Any]] = [GRADERS, backends._factories, backends._BY_NAME]
    before = [dict(table) for table in tables]
    yield
    for table, kept in zip(tables, before, strict=True):
        table.clear()
        table.update(kept)


def lines(file: Path, *rows: dict[str, Any]) -> str:
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(file)


def test_a_data_set_is_one_row(tmp_path: Path) -> None:
    play = {"tools": ("python",), "scorer": "math", "max_turns": 3, "max_tool_calls": 2}
    fields = {"question": ("puzzle",), "answers": ("solution",), "level": "stars", "levels": ("1", "2")}
    about = {"description": "puzzles", "hub": "someone/puzzles", "size": "test 2", "licence": "MIT", "kind": "math"}
    row = DataSet(name="OwnPuzzles", splits=(("test", "test"),), play=play, **fields, **about)
    register_data_sets([row])
    one, other = {"puzzle": "1 + 1?", "solution": "2", "stars": 1}, {"puzzle": "2 ** 5?", "solution": "32", "stars": 2}
    env: Any = gym.make("arpo/OwnPuzzles-v0", data=lines(tmp_path / "test.jsonl", one, other), level=2, split="test")
    question, _ = env.reset(seed=0)
    assert (question, env.tasks.size) == ("2 ** 5?", 1)
    assert env.step("<think>I know.</think><answer>\\boxed{32}</answer>")[1] == 1.0
    env.close()


def test_a_search_provider_is_asked_with_its_key_and_replayed_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("httpx2")

    def request(query: SearchQuery) -> Request:
        return {"headers": {"X-Own-Key": query.keys["OWN_KEY"]}, "params": {"q": query.text, "n": query.k}}

    def answer(call: Call) -> None:
        call.reply({"found": [{"title": "Norway", "url": "https://n.example", "words": "Its capital is Oslo."}]})

    shape = ReplyShape(("found",), HitFields(snippet=("words",)))
    page, address = "https://search.example/keys", "https://search.example/v1"
    register_provider(
        ProviderRow("own-search", address, ("OWN_KEY",), page=page, request=request, shape=shape, most=10)
    )
    data = lines(tmp_path / "test.jsonl", {"question": "Capital of Norway?", "answer": ["Oslo"]})

    def searched(**mode: str) -> str:
        env = gym.make("arpo/Bamboogle-v0", search=where, data=data, cache=str(tmp_path / "c.sqlite"), **mode)
        env.reset(seed=0)
        result = env.step("<think>I search.</think><search>capital of Norway</search>")[0]
        env.close()
        return str(result)

    monkeypatch.setenv("OWN_KEY", "k-1")
    assert "own-search" in backends.ready_providers()
    with LocalServer(answer) as server:
        where = f"own-search:{server.address}"
        assert "Its capital is Oslo." in searched()
        [seen] = server.seen
        assert (seen.headers["x-own-key"], seen.params["q"]) == ("k-1", "capital of Norway")
    monkeypatch.delenv("OWN_KEY")
    assert "Its capital is Oslo." in searched(cache_mode="replay")


class Length(Grader):
    """Compares how long the answers are."""

    async def grade(self, answer: str, task: Any) -> Score:
        return Score(float(len(answer) == len(task.answers[0])))


def test_a_grader_is_one_row() -> None:
    GRADERS["own-length"] = Length
    env = gym.make("arpo/Arithmetic-v0", scorer="own-length")
    for more, reward in (("", 1.0), ("7", 0.0)):
        _, info = env.reset(seed=0)
        answer = "7" * len(info["task"].answers[0]) + more
        assert env.step(f"<think>I guess.</think><answer>\\boxed{{{answer}}}</answer>")[1] == reward
    env.close()
