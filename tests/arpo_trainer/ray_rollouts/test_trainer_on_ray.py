"""The trainer on rollout workers: its steps, what travels, and a rollout that cannot begin."""

import pickle
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any

import pytest

from arpo_trainer import ARPOConfig, ARPOTrainer
from arpo_trainer.backends import EndpointBackend, VLLMServerBackend
from arpo_trainer.rollout.engine import Engine
from arpo_trainer.training.config import RolloutWorkerSettings, on_workers
from arpo_trainer.training.policy_backend import SyncedBackend
from benchmarks.ray_world import SleepingPolicy, counting_env, without_times
from benchmarks.rollout_world import small_tokenizer
from tests.arpo_trainer.byte_policy import letter_reward, write_byte_policy
from tests.arpo_trainer.quick_settings import ON_CPU

pytest.importorskip("ray", reason="without the extra `ray`")
from typing import cast

from arpo_trainer.ray_rollouts import RayEngine
from arpo_trainer.rollout.engine import GroupsUnderWay
from arpo_trainer.rollout.settings import RolloutSettings
from benchmarks.laboratory.lab_policy import world_env
from benchmarks.laboratory.tiny_model import tiny_tokenizer


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


def test_a_step_on_workers_is_a_step_of_one_process(nodes: Any, tmp_path: Path) -> None:
    folder = write_byte_policy(tmp_path / "model")

    def trainer(wanted: RolloutWorkerSettings) -> ARPOTrainer:
        size = {"num_generations": 4, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
        size |= {"max_completion_length": 400, "max_steps": 1}
        args = ARPOConfig(str(tmp_path / f"run-{wanted.rollout_workers}"), **ON_CPU | size)
        made = ARPOTrainer(folder, counting_env(), letter_reward, args)
        made.backend = SleepingPolicy(made.engine.tokenizer, 0.01)  # it is not the model that is trained
        made.engine.backend = made.backend
        made.engine = on_workers(made.engine, wanted)
        made.train()
        return made

    far = trainer(RolloutWorkerSettings(rollout_workers=1, ray_address=nodes.address, rollout_worker_timeout=60))
    near = trainer(RolloutWorkerSettings())
    assert isinstance(far.engine, RayEngine)
    assert type(near.engine) is Engine
    assert [without_times(tree) for tree in far.trees] == [without_times(tree) for tree in near.trees]
    assert len(far.trees) == 2
    losses = [made.state.log_history[-1]["train_loss"] for made in (far, near)]
    assert losses[0] == losses[1]
    far.engine.workers.close()


def test_a_rollout_that_cannot_begin_raises_its_error() -> None:
    env, backend = world_env("short"), cast(Any, SimpleNamespace(wants_messages=False))
    engine = RayEngine(backend, tiny_tokenizer(), env, RolloutSettings(), workers=cast(Any, None))
    groups = GroupsUnderWay(engine, [env.tasks.task(0)])  # it would not return if it waited for the weights
    with pytest.raises(AttributeError, match="time"):
        groups.result()
