"""The supervisor: first process of the sandbox, between the client and the sessions. Runs inside.

It never runs the user's code. One event loop serves the client (frames on descriptors 0 and 1), the zygotes, every
session, timers and exits of children. When descriptor 0 ends, because the client closed it or died, the supervisor
kills everything and ends, and the container with it.

The server uses nothing but the standard library. The client sends its source at the start (see `server.bundle`), so any
image with Python 3.9 or later will do.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from typing import Any

from sandbox.server.kernel.confine import (
    adopt_orphans,
    dump_no_core,
    hide_memory,
    hide_processes,
    keep_capabilities,
    limit_processes,
    process_facts,
    raise_file_limit,
    shorten_backlogs,
    surroundings,
)
from sandbox.server.kernel.processes import children, descendants, kill_trees, remove_tree
from sandbox.server.supervisor.event_loop import ClientRequest, ClientStream, EventLoop
from sandbox.server.supervisor.memory import (
    CgroupUsage,
    MemoryAccounting,
    MemoryWatchdog,
    UnfitContainerError,
    fit_to_container,
)
from sandbox.server.supervisor.requests import SessionRequests
from sandbox.server.supervisor.session_table import SessionTable
from sandbox.server.supervisor.shares import CpuShares, FileLockLimit
from sandbox.server.supervisor.slots import Slots
from sandbox.server.supervisor.zygote_client import Zygotes
from sandbox.server.wire import HELLO, PING, pack

_END_SECONDS = 5
_CAPABILITIES = 1 << 5 | 1 << 6 | 1 << 7 | 1 << 23  # to kill, and to set group, user and priority


class Supervisor:
    """Connects the parts of the server.

    Args:
        config: what the client sent: limits, the root of the session directories, an optional uid.
        script: the server's own source, for the zygotes.
    """

    def __init__(self, config: dict[str, Any], script: bytes) -> None:
        self._config = config
        self._loop = loop = EventLoop()
        # parts that need a later one get it by a lambda, which looks it up when it is called
        self._client = ClientStream(loop, lambda request: self._take(request))
        self._zygotes = Zygotes(
            config, script, loop, self._send_hello, lambda pid, status: self._table.child_exited(pid, status)
        )
        self._table = SessionTable(
            config["limits"], loop, self._zygotes, lambda handle, status: self._requests.on_exit(handle, status)
        )
        self._slots = Slots(config, loop, self._table, self._zygotes.lean.sweep)
        self._requests = SessionRequests(config, loop, self._client, self._table, self._slots, self._zygotes)
        usage = CgroupUsage(config["own_account"])
        shares = CpuShares(bool(config["first_uid"]), usage, self._table)
        locks = FileLockLimit(config["harden"], self._table, self._requests.kill)
        self._watchdog = MemoryWatchdog(
            config["memory"],
            loop,
            usage,
            self._table,
            MemoryAccounting(lambda: self._zygotes.pids),
            self._requests.kill,
            (
                self._table.check_orphans,
                self._requests.note_memory_kills,
                shares.check,
                locks.check,
                self._requests.shared_memory.check,
            ),
        )

    def serve(self) -> None:
        """Start the zygotes, then serve until the client is gone."""
        # first: a zygote may end at once, and without the handler its exit would go unnoticed
        self._watch_children()
        self._client.open()
        self._zygotes.start()
        self._loop.run()
        self._end()

    def _send_hello(self, facts: dict[str, Any]) -> None:
        """Greet the client with what isolates the sessions, as the zygote has measured it."""
        python = {"python": sys.version.split()[0], "pid": os.getpid(), "slots": self._slots.usable}
        here = {"supervisor": process_facts(), **surroundings(), "unenforced": self._config.get("unenforced", [])}
        self._client.send(HELLO, 0, {**python, **here, **facts})

    def _take(self, request: ClientRequest) -> None:
        if request.kind == PING:
            self._client.reply(request.number, self._condition())
        else:
            self._requests.take(request)

    def _condition(self) -> dict[str, Any]:
        """Return the answer to PING."""
        alive = [handle for handle in self._table.sessions.values() if handle.pid and not handle.lost]
        return {
            "memory": self._watchdog.used(),
            "memory_limit": self._watchdog.limit,
            "processes": 1 + sum(1 for _ in descendants(os.getpid())),
            "sessions": len(alive),
            "slots": self._slots.usable,
            "free": self._slots.free,
            "retired": self._slots.retired,
        }

    def _watch_children(self) -> None:
        reading, writing = os.pipe()
        for fd in (reading, writing):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler, the wakeup descriptor is not written to
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._loop.watch(reading, lambda: self._reap(reading))

    def _reap(self, reading: int) -> None:
        os.read(reading, 1 << 12)
        # signals merge: one wakeup can stand for many children, so all that have ended are collected
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            zygote = self._zygotes.with_pid(pid)
            if zygote is None:
                self._table.child_exited(pid, status)
                continue
            # its sessions end with it, since they die with their parent
            for handle in self._table.sessions.values():
                handle.bystander |= handle.parent == pid
            zygote.start()

    def _end(self) -> None:
        deadline = time.monotonic() + _END_SECONDS
        while time.monotonic() < deadline:
            # in rounds, since descendants whose parents end become children of this process
            kill_trees(lambda: children(os.getpid()))
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    continue
            except ChildProcessError:
                break
            time.sleep(0.005)
        if self._config["own_root"]:
            remove_tree(self._config["root"])


def serve_client(config: dict[str, Any], script: bytes) -> None:
    """Run the supervisor in this process."""
    os.umask(0o022)
    dump_no_core()
    raise_file_limit()
    config["own_root"] = config["root"] is None
    if config["root"] is None:
        config["root"] = tempfile.mkdtemp(prefix="sandbox-")
    if config["fit"]:
        try:
            fit_to_container(config)
        except (UnfitContainerError, OSError) as error:
            os.write(1, pack(HELLO, 0, json.dumps({"fault": str(error)}).encode()))
            return
    # in this order: handing out and hiding need capabilities that are dropped at the end
    if config["first_uid"]:
        os.setgroups([])
        if config["chown"]:
            _hand_out_slots(config)
            shorten_backlogs()
        hide_processes()
        keep_capabilities(_CAPABILITIES)
    elif config["own_user"]:
        limit_processes(config["limits"]["processes"])
    # with this link /work is the session's own directory in every session, which has it open as descriptor 200
    config["work"] = os.path.islink("/work") and os.readlink("/work") == "/proc/self/fd/200"
    hide_memory()
    adopt_orphans()  # under bubblewrap and unsafe_local it is not process 1
    Supervisor(config, script).serve()


def _hand_out_slots(config: dict[str, Any]) -> None:
    """Let only the group of each slot make directories in it, where the backend could not set that up."""
    for number in range(config["sessions"]):
        path = os.path.join(config["root"], str(number))
        os.chown(path, 0, config["first_uid"] + number)
        # the group may make directories here but cannot list them; sticky: it removes only what is its own
        os.chmod(path, 0o1730)
