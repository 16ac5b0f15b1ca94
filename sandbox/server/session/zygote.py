"""The zygote: the process that every session is forked from. Runs inside the sandbox.

It never sees any code, so a session finds nothing of other sessions in its memory. It is a process of its
own, started by exec, so a session finds nothing of the supervisor either. The modules of the image's profile are
imported here, once. Sessions are its children; it tells the supervisor how they end.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import sys
from typing import Any

from sandbox.server.kernel.confine import Confinement, end_all_of_this_user
from sandbox.server.kernel.remove_tree import remove_tree
from sandbox.server.kernel.syscalls import collapse_heap, die_with_parent, drop_to, hide_memory, prefer_for_oom
from sandbox.server.session.blocking_channel import Channel
from sandbox.server.session.session import furnish, start
from sandbox.server.wire import DIED, ENDED, HELLO, SPAWN, SWEEP


def serve_zygote(config: dict[str, Any]) -> None:
    """Fork a session for each frame that comes in on descriptor 0, until it ends."""
    die_with_parent()
    channel = Channel(os.dup(0))
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.close(nothing)
    prefer_for_oom()
    hide_memory()
    missing = _import_all(config["preload"])
    confinement = Confinement(config)
    confinement.begin()
    facts = {**_facts(config, confinement), "missing": missing, "packages": _installed()}
    channel.send(HELLO, 0, json.dumps(facts).encode())
    zygote = Zygote(config, channel, confinement)
    furnish(config)
    gc.collect()
    gc.freeze()
    collapse_heap()
    zygote.serve()


def _import_all(names: list[str]) -> list[str]:
    missing = []
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            missing.append(name)
    return missing


def _installed() -> list[str]:
    """Return the names of the packages that are beside the standard library."""
    found: set[str] = set()
    for place in sys.path:
        if os.path.basename(place) in ("site-packages", "dist-packages") or place == os.environ.get("PYTHONPATH"):
            with contextlib.suppress(OSError):
                found.update(name.partition(".")[0] for name in os.listdir(place))
    return sorted(name for name in found if name.isidentifier())


def _facts(config: dict[str, Any], confinement: Confinement) -> dict[str, Any]:
    """Have a child go through what sessions go through, and tell what holds it then."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            facts = confinement.facts(config["first_uid"])
        except OSError as error:
            facts = {"fault": f"a session can not be confined: {error}"}
        os.write(writing, json.dumps(facts).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        found: dict[str, Any] = json.loads(pipe.read())
    os.waitpid(child, 0)
    return found


class Zygote:
    """The loop: frames of the supervisor, and deaths of sessions.

    Args:
        config: what the client sent.
        channel: to the supervisor.
        confinement: of the sessions.
    """

    def __init__(self, config: dict[str, Any], channel: Channel, confinement: Confinement) -> None:
        self._config = config
        self._channel = channel
        self._confinement = confinement
        self._deaths, self._death = os.pipe()
        for fd in (self._deaths, self._death):
            os.set_blocking(fd, False)

    def serve(self) -> None:
        """Go on until the supervisor is gone."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._death, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        poll.register(self._deaths, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == self._deaths:
                    self._reap()
                else:
                    self._obey()

    def _reap(self) -> None:
        os.read(self._deaths, 1 << 12)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._channel.send(DIED, pid, ENDED.pack(status))

    def _obey(self) -> None:
        try:
            kind, _, payload, fds = self._channel.receive()
        except (EOFError, OSError):
            os._exit(0)
        order = json.loads(payload)
        if kind == SPAWN and len(fds) == 3:
            start(self._config, self._confinement, order, fds)
        elif kind == SWEEP and len(fds) == 1:
            self._sweep(order, fds[0])
        for fd in fds:
            os.close(fd)

    def _sweep(self, order: dict[str, Any], done: int) -> None:
        """Fork a process that removes directories as the user they belong to; it ends, and its descriptor with it."""
        try:
            child = os.fork()
        except OSError:
            return  # the supervisor sees that nobody has begun, and asks again
        if child:
            return
        try:
            os.write(done, b"!")
            directories = order["directories"]
            if order["kill"]:  # the user could not list these
                directories += [os.path.join(order["slot"], name) for name in os.listdir(order["slot"])]
                directories += [entry.path for entry in os.scandir("/dev/shm") if _owner(entry) == order["uid"]]
            drop_to(order["uid"])
            hide_memory()
            if order["kill"]:
                end_all_of_this_user()
            for directory in directories:
                remove_tree(directory)
        finally:
            os._exit(0)


def _owner(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_uid
    except FileNotFoundError:
        return -1
