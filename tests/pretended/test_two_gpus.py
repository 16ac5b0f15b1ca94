"""One process on a machine with two GPUs: every trainer uses one of them, and does what it does where there is one.

That the thread of a model has the GPU of its process is tested in test_hosting.py.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM
from trl import DPOConfig

from arpo_trainer.preference.dpo_run import make_pair_trainer
from arpo_trainer.preference.pairs import PreferencePair
from benchmarks.laboratory.tiny_model import tiny_tokenizer
from tests.arpo_trainer.quick_settings import QUICK
from tests.pretended.world import Run, learn_to_walk, weights_of

SETTINGS: dict[str, Any] = QUICK | {"report_to": [], "model_init_kwargs": {"dtype": "float32"}, "max_length": None}
SETTINGS |= {"max_steps": 2, "learning_rate": 1e-3, "per_device_train_batch_size": 4}


def trained(policy: Path, folder: Path) -> list[Any]:
    run = Run(policy, folder, beta=0.04, packing=False)
    return [run.trainer.model, run.trainer.ref_model]


def cold_started(policy: Path, folder: Path) -> list[Any]:
    learn_to_walk(folder, epochs=1, packing="auto")
    return [AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to("cuda")]


def preferred(policy: Path, folder: Path) -> list[Any]:
    pairs = [PreferencePair("t", [1, 5, 6], 0, [7, 8 + n, 9], [1, 0, 1], [10, 11], [1, 1], 1.0, 0.0) for n in range(8)]
    args = DPOConfig(str(folder), remove_unused_columns=False, **SETTINGS)
    trainer = make_pair_trainer(str(policy), tiny_tokenizer(), pairs, args)
    trainer.train()
    return [trainer.model, trainer.ref_model]


@pytest.mark.parametrize("way", [trained, cold_started, preferred])
def test_a_process_trains_on_one_of_two_gpus(
    way: Callable[[Path, Path], list[Any]], policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = way(policy, tmp_path / "one")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert torch.cuda.device_count() == 2
    two = way(policy, tmp_path / "two")
    for alone, beside in zip(one, two, strict=True):
        assert {value.device for value in beside.parameters()} == {torch.device("cuda:0")}
        assert torch.equal(weights_of(alone), weights_of(beside))
