"""Rollouts on Ray: the trees of one process, whoever plays them and whoever dies; faults by name."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from arpo_env import ToolEnv
from arpo_env.event_loop import run
from arpo_trainer.backends import TransformersBackend, VLLMServerBackend
from arpo_trainer.backends.base import GenerationError
from arpo_trainer.inference_tools import InferenceSettings, InferenceTools
from arpo_trainer.rollout.engine import Engine
from arpo_trainer.training.evaluation import evaluate
from benchmarks.ray_world import SleepingPolicy, counting_env, tree_settings, without_times
from benchmarks.rollout_world import small_tokenizer
from sandbox.docker_engine import containers
from tests.arpo_trainer.backends.fake_vllm import FakeVLLM
from tests.arpo_trainer.ray_rollouts.policies import Caller, FailingPolicy
from tests.conftest import tiny_llama

pytest.importorskip("ray", reason="without the extra `ray`")
import ray

from arpo_trainer.ray_rollouts import RayEngine, RolloutWorkers, rollout_workers
from arpo_trainer.ray_rollouts.actor_group import RayClusterError, RolloutWorkerError, connect, rank_of
from tests.waiting import wait_for


def engine(workers: RolloutWorkers | None, policy: type[SleepingPolicy] = SleepingPolicy, **parts: Any) -> Any:
    tokenizer = small_tokenizer()
    given = {"backend": policy(tokenizer, 0.01), "tokenizer": tokenizer, "env": counting_env(), **parts}
    values = {**given, "settings": tree_settings()}
    return RayEngine(**values, workers=workers) if workers else Engine(**values)


def tasks(env: ToolEnv, count: int) -> list[Any]:
    return [env.tasks.task(number) for number in range(count)]


def play(player: Any, count: int = 12, first: int = 0) -> list[str]:
    return [without_times(tree) for tree in run(player.rollout(tasks(player.env, count), step=3, first_group=first))]


def test_trees_are_those_of_one_process(workers: Any) -> None:
    player, ended = engine(workers), []
    player.on_trajectory, player.on_tree = lambda: ended.append(1), lambda tree: ended.append(tree.meta["group"])
    assert play(player, first=5) == play(engine(None), first=5)
    assert Counter(ended) == Counter([1] * 48) + Counter(range(5, 17))
    assert player.backend.time.seconds > 0
    assert player.replayed == 0
    both = [evaluate(one, tasks(one.env, 6), "before") for one in (player, engine(None))]
    assert both[0] == both[1]


def test_the_model_s_failure_is_its_own_error(workers: Any) -> None:
    with pytest.raises(GenerationError, match="NaN everywhere") as failure:
        play(engine(workers, FailingPolicy))
    assert "on rollout worker" in failure.value.__notes__[0]
    assert play(engine(workers), 2)  # nothing of it is left


def test_a_group_goes_to_one_server_whoever_plays_it(nodes: Any) -> None:
    """With the code of the page."""
    tokenizer = small_tokenizer()
    given: Any = {"model": tiny_llama(len(tokenizer)).eval(), "tokenizer": tokenizer, "max_model_len": 4096}
    with FakeVLLM(**given) as one, FakeVLLM(**given) as other:
        backend = VLLMServerBackend([one.url, other.url], tokenizer=tokenizer)
        settings, env = tree_settings(max_turn_length=6), counting_env()
        page = (Path(__file__).parents[3] / "docs" / "how-to" / "ray.md").read_text(encoding="utf-8")
        names: dict[str, Any] = {}
        exec(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0], names)
        first = names["rollout_on_ray"](nodes.address, [one.url, other.url], tokenizer, env, settings, 1)
        asked = [{tuple(body["prompt"][:400]) for body in server.bodies} for server in (one, other)]
        groups = [[tuple(tree.prompt_ids[:400]) in prompts for prompts in asked] for tree in first]
        second = run(Engine(backend, tokenizer, env, settings).rollout(tasks(env, 6)))
    assert all(sum(servers) == 1 for servers in groups)
    assert [sum(column) > 0 for column in zip(*groups, strict=True)] == [True, True]
    assert [[s.ids for s in tree.spans] for tree in first] == [[s.ids for s in tree.spans] for tree in second]


def process_of(worker: str) -> int:
    return int(re.search(r"process (\d+)", worker)[1])  # type: ignore[index]


def test_more_workers_than_the_cluster_has_room_for(nodes: Any, workers: Any) -> None:
    free = ray.available_resources()["CPU"]
    with pytest.raises(RolloutWorkerError, match="of 9 rollout workers were not scheduled within 3 s"):
        RolloutWorkers(9, nodes.address, start_timeout=3)
    wait_for(lambda: ray.available_resources().get("CPU", 0) == free)  # none is left


def test_a_node_without_a_sandbox_is_named(workers: Any) -> None:
    player = engine(workers, env=ToolEnv("arpo/Arithmetic-v0"))
    with pytest.raises(RolloutWorkerError, match=r"(?s)worker \d \(host .*SandboxUnavailable.* start Docker there"):
        play(player, 1)


def test_a_model_of_this_process_and_tools_at_inference_time_cannot_be_sent(workers: Any) -> None:
    tokenizer = small_tokenizer()
    player = engine(workers, backend=TransformersBackend(tiny_llama(len(tokenizer)), tokenizer))
    with pytest.raises(TypeError, match=r"TransformersBackend.*model of this process.*as VLLMServerBackend does"):
        play(player, 1)
    with pytest.raises(ValueError, match="no tools at inference time"):
        replace(engine(workers), inference=InferenceTools(InferenceSettings()))


def test_wrong_addresses_and_a_cluster_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray joins a cluster that `ray start` has begun on this machine, unless it is told not to."""
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    wrong = {"127.0.0.1:9": "nothing answers", "ray://head:10001": "client server", "head": "give HOST:PORT"}
    for address, said in wrong.items():
        with pytest.raises((RayClusterError, ValueError), match=said):
            connect(address, 1, 1.0)
    given: dict[str, object] = {}
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "init", lambda **options: given.update(options))
    assert connect(None, 1, 1.0)
    assert given["address"] == "local"


def test_actors_of_several_processes_begin_with_different_servers() -> None:
    every = [rank_of(number, {"RANK": str(rank), "WORLD_SIZE": "3"}) for rank in range(3) for number in range(2)]
    assert sorted(every) == [0, 1, 2, 3, 4, 5]
    assert [rank_of(number, {}) for number in range(3)] == [0, 1, 2]


@pytest.mark.parametrize(("sharers", "count"), [(1, 5), (2, 3), (8, 1)])
def test_several_processes_divide_the_nodes(monkeypatch: pytest.MonkeyPatch, sharers: int, count: int) -> None:
    monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": number < 5} for number in range(6)])
    monkeypatch.setattr(rollout_workers, "connect", lambda *_: False)
    monkeypatch.setattr(rollout_workers, "ActorGroup", lambda count, *_: count)
    workers: Any = RolloutWorkers(0, "auto", sharers=sharers)
    assert workers.actors == count


def test_nothing_is_left_of_a_trainer_that_is_killed(isolation: str) -> None:
    command = [sys.executable, "-m", __name__, "/tmp/arpo-ray-kill"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as trainer:
        worker, calls = (trainer.stdout.readline().strip() for _ in range(2))
        assert calls == "[4, 4, 4, 4]"  # Python was called in a sandbox
        actor = process_of(worker)
        assert "docker" not in isolation or actor in {one.client for one in containers()}
        trainer.kill()
    wait_for(lambda: not os.path.exists(f"/proc/{actor}"), 30)
    wait_for(lambda: "docker" not in isolation or actor not in {one.client for one in containers()})


def test_a_process_that_stops_answering_and_a_node_that_is_killed(nodes: Any) -> None:
    nodes.nodes.append(nodes.cluster.add_node(num_cpus=2, object_store_memory=100_000_000))
    with RolloutWorkers(3, nodes.address, start_timeout=60) as workers:
        player, seen = engine(workers, backend=SleepingPolicy(small_tokenizer(), 0.2)), Counter[int]()
        play(player, 3)  # all have imported everything, which takes long where the machine is busy
        workers.actors.silence = 3.0
        elsewhere = next(name for name in workers.nodes() if nodes.nodes[-1].node_id[:8] not in name)
        stopped = process_of(elsewhere)
        os.kill(stopped, signal.SIGSTOP)

        def count(tree: Any) -> None:
            seen[tree.meta["group"]] += 1
            if seen.total() == 8:
                nodes.kill(-1)

        player.on_tree = count
        assert play(player, 40) == play(engine(None), 40)
        assert seen == Counter(range(40))
        assert player.replayed > 0
    with contextlib.suppress(ProcessLookupError):
        os.kill(stopped, signal.SIGCONT)  # it has been told to end, and hears of it now
    wait_for(lambda: not os.path.exists(f"/proc/{stopped}"))


def say(text: object) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def play_for_ever(folder: str) -> None:
    """Play on a rollout worker of a Ray of its own, with Python in sandboxes; say the worker, and that it plays."""
    tokenizer = small_tokenizer()
    ray.init("local", include_dashboard=False, log_to_driver=False, _temp_dir=folder, object_store_memory=100_000_000)
    with RolloutWorkers(1) as workers:
        player = engine(workers, backend=Caller(tokenizer, 0.3, 64), env=ToolEnv("arpo/Arithmetic-v0"))
        say(*workers.nodes())
        player.on_tree = lambda tree: say([trajectory.tool_calls for trajectory in tree.trajectories])
        while True:
            play(player, 4)


if __name__ == "__main__":
    play_for_ever(sys.argv[1])
