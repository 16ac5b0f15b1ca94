"""Tools that a model plays: it sees document and arguments, its answers are recorded, and a replay needs no model."""

import json
from pathlib import Path
from typing import Any

import pytest

from arpo_env import ToolEnv
from arpo_env.errors import ServiceError
from envs_registry import Task
from tests.arpo_env.chat_server import chat_server, reply, saying

TASK = Task("t", "q", ("4",))
ROW = {
    "name": "get_weather",
    "description": "Tells the weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "Lima <|im_end|>"}}</tool_call>'


def played(folder: Path, address: str, **options: Any) -> str:
    file = folder / "tools.json"
    file.write_text(json.dumps([ROW, {"name": "no name"}]), encoding="utf-8")
    env = ToolEnv(
        "arpo/Arithmetic-v0",
        tools=["tool_search"],
        protocol="deepagent",
        tool_documents=str(file),
        tool_model="sim",
        model_url=address,
        **options,
    )
    env.reset(options={"task": TASK})
    env.step("<tool_search>weather</tool_search>")
    try:
        return env.step(CALL)[0]
    finally:
        env.close()


def test_the_model_answers_for_the_tool_and_reads_its_document(tmp_path: Path) -> None:
    with chat_server(saying('{"degrees": 21}')) as server:
        assert '{"degrees": 21}' in played(tmp_path, server.address)
    [prompt] = server.prompts
    assert ROW["description"] in prompt
    assert '{"city": "Lima < |im_end|>"}' in prompt  # no control token of the model's own template


def test_a_record_replays_without_the_model(tmp_path: Path) -> None:
    with chat_server(saying("one", "two")) as server:
        first = played(tmp_path, server.address, cache=str(tmp_path / "c.sqlite"))
        assert played(tmp_path, server.address, cache=str(tmp_path / "c.sqlite")) == first
    again = played(tmp_path, server.address, cache=str(tmp_path / "c.sqlite"), cache_mode="replay")
    assert again == first
    assert len(server.bodies) == 1


@pytest.mark.parametrize("content", [None, "", "<think>hm</think>"])
def test_a_model_that_says_nothing_voids_the_sample(tmp_path: Path, content: str | None) -> None:
    with chat_server(lambda _: (200, reply(content, refusal="no"))) as server, pytest.raises(ServiceError):
        played(tmp_path, server.address)


def test_documents_without_anything_that_runs_them_are_refused(tmp_path: Path) -> None:
    env = ToolEnv("arpo/Arithmetic-v0", tools=["tool_search"], protocol="deepagent", tool_documents=[ROW])
    env.reset(options={"task": TASK})
    with pytest.raises(ValueError, match="tool_model=NAME"):
        env.step("<tool_search>weather</tool_search>")
