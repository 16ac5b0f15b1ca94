"""What can go wrong with the machinery, as opposed to with the code that runs in it.

Code that fails is an `Execution` with a status. An exception of this module means that no statement about the
code is possible: a trainer masks the rollout, it never scores it.
"""

from __future__ import annotations


class SandboxError(RuntimeError):
    """The machinery failed."""


class SandboxUnavailable(SandboxError):
    """No sandbox can be opened on this machine; the message says what to install or start."""


class SandboxFull(SandboxError):
    """No session has become free for as long as one was ready to wait; the message says what to change."""


class SessionLost(SandboxError):
    """The session is gone, with its variables; open a new interpreter, or restart this one."""


class ForkError(SandboxError):
    """The session could not be forked; it lives on, unharmed."""


class SessionEnded(ForkError):
    """The session could not be forked, since its code has ended it; the next `run` tells how."""


BY_NAME: dict[str, type[SandboxError]] = {
    kind.__name__: kind
    for kind in (SandboxError, SandboxUnavailable, SandboxFull, SessionLost, ForkError, SessionEnded)
}
