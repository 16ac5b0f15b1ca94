"""Search over local files: corpus, index folder, engines, snippets."""

from sandbox.moved_names import moved_members

__getattr__ = moved_members("arpo_env.search.local", "arpo_env.search.local.local_search")
