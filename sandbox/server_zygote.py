"""The zygote: the process that every session is forked from. Runs inside the sandbox.

It never sees any code, so a session finds nothing of other sessions in its memory. It is a process of its
own, started by exec, so a session finds nothing of the supervisor either.
"""

from __future__ import annotations

import gc
import os
from typing import Any

from sandbox.server_channel import Channel
from sandbox.server_linux import hide_memory, prefer_for_oom
from sandbox.server_session import start
from sandbox.wire import SPAWN


def serve_zygote(config: dict[str, Any]) -> None:
    """Fork a session for each frame that comes in on descriptor 0, until it ends."""
    channel = Channel(os.dup(0))
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.close(nothing)
    prefer_for_oom()
    hide_memory()
    gc.collect()
    gc.freeze()
    while True:
        try:
            kind, _, payload, fds = channel.receive()
        except EOFError:
            os._exit(0)
        if kind == SPAWN and len(fds) == 3:
            start(config, payload.decode(), fds)
        for fd in fds:
            os.close(fd)
