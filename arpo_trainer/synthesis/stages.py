"""The stages of a synthesis: direct answers, samples with tools, and continuations after hints.

The samples of a stage are stored under a label of their own, such as "GSM8K-v0/tir".
"""

from __future__ import annotations

from arpo_trainer.synthesis.hints import HINTS

DIRECT, TIR = "direct", "tir"
STAGES = (DIRECT, TIR, *HINTS)


def stage_label(env: str, stage: str) -> str:
    """Return the label under which the samples of a stage of an environment are stored."""
    return f"{env}/{stage}"


def stage_of(label: str) -> tuple[str, str]:
    """Return the environment and the stage of a label."""
    env, _, stage = label.rpartition("/")
    return env, stage
