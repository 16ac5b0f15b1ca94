"""Where a sandbox server is started: Docker, bubblewrap, a plain subprocess, or a server elsewhere by HTTP."""

from sandbox.moved_names import moved_members

__getattr__ = moved_members("sandbox.backends", "sandbox.backends.registry")
