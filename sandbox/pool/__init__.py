"""The pool of containers: queue, slots, session groups, health."""

from sandbox.moved_names import moved_members

__getattr__ = moved_members("sandbox.pool", "sandbox.pool.pool")
