"""Records and replays the answers of external services: searches, pages, models and MCP servers."""

from sandbox.moved_names import moved_members

__getattr__ = moved_members("arpo_env.cache", "arpo_env.cache.cache")
