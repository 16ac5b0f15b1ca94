"""The adapter for verifiers: its own evaluation loop plays the environments against a server that speaks the script."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verifiers")

import verifiers.v1 as vf
from verifiers.v1.cli.eval.runner import run_eval
from verifiers.v1.configs.cli.eval import EvalConfig
from verifiers.v1.serve.client import EnvClient
from verifiers.v1.serve.server import EnvServer

from arpo_env import EnvFactory
from arpo_env.adapters import verifiers as adapter
from arpo_env.adapters.package import write_package
from tests.arpo_env.chat_server import chat_server

from .chat_policy import scripted
from .scripts import Script, breaking_sandbox, native_rewards, script_for, sets

ROOT = Path(__file__).resolve().parents[2]


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
    with chat_server(scripted(script)) as model:
        episodes = asyncio.run(run_eval(EvalConfig.model_validate(settings(script, model.address, folder, **more))))
    return sorted(episodes, key=lambda episode: episode.task.data.idx)


def written(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in next(folder.rglob("traces.jsonl")).read_text().splitlines()]


@pytest.mark.parametrize("protocol", ["arpo-tags", "hermes"])
@pytest.mark.parametrize("env_id", sets())
def test_rewards_are_those_of_the_environment(
    env_id: str, protocol: str, isolation: str, tmp_path: Path, open_episodes: Any
) -> None:
    script = script_for(env_id, protocol)
    episodes = evaluate(script, tmp_path)
    assert open_episodes.started == open_episodes.closed == script.episodes
    assert [episode.traces[0].reward for episode in episodes] == native_rewards(script)
    assert all(episode.ok for episode in episodes)
    truncated = [episode.traces[0].metrics["truncated"] for episode in episodes]
    assert truncated == [float(number % 6 == 5) for number in range(script.episodes)]
    sampled = [node.message for episode in episodes for node in episode.traces[0].nodes if node.sampled]
    assert any(message.tool_calls for message in sampled) == (protocol == "hermes")


def test_the_model_gets_tools_and_stop_strings(isolation: str, tmp_path: Path) -> None:
    for protocol, given in (("arpo-tags", "stop"), ("hermes", "tools")):
        script = script_for("arpo/Arithmetic-v0", protocol)
        with chat_server(scripted(script)) as model:
            config = settings(script, model.address, tmp_path / protocol, select={"limit": 2})
            asyncio.run(run_eval(EvalConfig.model_validate(config)))
        env = script.factory()
        expected = {"stop": env.protocol.stop_strings(env.schemas), "tools": env.schemas}[given]
        assert [request.get(given) for request in model.bodies] == [expected] * len(model.bodies)
        assert not any({"stop", "tools"} - {given} & request.keys() for request in model.bodies)


def test_a_broken_sandbox_is_an_error_and_no_reward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with breaking_sandbox() as (factory, end):
        script = Script(EnvFactory("arpo/Arithmetic-v0", level=2), 18)
        native = native_rewards(script)
        calls, message = iter(range(1000)), script.message

        def breaks(messages: Any) -> dict[str, Any]:
            if next(calls) == 15:
                end()
            return message(messages)

        monkeypatch.setattr(script, "message", breaks)
        monkeypatch.setattr(adapter, "_make", lambda data: factory())
        episodes = evaluate(script, tmp_path, max_concurrent=4)
    assert 5 < sum(not episode.ok for episode in episodes) < 18
    for episode, reward in zip(episodes, native, strict=True):
        [trace] = episode.traces
        assert trace.reward == reward if episode.ok else trace.rewards == {}
        assert episode.ok or "sandbox" in trace.last_error.message.lower()


def test_a_limit_of_verifiers_truncates_the_episode(isolation: str, tmp_path: Path) -> None:
    script = Script(EnvFactory("arpo/Arithmetic-v0", level=2), 3)
    for episode in evaluate(script, tmp_path, env={"agent": {"max_turns": 1}}):
        [trace] = episode.traces
        assert episode.ok
        assert trace.stop_condition == "max_turns"
        assert (trace.reward in (0.0, -1.0), trace.metrics["truncated"]) == (True, 1.0)


def test_an_environment_server_plays_as_prime_rl_lets_it(isolation: str, tmp_path: Path) -> None:
    script = Script(EnvFactory("arpo/Arithmetic-v0", level=2), 4)

    async def play() -> list[Any]:
        with chat_server(scripted(script)) as model:
            config = EvalConfig.model_validate(settings(script, model.address, tmp_path))
            server = EnvServer(config.env, address="tcp://127.0.0.1:0")
            serving = asyncio.create_task(server.run())
            client = EnvClient(address=server.address)
            sampling = vf.SamplingConfig(temperature=1.0)
            tasks = [task.data.model_dump() for task in server.env.taskset.take(script.episodes)]
            runs = [client.run(client=config.client, model="stub", sampling=sampling, task_data=each) for each in tasks]
            try:
                return await asyncio.gather(*runs)
            finally:
                await client.close()
                serving.cancel()
                await asyncio.gather(serving, return_exceptions=True)

    episodes = asyncio.run(play())
    assert all(episode.ok for episode in episodes)
    assert [episode.traces[0].reward for episode in episodes] == native_rewards(script)


def test_endless_and_finite_tasksets() -> None:
    def taskset(env_id: str, **options: Any) -> Any:
        config = adapter.ArpoConfig(id="arpo-gym", env_id=env_id, options=options)
        return vf.load_taskset(config)

    endless, finite = taskset("arpo/Arithmetic-v0"), taskset("arpo/Arithmetic-v0", limit=3)
    assert (type(endless).INFINITE, type(finite).INFINITE) == (True, False)
    assert [task.data for task in endless.take(3)] == [task.data.model_copy(update={"options": {}}) for task in finite]
    assert len({task.key for task in endless.take(50)}) == 50


def rows(path: Path, make: Any) -> str:
    path.write_text("".join(json.dumps(make(number)) + "\n" for number in range(20)))
    return str(path)


def test_packages_play_in_an_environment_that_has_nothing_else(isolation: str, tmp_path: Path) -> None:
    """Each is installed from its folder, with a wheel of this project, and plays 20 tasks by `vf-eval`."""
    sums = rows(tmp_path / "sums.jsonl", lambda n: {"question": f"What is {n} + 70?", "answer": f"#### {n + 70}"})
    towns = rows(tmp_path / "towns.jsonl", lambda n: {"question": f"Who founded town {n}?", "answer": [f"Person {n}"]})
    corpus = rows(tmp_path / "corpus.jsonl", lambda n: {"id": n, "title": f"Town {n}", "text": f"By Person {n}."})
    factories = {
        "arpo-multihop-v0": EnvFactory("arpo/MultiHop-v0"),
        "arpo-gsm8k-v0": EnvFactory("arpo/GSM8K-v0", data=sums, split="test"),
        "arpo-bamboogle-v0": EnvFactory("arpo/Bamboogle-v0", data=towns, search=corpus, protocol="hermes"),
    }
    for name, factory in factories.items():
        write_package(tmp_path / name, factory, "verifiers")
    scripts = {name: Script(factory, 20) for name, factory in factories.items()}
    expected = {name: native_rewards(script) for name, script in scripts.items()}
    for path in (sums, towns, corpus):
        Path(path).unlink()  # the packages have them

    # `uv build` makes the wheel from a source archive, so that nothing stale in the folder `build` gets into it
    uv, python = str(ROOT / ".venv" / "bin" / "uv"), str(tmp_path / "venv" / "bin" / "python")
    install = [uv, "pip", "install", "--quiet", "--python", python, "--find-links", str(tmp_path / "dist")]
    for command in (
        [uv, "build", "--quiet", "--out-dir", str(tmp_path / "dist"), str(ROOT)],
        [uv, "venv", "--quiet", "--python", sys.executable, str(tmp_path / "venv")],
        [*install, *(str(tmp_path / name) for name in factories)],
    ):
        subprocess.run(command, check=True)
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for name, script in scripts.items():
        with chat_server(scripted(script)) as model:
            command = [str(Path(python).with_name("vf-eval")), name, "-n", "20", "-m", "stub", "--no-push", "--no-rich"]
            command += ["--client.base-url", model.address, "-o", str(tmp_path / f"of-{name}")]
            subprocess.run(command, check=True, cwd=tmp_path, env=alone, timeout=300)
        episodes = sorted(written(tmp_path / f"of-{name}"), key=lambda episode: episode["task"]["data"]["idx"])
        assert [trace["rewards"]["reward"]["score"] for each in episodes for trace in each["traces"]] == expected[name]

    code = "import arpo_gsm8k_v0 as own; print(len(list(own.load_environment(limit=3).taskset)))"
    done = subprocess.run([python, "-c", code], check=True, cwd=tmp_path, env=alone, capture_output=True, text=True)
    assert done.stdout == "3\n"
