"""The sandbox that this process shares, for callers that do not want one of their own."""

from __future__ import annotations

import os
import threading

from sandbox.sandbox import Sandbox

VARIABLE = "ARPO_SANDBOX"
_lock = threading.Lock()
_shared: Sandbox | None = None
_owner = 0


def default_sandbox() -> Sandbox:
    """Return the sandbox of this process; it opens at its first use and is closed when the process ends.

    The environment variable ARPO_SANDBOX names the backend: "auto" (the default), "docker", "bubblewrap" or
    "unsafe_local". A process forked from this one gets a sandbox of its own, and one that was closed is replaced.
    """
    global _shared, _owner
    with _lock:
        if _shared is None or _owner != os.getpid() or _shared.lost:
            _shared, _owner = Sandbox(os.environ.get(VARIABLE) or "auto"), os.getpid()
        return _shared


def _renew_lock() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)
