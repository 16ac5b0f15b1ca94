"""The adapter for Inspect: its own evaluation plays the environments with a model that speaks the script."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("inspect_ai")

from inspect_ai import eval as inspect_eval
from inspect_ai.log import list_eval_logs, read_eval_log
from inspect_ai.model import ChatMessageAssistant, ChatMessageTool, ModelOutput, ModelUsage, get_model
from inspect_ai.model._call_tools import parse_tool_call

from arpo_env import EnvFactory, ToolEnv, register
from arpo_env.adapters import inspect_ai as adapter
from envs_registry import Task
from sandbox import SandboxUnavailable
from tests.arpo_env.chat_server import chat_server

from .chat_policy import scripted
from .scripts import KINDS, Script, breaking_sandbox, native_rewards, script_for, sets


def model(script: Script, before: Callable[[], None] = lambda: None) -> Any:
    """Inspect's own model for tests, which answers with the script; calls are read as its providers read them."""

    def answer(messages: list[Any], tools: list[Any], choice: Any, config: Any) -> ModelOutput:
        before()
        said = script.message([{"role": each.role, "content": each.text} for each in messages])
        calls = [
            parse_tool_call(call["id"], call["function"]["name"], call["function"]["arguments"], tools)
            for call in said.get("tool_calls", ())
        ]
        for stop in config.stop_seqs or ():  # which a server does not send
            said["content"] = said["content"].removesuffix(stop)
        output = ModelOutput.from_message(ChatMessageAssistant(content=said["content"], tool_calls=calls or None))
        output.usage = ModelUsage(input_tokens=5, output_tokens=5, total_tokens=10)  # counting them wants a download
        asked.append((tools, config.stop_seqs))
        return output

    asked: list[tuple[list[Any], Any]] = []
    made = get_model("mockllm/model", custom_outputs=answer, memoize=False)
    made.asked = asked
    return made


def evaluate(script: Script, folder: Path, played_by: Any = None, options: Any = None, **more: Any) -> Any:
    given = {"protocol": "hermes" if script.native else "arpo-tags", "limit": script.episodes, **(options or {})}
    task = adapter.inspect_task(script.factory, **given)
    settings = {"display": "none", "log_dir": str(folder), "max_samples": 16, **more}
    [log] = inspect_eval(task, model=played_by or model(script), **settings)
    return log


def scores(log: Any, name: str = "reward") -> list[float]:
    samples = sorted(log.samples, key=lambda sample: sample.metadata["number"])
    return [sample.scores[name].value for sample in samples]


@pytest.mark.parametrize("protocol", ["arpo-tags", "hermes"])
@pytest.mark.parametrize("env_id", sets())
def test_rewards_are_those_of_the_environment(
    env_id: str, protocol: str, isolation: str, tmp_path: Path, open_episodes: Any
) -> None:
    script = script_for(env_id, protocol)
    log = evaluate(script, tmp_path)
    assert log.status == "success"
    assert open_episodes.started == open_episodes.closed == script.episodes
    assert adapter._episodes == {}
    native = native_rewards(script)
    assert scores(log) == native
    assert scores(log, "accuracy") == [
        float(KINDS[number % len(KINDS)] not in ("wrong", "endless")) for number in range(script.episodes)
    ]


def test_calls_are_seen_in_the_log(isolation: str, tmp_path: Path) -> None:
    script = script_for("arpo/Arithmetic-v0", "hermes")
    native = model(script)
    log = evaluate(script, tmp_path, native, limit=2)
    results = [message for message in log.samples[1].messages if isinstance(message, ChatMessageTool)]
    assert [message.function for message in results] == ["python"] * 2
    assert "kept is 1001" in results[1].text  # of the kind "state"
    assert all([tool.name for tool in tools] == ["python"] and stop is None for tools, stop in native.asked)
    tagged = model(script_for("arpo/Arithmetic-v0"))
    log = evaluate(script_for("arpo/Arithmetic-v0"), tmp_path, tagged, limit=2)
    assert log.samples[1].messages[2].text.endswith("</python>")
    assert all(tools == [] and "</python>" in stop for tools, stop in tagged.asked)


def test_a_broken_sandbox_is_an_error_and_no_score(tmp_path: Path) -> None:
    script = Script(EnvFactory("arpo/Arithmetic-v0", level=2), 18)
    native = native_rewards(script)
    with breaking_sandbox() as (factory, end):
        calls = iter(range(1000))
        breaks = model(script, lambda: end() if next(calls) == 15 else None)
        options = {"sandbox": factory.options["sandbox"]}
        log = evaluate(script, tmp_path, breaks, options, fail_on_error=False, max_samples=4)
    failed = [sample for sample in log.samples if sample.error]
    assert 5 < len(failed) < 18
    assert all(not sample.scores for sample in failed)
    assert all("sandbox" in sample.error.message.lower() for sample in failed)
    clean = [sample for sample in log.samples if not sample.error]
    rewards = [sample.scores["reward"].value for sample in clean]
    assert rewards == [native[sample.metadata["number"]] for sample in clean]
    assert adapter._episodes == {}


def test_a_failed_sample_is_played_again(
    isolation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_episodes: Any
) -> None:
    script, step, steps = Script(EnvFactory("arpo/Arithmetic-v0", level=2), 3), ToolEnv.astep, iter(range(1000))
    native = native_rewards(script)

    async def fails_once(env: ToolEnv, action: str) -> Any:
        if next(steps) == 2:
            raise SandboxUnavailable("the machine is full")
        return await step(env, action)

    monkeypatch.setattr(ToolEnv, "astep", fails_once)
    log = evaluate(script, tmp_path, retry_on_error=1)
    assert scores(log) == native
    assert sum(len(sample.error_retries or ()) for sample in log.samples) == 1
    assert open_episodes.started == open_episodes.closed == 3 + 4
    assert adapter._episodes == {}


def test_a_limit_of_inspect_truncates_the_episode(isolation: str, tmp_path: Path) -> None:
    script = Script(EnvFactory("arpo/Arithmetic-v0", level=2), 6)
    log = evaluate(script, tmp_path, message_limit=3)
    assert [sample.limit.type for sample in log.samples] == ["message"] * 6
    cut = [sample.scores["reward"] for sample in log.samples]
    assert all(score.answer is None for score in cut)
    assert {score.value for score in cut} <= {0.0, -1.0}
    assert adapter._episodes == {}


def test_a_reply_that_the_server_broke_off_has_no_score(isolation: str, tmp_path: Path) -> None:
    script = Script(EnvFactory("arpo/Arithmetic-v0", level=2), 1)
    output = ModelOutput.from_content("m", "", stop_reason="unknown")  # how Inspect reads "abort" of vLLM
    output.usage = ModelUsage(input_tokens=5, output_tokens=5, total_tokens=10)
    played_by = get_model("mockllm/model", custom_outputs=[output], memoize=False)
    [sample] = evaluate(script, tmp_path, played_by, fail_on_error=False).samples
    assert not sample.scores
    assert "broke its reply off" in sample.error.message


def test_levels_are_groups(isolation: str, tmp_path: Path, own_names: None) -> None:
    tasks = [Task(id=f"t{i}", question=f"What is {i}+1?", answers=(str(i + 1),), level=str(i % 2)) for i in range(6)]
    register("own/Levels-v0", tasks=tasks, tools=["python"])
    script = Script(EnvFactory("own/Levels-v0"), 6)
    log = evaluate(script, tmp_path)
    names = {score.name: set(score.metrics) for score in log.results.scores}
    assert names["accuracy"] >= {"mean", "stderr", "level 0", "level 1"}


def test_the_command_line_with_a_server(isolation: str, tmp_path: Path) -> None:
    script = Script(EnvFactory("arpo/Arithmetic-v0", level=2, protocol="hermes"), 6)
    program = Path(sys.executable).parent / "inspect"
    command = ["eval", "arpo_gym/arpo", "-T", "env=arpo/Arithmetic-v0", "-T", "limit=6", "-T", "level=2"]
    with chat_server(scripted(script)) as server:
        command += ["--model", "openai-api/stub/model", "--model-base-url", server.address]
        command += ["--log-dir", str(tmp_path), "--display", "none"]
        # Inspect asks how the package is installed, which a path to the checkout would hide.
        known = {**os.environ, "STUB_API_KEY": "none", "PYTHONPATH": ""}
        done = subprocess.run([program, *command], capture_output=True, text=True, check=False, timeout=300, env=known)
    assert done.returncode == 0, done.stdout + done.stderr
    log = read_eval_log(list_eval_logs(str(tmp_path))[0])
    assert log.status == "success"
    assert log.eval.task_args["env"] == "arpo/Arithmetic-v0"
    assert scores(log) == native_rewards(script)
    assert all([tool["function"]["name"] for tool in request["tools"]] == ["python"] for request in server.bodies)
