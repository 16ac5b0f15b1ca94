"""What the supervisor talks to without ever waiting: its client, the zygotes and the sessions. Runs inside.

One event loop serves them all. Nothing that a session sends is trusted.
"""

from __future__ import annotations

import array
import contextlib
import functools
import heapq
import json
import math
import os
import re
import selectors
import socket
import struct
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from sandbox.server import wire
from sandbox.server.processes import sizes_of
from sandbox.server.wire import Frames, WireError, pack

_LONGEST_WAIT = 3600.0
_MANY_CANCELLED = 256


class Timer:
    """A callback at a time of the monotonic clock."""

    __slots__ = ("callback", "due", "loop")

    def __init__(self, due: float, callback: Callable[[], object], loop: EventLoop) -> None:
        self.due, self.loop = due, loop
        self.callback: Callable[[], object] | None = callback

    def __lt__(self, other: Timer) -> bool:
        return self.due < other.due

    def cancel(self) -> None:
        """Do not call back; does nothing if that is done, or was cancelled."""
        if self.callback is not None:
            self.callback = None  # releases what the callback refers to
            self.loop.count_cancelled()


class EventLoop:
    """Calls back when descriptors are ready and when timers are due, as far as the supervisor needs it.

    With asyncio's, which has the same methods, a call takes a fifth longer (benchmarks/sandbox_calls.py), and a
    container 5 MB more. Nearly all timers are cancelled, since a cell ends long before its limit. A cancelled one stays
    in the heap, which is rebuilt when most of it is such timers.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[Timer] = []  # a heap
        self._cancelled = 0
        self._stopped = False

    def run_forever(self) -> None:
        """Serve until `stop` is called."""
        while not self._stopped:
            watched = self._selector.get_map()
            for key, events in self._selector.select(min(self._until_next_timer(), _LONGEST_WAIT)):
                for event, callback in key.data.items():
                    # an earlier callback may have closed the descriptor, or want to know less of it
                    if events & event and watched.get(key.fd) is key:
                        self._call(callback)
            while self._until_next_timer() == 0.0:
                timer = heapq.heappop(self._timers)
                callback, timer.callback = timer.callback, None
                if callback is not None:
                    self._call(callback)

    def stop(self) -> None:
        """Make `run_forever` return after the callbacks of this round."""
        self._stopped = True

    def add_reader(self, fd: int, callback: Callable[..., object], *given: object) -> None:
        """Call back whenever a descriptor can be read."""
        self._watch(fd, selectors.EVENT_READ, functools.partial(callback, *given))

    def add_writer(self, fd: int, callback: Callable[..., object], *given: object) -> None:
        """Call back whenever a descriptor can be written."""
        self._watch(fd, selectors.EVENT_WRITE, functools.partial(callback, *given))

    def remove_reader(self, fd: int) -> None:
        """Stop calling back when a descriptor can be read; does nothing if nobody wanted that."""
        self._watch(fd, selectors.EVENT_READ, None)

    def remove_writer(self, fd: int) -> None:
        """Stop calling back when a descriptor can be written; does nothing if nobody wanted that."""
        self._watch(fd, selectors.EVENT_WRITE, None)

    def call_later(self, seconds: float, callback: Callable[..., object], *given: object) -> Timer:
        """Call back once, later; returns a timer that can be cancelled."""
        timer = Timer(time.monotonic() + seconds, functools.partial(callback, *given), self)
        heapq.heappush(self._timers, timer)
        return timer

    def count_cancelled(self) -> None:
        """Take note of a cancelled timer."""
        self._cancelled += 1
        if self._cancelled > _MANY_CANCELLED and 2 * self._cancelled > len(self._timers):
            # rebuilding takes time in proportion to the heap, and halves it: constant per cancelled timer
            self._timers = [one for one in self._timers if one.callback is not None]
            heapq.heapify(self._timers)
            self._cancelled = 0

    def _watch(self, fd: int, event: int, callback: Callable[[], object] | None) -> None:
        """Call back for an event of a descriptor, or no longer (None), beside what is called back for the other one."""
        key = self._selector.get_map().get(fd)
        callbacks = {**key.data} if key else {}
        callbacks.pop(event, None)
        if callback is not None:
            callbacks[event] = callback
        if not callbacks:
            if key:
                self._selector.unregister(fd)
        elif key:
            self._selector.modify(fd, sum(callbacks), callbacks)
        else:
            self._selector.register(fd, sum(callbacks), callbacks)

    def _until_next_timer(self) -> float:
        while self._timers and self._timers[0].callback is None:
            heapq.heappop(self._timers)
            self._cancelled -= 1
        return max(0.0, self._timers[0].due - time.monotonic()) if self._timers else math.inf

    def _call(self, callback: Callable[[], object]) -> None:
        """Call back. An exception must not end the supervisor, whatever a session has done to cause it."""
        try:
            callback()
        except Exception:
            traceback.print_exc()


# The client: requests in on descriptor 0, replies out on 1. The loop ends when the client closes the stream or dies.


class ClientRequest:
    """What the client asks: kind, number and the fields of the JSON payload."""

    def __init__(self, kind: int, number: int, fields: dict[str, Any]) -> None:
        self.kind, self.number, self.fields = kind, number, fields
        self.started = 0.0  # when its session began with it, on the monotonic clock
        self.timer: Timer | None = None
        self.stopped = ""  # status of the limit for which the supervisor has interrupted it

    def stop_clock(self) -> None:
        """Cancel the timer, if there is one."""
        if self.timer is not None:
            self.timer.cancel()


class ClientStream:
    """Reads requests, with each of which `on_request` is called, and writes replies."""

    def __init__(self, loop: EventLoop, on_request: Callable[[ClientRequest], None]) -> None:
        self._loop, self._on_request = loop, on_request
        self._incoming, self._outgoing = Frames(), bytearray()
        # kept: a buffer of this size that is made for each reading is a mapping of its own, which takes 0.04 ms
        self._space = memoryview(bytearray(1 << 18))

        for fd in (0, 1):
            os.set_blocking(fd, False)
        loop.add_reader(0, self._read)

    def _read(self) -> None:
        try:
            size = os.readv(0, [self._space])
        except BlockingIOError:
            return
        if not size:
            self._loop.stop()
        for kind, number, payload in self._incoming.feed(self._space[:size]):
            try:
                self._on_request(ClientRequest(kind, number, json.loads(payload)))
            # a request without any reply would make its caller wait for ever
            except Exception as error:
                traceback.print_exc()
                self.fail(number, "SandboxError", f"the request failed: {type(error).__name__}: {error}")

    def reply(self, number: int, fields: dict[str, Any]) -> None:
        """Answer a request."""
        self.send(wire.REPLY, number, fields)

    def fail(self, number: int, kind: str, message: str) -> None:
        """Answer a request with an error of the machinery; `kind` is the name of the client's exception."""
        self.send(wire.REPLY, number, {"failure": kind, "message": message})

    def send(self, kind: int, number: int, fields: dict[str, Any]) -> None:
        """Send a frame as soon as the client takes it."""
        idle = not self._outgoing  # if not, the loop flushes, and the order of frames is kept
        self._outgoing += pack(kind, number, json.dumps(fields).encode())
        if idle:
            self._flush()

    def _flush(self) -> None:
        try:
            del self._outgoing[: os.write(1, self._outgoing)]
        except BlockingIOError:
            pass
        except OSError:
            self._loop.stop()
            return
        if self._outgoing:
            self._loop.add_writer(1, self._flush)
        else:
            self._loop.remove_writer(1)


# A session as the supervisor sees it: its slot, control socket, output and open requests.


class OutputCapture:
    """Keeps the head and the tail of a stream of bytes, `keep` bytes together."""

    def __init__(self, keep: int) -> None:
        self._half = max(1, keep // 2)
        self._head, self._tail = bytearray(), bytearray()
        self.total = 0

    def add(self, data: bytes) -> None:
        """Add the next bytes."""
        self.total += len(data)
        room = self._half - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 4 * self._half:  # cut rarely, since each cut moves the whole tail
            del self._tail[: -self._half]

    @property
    def truncated(self) -> bool:
        """Whether bytes were left out."""
        return self.total > 2 * self._half

    def text(self) -> str:
        """Return what was kept, with a note where bytes were left out."""
        if not self.truncated:
            return (self._head + self._tail).decode("utf-8", "replace")
        tail = self._tail[-self._half :]
        note = f"\n... [{self.total - len(self._head) - len(tail)} bytes left out] ...\n"
        # each cut may fall within a character; half of one is replaced
        return self._head.decode("utf-8", "replace") + note + tail.decode("utf-8", "replace")


_CREDENTIALS = struct.Struct("3i")
# room for one descriptor, which is all that any message needs; the kernel closes those that do not fit
_ANCILLARY = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(array.array("i").itemsize)
# in every call, since whoever holds the other end may have made the socket a blocking one
_NOW = socket.MSG_DONTWAIT
_MOST_IGNORED = 1 << 20


class Message(NamedTuple):
    """What one process has sent, with its pid and user as the kernel reports them; bytes of two are never joined."""

    data: bytes
    pid: int
    uid: int
    fds: list[int]


class ControlSocket:
    """The supervisor's end of a session's control socket; frames have payloads of at most `limit` bytes."""

    def __init__(self, control: socket.socket, limit: int) -> None:
        control.setblocking(False)
        control.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)  # the kernel adds pid and user of the sender
        self._socket = control
        self._unsent = bytearray()
        self._ignored = 0
        self.frames = Frames(limit)  # of the session's own process

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._socket.fileno()

    def send(self, kind: int, number: int, payload: bytes, fds: tuple[int, ...] = ()) -> None:
        """Send a frame; what does not fit is kept for `flush`. OSError: the session has closed its end, or is full."""
        data = pack(kind, number, payload)
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        try:
            sent = self._socket.sendmsg([data], ancillary, _NOW)
        except BlockingIOError:
            if fds:  # descriptors cannot be sent later, with another byte
                raise
            sent = 0
        self._unsent += data[sent:]

    def flush(self) -> bool:
        """Send what was kept; returns whether everything is sent. Raises OSError if the session has closed its end."""
        try:
            sent = self._socket.send(self._unsent, _NOW) if self._unsent else 0
        except BlockingIOError:
            sent = 0
        del self._unsent[:sent]
        return not self._unsent

    def receive(self) -> Message | None:
        """Return what one sender has sent; None at the end. The caller closes the descriptors."""
        try:
            data, ancillary, _, _ = self._socket.recvmsg(1 << 16, _ANCILLARY, _NOW | socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return Message(b"", 0, -1, [])
        except OSError:
            return None
        pid, uid, fds = 0, -1, wire.descriptors(ancillary)
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
                pid, uid, _ = _CREDENTIALS.unpack_from(content)
        return Message(data, pid, uid, fds) if data else None

    def ignore(self, data: bytes) -> None:
        """Drop bytes of another process, which has the descriptor from the session; WireError if they are many."""
        self._ignored += len(data)
        if self._ignored > _MOST_IGNORED:
            raise WireError("frames of other processes")

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def _adopted(fd: int, pid: int) -> socket.socket:
    """Return a control socket that this process has made for itself, or close it and raise OSError."""
    try:
        control = socket.socket(fileno=fd)
    except OSError:
        os.close(fd)
        raise
    maker = 0
    if (control.family, control.type) == (socket.AF_UNIX, socket.SOCK_STREAM):
        peer = control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        maker = _CREDENTIALS.unpack(peer)[0]
    if maker not in (pid, os.getpid()):  # gVisor reports the supervisor itself
        control.close()
        raise OSError("not a control socket of this process")
    return control


_SLACK = 4096  # in a frame, for the structs around texts, data and pictures
_READS_AT_ONCE = 32


class Slot:
    """A user and a directory for one group of sessions. The directory is the supervisor's; sessions cannot list it."""

    def __init__(self, path: str, uid: int) -> None:
        self.path, self.uid = path, uid  # 0: the supervisor's own
        self.members: set[SessionHandle] = set()
        self.leftovers: list[str] = []  # directories of members that are gone
        self.sweeping = False
        self.deadline = 0.0  # if it is not clean by then, it is not used again


class SessionHandle:
    """One session; `key` is the client's, and `spawner` forks it, unless another session does."""

    def __init__(self, key: int, limits: dict[str, Any], spawner: ZygoteClient) -> None:
        self.key, self.spawner = key, spawner
        self.slot: Slot | None = None
        self.directory = ""
        self.pid = self.parent = 0  # until they are known
        self.created_after = 0  # clock ticks; its process starts no earlier
        self.idle = False  # its process may have idle priority
        self.inherited = 0  # bytes of memory that it shared, when it began, with the session it was forked from
        self.blamed = -math.inf  # when its group was last found to hold most of a memory that was running out
        self.bystander = False  # the kernel has taken it for the memory of others
        self.lost = ""  # why there is no process any more
        self.ended: tuple[str, str] | None = None  # outcome of later cells, once the code has ended its own session
        self.cause = ""  # status of the cell because of which the supervisor has killed it; `why` says it in words
        self.why = ""
        self.queue: deque[ClientRequest] = deque()
        self.current: ClientRequest | None = None
        self.closing: list[int] = []  # numbers of the requests to close it; 0 for a close without a reply
        self.once = False  # it is closed as soon as its only run has been answered
        self.control: ControlSocket | None = None
        self.outputs: tuple[int, ...] = ()
        self.given: tuple[int, ...] = ()  # its own ends of its channels, until it has them
        self._limits = limits
        self.begin_output()

    @property
    def home(self) -> Slot:
        """The slot of a session that lives; WireError if it has none."""
        if self.slot is None:
            raise WireError("a session without a slot")
        return self.slot

    def rename(self, name: bytes) -> None:
        """Take note of the name that a session has given its directory; WireError if it is not a valid one."""
        text = name.decode("ascii", "replace")
        # the name comes from the session; with a "/" or ".." in it, another directory would be removed later
        if len(text) != 32 or set(text) - set("0123456789abcdef"):
            raise WireError("a malformed name of a directory")
        self.directory = os.path.join(self.home.path, text)

    def open_channels(self) -> None:
        """Make a control socket and pipes for a session that the zygote is about to fork; OSError: none are left."""
        ours, theirs = socket.socketpair()
        self._use(ours)
        self.given = (theirs.detach(), *self._open_outputs())

    def adopt(self, fd: int, pid: int) -> None:
        """Use a control socket that a process has made for itself, and send it new pipes for stdout and stderr.

        OSError: it is not such a socket, another process has made it, or no descriptors are left.
        """
        control = _adopted(fd, pid)
        self.drain()  # what was written before the fork is shown with the next cell
        self.close_channels()
        self._use(control)
        ends = self._open_outputs()
        try:
            self.channel.send(wire.GIVE, 0, b"", ends)
        finally:
            for end in ends:
                os.close(end)

    def _use(self, control: socket.socket) -> None:
        # value and error have at most `output_bytes` characters each, of at most 6 bytes each (an escaped surrogate)
        most = max(12 * self._limits["output_bytes"], wire.LARGEST_PIECE) + wire.PICTURE_BYTES + _SLACK
        self.control = ControlSocket(control, most)

    def _open_outputs(self) -> tuple[int, int]:
        """Make the pipes of stdout and stderr; returns the ends to write to."""
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        self.outputs = (out, err)
        for fd in self.outputs:
            os.set_blocking(fd, False)
        return out_end, err_end

    def begin_output(self) -> None:
        """Start with empty captures."""
        self.captures = tuple(OutputCapture(self._limits["output_bytes"]) for _ in ("stdout", "stderr"))

    def release(self) -> None:
        """Close the session's ends of its channels, once the session has them."""
        # else the supervisor itself would keep the channel and the pipes open, and never see their end
        for fd in self.given:
            os.close(fd)
        self.given = ()

    def read_output(self, fd: int) -> int | None:
        """Read from stdout or stderr; returns 0 at its end, None when there is nothing to read now."""
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return None
        self.captures[self.outputs.index(fd)].add(data)
        return len(data)

    def drain(self) -> None:
        """Read what has been written so far. Bounded, since a background process may write for ever."""
        for fd in self.outputs:
            for _ in range(_READS_AT_ONCE):
                if not self.read_output(fd):
                    break

    @property
    def channel(self) -> ControlSocket:
        """The control socket; OSError if the session has none."""
        if self.control is None:
            raise OSError("the session has no control socket")
        return self.control

    def close_channels(self) -> None:
        """Close everything that is open for the session."""
        self.release()
        if self.control is not None:
            self.control.close()
            self.control = None
        for fd in self.outputs:
            os.close(fd)
        self.outputs = ()


# The zygotes, which fork sessions, empty slots, and report the ends of their sessions.

_RETRY_SECONDS = 0.05
_LONG_TEXT = 1 << 18
# puts large blocks of memory into huge pages, which makes forking them cheap; sessions do not see the variable
_HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
_ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "MALLOC_ARENA_MAX": "2",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
}
"""The whole environment of a session, apart from PATH, HOME and TMPDIR."""


class ZygoteClient:
    """The supervisor's side of one zygote, which imports the modules of `preload`.

    `on_ready` is called with the zygote's facts.
    """

    def __init__(
        self,
        config: dict[str, Any],
        script: bytes,
        preload: list[str],
        loop: EventLoop,
        on_ready: Callable[[dict[str, Any]], None],
    ) -> None:
        self._config, self._script, self._preload, self._loop = config, script, preload, loop
        self._on_ready = on_ready
        self._control: socket.socket
        self._frames = Frames()
        self._ready = False
        self._waiting: deque[SessionHandle] = deque()
        self._sizes: dict[str, int] = {}
        self.pid = 0

    def sizes(self) -> dict[str, int]:
        """Return the sizes of memory that its sessions begin with; asked for once it has forked one."""
        self._sizes = self._sizes or sizes_of(self.pid)
        return self._sizes

    def start(self, on_exit: Callable[[int, int], None]) -> None:
        """Start the zygote; `on_exit` is called with pid and wait status of each of its children that has ended."""
        self._on_exit = on_exit
        self._control, theirs = socket.socketpair()
        environment = {"PATH": os.environ.get("PATH", os.defpath), **_ENVIRONMENT, **_HUGE_PAGES}
        if self._config["packages"]:
            environment["PYTHONPATH"] = self._config["packages"]
        self.pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-s", "-c", self._config["bootstrap"]],
            environment,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            ],
        )
        theirs.close()
        config = json.dumps({**self._config, "role": "zygote", "preload": self._preload}).encode()
        with contextlib.suppress(OSError):  # it has died at once, which its exit tells
            self._control.sendall(b"%016d" % len(self._script) + self._script + b"%016d" % len(config) + config)
        self._control.setblocking(False)
        self._loop.add_reader(self._control.fileno(), self._receive)

    def _receive(self) -> None:
        try:
            data = self._control.recv(1 << 16)
        except OSError:
            return
        if not data:
            self._loop.remove_reader(self._control.fileno())
            return
        for kind, number, payload in self._frames.feed(data):
            if kind == wire.HELLO:
                self._ready = True
                self._on_ready(json.loads(payload))
                self._advance()
            elif kind == wire.DIED:
                self._on_exit(number, wire.ENDED.unpack(payload)[0])

    def sweep(self, slot: Slot, directories: list[str], kill: bool) -> socket.socket | None:
        """Have directories removed by a process of the slot's user; `kill` also ends and removes all else of that user.

        Returns a socket that reaches its end when that is done; None if it cannot be done now.
        """
        try:
            ours, theirs = socket.socketpair()
        except OSError:  # no descriptors are left
            return None
        order = {"uid": slot.uid, "slot": slot.path, "directories": directories, "kill": kill}
        with theirs:
            if self._send(wire.SWEEP, order, (theirs.fileno(),)):
                return ours
        ours.close()
        return None

    def open(self, handle: SessionHandle) -> None:
        """Have a session forked for this handle; its READY, or the end of its channel, is the answer."""
        self._waiting.append(handle)
        self._advance()

    def _advance(self) -> None:
        while self._ready and self._waiting:
            handle = self._waiting[0]
            if handle.slot is not None:  # else it has been given up meanwhile
                order = {"uid": handle.slot.uid, "slot": handle.slot.path, "directory": handle.directory}
                if not self._send(wire.SPAWN, order, handle.given):
                    self._loop.call_later(_RETRY_SECONDS, self._advance)
                    return
                handle.release()
            self._waiting.popleft()

    def _send(self, kind: int, order: dict[str, Any], fds: tuple[int, ...]) -> bool:
        """Send an order; returns False if the zygote is busy, or not ready."""
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        with contextlib.suppress(OSError):
            if self._ready:
                self._control.sendmsg([pack(kind, 0, json.dumps(order).encode())], rights)
                return True
        return False


class Zygotes:
    """The two zygotes: `full` has imported the profile's packages, `lean` nothing. They may be the same."""

    def __init__(
        self,
        config: dict[str, Any],
        script: bytes,
        loop: EventLoop,
        on_ready: Callable[[dict[str, Any]], None],
    ) -> None:
        self._on_ready = on_ready
        self._packages = re.compile("")
        preload = config["preload"]
        self.full = ZygoteClient(config, script, preload, loop, self._full_is_ready)
        self.lean = ZygoteClient(config, script, [], loop, lambda _: None) if preload else self.full

    def start(self, on_exit: Callable[[int, int], None]) -> None:
        """Start the zygotes; see there."""
        for zygote in {self.full, self.lean}:
            zygote.start(on_exit)

    @property
    def pids(self) -> tuple[int, int]:
        """The zygotes' processes."""
        return self.full.pid, self.lean.pid

    def for_texts(self, texts: list[str]) -> ZygoteClient:
        """Return what forks the session for a fresh run of these texts: the lean zygote if they name no package.

        Forking that one takes half the time. Code that imports a package without naming it gets it nevertheless.
        """
        # a long text goes to the full zygote unread, since the search would take longer than the fork
        named = any(len(text) > _LONG_TEXT or self._packages.search(text) for text in texts)
        return self.full if named else self.lean

    def _full_is_ready(self, facts: dict[str, Any]) -> None:
        self._packages = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in facts.pop("packages")))
        self._on_ready(facts)
