"""A fold in a rollout: the new prompt becomes a span of its own, and the trajectory goes on from it alone.

The limit of tokens (`max_completion_length`) holds for one context, so a fold gives back the room of the old history
and takes that of the memories. Memories that leave no room to answer are refused, and the history stays.
"""

from __future__ import annotations

from typing import Any

from arpo_trainer.rollout.live_trajectory import LiveTrajectory
from arpo_trainer.rollout.rendering import Renderer
from arpo_trainer.tree import RolloutTree, Span


def folded_prompt(
    renderer: Renderer, trajectory: LiveTrajectory, info: dict[str, Any], window: int
) -> list[int] | None:
    """Return the ids of the new prompt of a trajectory whose last turn has folded its history.

    Args:
        renderer: of the rollout.
        trajectory: the trajectory.
        info: what its environment said of the turn.
        window: most tokens of a context.

    Returns:
        None if the turn has not folded, or if the memories leave no room; the environment has undone the fold then, and
        `info["results"]` tells the model so.
    """
    if not info.get("folded"):
        return None
    ids = renderer.prompt_ids(info["messages"], trajectory.env.schemas)
    if len(ids) + trajectory.env.budget.answer_tokens < window:
        return ids
    info["results"] = trajectory.env.withhold_result()
    info["tool"] = trajectory.env.episode.turns[-1].tool
    info["withheld"] = True  # replaying the episode has to undo it as well
    return None


def add_fold(tree: RolloutTree, trajectory: LiveTrajectory, ids: list[int], text: str, info: dict[str, Any]) -> Span:
    """Append a fold to the tree, move the trajectory behind it, and return it.

    Args:
        tree: of the group.
        trajectory: whose last turn has folded its history.
        ids: of the new prompt.
        text: of the new prompt.
        info: what its environment said of the turn.
    """
    tool = {**info["tool"], "memory": trajectory.env.episode.memory}
    span = tree.add_span(trajectory.node, "fold", ids, text=text, tool=tool)
    trajectory.node = tree.trajectories[trajectory.number].leaf = span.index
    trajectory.ids = list(ids)
    return span
