"""`--ray` of `arpo eval` and `arpo synth`: the episodes of one process, each stored once, whoever dies."""

import contextlib
import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from arpo_trainer.cli.arpo_command import main
from arpo_trainer.evaluation.episode_store import load_eval_run
from arpo_trainer.evaluation.eval_session import run_evaluation
from arpo_trainer.evaluation.eval_settings import EvalModel, EvalSettings
from tests.arpo_env.chat_server import chat_server, reply
from tests.arpo_trainer.evaluation.test_shards import played

pytest.importorskip("ray", reason="without the extra `ray`")
from arpo_trainer import ray_rollouts
from arpo_trainer.ray_rollouts import RolloutWorkers
from arpo_trainer.ray_rollouts.actor_group import ActorGroup, ActorHandle
from tests.arpo_trainer.ray_rollouts.test_ray_rollouts import process_of
from tests.waiting import wait_for

REFINER = {"refiner": 1, "refine_above": 1}  # the policy helps itself, and replies nothing that is of use
SETTINGS = EvalSettings(
    ("arpo/MultiHop-v0", "arpo/Bifurcation-v0"), tasks=8, samples=2, concurrency=8, inference=REFINER
)


class Endpoint:
    """A model that calls tools in some episodes, answers in others and fails in a few; one request kills."""

    def __init__(self) -> None:
        self.asked, self.kill_at, self.lock = 0, 0, threading.Lock()
        self.kill: Callable[[], object] = lambda: None

    def __call__(self, body: dict[str, Any]) -> tuple[int, Any]:
        with self.lock:  # the others wait until it is done
            self.asked += 1
            if self.asked == self.kill_at:
                self.kill()
        text = json.dumps(body["messages"]) + str(body["seed"])
        luck = int(hashlib.sha256(text.encode()).hexdigest(), 16) % 8
        if luck == 7:
            return 400, {"error": {"message": "no luck"}}
        if luck < 4 and len(body["messages"]) < 6:
            return 200, reply("<think>look</think><search>the capital</search>")
        return 200, reply(f"<think>So. Maybe not.</think><answer>\\boxed{{{luck}}}</answer>")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[tuple[Endpoint, str]]:
    model = Endpoint()
    with chat_server(model, seconds=0.05) as server:
        yield model, server.address


@pytest.fixture
def two_nodes(nodes: Any) -> Iterator[Any]:
    """Two more nodes, each with a place for one worker."""
    place = {"num_cpus": 1, "resources": {"evaluation": 1}, "object_store_memory": 100_000_000}
    made = [nodes.cluster.add_node(**place) for _ in range(2)]
    nodes.nodes += made
    yield nodes
    for one in made:
        with contextlib.suppress(Exception):  # one is dead
            nodes.cluster.remove_node(one)
        nodes.nodes.remove(one)


def test_a_node_is_killed_and_no_episode_is_lost_or_there_twice(
    endpoint: tuple[Endpoint, str], two_nodes: Any, served_model: Path, tmp_path: Path, caplog: Any
) -> None:
    model, address = endpoint
    models = [EvalModel("stub", "endpoint", str(served_model), (address,), "stub")]
    with RolloutWorkers(2, two_nodes.address, resources={"evaluation": 1}, start_timeout=60) as workers:
        played_by = [process_of(name) for name in workers.nodes()]

        def kill() -> None:
            two_nodes.kill(-1)
            wait_for(lambda: not all(os.path.exists(f"/proc/{worker}") for worker in played_by), 30)

        model.kill_at, model.kill = model.asked + 20, kill
        run_evaluation(SETTINGS, models, tmp_path / "ray", workers=workers)
        assert len(workers.nodes()) == 1
        assert "its groups are played again" in caplog.text
        assert workers.playing == 0
    more = replace(SETTINGS, tasks=9)  # in one process: where units are played is no setting
    found = run_evaluation(more, models, tmp_path / "ray", resume=True)
    whole = run_evaluation(more, models, tmp_path / "whole")
    assert len(found.attempts) == len(found.rows) == 2 * 9 * 2
    assert played(found) == played(whole)
    assert any(entry.helper for row in found.rows for entry in row.episodes)
    assert {entry.outcome for row in found.rows for entry in row.episodes} >= {"failed", "answered"}
    assert (tmp_path / "ray" / "results.json").read_bytes() == (tmp_path / "whole" / "results.json").read_bytes()


def test_a_synthesis_is_that_of_one_process(
    endpoint: tuple[Endpoint, str], workers: Any, served_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = mock.Mock(return_value=contextlib.nullcontext(workers))
    monkeypatch.setattr(ray_rollouts, "RolloutWorkers", opened)
    command = ["synth", "arpo/MultiHop-v0", "--tasks", "5", "--model", str(served_model), "--endpoint", endpoint[1]]
    command += ["--endpoint-model", "stub", "other", "--max-broken", "1"]  # both at once
    for name, more in (("ray", ["--ray", "here:1", "--rollout-workers", "2"]), ("whole", [])):
        main([*command, *more, "--output", str(tmp_path / name)])
    opened.assert_called_once_with(2, "here:1")
    found, whole = (load_eval_run(tmp_path / name) for name in ("ray", "whole"))
    assert played(found) == played(whole)
    assert {row.env.rpartition("/")[2] for row in found.rows} >= {"direct", "tir", "verify", "reflect"}
    assert (tmp_path / "ray" / "report.json").read_bytes() == (tmp_path / "whole" / "report.json").read_bytes()


def test_two_runs_that_lose_a_worker_get_the_same_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    group, (lost, other, new) = ActorGroup.__new__(ActorGroup), (ActorHandle(number, None) for number in (0, 1, 0))
    group.members, group._ray = [lost, other], mock.Mock()
    monkeypatch.setattr(group, "start", lambda number: group.members.append(new) or new)
    assert group.restart(lost) is group.restart(lost) is new
    assert group.members == [other, new]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ([], r"reach no model of this process, and 'x' would be one (transformers): serve it with vLLM"),
        (["--vllm"], "'x' would be one (vllm)"),
        (["--vllm-server", "http://h", "--cache", "c.sqlite"], "cannot share the recording 'c.sqlite'"),
    ],
)
def test_what_workers_cannot_play_is_refused(more: list[str], said: str, tmp_path: Path, capsys: Any) -> None:
    command = ["eval", "arpo/MultiHop-v0", "--model", "y/x", "--output", str(tmp_path / "out"), "--ray", "auto"]
    assert main([*command, *more]) != 0
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
