"""Reads what sessions send on their control sockets. Runs inside the sandbox, in the supervisor.

Nothing that a session sends is trusted. The kernel says which process has sent it: messages of other processes count
only while a fork is under way. A session that sends malformed frames is killed.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable

from sandbox.server.kernel.processes import alive
from sandbox.server.supervisor.cell_execution import CellExecution
from sandbox.server.supervisor.event_loop import EventLoop
from sandbox.server.supervisor.file_requests import FileRequests
from sandbox.server.supervisor.session_creation import SessionCreation
from sandbox.server.supervisor.session_forks import SessionForks
from sandbox.server.supervisor.session_handle import SessionHandle
from sandbox.server.supervisor.session_socket import Message
from sandbox.server.wire import BRANCHED, DONE, FILED, FORK, LIST, READ, READY, RUN, UNABLE, WRITE, WireError

_CLOSED_CHANNEL_SECONDS, _LONGEST_END = 0.2, 5.0
_LONGEST_ERROR = 2000


class SessionMessages:
    """Passes the frames of sessions to what serves their requests.

    Args:
        loop: the supervisor's event loop.
        creation: of sessions.
        forks: of sessions.
        cells: that run.
        files: that are read and written.
        kill: ends a session, with the status of its cell and a reason.
    """

    def __init__(
        self,
        loop: EventLoop,
        creation: SessionCreation,
        forks: SessionForks,
        cells: CellExecution,
        files: FileRequests,
        kill: Callable[[SessionHandle, str, str], None],
    ) -> None:
        self._loop = loop
        self._creation = creation
        self._forks = forks
        self._cells = cells
        self._files = files
        self._kill = kill

    def read(self, handle: SessionHandle) -> None:
        """Read what a session has sent; one that causes an error here is ended."""
        try:
            self._receive(handle)
        except WireError as error:
            self._end(handle, f"the code has written to the interpreter's control channel ({error})")
        except Exception as error:
            traceback.print_exc()
            self._end(handle, f"the supervisor could not process its message ({type(error).__name__})")

    def _end(self, handle: SessionHandle, why: str) -> None:
        if handle.pid:
            self._kill(handle, "killed", why)
        else:
            self._creation.failed(handle, why)

    def _receive(self, handle: SessionHandle) -> None:
        message = handle.channel.receive()
        if message is None:
            self._on_end(handle)
            return
        try:
            self._dispatch(handle, message)
        finally:
            # descriptors that nobody has taken; otherwise a session could fill the supervisor's table
            for fd in message.fds:
                os.close(fd)

    def _dispatch(self, handle: SessionHandle, message: Message) -> None:
        """Act on a message.

        Raises:
            WireError: it is of the session's own process, and malformed.
        """
        if handle.cause or handle.lost:
            return  # it has been killed; what it sent before does not count any more
        if handle.pid and message.data and message.pid != handle.pid:
            if not self._forks.on_foreign_message(handle, message):
                handle.channel.ignore(message.data)
            return
        for kind, number, payload in handle.channel.frames(message.data):
            self._on_frame(handle, kind, number, payload, message)

    def _on_frame(self, handle: SessionHandle, kind: int, number: int, payload: bytes, message: Message) -> None:
        request = handle.current
        # an earlier frame of the same message may have ended it
        if handle.cause or handle.lost:
            return
        if not handle.pid and kind == READY:
            self._creation.arrived(handle, message.pid, message.uid, payload)
        elif not handle.pid and kind == UNABLE:
            self._creation.failed(handle, payload[:_LONGEST_ERROR].decode("utf-8", "replace"))
        elif request is None or number != request.number:
            raise WireError(f"frame of kind {kind} out of turn")
        elif kind == DONE and request.kind == RUN:
            self._cells.finish(handle, request, payload)
        elif kind == FILED and request.kind in (READ, WRITE, LIST):
            self._files.finish(handle, request, payload)
        elif kind in (BRANCHED, UNABLE) and request.kind == FORK:
            self._forks.on_parent(handle, kind, payload, message)
        else:
            raise WireError(f"frame of kind {kind} out of turn")

    def _on_end(self, handle: SessionHandle) -> None:
        """Act on the end of a channel: the process has ended, or has closed its descriptors."""
        self._loop.unwatch(handle.channel.fileno())
        if not handle.pid:
            if not self._creation.try_again(handle):
                self._creation.failed(handle, "the new process ended before it was ready")
        else:
            self._loop.call_in(_CLOSED_CHANNEL_SECONDS, lambda: self._after_end(handle, last=False))

    def _after_end(self, handle: SessionHandle, last: bool) -> None:
        """Kill a session that lives on without its channel; if its process is ending, its exit says more."""
        if last or alive(handle.pid):
            self._kill(handle, "killed", "the code has closed the interpreter's control channel")
        else:
            self._loop.call_in(_LONGEST_END, lambda: self._after_end(handle, last=True))
