"""Three ARPO steps of a 0.5B model in each of the ways that need a GPU, and three checks that hold for all of them.

Checks: (1) log-probabilities of the sampled tokens, as the rollout stored them, beside those of the training model on
the same rows (large values mean that rollouts use other weights or another precision); (2) the updates moved the
weights and left them finite; (3) the saved model loads as an ordinary folder with weights of the same names.

The environment is MultiHop with its local search, which needs neither sandbox nor network; the policy is a random model
that learned the tags from demonstrations; the reward is a function of the ids, so that groups always differ.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.parts import SHARED, NotHereError
from benchmarks.gpu.policy import search_env, write_policy

STEPS = 3
KINDS: dict[str, dict[str, Any]] = {
    "bf16": {},
    "packed": {"packing": True},
    "lora": {"packing": True, "learning_rate": 1e-4},
    "fsdp2": {"packing": True},
    "zero2": {"packing": True},
    "zero3": {"packing": True},
    "colocate": {
        "use_vllm": True,
        "vllm_gpu_memory_utilization": 0.3,
        "vllm_enable_sleep_mode": True,
        "vllm_max_model_length": 4096,
    },
    "server": {"use_vllm": True, "vllm_mode": "server", "vllm_server_timeout": 300.0},
}
LAUNCHED = ("fsdp2", "zero2", "zero3")
GPU_ONLY = (*LAUNCHED, "colocate", "server")


def measure(kind: str, tiny: bool, steps: int = STEPS, policy: Path | None = None) -> dict[str, Any]:
    """Train in one of the ways of `KINDS`; return times, memory, and the checks' numbers.

    Args:
        kind: name of the way.
        tiny: two layers and one group a step.
        steps: of training.
        policy: folder of the model to train; by default that of `SHARED`, and it is made if it is not there.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if policy is None:
            policy = Path(os.environ.get(SHARED, folder)) / "policy"
            if not policy.exists():
                write_policy(folder / "made", tiny)
                shutil.move(folder / "made", policy)  # at the end: the next part never finds half a model
        if kind in LAUNCHED:
            _launch(kind, folder, policy, tiny, steps)
        else:
            with _server(policy) if kind == "server" else contextlib.nullcontext({}) as settings:
                train(kind, folder, policy, tiny, steps, settings)
        result: dict[str, Any] = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        return result | {"saved model": _check_saved(folder, policy, adapters=kind == "lora")}


def train(kind: str, folder: Path, policy: Path, tiny: bool, steps: int, more: dict[str, Any]) -> None:
    """Train in this process, or as one rank of several; rank 0 writes result.json and the model."""
    from transformers import AutoTokenizer

    from arpo_trainer import ARPOConfig

    cuda = torch.cuda.is_available()
    groups, members, micro = (1, 4, 4) if tiny else (8, 8, 8)
    args = ARPOConfig(
        output_dir=str(folder / "out"),
        use_cpu=not cuda,
        bf16=cuda,
        num_generations=members,
        initial_rollouts=members // 2,
        branch_alpha=1.0,  # every result branches while there is budget
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=groups * members // micro,
        max_steps=steps,
        max_turn_length=96,
        max_completion_length=512 if tiny else 1024,
        gradient_checkpointing=False,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        seed=1,
        **{"learning_rate": 1e-5, "packing": False, **KINDS[kind], **more},
        model_init_kwargs={"dtype": "bfloat16" if kind == "lora" and cuda else "float32"},
    )
    trainer = _timed_trainer()(
        str(policy),
        search_env(),
        ids_reward,
        args,
        peft_config=_lora() if kind == "lora" else None,
        processing_class=AutoTokenizer.from_pretrained(policy, padding_side="left"),
    )
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    trainer.train()
    trainer.save_model(str(folder / "saved"))
    result = _summary(trainer, steps, cuda)
    if trainer.accelerator.is_main_process:
        (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")


def ids_reward(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """A reward that differs within every group."""
    return [sum(ids) % 97 / 97 for ids in completion_ids]


def _lora() -> Any:
    from peft import LoraConfig

    return LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")


def _timed_trainer() -> Any:
    """Return a trainer class that keeps the time of each micro-batch, and how far its log-probabilities are off."""
    from arpo_trainer import ARPOTrainer

    class TimedTrainer(ARPOTrainer):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.seconds: list[float] = []
            self.apart: list[dict[str, float]] = []
            super().__init__(*args, **kwargs)

        def training_step(self, *args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            loss = super().training_step(*args, **kwargs)
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            self.seconds.append(time.perf_counter() - start)
            return loss

        def logps_seen(self, logps: torch.Tensor, inputs: dict[str, Any]) -> None:
            """Compare with the rollout: both come from the same weights, as there is one update a rollout."""
            super().logps_seen(logps, inputs)
            sampled = inputs.get("sampling_per_token_logps")
            mask = (inputs["completion_mask"] * inputs.get("tool_mask", 1)).bool()
            if sampled is not None and mask.any():  # rows that change no weight are left out
                off = (logps.detach() - sampled)[mask].abs()
                self.apart.append({"mean": off.mean().item(), "max": off.max().item(), "tokens": int(mask.sum())})

    return TimedTrainer


def _summary(trainer: Any, steps: int, cuda: bool) -> dict[str, Any]:
    logs = [entry for entry in trainer.state.log_history if "loss" in entry]
    names = ("loss", "grad_norm")
    found: dict[str, Any] = {name: [entry[name] for entry in logs if name in entry] for name in names}
    for name in ("branches", "tool_calls", "seconds_rollout", "tokens_per_second", "model_idle", "packing", "invalid"):
        found[name] = [entry[f"arpo/{name}"] for entry in logs if f"arpo/{name}" in entry]
    per_step = len(trainer.seconds) // steps
    found["seconds of a step, rollout included"] = [
        sum(trainer.seconds[n * per_step : (n + 1) * per_step]) for n in range(steps)
    ]
    found["logps, rollout - training"] = (
        {
            "mean": statistics.fmean(one["mean"] for one in trainer.apart),
            "max": max(one["max"] for one in trainer.apart),
            "tokens": sum(one["tokens"] for one in trainer.apart),
        }
        if trainer.apart
        else "not recorded"
    )
    if cuda:
        found["peak_gb"] = torch.cuda.max_memory_allocated() / 1e9
    return found


def _check_saved(folder: Path, policy: Path, adapters: bool) -> dict[str, float]:
    """Load what was saved, in float32 on the CPU, and compare it with the weights before training.

    Raises:
        ValueError: weights that are not finite, or an update of nothing.
    """
    from transformers import AutoModelForCausalLM

    before = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32)
    if adapters:
        from peft import PeftModel

        base = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32)
        after = PeftModel.from_pretrained(base, str(folder / "saved")).merge_and_unload()
    else:
        after = AutoModelForCausalLM.from_pretrained(folder / "saved", dtype=torch.float32)
    old, new = dict(before.named_parameters()), dict(after.named_parameters())
    if old.keys() != new.keys():
        raise ValueError(f"the saved model has other weights: {sorted(old.keys() ^ new.keys())[:6]}")
    size = torch.stack([value.detach().norm() for value in old.values()]).norm().item()
    moved = torch.stack([(new[name] - value).detach().norm() for name, value in old.items()]).norm().item()
    if not 0 < moved < size:
        raise ValueError(f"the weights moved by {moved} of {size}: nothing was learned, or too much")
    return {"weights' norm": size, "update's norm": moved}


def _launch(kind: str, folder: Path, policy: Path, tiny: bool, steps: int) -> None:
    """Train under `accelerate launch` with our configuration of that name, on one GPU."""
    from arpo_trainer.run.launch import LaunchFlags, launch_command

    flags = LaunchFlags(kind, 1)
    try:
        command = launch_command(flags, [kind, str(folder), str(policy), "tiny" if tiny else "", str(steps)], __name__)
    except ValueError as error:
        raise NotHereError(str(error)) from error
    subprocess.run(command, check=True, cwd=Path(__file__).resolve().parents[2])


@contextlib.contextmanager
def _server(policy: Path) -> Iterator[dict[str, Any]]:
    """Run a vLLM server on the second GPU; yields the trainer's settings for it. This process keeps the first."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    options = (
        f"--model {policy} --host 127.0.0.1 --port {port} --max-model-len 4096 --gpu-memory-utilization 0.5 "
        "--logprobs-mode processed_logprobs --max-logprobs -1 --enable-prompt-tokens-details "
        "--enable-per-request-metrics"
    ).split()
    command = [
        sys.executable,
        "-m",
        "vllm.entrypoints.openai.api_server",
        *options,
        "--weight-transfer-config",
        '{"backend": "nccl"}',
    ]
    second = os.environ.get("CUDA_VISIBLE_DEVICES", "0,1").split(",")[1]
    surroundings = {**os.environ, "CUDA_VISIBLE_DEVICES": second, "VLLM_SERVER_DEV_MODE": "1"}
    server = subprocess.Popen(command, env=surroundings)
    try:
        _wait_for(f"http://127.0.0.1:{port}/health", server)
        yield {"vllm_server_base_url": f"http://127.0.0.1:{port}"}
    finally:
        server.terminate()
        server.wait()


def _wait_for(url: str, server: subprocess.Popen[bytes], seconds: float = 300.0) -> None:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if server.poll() is not None:
            raise RuntimeError(f"the vLLM server ended with status {server.returncode}; its output is above")
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return
        time.sleep(1)
    raise TimeoutError(f"the vLLM server did not answer within {seconds:.0f} s")


if __name__ == "__main__":  # one rank, started by `_launch`
    train(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), bool(sys.argv[4]), int(sys.argv[5]), {})
