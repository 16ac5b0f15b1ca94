"""The supervisor: first process of the sandbox, between the client and the sessions. Runs inside.

It never runs the user's code. One event loop serves the client (frames on descriptors 0 and 1), the zygotes, every
session, timers and exits of children. When descriptor 0 ends, because the client closed it or died, the supervisor
kills everything and ends, and the container with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from typing import Any

from sandbox.server import confine, processes
from sandbox.server.channels import ClientRequest, ClientStream, EventLoop, Zygotes
from sandbox.server.limits import CgroupUsage, CpuShares, FileLockLimit, MemoryWatchdog, SharedMemoryLimit
from sandbox.server.processes import SHARED_MEMORY, text_of
from sandbox.server.requests import Requests
from sandbox.server.sessions import Sessions
from sandbox.server.wire import HELLO, PING, pack

_END_SECONDS = 5
_KILL_SETGID_SETUID = 1 << 5 | 1 << 6 | 1 << 7
_CAPABILITIES = _KILL_SETGID_SETUID | 1 << 23  # to kill, and to set group, user and priority


class Supervisor:
    """Connects the parts of the server; `config` is what the client sent, `script` the server's own source."""

    def __init__(self, config: dict[str, Any], script: bytes) -> None:
        self._config, self._loop = config, EventLoop()
        self._watch_children()  # first: a zygote may end at once, and without the handler its exit would go unnoticed
        self._client = ClientStream(self._loop, self._take)
        self._zygotes = Zygotes(config, script, self._loop, self._send_hello)
        self._sessions = Sessions(config, self._loop, self._client, self._zygotes)
        shared_memory = SharedMemoryLimit(config, self._sessions)
        self._requests = Requests(self._sessions, shared_memory.check)
        usage = CgroupUsage(config["own_account"])
        checks = (
            self._sessions.check_orphans,
            self._requests.note_memory_kills,
            CpuShares(bool(config["first_uid"]), usage, self._sessions).check,
            FileLockLimit(config["harden"], self._sessions).check,
            shared_memory.check,
        )
        self._watchdog = MemoryWatchdog(config["memory"], usage, self._sessions, checks)

    def serve(self) -> None:
        """Start the zygotes, then serve until the client is gone."""
        self._zygotes.start(self._sessions.child_exited)
        self._loop.run_forever()
        self._end()

    def _send_hello(self, facts: dict[str, Any]) -> None:
        """Greet the client with what isolates the sessions, as the zygote has measured it."""
        here = {"slots": self._sessions.slots.usable, "unenforced": self._config.get("unenforced", [])}
        here |= {"supervisor": confine.process_facts(), **confine.surroundings()}
        self._client.send(HELLO, 0, {**here, **facts})

    def _take(self, request: ClientRequest) -> None:
        if request.kind != PING:
            self._requests.take(request)
            return
        slots = self._sessions.slots
        condition = {
            "memory": self._watchdog.used(),
            "memory_limit": self._watchdog.limit,
            "processes": 1 + sum(1 for _ in processes.descendants(os.getpid())),
            "sessions": sum(bool(handle.pid and not handle.lost) for handle in self._sessions.by_key.values()),
            "slots": slots.usable,
            "free": slots.free,
            "retired": slots.retired,
        }
        self._client.reply(request.number, condition)

    def _watch_children(self) -> None:
        reading, writing = os.pipe()
        for fd in (reading, writing):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # without a handler, the wakeup descriptor is not written to
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._loop.add_reader(reading, self._reap, reading)

    def _reap(self, reading: int) -> None:
        os.read(reading, 1 << 12)
        for pid, status in processes.ended_children():  # signals merge: one wakeup can stand for many
            if pid in self._zygotes.pids:  # its sessions end with it, so a new container is no worse
                sys.stderr.write("the zygote has ended\n")
                self._loop.stop()
            self._sessions.child_exited(pid, status)

    def _end(self) -> None:
        deadline = time.monotonic() + _END_SECONDS
        while time.monotonic() < deadline:
            # in rounds, since descendants whose parents end become children of this process
            processes.kill_trees(lambda: processes.children(os.getpid()))
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    continue
            except ChildProcessError:
                break
            time.sleep(0.005)
        if self._config["own_root"]:
            processes.remove_tree(self._config["root"])


def serve_client(config: dict[str, Any], script: bytes) -> None:
    """Run the supervisor in this process."""
    os.umask(0o022)
    confine.dump_no_core()
    confine.raise_file_limit()
    config["own_root"] = config["root"] is None
    if config["root"] is None:
        config["root"] = tempfile.mkdtemp(prefix="sandbox-")
    if config["fit"]:
        try:
            _fit_to_container(config)
        except (_UnfitContainerError, OSError) as error:
            os.write(1, pack(HELLO, 0, json.dumps({"fault": str(error)}).encode()))
            return
    # in this order: handing out and hiding need capabilities that are dropped at the end
    if config["first_uid"]:
        os.setgroups([])
        if config["chown"]:  # where the backend could not set the slots up
            for number in range(config["sessions"]):
                path = os.path.join(config["root"], str(number))
                os.chown(path, 0, config["first_uid"] + number)
                os.chmod(path, _OF_THE_GROUP)
            confine.shorten_backlogs()
        confine.hide_processes()
        confine.keep_capabilities(_CAPABILITIES)
    elif config["own_user"]:
        confine.limit_processes(config["limits"]["processes"])
    # with this link /work is the session's own directory in every session, which has it open as descriptor 200
    config["work"] = os.path.islink("/work") and os.readlink("/work") == "/proc/self/fd/200"
    confine.hide_memory()
    confine.adopt_orphans()  # under bubblewrap and unsafe_local it is not process 1
    Supervisor(config, script).serve()


# Fits the server to a container that another program has made.
#
# The backends "docker" and "bubblewrap" make the container and know what is in it. Behind "command" anything may be:
# which users there are, where sessions may write, and which limits the kernel keeps is looked up here, before the first
# session. What is missing is reported, or refused.

# the group may make directories in its slot but cannot list them; sticky: it removes only what is its own
_OF_THE_GROUP = 0o1730
_CGROUPS = "/sys/fs/cgroup"
# in pairs: the file in version 2 of control groups, then in version 1
_MEMORY = ("memory.max", "memory/memory.limit_in_bytes")
_PROCESSES = ("pids.max", "pids/pids.max")
_UNLIMITED = 1 << 60  # version 1 has a huge number where version 2 says "max"


class _UnfitContainerError(Exception):
    """The container lacks what no server can do without; the message says what to add."""


def _fit_to_container(config: dict[str, Any]) -> None:
    """Complete a configuration, whose "first_uid" is a proposal, with what the container has.

    Sets "first_uid", "root", "memory", "own_account", and "unenforced": the names of limits that nothing keeps.
    _UnfitContainerError or OSError: sessions have no place to write to, or it cannot be prepared.
    """
    enough = os.geteuid() == 0 and confine.capabilities() & _KILL_SETGID_SETUID == _KILL_SETGID_SETUID
    config["first_uid"] = _users_here(config["first_uid"], config["sessions"]) if enough else 0
    if not config["first_uid"]:
        confine.keep_capabilities(0)
    quotas = _prepare_slots(config)
    with contextlib.suppress(OSError):  # whoever owns it; where it is not ours, its names can be listed
        os.chmod(SHARED_MEMORY, 0o1733)
    config["unenforced"] = [*_unkept_limits(config), *([] if quotas else ["disk"])]
    # seccomp refuses sockets to other interfaces, and nothing else here does
    if set(confine.surroundings()["interfaces"]) - {"lo"}:
        config["unenforced"].append("network")


def _users_here(first: int, number: int) -> int:
    """Return the first of `number` users in a row that exist here: `first` if it does; 0 if there are too few."""
    ranges = [_largest_range(text_of(f"/proc/self/{name}")) for name in ("uid_map", "gid_map")]
    begin, end = max(one[0] for one in ranges), min(one[1] for one in ranges)
    if begin <= first and first + number <= end:
        return first
    begin = max(begin, 1 << 10)  # below are the users of the image
    return begin + first % (end - begin - number) if end - begin > number else 0


def _largest_range(users: str) -> tuple[int, int]:
    """Return the begin and the end of the largest range of numbers in a map of a user namespace."""
    inside, _, count = max((list(map(int, line.split())) for line in users.splitlines()), key=lambda line: line[2])
    return inside, inside + count


def _prepare_slots(config: dict[str, Any]) -> bool:
    """Prepare a directory for each group; returns whether each is limited to its quota.

    A container may have one file system for all groups (/slots), or one for each (/slots/0, /slots/1 and so on).
    """
    root = config["root"]
    places = [os.path.join(root, str(number)) for number in range(config["sessions"])]
    mounted = all(os.path.ismount(place) for place in places)
    if not config["first_uid"] and mounted:
        config["root"] = root = places[0]  # with one user for all, Landlock separates directories in one place
    if not os.path.isdir(root) or not ((config["first_uid"] and mounted) or os.access(root, os.W_OK)):
        raise _UnfitContainerError(
            f"sessions have no place to write to: {root} {'is not writable' if os.path.isdir(root) else 'is missing'} "
            f"for user {os.geteuid()}. Mount a tmpfs there: docker run --tmpfs {config['root']}:exec,mode=711,size=4g, "
            f"bwrap --tmpfs {config['root']}, or an emptyDir of medium Memory"
        )
    if not config["first_uid"]:
        return False
    _hand_out(places, mounted, config["first_uid"])
    with contextlib.suppress(OSError):  # read-only where each group has a file system of its own
        os.chmod(root, 0o711)
    sizes = (found.f_blocks * found.f_frsize for found in map(os.statvfs, places))
    return mounted and all(size <= config["limits"]["disk"] for size in sizes)


def _hand_out(places: list[str], mounted: bool, first: int) -> None:
    """Give each place to the group with the number of its user.

    Whoever owns a file may give it to a group it is in, so that no capability to change owners is needed.
    """
    try:
        for group, place in enumerate(places, first):
            os.setegid(group)
            if mounted:
                os.chown(place, -1, group)
            else:
                os.mkdir(place)
            os.chmod(place, _OF_THE_GROUP)
    finally:
        os.setegid(os.getgid())


def _unkept_limits(config: dict[str, Any]) -> list[str]:
    """Adopt the container's memory limit, and return which of memory, pids and cpus nothing limits."""
    memory, pids, cpus = _limit(_MEMORY), _limit(_PROCESSES), _cpus()
    # as process 1 it has a control group to itself; elsewhere the group may hold other programs
    config["own_account"] = os.getpid() == 1 and memory > 0
    unkept = [name for name, limit in (("memory", memory), ("pids", pids)) if not limit or os.getpid() != 1]
    if config["own_account"]:
        config["memory"] = min(config["memory"], memory)
    wanted = config["limits"]["cpus"]
    if wanted is not None and not 0 < cpus <= wanted + 0.01:
        unkept.append("cpus")
    return unkept


def _limit(names: tuple[str, ...]) -> int:
    """Return a limit of the control group; 0 if there is none."""
    texts = (text_of(os.path.join(_CGROUPS, name)).strip() for name in names)
    return next((int(text) for text in texts if text.isdigit() and int(text) < _UNLIMITED), 0)


def _cpus() -> float:
    """Return the number of CPUs that the control group may use; 0 if it is not limited."""
    words = text_of(os.path.join(_CGROUPS, "cpu.max")).split()
    words = words or [text_of(os.path.join(_CGROUPS, f"cpu/cpu.cfs_{name}_us")).strip() for name in ("quota", "period")]
    if len(words) != 2 or not all(word.isdigit() for word in words):
        return 0.0
    return int(words[0]) / int(words[1])
