"""Where a sandbox server is started: Docker, bubblewrap, or a plain subprocess."""

from sandbox.moved_names import moved_members

__getattr__ = moved_members("sandbox.backends", "sandbox.backends.registry")
