"""`WeightArguments`: settings of the trained weights and of the processes, for `arpo train`, `sft` and `dpo`."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

from arpo_trainer.validation import check_name, check_types
from envs_registry.install_line import install_line

DTYPES = ("float32", "bfloat16", "auto")
_LOWEST = {"processes": 0, "lora_rank": 0, "lora_alpha": 1, "threads": 0}


@dataclass
class WeightArguments:
    """Settings that all commands which train have.

    Attributes:
        processes: the number of processes that the settings are written for, one per GPU; 0 is any number. A run of
            `arpo train` with fewer processes logs a warning.
        dtype: the type of the loaded weights: "float32", which small updates of all weights need (`bf16` sets the type
            of the computation), "bfloat16" for a frozen base under adapters, or "auto" for the checkpoint's own.
            Other options of loading are in `model_init_kwargs`.
        lora_rank: the rank of the adapters that are trained instead of the weights; 0 trains the weights.
        lora_alpha: the adapters' scale is alpha over rank; None is the rank.
        lora_dropout: the dropout in the adapters.
        lora_target_modules: names of the layers with adapters, or "all-linear".
        save_final_model: whether the trained model is written into the output folder, with its adapters if there are.
        threads: CPU threads for PyTorch; 0 is the number of idle cores.
    """

    processes: int = 0
    dtype: str = "float32"
    lora_rank: int = 0
    lora_alpha: int | None = None
    lora_dropout: float = 0.0
    lora_target_modules: str | list[str] = "all-linear"
    save_final_model: bool = True
    threads: int = 0

    def __post_init__(self) -> None:
        check_types(self, WeightArguments.__annotations__)  # first: the comparisons below need numbers
        for name, low in _LOWEST.items():
            if (value := getattr(self, name)) is not None and value < low:
                raise ValueError(f"{name} must be at least {low}, got {value}")
        if not 0 <= self.lora_dropout <= 1:
            raise ValueError(f"lora_dropout is a share, from 0 to 1; got {self.lora_dropout}")
        check_name("dtype", self.dtype, DTYPES)
        if self.lora_rank and importlib.util.find_spec("peft") is None:
            raise ValueError(f"lora_rank={self.lora_rank} needs PEFT: {install_line('lora')}, or set lora_rank=0")
