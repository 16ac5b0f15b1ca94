"""Settings that cannot be are refused by name before anything is loaded, with what they may be."""

import contextlib
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from arpo_trainer import ARPOConfig
from arpo_trainer.costs.memory import MemoryNeeds, ModelShape, check_cpu_memory
from arpo_trainer.preference.dpo_run import configure_dpo
from arpo_trainer.run.arguments import RunArguments, configure, configure_sft
from arpo_trainer.run.dry_run import RunEnvironments, check_memory
from arpo_trainer.run.recipes import read_settings
from arpo_trainer.training import devices
from arpo_trainer.training.devices import check_devices, planning
from tests.arpo_trainer.backends.fake_vllm import FakeVLLM


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"use_vllm": True, "vllm_mode": "colocated"}, "vllm_mode"),
        ({"use_vllm": True, "vllm_tensor_parallel_size": 4}, "use a number that divides them"),
        ({"rollout_workers": 4}, "rollout workers generate on a server"),
        ({"ray_address": "auto", "use_vllm": True, "vllm_mode": "colocate"}, "rollout workers generate on a server"),
        ({"rollout_workers": 1, "use_vllm": True, "vllm_mode": "server"}, "fewer than the 2 training processes"),
        ({"rollout_worker_resources": {"sandbox": "many"}}, "give a number by name"),
    ],
)
def test_what_would_fail_on_a_gpu_is_refused_here(setting: dict[str, Any], words: str, tmp_path: Path) -> None:
    with planning(2), pytest.raises(ValueError, match=words):
        ARPOConfig(output_dir=str(tmp_path), use_cpu=True, num_generations=2, **setting)


@pytest.fixture
def old_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that only emulates bfloat16; PyTorch on it is still that of this machine."""
    told = {"is_available": True, "get_device_capability": (7, 5), "get_device_name": "Old", "current_device": 0}
    for name, value in told.items():
        monkeypatch.setattr(f"torch.cuda.{name}", lambda *_, value=value: value)
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation=True: including_emulation)


def device_settings(**settings: Any) -> Any:
    """Settings of one of TRL's trainers, as far as they are about devices."""
    usual = {"use_cpu": False, "bf16": False, "model_init_kwargs": None, "n_gpu": 1, "device": "cuda:0"}
    return SimpleNamespace(**usual | settings)


@pytest.mark.parametrize(
    ("settings", "named"),
    [({"bf16": True}, "bf16=True"), ({"model_init_kwargs": {"dtype": "bfloat16"}}, "dtype=bfloat16")],
)
def test_bfloat16_on_a_gpu_without_it_is_refused(old_gpu: None, settings: dict[str, Any], named: str) -> None:
    cure = rf"{named}: Old \(compute capability 7\.5\) has no bfloat16.*Set bf16=False and fp16=True"
    with pytest.raises(ValueError, match=cure):
        check_devices(device_settings(**settings))
    with planning(1):  # for another machine
        check_devices(device_settings(**settings))


def test_bfloat16_on_a_cpu_without_it_is_warned_of_once(monkeypatch: Any, caplog: Any) -> None:
    devices._say_once.cache_clear()  # as in another process
    for there in (True, False):
        monkeypatch.setattr("torch.cpu._is_avx512_bf16_supported", lambda there=there: there)
        for dtype in ("float32", "bfloat16", "bfloat16"):
            check_devices(device_settings(use_cpu=True, model_init_kwargs={"dtype": dtype}))
        assert caplog.text.count("Set dtype=float32") == (not there)


def test_runs_that_begin_together_have_ports_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """TRL would take the first of four that is free now, in each of them."""
    ports = []
    for _ in range(2):
        monkeypatch.setenv("MASTER_PORT", "")
        devices.take_port()
        ports.append(int(os.environ["MASTER_PORT"]))
    assert len({*ports, 29500, 23456, 12355, 12345}) == 6
    devices.take_port()
    assert int(os.environ["MASTER_PORT"]) == ports[1]  # that of a launcher stays


@pytest.mark.parametrize("configured", [configure, configure_sft, configure_dpo])
def test_commands_take_bfloat16_where_it_is(configured: Any, old_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []
    monkeypatch.setattr(f"{configured.__module__}.check_devices", looked.append)
    for there in (False, True):
        monkeypatch.setattr("torch.cpu._is_avx512_bf16_supported", lambda there=there: there)
        args = configured({"use_cpu": True})[1]
        assert looked.pop() is args
        assert args.bf16 is there


NEEDS = MemoryNeeds(
    {"weights": 6 << 30, "gradients": 6 << 30, "optimizer": 12 << 30},
    {"activations of a micro-batch": 30 << 30},
    {"logits of running requests": 1 << 30},
)


@pytest.mark.parametrize(
    ("gib", "settings", "refused", "warned"),
    [
        (80, {}, None, None),
        (40, {}, None, r"an estimated 54.0 GiB .* has 40.0 GiB: .*activations .*gradient_checkpointing: true"),
        (16, {}, "take 18.0 GiB in each process, and its GPU has 16.0 GiB.*fsdp2.*lora_rank", None),
        (16, {"model_init_kwargs": {"quantization_config": 4}}, None, "an estimated 54.0 GiB"),
        (60, {"use_vllm": True}, None, "60.0 GiB, of which vLLM takes 30%"),
        (60, {"use_vllm": True, "vllm_enable_sleep_mode": True}, None, None),
        (24, {"use_vllm": True, "vllm_enable_sleep_mode": True}, "takes 30%.*less vllm_gpu_memory_utilization", None),
    ],
)
def test_too_little_memory_is_named_with_the_setting_that_lowers_it(
    gib: int, settings: dict[str, Any], refused: str | None, warned: str | None, tmp_path: Path, caplog: Any
) -> None:
    with planning(1):  # of vLLM, which is not here
        args = ARPOConfig(str(tmp_path), use_cpu=True, vllm_gpu_memory_utilization=0.3, **settings)
    with pytest.raises(ValueError, match=refused) if refused else contextlib.nullcontext():
        check_memory(NEEDS, args, gib << 30)
    assert re.search(warned, caplog.text) if warned else not caplog.records


# Qwen2.5-0.5B
HALF_BILLION = ModelShape(494_032_768, 494_032_768, 14_912_384, 24, 896, 4864, 896, 128, 151_936, 14)


@pytest.mark.parametrize(
    ("gib", "settings", "refused"),
    [
        (7.4, {}, None),
        (7.3, {}, r"take 7\.4 GiB, and 7\.3 GiB of memory are free.*fits: lora_rank=16 \(2\.0 GiB"),
        (4, {}, r"fits: lora_rank=16 .*, optim=adafactor .*, dtype=bfloat16 .*, .*smaller model"),
        (0.5, {}, "No setting lowers that enough; or take a smaller model"),
        (4, {"optim": "adafactor"}, None),
        (4, {"model_init_kwargs": {"dtype": "bfloat16"}}, None),
        (8, {"beta": 0.1}, r"weights of the reference model .*fits: lora_rank=16 .*, beta=0 \(7\.4 GiB"),
    ],
)
def test_training_that_cannot_fit_is_refused(gib: float, settings: Any, refused: str | None, tmp_path: Path) -> None:
    args = ARPOConfig(str(tmp_path), use_cpu=True, **settings)
    with pytest.raises(MemoryError, match=refused) if refused else contextlib.nullcontext():
        check_cpu_memory(HALF_BILLION, args, "float32", int(gib * 2**30))


@pytest.mark.parametrize(
    ("model", "length", "refused", "warned"),
    [
        ("hub/other", 500, None, True),
        ("hub/tiny", 2000, "a context of 1024 tokens, which has no place for a prompt and 2000 tokens", False),
    ],
)
def test_a_server_of_another_model_or_length_is_named_before_anything_is_loaded(
    model: str, length: int, refused: str | None, warned: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with FakeVLLM(None, None) as server, planning(1):
        more = {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": server.url}
        args = ARPOConfig(str(tmp_path), use_cpu=True, max_completion_length=length, **more)
        environments = RunEnvironments(RunArguments(model=model, env_kwargs={"tools": []}, eval_tasks=0))
        with pytest.raises(ValueError, match=refused) if refused else contextlib.nullcontext():
            environments.check(args)
    assert ("serves tiny, and the policy is hub/other" in caplog.text) == warned


@pytest.mark.parametrize(("started", "warned"), [(4, True), (8, False), (16, False)])
def test_only_fewer_processes_than_written_for_are_warned_about(started: int, warned: bool, caplog: Any) -> None:
    with planning(started):
        configure(read_settings("arpo-qwen2.5-7b-reasoning", []))
    assert ("written for 8 processes" in caplog.text) == warned


def test_one_process_on_several_gpus_is_told_how_to_use_them(old_gpu: None, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):  # as by a cold start and by the training after it
        check_devices(device_settings(n_gpu=3))
    assert [record.getMessage().count("--num_processes 3") for record in caplog.records] == [1]
    assert "3 GPUs are visible, and one process uses one of them: cuda:0 (Old)" in caplog.text
