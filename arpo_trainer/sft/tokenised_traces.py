"""Traces as token ids and labels: only the model's own turns are learnt.

Turns and results are tokenised one by one by the `Renderer` of a rollout, so that reinforcement learning later meets
the ids that were learnt here. Prompts and tool results have the label -100, which no loss counts. A trace of a rollout
keeps its sampled ids if the tokenizer is the same.

    tokenised(trace, Renderer(tokenizer, protocol), tools)      # {"input_ids": [...], "labels": [...]}
"""

from __future__ import annotations

from collections.abc import Sequence

from arpo_env.episode import FOLD
from arpo_env.tools.tool import JsonSchema
from arpo_trainer.rollout.rendering import Renderer
from arpo_trainer.sft.plain_trace import ModelTurn, Trace

IGNORED = -100
Example = dict[str, list[int]]


def tokenised(trace: Trace, renderer: Renderer, tools: Sequence[JsonSchema], end_token: bool = True) -> Example:
    """Return the ids and labels of a trace.

    Args:
        trace: a trace whose turns are texts in the renderer's protocol.
        renderer: of the model and the protocol.
        tools: schemas of the tools, which a native protocol shows in the prompt.
        end_token: whether the last turn ends with the template's end token if the protocol does not need it. A rollout
            with tags stops at `</answer>`, so it never sees that token.

    Returns:
        {"input_ids", "labels"}, both of shape (n,); labels are -100 outside the model's own turns.

    Raises:
        ValueError: the tokenizer has no chat template, or it does not show tools that the protocol needs.
    """
    native = renderer.protocol.native
    if (ids := trace.ids) is not None and _same_tokenizer(trace, renderer):
        example: Example = {"input_ids": list(ids.prompt), "labels": [IGNORED] * len(ids.prompt)}
        for turn, own in zip(trace.turns, ids.turns, strict=True):
            _append(example, own, isinstance(turn, ModelTurn))
        return example
    prompt = renderer.prompt_ids(trace.messages, tools)
    example = {"input_ids": list(prompt), "labels": [IGNORED] * len(prompt)}
    for number, turn in enumerate(trace.turns):
        if isinstance(turn, ModelTurn):
            last = number == len(trace.turns) - 1
            # a rollout with tags stops at the closing tag of a fold
            ended = native or (end_token and last and not turn.text.rstrip().endswith(f"</{FOLD}>"))
            _append(example, renderer.turn_ids(turn.text, number == 0, ended), True)
        else:
            _append(example, renderer.result_ids(turn.texts, native, tools), False)
    return example


def _append(example: Example, ids: Sequence[int], learnt: bool) -> None:
    example["input_ids"] += ids
    example["labels"] += ids if learnt else [IGNORED] * len(ids)


def _same_tokenizer(trace: Trace, renderer: Renderer) -> bool:
    """Return whether the ids of a trace decode to the texts that they had when they were sampled."""
    if trace.ids is None:
        return False
    try:
        return all(
            text is None or renderer.tokenizer.decode(list(own)) == text
            for own, text in zip(trace.ids.turns, trace.ids.texts, strict=True)
        )
    except (IndexError, OverflowError, TypeError):  # ids beyond the vocabulary
        return False
