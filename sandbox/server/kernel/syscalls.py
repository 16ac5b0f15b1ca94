"""Linux calls that the server needs and the standard library lacks. Runs inside the sandbox."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import signal
from collections.abc import Mapping
from typing import Any

_PDEATHSIG, _DUMPABLE, _CHILD_SUBREAPER = 1, 4, 36
_CAPABILITIES_V3 = 0x20080522
_GET_NO_NEW_PRIVS = 39
_COLLAPSE, _HUGE = 25, 2 << 20
_NO_CORE = 1  # byte; with 0 the kernel would still start the program of a core_pattern that is a pipe, as root
_REMOUNT = 32 | 2 | 4 | 8  # MS_REMOUNT, NOSUID, NODEV, NOEXEC
_libc = ctypes.CDLL(None, use_errno=True)
_libc.prctl.argtypes = (ctypes.c_int, *4 * (ctypes.c_ulong,))


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")


def hide_memory() -> None:
    """Prevent other processes of this user from tracing this one; forks inherit that, exec ends it."""
    _prctl(_DUMPABLE, 0)


def adopt_orphans(on: bool = True) -> None:
    """Become (or stop being) the parent of descendants whose own parent ends; otherwise process 1 is."""
    with contextlib.suppress(OSError):  # gVisor has no such option
        _prctl(_CHILD_SUBREAPER, int(on))


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    _prctl(_PDEATHSIG, signal.SIGKILL)


def prefer_for_oom() -> None:
    """Have the kernel kill this process, and what it forks, before the server's own when memory runs out."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("500")  # 1000 is for the group that the watchdog finds to hold most
    except OSError:
        return  # /proc is read-only in some containers; the kernel then chooses by itself


def collapse_heap() -> None:
    """Move this process's memory into huge pages where the kernel can (Linux 6.1), which halves the time of a fork."""
    with open("/proc/self/maps") as maps:
        regions = [line.split() for line in maps]
    for place, rights, *_, name in (region for region in regions if len(region) in (5, 6)):
        if rights != "rw-p" or name.startswith(("/", "[stack")):
            continue
        start, end = (int(edge, 16) for edge in place.split("-"))
        for page in range(-(-start // _HUGE) * _HUGE, end - _HUGE + 1, _HUGE):
            _libc.madvise(ctypes.c_void_p(page), ctypes.c_size_t(_HUGE), _COLLAPSE)


def hide_processes() -> None:
    """Hide processes in /proc from users who may not inspect them, except from the group of this process.

    This needs the capability to mount; without it they stay visible.
    """
    options = f"hidepid=2,gid={os.getgid()}".encode()
    _libc.mount(b"proc", b"/proc", b"proc", ctypes.c_ulong(_REMOUNT), options)


def shorten_backlogs() -> None:
    """Let 16 connections wait at a socket, whatever `listen` asks for: they hold memory, and no descriptor shows them.

    The network namespace has to be the sandbox's own.
    """
    with contextlib.suppress(OSError), open("/proc/sys/net/core/somaxconn", "w") as file:
        file.write("16")


def drop_to(uid: int) -> None:
    """Become the user and the group `uid`, which cannot be undone; every capability is lost."""
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def keep_capabilities(mask: int) -> None:
    """Drop all capabilities except those of `mask` that this process has."""
    mask &= capabilities()
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_V3, 0)
    sets = (ctypes.c_uint32 * 6)(mask, mask, 0, 0, 0, 0)
    if _libc.capset(header, sets) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def limit_processes(most: int) -> None:
    """Limit the processes and threads of this user, which has to be the sandbox's own."""
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def limit_time(seconds: int) -> None:
    """Limit the CPU time of this process; what it forks starts at zero."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def dump_no_core() -> None:
    """Prevent core files of this process and of what it starts, and programs of a core_pattern."""
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    most = _NO_CORE if hard == resource.RLIM_INFINITY else min(_NO_CORE, hard)
    resource.setrlimit(resource.RLIMIT_CORE, (most, most))


def limit_process(limits: Mapping[str, int]) -> None:
    """Set the limits of a session's process; whatever it starts inherits them."""
    wanted = {
        resource.RLIMIT_DATA: limits["session_memory"],
        resource.RLIMIT_AS: limits["session_memory"] + (1 << 30),
        resource.RLIMIT_FSIZE: limits["file_size"],
        resource.RLIMIT_NOFILE: limits["open_files"],
        resource.RLIMIT_CORE: _NO_CORE,
    }
    for kind, value in wanted.items():
        hard = resource.getrlimit(kind)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.setrlimit(kind, (value, value))


def raise_file_limit() -> None:
    """Raise the limit on descriptors as far as allowed: the supervisor holds three for each session."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def capabilities() -> int:
    """Return the capabilities that this process may use, as a bit mask."""
    with open("/proc/self/status") as file:
        return next((int(line.split()[1], 16) for line in file if line.startswith("CapPrm:")), 0)


def process_facts() -> dict[str, object]:
    """Return the confinement of this process: user, capabilities, whether it can gain privileges, seccomp mode."""
    with open("/proc/self/status") as file:
        status = dict(line.split(":", 1) for line in file)
    return {
        "uid": os.getuid(),
        "capabilities": int(status["CapEff"], 16) | int(status["CapPrm"], 16),
        "no_new_privileges": _libc.prctl(_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1,
        "seccomp": int(status.get("Seccomp", "0")),
    }


def surroundings() -> dict[str, Any]:
    """Return facts about the container; the client compares them with what it asked for."""
    with open("/proc/net/dev") as file:
        interfaces = [line.split(":")[0].strip() for line in file if ":" in line]
    return {"read_only_root": _read_only("/"), "interfaces": interfaces}


def _read_only(path: str) -> bool:
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        return True
    try:  # gVisor does not report it
        os.utime(path)
    except OSError as error:
        return error.errno == errno.EROFS
    return False
