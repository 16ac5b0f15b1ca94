"""Connects the control sockets of sessions to the event loop. Runs inside the sandbox, in the supervisor."""

from __future__ import annotations

from collections.abc import Callable

from sandbox.server.supervisor.event_loop import READ, WRITE, EventLoop
from sandbox.server.supervisor.session_handle import SessionHandle


class SessionChannels:
    """Listens to sessions, and sends to them without waiting.

    Args:
        loop: the supervisor's event loop.
        on_readable: called when a session has sent something, or its channel has ended.
    """

    def __init__(self, loop: EventLoop, on_readable: Callable[[SessionHandle], None]) -> None:
        self._loop = loop
        self._on_readable = on_readable

    def listen_to(self, handle: SessionHandle) -> None:
        """Call back for what a session sends on its control socket."""
        self._loop.watch(handle.channel.fileno(), lambda: self._on_readable(handle))

    def send(self, handle: SessionHandle, kind: int, number: int, payload: bytes) -> None:
        """Send a frame; what does not fit is sent when the session reads on.

        Raises:
            OSError: the session has closed its end.
        """
        handle.channel.send(kind, number, payload)
        if not handle.channel.flush():
            self._loop.watch(handle.channel.fileno(), lambda: self._send_rest(handle), READ | WRITE)

    def _send_rest(self, handle: SessionHandle) -> None:
        try:
            done = handle.channel.flush()
        # the session has closed its end, which reading reports
        except OSError:
            done = True
        if done:
            self.listen_to(handle)
        # always, since the loop calls back once for both directions
        self._on_readable(handle)

    def close(self, handle: SessionHandle) -> None:
        """Stop listening to a session, and close what is open for it."""
        if handle.control is not None:
            self._loop.unwatch(handle.control.fileno())
        for fd in handle.outputs:
            self._loop.unwatch(fd)
        handle.close_channels()
