"""The trainer on rollout workers: its steps, what travels, and a rollout that cannot begin."""

import pickle
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any

import pytest

from arpo_trainer import ARPOTrainer
from arpo_trainer.backends import EndpointBackend, VLLMServerBackend
from arpo_trainer.rollout.engine import Engine, GroupsUnderWay
from arpo_trainer.training.config import RolloutWorkerSettings, on_workers
from arpo_trainer.training.policy_backend import SyncedBackend
from benchmarks.ray_world import SleepingPolicy, counting_env, tree_settings, without_times
from benchmarks.rollout_world import small_tokenizer
from tests.arpo_trainer.training.test_trl_options import made

pytest.importorskip("ray", reason="without the extra `ray`")
from arpo_trainer.ray_rollouts import RayEngine


def test_backends_travel_without_connections_and_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "of-the-trainer")
    tokenizer = small_tokenizer()
    server = VLLMServerBackend(["http://a:1", "http://b:2"], tokenizer=tokenizer, topk=5, eos_token_ids={7})
    host = SimpleNamespace(mode="server", enable_sleep_mode=False)
    synced = SyncedBackend(server, SimpleNamespace(vllm_generation=host, lock=Lock()))
    monkeypatch.delenv("VLLM_API_KEY")
    far = pickle.loads(pickle.dumps(synced))
    assert isinstance(far, VLLMServerBackend)
    assert (far.topk, far.eos) == (5, [7])
    assert far._http._headers == {"Authorization": "Bearer of-the-trainer"}
    asked = EndpointBackend("m", "http://c:3/v1", "key", tokenizer=tokenizer, extra={"n": 1})
    far = pickle.loads(pickle.dumps(asked))
    assert isinstance(far, EndpointBackend)
    assert far._endpoint._key == "key"
    assert (far._endpoint._fields["model"], far._endpoint._extra) == ("m", {"n": 1})


def test_a_step_on_workers_is_a_step_of_one_process(nodes: Any, byte_lm: Path, tmp_path: Path) -> None:
    def trainer(wanted: RolloutWorkerSettings) -> ARPOTrainer:
        one, _ = made(byte_lm, tmp_path, env=counting_env(), max_completion_length=400, max_turn_length=None)
        one.backend = SleepingPolicy(one.engine.tokenizer, 0.01)  # it is not the model that is trained
        one.engine.backend = one.backend
        one.engine = on_workers(one.engine, wanted)
        one.train()
        return one

    far = trainer(RolloutWorkerSettings(rollout_workers=1, ray_address=nodes.address, rollout_worker_timeout=60))
    near = trainer(RolloutWorkerSettings())
    assert isinstance(far.engine, RayEngine)
    assert type(near.engine) is Engine
    assert [without_times(tree) for tree in far.trees] == [without_times(tree) for tree in near.trees]
    assert len(far.trees) == 2
    losses = [one.state.log_history[-1]["train_loss"] for one in (far, near)]
    assert losses[0] == losses[1]
    far.engine.workers.close()


def test_a_rollout_that_cannot_begin_raises_its_error() -> None:
    parts: Any = {"backend": SimpleNamespace(wants_messages=False), "workers": None}
    engine = RayEngine(tokenizer=small_tokenizer(), env=counting_env(), settings=tree_settings(), **parts)
    groups = GroupsUnderWay(engine, [engine.env.tasks.task(0)])  # it would not return if it waited for the weights
    with pytest.raises(AttributeError, match="time"):
        groups.result()
