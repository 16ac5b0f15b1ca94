"""A fold in a rollout: the new prompt becomes a span of its own, and the trajectory goes on from it alone.

The limit of tokens (`max_completion_length`) holds for one context, so a fold gives back the room of the old history
and takes that of the memories. Memories that leave no room to answer are refused, and the history stays.
"""

from __future__ import annotations

from typing import Any

from arpo_trainer.rollout.live_trajectory import LiveTrajectory
from arpo_trainer.rollout.rendering import Renderer
from arpo_trainer.tree import RolloutTree, Span


def fold_history(
    tree: RolloutTree, trajectory: LiveTrajectory, info: dict[str, Any], renderer: Renderer, window: int
) -> Span | None:
    """Move a trajectory whose last turn has folded its history behind a new prompt.

    Args:
        tree: of the group; the new prompt is appended to it.
        trajectory: the trajectory.
        info: what its environment said of the turn.
        renderer: of the rollout.
        window: most tokens of a context.

    Returns:
        The fold. None if the turn has not folded, or if the memories leave no room; the environment has undone the fold
        then, and `info["results"]` tells the model so.
    """
    if not info.get("folded"):
        return None
    env = trajectory.env
    ids = renderer.prompt_ids(info["messages"], env.schemas)
    if len(ids) + env.budget.answer_tokens >= window:
        # "withheld": whoever replays the episode has to undo the fold as well
        info |= {"results": env.withhold_result(), "tool": env.episode.turns[-1].tool, "withheld": True}
        return None
    tool = {**info["tool"], "memory": env.episode.memory}
    span = tree.add_span(trajectory.node, "fold", ids, text=renderer.tokenizer.decode(ids), tool=tool)
    trajectory.node = tree.trajectories[trajectory.number].leaf = span.index
    trajectory.ids = ids
    trajectory.episode.record(withheld=False)
    return span
