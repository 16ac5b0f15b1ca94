"""Tasks as Gymnasium environments for tool-using language agents, forkable while they run.

    import arpo_env, gymnasium as gym
    env = gym.make("arpo/Arithmetic-v0")

The environments themselves come with their tools, protocol and reward; `arpo_trainer` learns on them.
"""

from typing import TYPE_CHECKING

from arpo_env.lazy_names import lazy_names
from arpo_env.registration import register, register_all

if TYPE_CHECKING:
    from arpo_env.adapters.play import PlayedEpisode, aplay, play
    from arpo_env.cache import Cache, CacheMiss
    from arpo_env.chat_model import ChatModel
    from arpo_env.env import ToolEnv
    from arpo_env.errors import GradingError, ServiceError
    from arpo_env.grading import Grader, Score, make_grader
    from arpo_env.pages import PageReader
    from arpo_env.protocols import make_protocol, register_protocol
    from arpo_env.protocols.arpo_tags import ArpoTags
    from arpo_env.protocols.protocol import Protocol
    from arpo_env.registration import EnvFactory
    from arpo_env.rewards import Rewards, RewardTerm, is_correct, paper_reward, reference_reward
    from arpo_env.search import Hit, SearchBackend, build_index, open_search, register_backend
    from arpo_env.tools.mcp_tools import mcp_tools
    from arpo_env.tools.python import PythonTool
    from arpo_env.tools.search_tool import SearchTool
    from arpo_env.tools.tool import Tool, ToolResult, tool
    from arpo_env.vector import ToolVectorEnv

__all__ = [
    "ArpoTags",
    "Cache",
    "CacheMiss",
    "ChatModel",
    "EnvFactory",
    "Grader",
    "GradingError",
    "Hit",
    "PageReader",
    "PlayedEpisode",
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
    "aplay",
    "build_index",
    "is_correct",
    "make_grader",
    "make_protocol",
    "mcp_tools",
    "open_search",
    "paper_reward",
    "play",
    "reference_reward",
    "register",
    "register_backend",
    "register_protocol",
    "tool",
]

register_all()

__getattr__ = lazy_names(__name__)
