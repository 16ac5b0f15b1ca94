"""The list of parts, and what each of them needs.

A part is a function `measure(tiny) -> dict` in a module of this package. It returns plain numbers and texts, or raises
`NotHereError` with the reason when the machine lacks something it needs.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

SHARED = "ARPO_GPU_SHARED"  # environment variable: the folder of what the parts of one call have in common
Measure = Callable[[bool], dict[str, Any]]


class NotHereError(Exception):
    """The machine lacks something; the message says what, and how to get it."""


@dataclass(frozen=True)
class Part:
    """One part of the GPU script.

    Attributes:
        question: what it answers, in one line.
        module: in this package; holds a function `measure`.
        arguments: given to `measure` before `tiny`.
        packages: import names without which it is skipped.
        gpus: how many it needs; in tiny form it runs with or without, unless `gpu_only`.
        gpu_only: has no tiny form for the CPU.
        seconds: limit of its time, unless the script is given another one.
    """

    question: str
    module: str
    arguments: Sequence[Any] = ()
    packages: Sequence[str] = ()
    gpus: int = 1
    gpu_only: bool = False
    seconds: float = 570.0

    def load(self) -> Measure:
        """Import the part and return its function."""
        measure = importlib.import_module(f"benchmarks.gpu.{self.module}").measure
        return partial(measure, *self.arguments)

    def check(self, tiny: bool) -> None:
        """Raise `NotHereError` if the machine cannot run this part."""
        import torch

        missing = [name for name in self.packages if importlib.util.find_spec(name) is None]
        if missing:
            raise NotHereError(f"needs the package {', '.join(missing)}: pip install {' '.join(missing)}")
        if tiny and not self.gpu_only:
            return
        found = torch.cuda.device_count()
        if found < self.gpus:
            raise NotHereError(f"needs {self.gpus} GPU{'s' if self.gpus > 1 else ''}, found {found}")


PARTS: dict[str, Part] = {
    "machine": Part("Is this machine right? What doctor finds, one step of each path, tokens/s.", "machine"),
    "packing-equal": Part("Do packed trees give the values and gradients of flat rows under FlexAttention?", "equal"),
    "packing-speed": Part("What does packing save in time and memory, 0.5B, 8 rows of 2,048 tokens?", "speed", (2048,)),
    "packing-speed-8k": Part("The same with 4 rows of 8,192 tokens.", "speed", (8192,)),
    "rollout-0.5b": Part("Tokens/s and idle share of the transformers backend, 0.5B.", "rollout", ("0.5b",)),
    "rollout-1.5b": Part("The same with 1.5B.", "rollout", ("1.5b",)),
    "train-bf16": Part("Three ARPO steps, all weights, bf16 autocast, flat.", "training", ("bf16",)),
    "train-packed": Part("The same on packed trees.", "training", ("packed",)),
    "train-lora": Part("Adapters on a bf16 base, packed.", "training", ("lora",), ("peft",)),
    "train-fsdp2": Part("FSDP2 on one GPU.", "training", ("fsdp2",), gpu_only=True),
    "train-zero2": Part("ZeRO-2 on one GPU.", "training", ("zero2",), ("deepspeed",), gpu_only=True),
    "train-zero3": Part("ZeRO-3 on one GPU.", "training", ("zero3",), ("deepspeed",), gpu_only=True),
    "vllm-colocate": Part(
        "vLLM in the training process: sleep mode, weight sync.", "training", ("colocate",), ("vllm",), gpu_only=True
    ),
    "vllm-server": Part(
        "A vLLM server on a second GPU: weight push over NCCL.",
        "training",
        ("server",),
        ("vllm",),
        gpus=2,
        gpu_only=True,
    ),
    "qwen": Part(
        "Qwen2.5-Coder-0.5B on GSM8K: cold start, ARPO and GRPO with three seeds, all evaluated.",
        "qwen",
        (16, 3),
        seconds=3600.0,
    ),
    "qwen-100": Part("The same with one seed and 100 steps instead of 16.", "qwen", (100, 1), seconds=3600.0),
    "demo": Part("The demo at larger size: 32 prompts x 16 trajectories a step.", "demo"),
}
