r"""What a policy does next in a world of `arpo/Bifurcation-v0`: the probability of every turn that makes sense there.

The turns are `<go>X</go>` for every door and `<answer>\boxed{k}</answer>` for every key, each as the ids that a
demonstration would have. Their probabilities come from the model itself by teacher forcing, on the exact ids that a
rollout would put before them. All turns of a history are scored in one row: the history, followed by the prefixes of
the turns as a tree, each of which sees the history and its own beginning only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy
import torch
from numpy.typing import NDArray

from arpo_trainer.rollout.rendering import Renderer
from envs_registry.generated.bifurcation import DOORS, KEYS

Ids = tuple[int, ...]
Floats = NDArray[numpy.float64]


@dataclass(frozen=True)
class WorldTurn:
    """A turn that makes sense in a world.

    Attributes:
        ids: its tokens.
        door: that it opens; "" for an answer.
        key: that it answers; "" for a call.
    """

    ids: Ids
    door: str = ""
    key: str = ""


def world_turns(renderer: Renderer) -> list[WorldTurn]:
    """Return the turns of every door and every key."""
    doors = [WorldTurn(tuple(renderer.turn_ids(f"<go>{door}</go>")), door=door) for door in DOORS]
    answers = [f"<answer>\\boxed{{{key}}}</answer>" for key in KEYS]
    keys = [WorldTurn(tuple(renderer.turn_ids(text)), key=key) for text, key in zip(answers, KEYS, strict=True)]
    return doors + keys


class ScoresTurns(Protocol):
    """What an enumeration needs of a policy."""

    def token_probabilities(self, histories: Sequence[Ids], turns: Sequence[Ids]) -> Floats:
        """Return the probability of each token of each turn after each history.

        Args:
            histories: ids so far, the prompt included.
            turns: ids of the turns; all have the same length T.

        Returns:
            Shape (histories, turns, T): of each token, given the history and the tokens of the turn before it.
        """


class ModelTurns:
    """Scores turns with a causal language model that takes 4D attention masks, such as those of `tiny_model`.

    Args:
        model: a transformers model.
        temperature: of sampling.
        positions: most positions in one forward pass.
    """

    def __init__(self, model: Any, temperature: float = 1.0, positions: int = 8192) -> None:
        self.model, self.temperature, self.positions = model.eval(), temperature, positions

    def token_probabilities(self, histories: Sequence[Ids], turns: Sequence[Ids]) -> Floats:
        """Return the probability of each token of each turn after each history; see `ScoresTurns`."""
        tree = _PrefixTree(turns)
        found = numpy.zeros((len(histories), len(turns), len(turns[0])))
        order = sorted(range(len(histories)), key=lambda number: len(histories[number]))  # little padding
        while order:
            width = len(histories[order[-1]]) + len(tree.ids)
            batch = [order.pop() for _ in range(min(len(order), max(1, self.positions // width)))]
            found[batch] = self._score([histories[number] for number in batch], tree, turns)
        return found

    @torch.no_grad()
    def _score(self, histories: Sequence[Ids], tree: _PrefixTree, turns: Sequence[Ids]) -> Floats:
        ids, positions, mask = tree.rows(histories)
        hidden = self.model.model(input_ids=ids, position_ids=positions, attention_mask=mask).last_hidden_state
        # the last token of the history, then the tokens of the tree
        wanted = torch.tensor([[len(row) - 1 + place for place in range(len(tree.ids) + 1)] for row in histories])
        kept = hidden.gather(1, wanted[..., None].expand(-1, -1, hidden.shape[-1]))
        shares = torch.softmax(self.model.lm_head(kept).double() / self.temperature, -1).numpy()
        after, tokens = numpy.array(tree.before), numpy.array(turns)
        found: Floats = shares[:, after, tokens]
        return found


class _PrefixTree:
    """The proper prefixes of some turns as a tree of tokens.

    Attributes:
        ids: token of each node; a parent comes before its children.
        parents: node before each, -1 for the history.
        depths: number of tokens of the turn before each.
        before: for each token of each turn the place that predicts it: 0 is the history, n + 1 is node n.
    """

    def __init__(self, turns: Sequence[Ids]) -> None:
        self.ids, self.parents, self.depths = list[int](), list[int](), list[int]()
        self.before: list[list[int]] = []
        nodes: dict[Ids, int] = {(): -1}
        for turn in turns:
            for length in range(1, len(turn)):
                if turn[:length] not in nodes:
                    nodes[turn[:length]] = len(self.ids)
                    self.ids.append(turn[length - 1])
                    self.parents.append(nodes[turn[: length - 1]])
                    self.depths.append(length - 1)
            self.before.append([nodes[turn[:length]] + 1 for length in range(len(turn))])

    def rows(self, histories: Sequence[Ids]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return ids (B, T), positions (B, T) and the additive mask (B, 1, T, T) of histories with the tree behind."""
        size = len(self.ids)
        longest = max(map(len, histories))
        ids = torch.zeros(len(histories), longest + size, dtype=torch.long)
        positions = torch.zeros_like(ids)
        visible = torch.tril(torch.ones(longest + size, longest + size, dtype=torch.bool)).repeat(len(histories), 1, 1)
        own = self._own()
        for row, history in enumerate(histories):
            end = len(history)
            ids[row, : end + size] = torch.tensor([*history, *self.ids])
            positions[row, : end + size] = torch.tensor([*range(end), *(end + depth for depth in self.depths)])
            visible[row, end : end + size, end : end + size] = own
        return ids, positions, torch.where(visible, 0.0, torch.finfo(torch.float32).min)[:, None]

    def _own(self) -> torch.Tensor:
        """Return which nodes each node sees: itself and its ancestors."""
        own = torch.eye(len(self.ids), dtype=torch.bool)
        for node, parent in enumerate(self.parents):
            if parent >= 0:
                own[node] |= own[parent]
        return own
