"""Adapters: environments of this library in other frameworks, each in a module of its own that imports its framework.

`docs/adapters/index.md` shows each of them in three lines. They share `chat_episode` (an episode as chat
messages), `peer` (checks that a framework is installed in a tested version) and `EnvFactory`, which travels between
processes.

A failure of the infrastructure (`FAULTS`) is never turned into a reward of 0: each adapter hands it to its framework as
an exception, a missing reward or a sample to be left out, as far as the framework can take one.
"""

from arpo_env.adapters.peer import FAULTS

__all__ = ["FAULTS"]
