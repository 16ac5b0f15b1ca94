"""How often the host waits for the GPU: a number for each decoding step and each micro-batch, whatever their size."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from arpo_trainer import ARPOTrainer
from arpo_trainer.backends import TransformersBackend
from arpo_trainer.backends.base import Request
from arpo_trainer.backends.sampling import Sampler
from benchmarks.laboratory.tiny_model import tiny_tokenizer
from tests.pretended.device import Wait, waiting
from tests.pretended.world import Run

DECODING = 4  # of a token: ids, lengths and chances go up, what was drawn comes down
FLAT, PACKED = 13, 19  # of a micro-batch
STEP = 7  # of an update, beside its micro-batches
ROLLOUT = 9  # of a rollout, beside its decoding: what TRL is given
OURS = ("arpo_trainer/", "arpo_env/")


def lines(waits: Sequence[Wait]) -> str:
    return "\n".join(f"{times:5d} {wait}" for wait, times in Counter(waits).most_common())


def decoding(policy: Path, rows: int) -> list[Wait]:
    model = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32).to("cuda")

    async def generate(tokens: int) -> list[Wait]:
        backend = TransformersBackend(model, tiny_tokenizer(), eos_token_ids={-1})
        with waiting() as seen:
            await backend.begin()
            asked = [Request((1, 5 + row), tokens, seed=row, stop=("nowhere",)) for row in range(rows)]
            await asyncio.gather(*(backend.generate(request) for request in asked))
            await backend.end()
        return seen

    few, many = (Counter(asyncio.run(generate(tokens))) for tokens in (4, 12))
    return list((many - few).elements())


def test_a_decoding_step_waits_a_bounded_number_of_times(policy: Path) -> None:
    seen = decoding(policy, 6)
    assert len(seen) <= 8 * DECODING, lines(seen)


class Noting(ARPOTrainer):
    """Keeps what waits in the preparation of micro-batches, where rollouts are, and in all else."""

    preparing: list[Wait]  # ours, without those of the model that generates
    learning: list[Wait]

    def _prepare_inputs(self, inputs: Any) -> Any:
        with waiting() as seen:
            prepared = super()._prepare_inputs(inputs)
        self.preparing += seen
        return prepared

    def train(self, *args: Any, **kwargs: Any) -> Any:
        self.preparing = []
        with waiting() as seen:
            result = super().train(*args, **kwargs)
        learning = (Counter(seen) - Counter(self.preparing)).elements()
        self.learning = [one for one in learning if not one.lines[0].startswith("tests/")]
        ours = [one for one in self.preparing if one.lines[0].startswith(OURS)]
        self.preparing = [one for one in ours if "/backends/" not in str(one)]
        return result


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("packing", [False, True])
def test_an_update_waits_a_bounded_number_of_times(packing: bool, policy: Path, tmp_path: Path) -> None:
    """Twelve of a micro-batch are TRL's and transformers' own: metrics, and a look for padding."""
    sizes = {"num_generations": 8, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 2}
    trainer = Run(policy, tmp_path, Noting, packing=packing, max_steps=2, **sizes).trainer
    assert len(trainer.learning) <= 4 * (PACKED if packing else FLAT) + 2 * STEP, lines(trainer.learning)
    assert len(trainer.preparing) <= 2 * ROLLOUT, lines(trainer.preparing)


def test_a_number_read_for_each_row_is_noticed(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ordinary = Sampler.draw

    def planted(sampler: Sampler, logits: torch.Tensor, *rest: Any) -> Any:
        assert all(row.sum().item() < 1e9 for row in logits)
        return ordinary(sampler, logits, *rest)

    monkeypatch.setattr(Sampler, "draw", planted)
    seen = decoding(policy, 6)
    assert len(seen) == 8 * (DECODING + 6)
    assert sum(wait.lines[0].startswith("tests/pretended/test_waits.py:") for wait in seen) == 8 * 6
