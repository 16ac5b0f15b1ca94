"""Low-rank adapters: their configuration, and what is saved after training.

TRL and PEFT do the training. The base model stays frozen; rollouts use base and adapters together, on vLLM too.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from transformers.integrations import is_deepspeed_zero3_enabled

from arpo_trainer.run.weight_arguments import WeightArguments

logger = logging.getLogger(__name__)


def lora_config(run: WeightArguments) -> Any:
    """Return PEFT's `LoraConfig`; None if all weights are trained."""
    if not run.lora_rank:
        return None
    from peft import LoraConfig

    return LoraConfig(
        r=run.lora_rank,
        lora_alpha=run.lora_alpha or run.lora_rank,
        lora_dropout=run.lora_dropout,
        target_modules=run.lora_target_modules,
        task_type="CAUSAL_LM",
    )


def save_adapters(trainer: Any, folder: str | Path) -> None:
    """Save the adapters in `folder`/adapter, and the merged model, which loads like any model, in `folder`/model.

    Merging changes the trainer's own model: it cannot be trained further. Sharded weights (FSDP, ZeRO-3) are not
    merged.
    """
    folder = Path(folder)
    trainer.save_model(str(folder / "adapter"))
    if trainer.is_fsdp_enabled or is_deepspeed_zero3_enabled():
        logger.info("adapter: %s (sharded weights are not merged; see docs/how-to/recipes.md)", folder / "adapter")
        return
    if trainer.accelerator.is_main_process:
        merged = trainer.accelerator.unwrap_model(trainer.model).merge_and_unload()
        merged.save_pretrained(folder / "model")
        trainer.processing_class.save_pretrained(folder / "model")
    # no process goes on before the model is complete on disk
    trainer.accelerator.wait_for_everyone()
    logger.info("model: %s, its adapter alone: %s", folder / "model", folder / "adapter")
