"""The table of environments. A new one is a new row (and a source, if its data set is new)."""

from __future__ import annotations

from envs_registry.spec import EnvSpec, register

SPECS = (
    EnvSpec(
        id="arpo/Arithmetic-v0",
        source="arithmetic",
        description="generated arithmetic in six levels that needs Python, some of it over several calls",
        size="endless",
        licence="MIT",
    ),
    EnvSpec(
        id="arpo/GSM8K-v0",
        source="gsm8k",
        description="word problems of school mathematics (openai/gsm8k)",
        max_turns=8,
        max_tool_calls=6,
        size="train 7,473 / test 1,319",
        licence="MIT",
    ),
)

register(SPECS)
