"""Passes pieces of files, and listings of directories, between the client and a session. Runs inside the sandbox."""

from __future__ import annotations

import base64
import errno

from sandbox.server.supervisor.client_stream import ClientRequest
from sandbox.server.supervisor.event_loop import EventLoop
from sandbox.server.supervisor.session_channels import SessionChannels
from sandbox.server.supervisor.session_handle import SessionControl, SessionHandle
from sandbox.server.wire import FILE_REPLY, FILE_REQUEST, LARGEST_PIECE, LIST, LOAD, LOOK, READ, STORE, WireError

_SECONDS = 30.0
_ALLOWED_ERRORS = frozenset(
    (
        *(errno.EACCES, errno.EDQUOT, errno.EEXIST, errno.EFBIG, errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.EMFILE),
        *(errno.ENAMETOOLONG, errno.ENFILE, errno.ENOENT, errno.ENOMEM, errno.ENOSPC, errno.ENOTDIR, errno.ENOTEMPTY),
        *(errno.ENXIO, errno.EPERM, errno.EROFS, errno.ETXTBSY),
    )
)
"""Errors that reading and writing files can have. A session may report any number; others become EIO."""


class FileRequests:
    """Reads, writes and lists files of sessions.

    Args:
        loop: the supervisor's event loop.
        channels: of the sessions.
        control: answers, kills sessions, and starts their next requests.
    """

    def __init__(self, loop: EventLoop, channels: SessionChannels, control: SessionControl) -> None:
        self._loop = loop
        self._channels = channels
        self._control = control

    def begin(self, handle: SessionHandle, request: ClientRequest) -> None:
        """Pass a request to its session.

        Raises:
            OSError: the session has closed its channel.
        """
        fields = request.fields
        path = fields["path"].encode("utf-8", "surrogatepass")
        if request.kind == READ:
            kind, payload = LOAD, FILE_REQUEST.pack(fields["offset"], fields["length"]) + path
        elif request.kind == LIST:
            kind, payload = LOOK, path
        else:
            # a zero ends the path, since no path contains one
            data = base64.b64decode(fields["data"])
            kind, payload = STORE, FILE_REQUEST.pack(fields["offset"], 0) + path + b"\0" + data
        self._channels.send(handle, kind, request.number, payload)
        request.timer = self._loop.call_in(_SECONDS, lambda: self._time_out(handle, request))

    def _time_out(self, handle: SessionHandle, request: ClientRequest) -> None:
        if handle.current is request:
            self._control.kill(handle, "timeout", f"a file was not read or written within {_SECONDS:.0f} s")

    def finish(self, handle: SessionHandle, request: ClientRequest, payload: bytes) -> None:
        """Answer for a piece; `payload` is that of FILED.

        Raises:
            WireError: the payload is malformed.
        """
        if not FILE_REPLY.size <= len(payload) <= FILE_REPLY.size + LARGEST_PIECE:
            raise WireError("a malformed piece of a file")
        self._loop.cancel(request.timer)
        code, size = FILE_REPLY.unpack_from(payload)
        data = payload[FILE_REPLY.size :]
        if code:
            # an arbitrary number could pass for an error that callers handle in a special way
            code = code if code in _ALLOWED_ERRORS else errno.EIO
            self._control.answer(handle, request, {"errno": code}, False)
        elif request.kind in (READ, LIST):
            self._control.answer(handle, request, {"data": base64.b64encode(data).decode(), "size": size}, True)
        else:
            self._control.answer(handle, request, {}, True)
        handle.current = None
        self._control.advance(handle)
