r"""Measures how likely the policy finds the gold answer in the states of a tree, for the credit of IGPO and A2TGPO.

In each state the policy is made to answer: the ids that it would go on from, the answer format of the environment up to
the answer, and the gold answer, whose tokens are scored. Trees keep the mean of their log-probabilities, in nats.
States that several trajectories share are scored once; after a fold the policy goes on from the new prompt. Of a task
with several answers the likeliest of the first `MOST_ANSWERS` counts. A thought that the chat template has opened is
closed first. IGPO's published code takes the first answer alone, and writes a sentence before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from arpo_env.protocols.protocol import Answer, Protocol
from arpo_env.tools.tool import JsonSchema
from arpo_trainer.algorithms.credit import State, answer_states
from arpo_trainer.rollout.engine import gather, rank_count, share
from arpo_trainer.training.trl_hooks import policy_logps
from arpo_trainer.tree import RolloutTree

MOST_ANSWERS = 3
_FORMS = (("\\boxed{", "}"), ("<answer>\\boxed{", "}</answer>"), ("<answer>", "</answer>"), ("", ""))
_PROBE = "42"
_THOUGHT_ENDS = "\n</think>\n\n"
_TAIL = 8  # tokens in which an opened thought is looked for


@dataclass(frozen=True)
class AnswerFormat:
    """What a protocol wants around an answer."""

    before: str
    after: str


def answer_format(protocol: Protocol, schemas: Sequence[JsonSchema]) -> AnswerFormat:
    r"""Return the answer format of a protocol: the first known one that it reads as the whole answer.

    Raises:
        ValueError: the protocol reads none of them.
    """
    for before, after in _FORMS:
        action = protocol.parse(f"{before}{_PROBE}{after}", schemas)
        if isinstance(action, Answer) and action.value == _PROBE:
            return AnswerFormat(before, after)
    tried = ", ".join(f"{before}...{after}" for before, after in _FORMS)
    raise ValueError(
        f"protocol {protocol.name!r} reads none of {tried} as an answer, so the probability of a gold answer cannot be "
        "measured: let its `parse` accept one of them, or choose an attribution that needs no answers"
    )


@dataclass(frozen=True)
class AnswerRow:
    """A gold answer in a state of a tree: the ids up to the answer, and its own, at least one."""

    tree: int
    state: State
    ids: list[int]
    gold: list[int]


Logps = Callable[[Sequence[AnswerRow]], list[float]]
"""From rows to the mean log-probability of each row's answer."""


def score_answers(trees: Sequence[RolloutTree], tokenizer: Any, form: AnswerFormat, logps: Logps) -> None:
    """Measure the gold answer in all states of trees where credit needs it, and keep the numbers in the trees.

    Raises:
        ValueError: a tree's task has no answer.
    """
    rows = [row for number, tree in enumerate(trees) for row in answer_rows(number, tree, tokenizer, form)]
    best: dict[tuple[int, State], float] = {}
    for row, value in zip(rows, logps(rows), strict=True):
        best[row.tree, row.state] = max(value, best.get((row.tree, row.state), value))
    for (number, state), value in best.items():
        place = trees[number] if state is None else trees[number].spans[state]
        place.answer_logprob = value


def answer_rows(number: int, tree: RolloutTree, tokenizer: Any, form: AnswerFormat) -> list[AnswerRow]:
    """Return the rows of a tree: for each state one per gold answer, at most `MOST_ANSWERS`.

    Raises:
        ValueError: its task has no answer.
    """
    answers = list(tree.task.get("answers", ()))[:MOST_ANSWERS]
    if not answers:
        raise ValueError(
            f"task {tree.task.get('id', '?')!r} has no gold answer to score: give it `answers`, or choose an "
            "attribution that needs none (such as 'soft')"
        )
    rows = []
    for state in answer_states(tree):
        context = tree.context(state)
        opened = tokenizer.decode(context[-_TAIL:]).rstrip().endswith("<think>")
        for answer in answers:
            before, gold = answer_ids(tokenizer, _THOUGHT_ENDS * opened + form.before, answer, form.after)
            rows.append(AnswerRow(number, state, context + before, gold))
    return rows


def answer_ids(tokenizer: Any, before: str, answer: str, after: str) -> tuple[list[int], list[int]]:
    """Return the ids before the answer, and those that hold the answer, as they are where all of it is written at once.

    A token that holds the end of `before` as well as the beginning of the answer counts to the answer; so does one that
    holds its end and the beginning of `after`.
    """
    head, tail = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (before, after))
    whole = tokenizer(f"{before}{answer}{after}", add_special_tokens=False)["input_ids"]
    first = _common(whole, head)
    # at least one token is left for the answer
    last = len(whole) - min(_common(whole[::-1], tail[::-1]), len(whole) - first - 1)
    return whole[:first], whole[first:last]


def _common(ids: Sequence[int], others: Sequence[int]) -> int:
    """Return how many first ids are equal, but never all of `ids`."""
    pairs = zip(ids[:-1], others, strict=False)
    return next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(ids) - 1, len(others)))


def padded(rows: Sequence[AnswerRow]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return rows as TRL pads prompts and completions.

    Returns:
        Ids, (B, P + T); 1 for tokens and 0 for padding, (B, P + T); and 1 for tokens of the answers, (B, T).
    """
    left, right = max(len(row.ids) for row in rows), max(len(row.gold) for row in rows)
    ids = torch.zeros(len(rows), left + right, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for number, row in enumerate(rows):
        place = slice(left - len(row.ids), left + len(row.gold))
        ids[number, place], mask[number, place] = torch.tensor(row.ids + row.gold), 1
    return ids, mask, mask[:, left:]


def chunked(rows: Sequence[AnswerRow], size: int, compute: Callable[..., torch.Tensor]) -> list[float]:
    """Return the mean log-probability of each row's answer, computed for `size` rows of similar length together."""
    order = sorted(range(len(rows)), key=lambda number: len(rows[number].ids))
    found = [0.0] * len(rows)
    for first in range(0, len(order), size):
        batch = order[first : first + size]
        ids, mask, gold = padded([rows[number] for number in batch])
        logps = compute(ids, mask, gold.shape[1]).float().cpu()
        for number, value in zip(batch, ((logps * gold).sum(1) / gold.sum(1)).tolist(), strict=True):
            found[number] = value
    return found


def plain_logps(model: Any, rows: Sequence[AnswerRow], temperature: float = 1.0, size: int = 16) -> list[float]:
    """Score rows with a causal language model of this process in evaluation mode, `size` in one forward pass."""

    def compute(ids: torch.Tensor, mask: torch.Tensor, width: int) -> torch.Tensor:
        ids, mask = ids.to(model.device), mask.to(model.device)
        # logits of the whole context would take most of the memory
        output = model(input_ids=ids, attention_mask=mask, logits_to_keep=width + 1)
        logits = output.logits[:, :-1].float() / temperature
        chosen: torch.Tensor = logits.log_softmax(-1).gather(-1, ids[:, -width:, None])
        return chosen[..., 0]

    with torch.no_grad():
        return chunked(rows, size, compute)


def trainer_logps(trainer: Any, rows: Sequence[AnswerRow]) -> list[float]:
    """Score rows with the policy of an `ARPOTrainer`, as it computes log pi_old: packed or flat, without gradient.

    Every process has all rows, scores a share and returns all. All of them make as many forward passes, as sharded
    weights need.
    """
    if not rows:
        return []
    own = [rows[number] for number in share(len(rows))]
    even = [*own, *[rows[0]] * (-(-len(rows) // rank_count()) - len(own))]
    # packed rows are cut to batches where they are packed, and share more if they come together
    batch: int = trainer.args.per_device_train_batch_size
    compute = partial(policy_logps, trainer, batch_size=batch)
    training = trainer.model.training
    trainer.model.eval()  # no dropout: the noise of two passes would pass for a gain
    try:
        with torch.no_grad():
            values = chunked(even, len(even) if trainer.packs else batch, compute)
    finally:
        trainer.model.train(training)
    return gather(values[: len(own)])
