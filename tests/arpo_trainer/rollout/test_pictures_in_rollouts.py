"""Pictures in rollouts: an episode that is played again has to show those that the model saw."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from arpo_env import ToolEnv
from arpo_trainer.rollout.engine import Engine, RolloutSettings
from arpo_trainer.rollout.live_trajectory import LiveEpisode, ReplayError, replay
from envs_registry import Task


def test_another_picture_is_another_result(tmp_path: Path) -> None:
    Image.new("RGB", (40, 40), "red").save(tmp_path / "a.png")
    task = Task("1", "Which colour?", ("red",), files=(str(tmp_path / "a.png"),))
    env = ToolEnv("arpo/Arithmetic-v0", tools=["read_file"], show_images=True)
    env.reset(options={"task": task})
    env.step('<think>l</think><read_file>{"file": "a.png"}</read_file>')
    env.episode.tokens_left = 4000
    episode = LiveEpisode(env, begun=True)
    episode.record(withheld=False)
    asyncio.run(replay(env.spawn(), task, episode.history))
    Image.new("RGB", (40, 40), "blue").save(tmp_path / "a.png")  # its text is the same
    with pytest.raises(ReplayError, match="turn 0"):
        asyncio.run(replay(env.spawn(), task, episode.history))


def test_a_model_that_reads_token_ids_is_refused() -> None:
    env = ToolEnv("arpo/Arithmetic-v0", tools=["read_file"], show_images=True)
    blind: Any = SimpleNamespace(wants_messages=False)
    with pytest.raises(ValueError, match="SimpleNamespace reads token ids of text alone"):
        Engine(blind, None, env, RolloutSettings())
