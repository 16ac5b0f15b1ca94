"""The training sets of the ARPO paper: Reasoning10K and DeepSearch1K. A new set is one row of `TRAINING_SETS`.

Both share questions with evaluation sets (`arpo data overlap` counts them), and Reasoning10K's validation split
consists of evaluation questions to a great part.
"""

from __future__ import annotations

import dataclasses

from envs_registry.datasets.data_files import Row
from envs_registry.datasets.data_set import DataSet, Play
from envs_registry.datasets.repairs import Repairs

# Limits of training; the papers allow more calls at evaluation.
REASONING = Play(
    tools=("search", "python"), scorer="auto", max_turns=5, max_tool_calls=3, tool_timeout=30.0, max_tokens=4096
)
DEEP_SEARCH = dataclasses.replace(REASONING, max_turns=8, max_tool_calls=6, tool_timeout=120.0, max_tokens=8192)
DROPS = ("no answer", "cut-off answer", "duplicate question")


def user_turn(row: Row, repairs: Repairs) -> Row:
    """Take the question out of `prompt`, a list of messages whose first one is a system prompt."""
    prompt = row.get("prompt")
    if not isinstance(prompt, list):
        return row
    turns = [message["content"] for message in prompt if message.get("role") == "user"]
    return {**row, "question": turns[-1]} if turns else row


TRAINING_SETS = (
    DataSet(
        name="Reasoning10K",
        description="ARPO's training set for reasoning, half mathematics, half questions over Wikipedia",
        hub="dongguanting/ARPO-RL-Reasoning-10K",
        splits=(("train", "train"), ("validation", "validation|test")),  # its file may be named test.parquet there
        play=REASONING,
        size="train 10,000",
        licence="MIT; mixed upstream",
        question=("question", "extra_info.question"),
        answers=("reward_model.ground_truth", "answer"),
        row_id="extra_info.index",
        kind_column="ability",
        kinds=(("math", "math"), ("qa", "qa")),
        steps=(user_turn,),
        reads=("prompt",),
        known_as=("train_10k",),
        drops=DROPS,
    ),
    DataSet(
        name="DeepSearch1K",
        description="ARPO's training set for deep search",
        hub="dongguanting/ARPO-RL-DeepSearch-1K",
        splits=(("train", "train"),),
        play=DEEP_SEARCH,
        size="train 1,071",
        licence="MIT; mixed upstream",
        question=("question", "extra_info.question"),
        answers=("reward_model.ground_truth", "answer"),
        row_id="extra_info.index",
        kind_column="ability",
        kinds=(("math", "math"), ("qa", "qa")),
        steps=(user_turn,),
        reads=("prompt",),
        known_as=("hard_search_1k", "hard_search"),
        drops=DROPS,
    ),
)
