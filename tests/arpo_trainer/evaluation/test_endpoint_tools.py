"""Tools of an endpoint: `arpo eval` and `arpo rollout` ask it as `arpo_env.play` does, and read its answers so."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import arpo_env
from arpo_env import EnvFactory
from arpo_trainer.cli.arpo_command import main
from arpo_trainer.tree import read_traces
from tests.adapters.chat_policy import scripted
from tests.adapters.scripts import Script
from tests.arpo_env.chat_server import ChatServer, chat_server, reply

TASKS = 6


def command(name: str, protocol: str, server: ChatServer, model: Path, output: Path) -> list[str]:
    options = [
        "--env-set",
        "level=2",
        "split=test",
        f"protocol={protocol}",
        "--tasks",
        str(TASKS),
        "--output",
        str(output),
    ]
    endpoint = ["--model", str(model), "--endpoint", server.address, "--endpoint-model", "m"]
    single = [] if name == "eval" else ["--num-generations", "1"]
    return [name, "arpo/Arithmetic-v0", *options, *endpoint, *single]


def asked(bodies: list[dict[str, Any]]) -> set[str]:
    """What the requests had of the conversation and its tools; each call has its result, by whatever id."""
    for body in bodies:
        calls = [call["id"] for message in body["messages"] for call in message.get("tool_calls", ())]
        assert calls == [message["tool_call_id"] for message in body["messages"] if message["role"] == "tool"]
    said = (json.dumps([body["messages"], body.get("tools"), body.get("stop")]) for body in bodies)
    return {re.sub(r"call_\d+_\d+", "ID", each) for each in said}


@pytest.mark.parametrize(
    ("name", "protocol"), [("eval", "hermes"), ("rollout", "hermes"), ("eval", "llama3"), ("eval", "arpo-tags")]
)
@pytest.mark.usefixtures("isolation")
def test_an_endpoint_is_asked_and_read_as_by_play(name: str, protocol: str, model_folder: Path, tmp_path: Path) -> None:
    script = Script(EnvFactory("arpo/Arithmetic-v0", level=2, split="test", protocol=protocol), TASKS)
    with chat_server(scripted(script)) as server:
        played = arpo_env.play(script.factory, TASKS, base_url=server.address, model="m")
        theirs, server.bodies = server.bodies, []
        assert main(command(name, protocol, server, model_folder, tmp_path)) == 0
    trees = {tree.task["id"]: tree.trajectories[0] for tree in read_traces(tmp_path / "traces.jsonl")}
    assert asked(server.bodies) == asked(theirs)
    ended = [(each.reward, each.outcome, each.info["tool_calls"]) for each in played]
    assert [(t.reward, t.outcome, t.tool_calls) for t in (trees[each.task.id] for each in played)] == ended
    assert {1.0, 0.0} <= {reward for reward, _, _ in ended}
    assert all(bool(body.get("tools")) == (protocol != "arpo-tags") for body in server.bodies)


REFUSALS = [
    (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
    (400, "registry.ollama.ai/library/gemma:2b does not support tools"),
]


@pytest.mark.parametrize(("status", "message"), REFUSALS)
@pytest.mark.usefixtures("isolation")
def test_an_endpoint_that_refuses_tools_names_the_cure(
    status: int, message: str, model_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        return (status, {"error": {"message": message}}) if body.get("tools") else (200, reply("7"))

    with chat_server(answer) as server:
        assert main(command("eval", "hermes", server, model_folder, tmp_path)) == 1
        [played] = arpo_env.play(
            EnvFactory("arpo/Arithmetic-v0", protocol="hermes"), 1, base_url=server.address, model="m"
        )
    for said in (caplog.text, str(played.error)):
        assert "--enable-auto-tool-choice" in said
        assert "protocol=arpo-tags" in said
