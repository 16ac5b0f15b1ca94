"""The table of environments. Generated tasks are listed here, data sets in the module of their family."""

from __future__ import annotations

from envs_registry.datasets.api_bank import register_api_bank
from envs_registry.datasets.loading import register_data_sets
from envs_registry.datasets.question_sets import DEEP_SEARCH_SETS, MATH_SETS, MULTIHOP_SETS, TRAINING_SETS
from envs_registry.datasets.tool_sets import register_tool_sets, register_toolhop
from envs_registry.generated.bifurcation import key_quality
from envs_registry.generated.toolworld import right_calls
from envs_registry.spec import EnvSpec, register

DATA_SETS = (*MATH_SETS, *MULTIHOP_SETS, *DEEP_SEARCH_SETS, *TRAINING_SETS)

GENERATED = (
    EnvSpec(
        id="arpo/Arithmetic-v0",
        source="arithmetic",
        description="generated arithmetic in six levels that needs Python, some of it over several calls",
        scorer="math",
        levels=("1", "2", "3", "4", "5", "6"),
        size="endless",
        licence="MIT",
    ),
    EnvSpec(
        id="arpo/Bifurcation-v0",
        source="bifurcation",
        description="generated corridors of doors with a few decisions that are known to matter, to compare algorithms",
        tools=("go",),
        reward={"key": (key_quality, 1.0)},
        scorer="em",
        max_turns=64,
        max_tool_calls=63,
        levels=("short", "long-critical", "long-many", "stochastic"),
        size="endless",
        licence="MIT",
    ),
    EnvSpec(
        id="arpo/MultiHop-v0",
        source="multihop",
        description="generated questions of two to four hops over an invented world that comes with its passages",
        tools=("search",),
        scorer="em",  # answers are names and years; a part of a name must not count
        max_turns=8,
        max_tool_calls=6,
        levels=("2", "3", "4"),
        size="endless",
        licence="MIT",
    ),
    EnvSpec(
        id="arpo/ToolWorld-v0",
        source="toolworld",
        description="generated questions that take one to three of 1,250 tools, which have to be found first",
        tools=("tool_search",),
        protocol="deepagent",
        reward={"accuracy": 1.0, "right_calls": (right_calls, 0.0)},
        scorer="em",
        max_turns=51,  # DeepAgent's 50 actions, and the answer
        max_tool_calls=50,
        levels=("1", "2", "3"),
        size="endless",
        licence="MIT",
    ),
)

register(GENERATED)
register_data_sets(DATA_SETS)
register_tool_sets()
register_toolhop()
register_api_bank()
