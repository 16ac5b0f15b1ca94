"""The right transformers backend for a model: continuous where the model allows, else padded batches."""

from __future__ import annotations

import logging
from typing import Any

from arpo_trainer.backends.base import Backend
from arpo_trainer.backends.continuous import TransformersBackend, why_not_continuous
from arpo_trainer.backends.padded import PaddedBackend

logger = logging.getLogger(__name__)


def transformers_backend(
    model: Any,
    tokenizer: Any,
    *,
    max_rows: int = 64,
    prefix_tokens: int = 32_768,
    eos_token_ids: set[int] | None = None,
    estimator: str = "exact",
    topk: int = 20,
) -> Backend:
    """Return a `TransformersBackend`, or a `PaddedBackend` with a logged warning that says why.

    Args:
        model: any transformers causal language model.
        tokenizer: only to decode what was generated, to find stop strings.
        max_rows: requests decoded together.
        prefix_tokens: tokens whose keys and values are kept; padded batches keep none.
        eos_token_ids: what ends a turn; by default the model's generation config and the tokenizer.
        estimator: of the entropies.
        topk: how many of the most likely tokens an estimator looks at.

    Raises:
        ValueError: `max_rows` below 1, or an estimator that does not exist.
    """
    if reason := why_not_continuous(model):
        logger.warning(
            "rollouts are generated in padded batches, without prefix reuse, because of the model: %s", reason
        )
        return PaddedBackend(
            model, tokenizer, max_rows=max_rows, eos_token_ids=eos_token_ids, estimator=estimator, topk=topk
        )
    return TransformersBackend(
        model,
        tokenizer,
        max_rows=max_rows,
        prefix_tokens=prefix_tokens,
        eos_token_ids=eos_token_ids,
        estimator=estimator,
        topk=topk,
    )
