"""Tools: the interface, typed functions, Python, search, MCP servers, and the toolbox of an episode."""

from sandbox.moved_names import moved_members

__getattr__ = moved_members("arpo_env.tools", "arpo_env.tools.tool", "arpo_env.tools.python")
