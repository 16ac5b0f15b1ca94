"""The first part of `make gpu` on a pretended GPU: it finds what is wrong, and says so."""

from typing import Any

import pytest

import arpo_trainer
from arpo_trainer import ARPOConfig, ARPOTrainer
from arpo_trainer.run import sft_run
from benchmarks.gpu import machine


def test_a_machine_is_right_until_a_path_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The policy is a random one, and its episodes are short: that it walks through the world takes longer than all."""
    ordinary = ARPOTrainer._compute_loss

    def broken(trainer: Any, model: Any, inputs: Any) -> Any:
        if trainer.args.packing:
            raise RuntimeError("CUDA error: no kernel image is available for execution on the device")
        return ordinary(trainer, model, inputs)

    monkeypatch.setattr(sft_run, "cold_start", lambda *args, **settings: None)
    short = {"max_turn_length": 32, "max_completion_length": 64}
    monkeypatch.setattr(arpo_trainer, "ARPOConfig", lambda **settings: ARPOConfig(**settings | short))
    monkeypatch.setattr(machine, "PATHS", {"bf16": "", "packed": ""})
    monkeypatch.setattr(ARPOTrainer, "_compute_loss", broken)
    found = machine.measure(tiny=True)
    assert {name: one["status"] for name, one in found["paths"].items()} == {"bf16": "ok", "packed": "FAILED"}
    assert found["paths"]["bf16"]["apart"]["tokens"] > 0
    assert min(found["tokens_per_second"].values()) > 0
    assert any(line.startswith("ok   GPU          Pretended") for line in found["report"])
    assert found["report"][-1].startswith("NOT RIGHT: packed.")
    assert any("packed" in line and "no kernel image" in line for line in found["report"])
