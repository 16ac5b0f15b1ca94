"""Record and replay of everything that is asked outside: searches, pages, models, MCP servers."""

from sandbox.moved_names import moved_members

__getattr__ = moved_members("arpo_env.cache", "arpo_env.cache.cache")
