"""At TRL's seam: `GRPOTrainer` with packed log-probabilities has the losses and gradients of the flat one."""

from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import AutoConfig, AutoModelForCausalLM
from trl import GRPOConfig, GRPOTrainer

from arpo_trainer.packing import packed_logps
from tests.arpo_trainer.packing.batches import (
    SIZES,
    assert_equal_gradients,
    columns,
    gradients,
    random_batch,
    tiny_model,
    weights,
)


class Packed(GRPOTrainer):  # type: ignore[misc]  # trl is untyped
    """TRL's trainer whose forward is packed while `packing` says so."""

    packing = False

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: Any, attention_mask: Any, logits_to_keep: int, batch_size: Any = None, **how: Any
    ) -> Any:
        entropy = how.get("compute_entropy", False)
        if not self.packing:
            return super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, batch_size, **how
            )
        budget = (batch_size or len(input_ids)) * input_ids.shape[1]
        with self.accelerator.autocast():
            packed = packed_logps(
                model, input_ids, attention_mask, logits_to_keep, budget=budget, compute_entropy=entropy
            )
        return packed.logps, packed.entropies, None


@pytest.fixture(scope="module")
def trainer(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Packed:
    torch.manual_seed(0)
    folder = str(tmp_path_factory.mktemp("packed"))
    settings = AutoConfig.for_model("qwen2", **SIZES | {"vocab_size": 64})
    AutoModelForCausalLM.from_config(settings).save_pretrained(folder)  # TRL reads the reference model from there
    args = GRPOConfig(
        output_dir=folder,
        use_cpu=True,
        bf16=False,
        report_to="none",
        per_device_train_batch_size=4,
        num_generations=4,
        temperature=0.7,
        beta=0.1,
        gradient_checkpointing=False,
    )
    made = Packed(
        model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=args,
        train_dataset=Dataset.from_list([{"prompt": "a"}]),
        processing_class=tokenizer,
    )
    made.current_gradient_accumulation_steps = 1
    return made


def inputs(seed: int) -> dict[str, Any]:
    """A micro-batch with advantages by token, masked tokens, and old and reference log-probabilities."""
    ids, mask, keep = random_batch(seed)
    shape = torch.Size((len(ids), keep))
    return {
        **columns(ids, mask, keep),
        "tool_mask": (weights(shape, 1) < 1).long(),
        "advantages": weights(shape, 2),
        "old_per_token_logps": weights(shape, 3) * 0.3 - 4,
        "ref_per_token_logps": weights(shape, 4) * 0.3 - 4,
        "num_items_in_batch": mask[:, -keep:].sum(),
    }


LOSSES = ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "vespo")


@pytest.mark.parametrize(("loss_type", "level"), [*((name, "token") for name in LOSSES), ("grpo", "sequence")])
def test_losses_and_gradients_are_those_of_flat_rows(trainer: Packed, loss_type: str, level: str) -> None:
    trainer.loss_type, trainer.importance_sampling_level = loss_type, level
    model, batch, results = trainer.model.train(), inputs(6), []
    for trainer.packing in (False, True):
        loss = trainer._compute_loss(model, batch)
        loss.backward()
        results.append((loss.item(), gradients(model)))
    assert results[0][0] == pytest.approx(results[1][0], abs=1e-5)
    assert_equal_gradients(results[0][1], results[1][1])


def test_old_and_reference_numbers_take_the_same_path(trainer: Packed) -> None:
    """Without gradients and for more rows than fit a micro-batch, as TRL asks for them."""
    ids, mask, keep = random_batch(8)
    found = []
    for trainer.packing in (False, True):
        with torch.no_grad():
            found.append(
                trainer._get_per_token_logps_and_entropies(
                    trainer.ref_model, ids, mask, keep, batch_size=2, num_images=None, num_tiles=None
                )
            )
    torch.testing.assert_close(found[0][0], found[1][0], atol=1e-5, rtol=1e-5)
    assert found[0][1:] == found[1][1:] == (None, None)


def test_the_fused_head_takes_shifted_labels() -> None:
    """What packing rests on: `shift_labels` are scored where they stand."""
    model, ids = tiny_model(), torch.tensor([[1, 5, 6, 7]])
    shifted = model(input_ids=ids, shift_labels=torch.tensor([[5, 6, 7, -100]]), fused_lm_head=True)
    ordinary = model(input_ids=ids, labels=ids, fused_lm_head=True)
    torch.testing.assert_close(shifted.log_probs[:, :-1], ordinary.log_probs, atol=1e-6, rtol=1e-6)
