"""Tasks as Gymnasium environments for tool-using language agents, forkable while they run.

    import arpo_env, gymnasium as gym
    env = gym.make("arpo/Arithmetic-v0")

The environments themselves come with their tools, protocol and reward; `arpo_trainer` learns on them.
"""

from typing import TYPE_CHECKING, Any

from arpo_env.registration import register, register_all

if TYPE_CHECKING:
    from arpo_env.cache import Cache, CacheMiss
    from arpo_env.chat import ChatModel
    from arpo_env.env import ToolEnv
    from arpo_env.function_tool import tool
    from arpo_env.grading import Grader, GradingError, Score, make_grader
    from arpo_env.http import ServiceError
    from arpo_env.mcp import mcp_tools
    from arpo_env.pages import PageReader
    from arpo_env.protocol import Protocol
    from arpo_env.protocols import make_protocol, register_protocol
    from arpo_env.protocols.arpo_tags import ArpoTags
    from arpo_env.rewards import Rewards, RewardTerm, is_correct, paper_reward, reference_reward
    from arpo_env.search import Hit, SearchBackend, SearchTool, build_index, open_search, register_backend
    from arpo_env.tools import PythonTool, Tool, ToolResult
    from arpo_env.vector import ToolVectorEnv

_HOMES = {
    "ArpoTags": "protocols.arpo_tags",
    "Cache": "cache",
    "CacheMiss": "cache",
    "ChatModel": "chat",
    "Grader": "grading",
    "GradingError": "grading",
    "Hit": "search",
    "PageReader": "pages",
    "Protocol": "protocol",
    "PythonTool": "tools",
    "RewardTerm": "rewards",
    "Rewards": "rewards",
    "Score": "grading",
    "SearchBackend": "search",
    "SearchTool": "search",
    "ServiceError": "http",
    "Tool": "tools",
    "ToolEnv": "env",
    "ToolResult": "tools",
    "ToolVectorEnv": "vector",
    "build_index": "search",
    "is_correct": "rewards",
    "make_grader": "grading",
    "make_protocol": "protocols",
    "mcp_tools": "mcp",
    "open_search": "search",
    "paper_reward": "rewards",
    "reference_reward": "rewards",
    "register_backend": "search",
    "register_protocol": "protocols",
    "tool": "function_tool",
}

__all__ = [
    "ArpoTags",
    "Cache",
    "CacheMiss",
    "ChatModel",
    "Grader",
    "GradingError",
    "Hit",
    "PageReader",
    "Protocol",
    "PythonTool",
    "RewardTerm",
    "Rewards",
    "Score",
    "SearchBackend",
    "SearchTool",
    "ServiceError",
    "Tool",
    "ToolEnv",
    "ToolResult",
    "ToolVectorEnv",
    "build_index",
    "is_correct",
    "make_grader",
    "make_protocol",
    "mcp_tools",
    "open_search",
    "paper_reward",
    "reference_reward",
    "register",
    "register_backend",
    "register_protocol",
    "tool",
]

register_all()


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for, which keeps `import arpo_env` cheap."""
    if name not in _HOMES:
        raise AttributeError(f"module 'arpo_env' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"arpo_env.{_HOMES[name]}"), name)
