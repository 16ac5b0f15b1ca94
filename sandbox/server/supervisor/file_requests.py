"""Passes pieces and lists of files between the client and a session. Runs inside the sandbox, in the supervisor."""

from __future__ import annotations

import base64
import errno
from typing import TYPE_CHECKING

from sandbox.server.supervisor.session_handle import Handle, Request
from sandbox.server.wire import FILE_REPLY, FILE_REQUEST, LARGEST_PIECE, LIST, LOAD, LOOK, READ, STORE, WireError

if TYPE_CHECKING:
    from sandbox.server.supervisor.requests import Requests
    from sandbox.server.supervisor.supervisor import Supervisor

_SECONDS = 30.0
_HONEST = frozenset(
    (
        *(errno.EACCES, errno.EDQUOT, errno.EEXIST, errno.EFBIG, errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.EMFILE),
        *(errno.ENAMETOOLONG, errno.ENFILE, errno.ENOENT, errno.ENOMEM, errno.ENOSPC, errno.ENOTDIR, errno.ENOTEMPTY),
        *(errno.ENXIO, errno.EPERM, errno.EROFS, errno.ETXTBSY),
    )
)
"""What reading and writing files can come to; a session can say anything else, but it counts as EIO."""


class Files:
    """Reads and writes files of sessions.

    Args:
        supervisor: whose loop to use.
        requests: who kills sessions, and starts what is next.
    """

    def __init__(self, supervisor: Supervisor, requests: Requests) -> None:
        self._supervisor = supervisor
        self._requests = requests

    def begin(self, handle: Handle, request: Request) -> None:
        """Hand a request to its session.

        Raises:
            OSError: the session has closed its channel.
        """
        fields = request.fields
        path = fields["path"].encode("utf-8", "surrogatepass")
        if request.kind == READ:
            handle.send(LOAD, request.number, FILE_REQUEST.pack(fields["offset"], fields["length"]) + path)
        elif request.kind == LIST:
            handle.send(LOOK, request.number, path)
        else:
            data = base64.b64decode(fields["data"])
            handle.send(STORE, request.number, FILE_REQUEST.pack(fields["offset"], 0) + path + b"\0" + data)
        self._supervisor.send_on(handle)
        request.timer = self._supervisor.call_in(_SECONDS, lambda: self._too_slow(handle, request))

    def _too_slow(self, handle: Handle, request: Request) -> None:
        if handle.current is request:
            self._requests.kill(handle, "timeout", f"a file was not read or written within {_SECONDS:.0f} s")

    def finish(self, handle: Handle, request: Request, payload: bytes) -> None:
        """Answer for a piece.

        Raises:
            WireError: the session's answer makes no sense.
        """
        if not FILE_REPLY.size <= len(payload) <= FILE_REPLY.size + LARGEST_PIECE:
            raise WireError("a piece of a file that makes no sense")
        self._supervisor.call_off(request.timer)
        code, size = FILE_REPLY.unpack_from(payload)
        data = payload[FILE_REPLY.size :]
        if code:
            self._requests.answer(handle, request, {"errno": code if code in _HONEST else errno.EIO}, False)
        elif request.kind in (READ, LIST):
            self._requests.answer(handle, request, {"data": base64.b64encode(data).decode(), "size": size}, True)
        else:
            self._requests.answer(handle, request, {}, True)
        handle.current = None
        self._requests.advance(handle)
