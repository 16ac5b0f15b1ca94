"""What a trainer generates with, and when its engine is given weights, woken and put to sleep.

TRL's `VLLMGeneration` is a stand-in that writes down what is called: a sleeping engine needs a GPU.
"""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from arpo_trainer.algorithms.branching import estimated_entropy
from arpo_trainer.backends import TransformersBackend, VLLMEngineBackend
from arpo_trainer.backends.base import Request
from arpo_trainer.training.policy_backend import trainer_backend
from tests.arpo_trainer.backends.conformance import rollout
from tests.arpo_trainer.backends.recording_engine import RecordingLLM
from tests.conftest import tiny_llama


class SleepyLLM(RecordingLLM):
    """An engine that sleeps."""

    def wake_up(self, tags: list[str]) -> None:
        self.log.append(f"wake {' '.join(tags)}")

    def sleep(self, level: int) -> None:
        self.log.append(f"sleep {level}")

    def reset_prefix_cache(self) -> bool:
        self.log.append("reset")
        return super().reset_prefix_cache()


class Host:
    """As much of TRL's `VLLMGeneration` as we use."""

    mode, tensor_parallel_size, model = "colocate", 1, torch.nn.Identity()

    def __init__(self, sleeps: bool) -> None:
        self.llm, self.enable_sleep_mode, self._llm_weights_sleeping = SleepyLLM(), sleeps, sleeps

    def sync_weights(self) -> None:
        self.llm.log.append("sync")
        self._llm_weights_sleeping = False


def trainer(sleeps: bool = False, **args: Any) -> Any:
    settings = {"use_vllm": True, "vllm_mode": "colocate", "vllm_server_urls": None, "max_staleness": 0}
    settings |= {"entropy_estimator": "auto", "entropy_topk": 5, "max_rows": 3, "prefix_tokens": 4096}
    return SimpleNamespace(
        args=SimpleNamespace(**{**settings, **args}),
        vllm_generation=Host(sleeps),
        state=SimpleNamespace(global_step=0),
        _last_loaded_step=-1,
        is_in_train=True,
        is_fsdp_enabled=False,
        eos_token_ids=[2],
        accelerator=SimpleNamespace(device=torch.device("cpu"), unwrap_model=lambda model: model),
    )


@pytest.mark.parametrize(
    ("sleeps", "training", "loaded", "log"),
    [
        (False, True, -1, ["sync", "reset", "reset", "sync", "reset"]),  # once a step: two rollouts, then another step
        (False, True, 0, ["reset", "reset", "sync", "reset"]),
        (False, False, 0, ["sync", "reset"] * 3),  # outside of training again and again
        (True, True, -1, ["sync", "wake kv_cache", "reset", "sleep 2"] * 3),  # whoever sleeps has forgotten them
    ],
)
def test_weights_are_pushed_and_engines_are_woken(sleeps: bool, training: bool, loaded: int, log: list[str]) -> None:
    host = trainer(sleeps)
    host.is_in_train, host._last_loaded_step = training, loaded
    backend = trainer_backend(host)
    for step in (0, 0, 1):
        host.state.global_step = step
        asyncio.run(rollout(backend, []))
    assert host.vllm_generation.llm.log == log
    assert host.vllm_generation._llm_weights_sleeping is sleeps


def test_the_settings_choose_the_backend_and_its_entropies() -> None:
    engine = trainer_backend(trainer(entropy_estimator="tail")).backend  # type: ignore[attr-defined]
    assert isinstance(engine, VLLMEngineBackend)
    assert (engine.estimator, engine.topk, engine.eos) == ("tail", 5, {2})
    host = trainer(use_vllm=False)
    host.model, host._tokenizer = tiny_llama(50), None
    own = trainer_backend(host)
    assert isinstance(own, TransformersBackend)
    assert (own.max_rows, own.eos) == (3, {2})


def test_an_engine_of_another_make_is_asked_in_its_own_way(caplog: pytest.LogCaptureFixture) -> None:
    backend = VLLMEngineBackend(RecordingLLM())  # type: ignore[arg-type]
    backend._sampling = lambda request: request  # type: ignore[method-assign]  # it takes requests as they are

    for made in asyncio.run(rollout(backend, [Request((n, 3), 2) for n in range(2)])):
        assert made.logprobs == [-1.0] * 2
        assert made.entropies == [estimated_entropy([-0.5, -1.0], -1.0)] * 2
    assert [record.message[:20] for record in caplog.records] == ["this version of vLLM"]
