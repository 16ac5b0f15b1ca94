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
from arpo_trainer.backends.base import Backend, Generation, Request
from arpo_trainer.training.policy_backend import trainer_backend
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
    settings = {
        "use_vllm": True,
        "vllm_mode": "colocate",
        "entropy_estimator": "auto",
        "entropy_topk": 5,
        "max_rows": 3,
        "prefix_tokens": 4096,
        "max_staleness": 0,
        "vllm_server_urls": None,
    }
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


def rollout(backend: Backend) -> None:
    async def main() -> None:
        await backend.begin()
        await backend.end()

    asyncio.run(main())


def test_weights_are_pushed_once_a_step() -> None:
    host = trainer()
    backend = trainer_backend(host)
    for _ in range(2):
        rollout(backend)
    host.state.global_step = 1
    rollout(backend)
    assert host.vllm_generation.llm.log == ["sync", "reset", "reset", "sync", "reset"]


@pytest.mark.parametrize(("training", "log"), [(False, ["sync", "reset"]), (True, ["reset"])])
def test_weights_of_this_step_are_pushed_again_outside_of_training_only(training: bool, log: list[str]) -> None:
    host = trainer()
    host.is_in_train, host._last_loaded_step = training, 0
    rollout(trainer_backend(host))
    assert host.vllm_generation.llm.log == log


def test_a_sleeping_engine_is_woken_and_put_to_sleep_once_a_rollout() -> None:
    host = trainer(sleeps=True)
    backend = trainer_backend(host)
    for _ in range(2):
        rollout(backend)
    assert host.vllm_generation.llm.log == ["sync", "wake kv_cache", "reset", "sleep 2"] * 2
    assert host.vllm_generation._llm_weights_sleeping


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

    async def main() -> list[Generation]:
        return list(await asyncio.gather(*(backend.generate(Request((n, 3), 2)) for n in range(2))))

    for made in asyncio.run(main()):
        assert made.logprobs == [-1.0] * 2
        assert made.entropies == [estimated_entropy([-0.5, -1.0], -1.0)] * 2
    assert [record.message[:20] for record in caplog.records] == ["this version of vLLM"]
