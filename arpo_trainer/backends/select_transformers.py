"""Selects the transformers backend for a model: continuous where the model allows it, else padded batches."""

from __future__ import annotations

import logging
from typing import Any, Unpack

from arpo_trainer.backends.base import Backend
from arpo_trainer.backends.continuous import TransformersBackend, why_not_continuous
from arpo_trainer.backends.in_process import DecodingOptions
from arpo_trainer.backends.padded_backend import PaddedBackend

logger = logging.getLogger(__name__)


def transformers_backend(
    model: Any,
    tokenizer: Any,
    *,
    prefix_tokens: int = 32_768,
    **options: Unpack[DecodingOptions],
) -> Backend:
    """Return a `TransformersBackend`, or a `PaddedBackend` and a logged warning with the reason.

    Args:
        model: any transformers causal language model.
        tokenizer: decodes what was generated, to find stop strings.
        prefix_tokens: most tokens whose keys and values are kept; padded batches keep none.
        options: as in `InProcessBackend`.

    Raises:
        ValueError: `max_rows` is below 1, or the estimator does not exist.
    """
    if reason := why_not_continuous(model):
        logger.warning(
            "rollouts are generated in padded batches, without prefix reuse, because of the model: %s", reason
        )
        return PaddedBackend(model, tokenizer, **options)
    return TransformersBackend(model, tokenizer, prefix_tokens=prefix_tokens, **options)
