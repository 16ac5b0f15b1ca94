"""Tokenizers that trajectories cannot be built with are refused, before anything is generated.

That padding and end are the same token is no hindrance: rows are masked by their length, never by the padding's id.
"""

from __future__ import annotations

from typing import Any

_PROBE = "a\n"


def check_template(tokenizer: Any) -> None:
    """Refuse a tokenizer without a chat template.

    Raises:
        ValueError: says where to put one.
    """
    if not tokenizer.chat_template:
        raise ValueError(
            f"the tokenizer {_name(tokenizer)!r} has no chat template, and an episode begins as a chat: take the "
            "model's Instruct version, put the template into the model's folder as chat_template.jinja, or set "
            "tokenizer.chat_template and give it as processing_class"
        )


def check_tokenizer(tokenizer: Any) -> None:
    """Refuse a tokenizer without a chat template, or one whose ids cannot be joined span by span.

    What a model wrote is never tokenised again, and each result is tokenised alone, so a tokenizer may merge whatever
    it likes across their border; but it must not write something of its own at the beginning of each text.

    Raises:
        ValueError: says what to load instead.
    """
    check_template(tokenizer)
    ids = tokenizer(_PROBE, add_special_tokens=False)["input_ids"]
    joined = tokenizer.decode([*ids, *ids], clean_up_tokenization_spaces=False)
    if joined != 2 * _PROBE:
        raise ValueError(
            f"the tokenizer {_name(tokenizer)!r} begins every text with something of its own: {_PROBE!r} twice reads "
            f"{joined!r}, so results could not be put after what the model wrote. Load it with "
            "add_prefix_space=False, or take another model"
        )


def _name(tokenizer: Any) -> str:
    return getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__
