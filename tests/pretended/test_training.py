"""The whole trainer on a pretended GPU, rollouts included: it plays, branches and learns what it does on the CPU."""

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.pretended.world import Run, weights_of

CASES: dict[str, dict[str, Any]] = {
    "packed": {"packing": True},
    "reference": {"packing": False, "beta": 0.04, "algorithm": "aepo", "num_iterations": 2, "learning_rate": 1e-4},
    "lora": {"packing": True, "lora": True, "gradient_checkpointing": True},
    "overlap": {"packing": False, "max_staleness": 1, "max_steps": 4},
    "bf16 weights": {"packing": True, "lora": True, "dtype": "bfloat16", "max_steps": 1},
    "bf16 autocast": {"packing": False, "bf16": True, "max_steps": 1},
}
# The norm of 16-bit gradients is added up in another order, and autocast has other lists of operations for CUDA. Later
# steps would start from weights that were rounded to other sides.
BOUNDS = {"bf16 weights": 5e-3, "bf16 autocast": 1e-2}


@pytest.mark.parametrize("name", CASES)
def test_a_gpu_plays_and_learns_as_the_cpu_does(name: str, policy: Path, tmp_path: Path) -> None:
    cpu, gpu = (Run(policy, tmp_path / str(cpu), cpu=cpu, **CASES[name]) for cpu in (True, False))
    assert {value.device for value in gpu.trainer.model.parameters()} == {torch.device("cuda:0")}
    assert gpu.words() == cpu.words()
    assert any("branch" in origins for *_, origins in gpu.words())
    for key in ("loss", "grad_norm", "entropy"):
        found, wanted = ([log[key] for log in run.logs] for run in (gpu, cpu))
        assert found == pytest.approx(wanted, rel=BOUNDS.get(name, 1e-6), abs=BOUNDS.get(name, 1e-6)), key
    assert (gpu.weights() - cpu.weights()).norm() <= BOUNDS.get(name, 1e-6) * cpu.weights().norm()


def test_a_resumed_run_is_the_unbroken_one_to_the_last_bit(policy: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"max_steps": 3, "save_strategy": "steps", "save_steps": 1, "weight_decay": 0.1}
    whole = Run(policy, tmp_path, **settings)
    parts = Run(policy, tmp_path, resume=str(tmp_path / "checkpoint-2"), **settings)
    assert torch.equal(parts.weights(), whole.weights())
    assert parts.words() == whole.words()[-len(parts.words()) :]
    assert len(parts.trees) == 1
    whole.trainer.save_model(str(tmp_path / "saved"))
    saved = AutoModelForCausalLM.from_pretrained(tmp_path / "saved", dtype=torch.float32)
    assert torch.equal(weights_of(saved), whole.weights())


def test_trees_in_blocks_are_flat_rows(blocks: list[int], policy: Path, tmp_path: Path) -> None:
    flat, packed = (Run(policy, tmp_path, packing=packing) for packing in (False, "auto"))
    assert packed.trainer.packs
    assert blocks
    assert packed.words() == flat.words()
    assert [log["loss"] for log in packed.logs] == pytest.approx([log["loss"] for log in flat.logs], abs=1e-6)
    assert (packed.weights() - flat.weights()).norm() <= 1e-5 * flat.weights().norm()


def test_an_overlap_whose_streams_do_not_wait_is_noticed(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ordered: list[str]
) -> None:
    monkeypatch.setattr(torch.cuda.Stream, "wait_stream", lambda *_: None)
    Run(policy, tmp_path, max_staleness=1)
    assert any("does not wait for aten::_to_copy on stream (0, 0)" in race for race in ordered), ordered[:5]
    gc.collect()
    ordered.clear()
