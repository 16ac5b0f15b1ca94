"""The adapter for verifiers: its own evaluation loop plays the environments against a server that speaks the script."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verifiers")

import verifiers.v1 as vf
from verifiers.v1.cli.eval.runner import run_eval
from verifiers.v1.configs.cli.eval import EvalConfig

from arpo_env import EnvFactory, ToolEnv
from arpo_env.adapters import verifiers as adapter

from .scripts import Script, breaking_sandbox, native_rewards, script_for, sets


@contextmanager
def endpoint(script: Script) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """An OpenAI-compatible server that answers with the script; its address and the requests that it has seen."""
    requests: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            requests.append(request)
            message = script.message(request["messages"])
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            usage = {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}
            answer = {"id": "x", "object": "chat.completion", "created": 0, "model": "stub", "usage": usage}
            body = json.dumps({**answer, "choices": [choice]}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 256

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", requests
    finally:
        server.shutdown()
        server.server_close()


def settings(script: Script, url: str, folder: Path, **more: Any) -> dict[str, Any]:
    env = {"taskset": {"id": "arpo-gym", "env_id": script.factory.id, "options": script.factory.options}}
    return {
        "env": env | more.pop("env", {}),
        "model": "stub",
        "client": {"base_url": url, "api_key_var": "NO_KEY"},
        "select": {"limit": script.episodes},
        "output_dir": str(folder),
        "push": False,
        "rich": None,
        **more,
    }


def evaluate(script: Script, folder: Path, **more: Any) -> list[Any]:
    """The episodes of `vf-eval`, in the order of the tasks."""
    with endpoint(script) as (url, _):
        episodes = asyncio.run(run_eval(EvalConfig.model_validate(settings(script, url, folder, **more))))
    return sorted(episodes, key=lambda episode: episode.task.data.idx)


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Counts the episodes that were started and the environments that were closed."""
    counts = {"started": 0, "closed": 0}
    reset, close = ToolEnv.areset, ToolEnv.aclose

    async def areset(self: ToolEnv, **options: Any) -> Any:
        counts["started"] += 1
        return await reset(self, **options)

    async def aclose(self: ToolEnv) -> None:
        await close(self)
        counts["closed"] += 1

    monkeypatch.setattr(ToolEnv, "areset", areset)
    monkeypatch.setattr(ToolEnv, "aclose", aclose)
    return counts


@pytest.mark.parametrize("protocol", ["arpo-tags", "hermes"])
@pytest.mark.parametrize("env_id", sets())
def test_rewards_are_those_of_the_environment(
    env_id: str, protocol: str, isolation: str, tmp_path: Path, closed: dict[str, int]
) -> None:
    script = script_for(env_id, protocol)
    episodes = evaluate(script, tmp_path)
    assert closed == {"started": script.episodes, "closed": script.episodes}
    assert [episode.traces[0].reward for episode in episodes] == native_rewards(script)
    assert all(episode.ok for episode in episodes)
    truncated = [episode.traces[0].metrics["truncated"] for episode in episodes]
    assert truncated == [float(number % 6 == 5) for number in range(script.episodes)]
    calls = [call for episode in episodes for node in episode.traces[0].nodes for call in node.message.tool_calls or ()
             if node.sampled]
    assert bool(calls) == (protocol == "hermes")
