"""The supervisor: first process of the sandbox, mediates between the client and the sessions. Runs inside.

It never runs the user's code. One loop serves the client (frames on descriptors 0 and 1), the zygote, every
session, the timers and the deaths of children. When descriptor 0 ends, because the client closed it or died,
the supervisor kills everything and ends, and the container with it.

The modules `wire` and `inside` use nothing but the standard library; the client sends their source at the
start (see `server_source`), so that any image with Python 3.9 or later will do.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from typing import Any

from sandbox.server.kernel.processes import children, kill_trees, now_in_ticks, own_children, start_time
from sandbox.server.kernel.remove_tree import remove_tree
from sandbox.server.kernel.syscalls import (
    adopt_orphans,
    dump_no_core,
    hide_memory,
    hide_processes,
    keep_capabilities,
    limit_processes,
    process_facts,
    raise_file_limit,
    surroundings,
)
from sandbox.server.supervisor.cgroup_usage import Account
from sandbox.server.supervisor.cpu_shares import Shares
from sandbox.server.supervisor.file_lock_limits import Locks
from sandbox.server.supervisor.memory_watchdog import Watchdog
from sandbox.server.supervisor.requests import Requests
from sandbox.server.supervisor.session_handle import Handle, Request
from sandbox.server.supervisor.slots import Slots
from sandbox.server.supervisor.timers import Timer, Timers
from sandbox.server.supervisor.zygote_client import Spawner
from sandbox.server.wire import HELLO, REPLY, Frames, pack

_SWEEP_AFTER = 0.02
_LONGEST_NAP = 3600.0
_LONG = 1 << 18
_MOST_MISHAPS = 1000  # more are a fault that repeats itself
_CAPABILITIES = 1 << 5 | 1 << 6 | 1 << 7 | 1 << 23  # to kill, and to set group, user and priority
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class Supervisor:
    """The loop and what hangs on it.

    Args:
        config: what the client sent: limits, the root of the session directories, an optional uid.
        script: the server's own source, for the zygote.
    """

    def __init__(self, config: dict[str, Any], script: bytes) -> None:
        self.config = config
        self.sessions: dict[int, Handle] = {}
        self.starting: set[Handle] = set()
        self._selector = selectors.DefaultSelector()
        self._timers = Timers()
        self._incoming = Frames()
        self._outgoing = bytearray()
        self._ended = False
        self._sweep_planned = False
        self._introduced = False
        self._mishaps = 0
        self.by_pid: dict[int, Handle] = {}
        self.dead: dict[int, int] = {}  # statuses of processes that have died before they were heard of
        self.slots = Slots(self)
        self.requests = Requests(self)
        self.spawner = Spawner(self, script, config["preload"])
        self.lean = Spawner(self, script, []) if config["preload"] else self.spawner
        self._packages = re.compile("")
        self.account = Account(config["own_account"])
        self.locks = Locks(self)
        self.watchdog = Watchdog(self)
        self.shares = Shares(self)

    def serve(self) -> None:
        """Say hello, then serve until the client is gone."""
        self._listen_for_deaths()
        for fd in (0, 1):
            os.set_blocking(fd, False)
        self.watch(0, self._read_client)
        for spawner in {self.spawner, self.lean}:
            spawner.start_zygote()
        while not self._ended:
            for key, _ in self._selector.select(self._nap()):
                if self._selector.get_map().get(key.fd) is key:  # an earlier event may have closed it
                    self._carefully(key.data)
            self._timers.fire(self._carefully)
        self._end()

    def stop(self) -> None:
        """End, and the container with it: the client opens another when it needs one."""
        self._ended = True

    def _nap(self) -> float:
        seconds = self._timers.until_next()
        return _LONGEST_NAP if seconds is None else min(seconds, _LONGEST_NAP)

    def _carefully(self, callback: Callable[[], object]) -> None:
        """Do something that must not end the supervisor, whatever a session has found to confuse it."""
        try:
            callback()
        except Exception:
            traceback.print_exc()
            self._mishaps += 1
            if self._mishaps > _MOST_MISHAPS:
                raise

    def introduce(self, spawner: Spawner, facts: dict[str, Any]) -> None:
        """Say hello to the client, once: what holds the sessions, as the zygote has found."""
        if spawner is self.spawner and not self._introduced:
            self._introduced = True
            self._packages = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in facts.pop("packages")))
            python = {"python": sys.version.split()[0], "pid": os.getpid(), "slots": self.slots.usable}
            self._write_client(HELLO, 0, {**python, "supervisor": process_facts(), **surroundings(), **facts})

    def watch(self, fd: int, callback: Callable[[], None], events: int = READ) -> None:
        """Call back when there is something to read, or with WRITE room to write."""
        if fd in self._selector.get_map():
            self._selector.modify(fd, events, callback)
        else:
            self._selector.register(fd, events, callback)

    def unwatch(self, fd: int) -> None:
        """Stop calling back."""
        if fd in self._selector.get_map():
            self._selector.unregister(fd)

    def call_in(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call back once, later, unless it is called off."""
        return self._timers.call_in(seconds, callback)

    def call_off(self, timer: Timer | None) -> None:
        """Do not call back after all."""
        self._timers.call_off(timer)

    def _read_client(self) -> None:
        try:
            data = os.read(0, 1 << 18)
        except BlockingIOError:
            return
        if not data:
            self._ended = True
        for kind, number, payload in self._incoming.feed(data):
            try:
                self.requests.take(Request(kind, number, json.loads(payload)))
            except Exception as error:
                traceback.print_exc()
                self.fail(number, "SandboxError", f"the request can not be served: {type(error).__name__}: {error}")

    def reply(self, number: int, fields: dict[str, Any]) -> None:
        """Answer a request."""
        self._write_client(REPLY, number, fields)

    def fail(self, number: int, kind: str, message: str) -> None:
        """Answer a request with an error of the machinery; `kind` is the name of the client's exception."""
        self._write_client(REPLY, number, {"failure": kind, "message": message})

    def _write_client(self, kind: int, number: int, fields: dict[str, Any]) -> None:
        idle = not self._outgoing
        self._outgoing += pack(kind, number, json.dumps(fields).encode())
        if idle:
            self._flush_client()

    def _flush_client(self) -> None:
        try:
            del self._outgoing[: os.write(1, self._outgoing)]
        except BlockingIOError:
            pass
        except OSError:
            self._ended = True
            return
        if self._outgoing:
            self.watch(1, self._flush_client, WRITE)
        else:
            self.unwatch(1)

    def new_handle(self, key: int) -> Handle:
        """Make the supervisor's side of a session that is about to be, without channels."""
        handle = self.sessions[key] = Handle(key, self.config["limits"], self.spawner)
        return handle

    def listen_to(self, handle: Handle) -> None:
        """Hear what a session says on its control socket."""
        self.watch(handle.channel.fileno(), lambda: self.requests.listen(handle))

    def send_on(self, handle: Handle) -> None:
        """Send what was too long for one go, and listen meanwhile.

        Raises:
            OSError: the session has closed its end.
        """
        if not handle.channel.flush():
            self.watch(handle.channel.fileno(), lambda: self._converse(handle), READ | WRITE)

    def _converse(self, handle: Handle) -> None:
        try:
            done = handle.channel.flush()
        except OSError:
            done = True
        if done:
            self.listen_to(handle)
        self.requests.hear(handle)

    def forget_channels(self, handle: Handle) -> None:
        """Stop listening to a session, and close what was open for it."""
        if handle.control is not None:
            self.unwatch(handle.control.fileno())
        for fd in handle.outputs:
            self.unwatch(fd)
        handle.close_channels()

    def expect(self, handle: Handle) -> None:
        """Take note that a process of this session may appear from now on."""
        handle.born_after = now_in_ticks()
        self.starting.add(handle)

    def settled(self, handle: Handle) -> None:
        """Take note that a session is there, or will never be."""
        self.starting.discard(handle)
        if not self.starting:
            self.dead.clear()

    def _listen_for_deaths(self) -> None:
        reading, writing = os.pipe()
        for fd in (reading, writing):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.watch(reading, lambda: self._reap(reading))

    def _reap(self, reading: int) -> None:
        os.read(reading, 1 << 12)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            zygote = next((one for one in (self.spawner, self.lean) if one.pid == pid), None)
            if zygote is not None:
                for handle in self.sessions.values():
                    handle.orphaned |= handle.parent == pid
                zygote.start_zygote()
            else:
                self.died(pid, status)

    def spawner_for(self, texts: list[str]) -> Spawner:
        """Return what forks the session for a fresh run: the zygote without packages, where no package is named.

        Forking that one costs half. Code that imports a package without naming it gets it, after a while.
        """
        named = any(len(text) > _LONG or self._packages.search(text) for text in texts)  # the search takes its time
        return self.spawner if named else self.lean

    def died(self, pid: int, status: int) -> None:
        """Take note of the end of a process."""
        handle = self.by_pid.pop(pid, None)
        if handle is not None:
            self.requests.bury(handle, status)
        elif self.starting:
            self.dead[pid] = status  # it may have been heard of too late

    def sweep_soon(self) -> None:
        """Look for processes that sessions have left behind, in a moment."""
        if not self._sweep_planned:
            self._sweep_planned = True
            self.call_in(_SWEEP_AFTER, self._sweep)

    def _sweep(self) -> None:
        """Kill children that belong to no session: orphans of sessions that are gone.

        A session that is being born is unknown, too; what started after the oldest one waited for is left
        alone.
        """
        self._sweep_planned = False
        birth = min((handle.born_after for handle in self.starting), default=None)
        if self.strangers():
            kill_trees(lambda: [pid for pid in self.strangers() if birth is None or start_time(pid) < birth])
            self.sweep_soon()

    def strangers(self) -> list[int]:
        """Return children that are not known: orphans of sessions that are gone, and forks that are about to report."""
        return [pid for pid in own_children() if pid not in self.by_pid and pid not in self.zygotes]

    @property
    def zygotes(self) -> tuple[int, int]:
        """The processes that sessions are forked from."""
        return self.spawner.pid, self.lean.pid

    def _end(self) -> None:
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            kill_trees(lambda: children(os.getpid()))
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    continue
            except ChildProcessError:
                break
            time.sleep(0.005)
        if self.config["own_root"]:
            remove_tree(self.config["root"])


def serve_client(config: dict[str, Any], script: bytes) -> None:
    """Be the supervisor."""
    os.umask(0o022)
    dump_no_core()
    raise_file_limit()
    config["own_root"] = config["root"] is None
    if config["root"] is None:
        config["root"] = tempfile.mkdtemp(prefix="sandbox-")
    if config["first_uid"]:
        os.setgroups([])
        if config["chown"]:
            _hand_out_slots(config)
        hide_processes()
        keep_capabilities(_CAPABILITIES)
    elif config["own_user"]:
        limit_processes(config["limits"]["processes"])
    config["work"] = os.path.islink("/work") and os.readlink("/work") == "/proc/self/fd/200"
    hide_memory()
    adopt_orphans()
    Supervisor(config, script).serve()


def _hand_out_slots(config: dict[str, Any]) -> None:
    """Let the group of each slot, and nobody else, make directories in it, where the backend could not say so."""
    for number in range(config["sessions"]):
        path = os.path.join(config["root"], str(number))
        os.chown(path, 0, config["first_uid"] + number)
        os.chmod(path, 0o1730)
