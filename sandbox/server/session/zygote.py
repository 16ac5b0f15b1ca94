"""The zygote: the process that every session is forked from. Runs inside the sandbox.

It never sees any code, so a session finds nothing of other sessions in its memory. It is a process of its own, started
by exec, so a session finds nothing of the supervisor either. It imports the modules of the image's profile once.
Sessions are its children; it reports their exits to the supervisor.
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

from sandbox.server.kernel.confine import (
    Confinement,
    collapse_heap,
    die_with_parent,
    drop_to,
    end_all_of_this_user,
    hide_memory,
)
from sandbox.server.kernel.processes import remove_tree
from sandbox.server.session.session import current_directory, furnish, start
from sandbox.server.wire import DIED, ENDED, HELLO, SPAWN, SWEEP, Channel


def serve_zygote(config: dict[str, Any]) -> None:
    """Serve the supervisor's orders, which come on descriptor 0, until it ends."""
    die_with_parent()
    channel = Channel(os.dup(0))
    nothing = os.open(os.devnull, os.O_RDWR)  # sessions inherit standard input
    os.dup2(nothing, 0)
    os.close(nothing)
    hide_memory()
    missing = _import_all(config["preload"])
    confinement = Confinement(config)
    confinement.begin()
    facts = {**_facts(config, confinement), "missing": missing, "packages": _installed()}
    channel.send(HELLO, 0, json.dumps(facts).encode())
    zygote = Zygote(config, channel, confinement)
    for name in config["preload"]:
        if name not in missing:
            _FIRST_USES.get(name, lambda: None)()
    furnish(config, current_directory)
    gc.collect()
    gc.freeze()  # a collection in a session would otherwise write to every page that is shared
    collapse_heap()
    zygote.serve()


def _use_sympy() -> None:
    # what it imports and tabulates at its first uses takes 0.2 s, which each session would spend anew
    import sympy

    x = sympy.Symbol("x")
    sympy.solve(x**2 - 3 * x + 2, x)
    sympy.integrate(x * sympy.sin(x), x)


_FIRST_USES = {"sympy": _use_sympy}


def _import_all(names: list[str]) -> list[str]:
    missing = []
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            missing.append(name)
    return missing


def _installed() -> list[str]:
    """Return the names of the installed packages, without the standard library."""
    found: set[str] = set()
    for place in sys.path:
        if os.path.basename(place) in ("site-packages", "dist-packages") or place == os.environ.get("PYTHONPATH"):
            with contextlib.suppress(OSError):
                found.update(name.partition(".")[0] for name in os.listdir(place))
    return sorted(name for name in found if name.isidentifier())


def _facts(config: dict[str, Any], confinement: Confinement) -> dict[str, Any]:
    """Confine a child as sessions are confined, and return what it measures."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            facts = confinement.facts(config["first_uid"])
        except OSError as error:
            facts = {"fault": f"a session cannot be confined: {error}"}
        os.write(writing, json.dumps(facts).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        found: dict[str, Any] = json.loads(pipe.read())
    os.waitpid(child, 0)
    return found


class Zygote:
    """Forks sessions, and reports their exits.

    Args:
        config: what the client sent.
        channel: to the supervisor.
        confinement: of the sessions.
    """

    def __init__(self, config: dict[str, Any], channel: Channel, confinement: Confinement) -> None:
        self._config = config
        self._channel = channel
        self._confinement = confinement
        self._exits, self._wakeup = os.pipe()
        for fd in (self._exits, self._wakeup):
            os.set_blocking(fd, False)

    def serve(self) -> None:
        """Serve until the supervisor is gone."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        poll.register(self._exits, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == self._exits:
                    self._reap()
                else:
                    self._serve_order()

    def _reap(self) -> None:
        os.read(self._exits, 1 << 12)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._channel.send(DIED, pid, ENDED.pack(status))

    def _serve_order(self) -> None:
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
        """Fork a process that removes directories as the user they belong to.

        It reports its beginning with a byte on the descriptor, and its end by closing it.
        """
        try:
            child = os.fork()
        except OSError:
            return  # the supervisor sees that no process has begun, and asks again
        if child:
            return
        try:
            os.write(done, b"!")
            directories = order["directories"]
            if order["kill"]:  # listed while still root, since the user cannot list these
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
