"""Errors of the machinery, as opposed to errors of the code that runs in it.

Code that fails gives an `Execution` with a status. An exception of this module says nothing about the code: a trainer
masks the rollout and never scores it.
"""

from __future__ import annotations


class SandboxError(RuntimeError):
    """The machinery failed."""


class SandboxUnavailable(SandboxError):
    """No sandbox can be opened on this machine; the message says what to install or start."""


class SandboxFull(SandboxError):
    """No session became free within the waiting time; the message says what to change."""


class SessionLost(SandboxError):
    """The session is gone with its variables; open a new interpreter, or restart this one."""


class ForkError(SandboxError):
    """The session could not be forked; it goes on unchanged."""


class SessionEnded(ForkError):
    """The session could not be forked, since its code has ended it; the next `run` says how."""


BY_NAME: dict[str, type[SandboxError]] = {
    kind.__name__: kind
    for kind in (SandboxError, SandboxUnavailable, SandboxFull, SessionLost, ForkError, SessionEnded)
}
