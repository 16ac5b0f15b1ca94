"""A seccomp filter for sessions: refuses system calls that Python code does not need. Runs inside the sandbox.

It is added to the container engine's own filter, and is the only one under bubblewrap. Refused calls fail with EPERM.
Sockets other than Unix ones fail with EAFNOSUPPORT: AF_VSOCK would reach the hypervisor of a virtual machine, past
every network namespace, and the buffers of Internet sockets are memory that no limit counts. clone3 fails with ENOSYS,
so that the C library uses clone. Calls of another architecture kill the process. TCP and UDP over loopback are allowed
on request.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import socket
import struct
from collections.abc import Sequence

_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_X32 = 0x40000000
_KIND = 0xF  # mask for the type of a socket; the rest are flags
_CLONE_FLAGS = 0x7E020000 | 0x8000  # new namespaces, and CLONE_PARENT, which makes a sibling

_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def _table(text: str) -> dict[str, int]:
    return {name: int(number) for name, number in (entry.split() for entry in text.split(","))}


_COMMON = _table(
    """
    clone3 435, pidfd_getfd 438, process_madvise 440, quotactl_fd 443, memfd_secret 447, process_mrelease 448,
    io_uring_setup 425, io_uring_enter 426, io_uring_register 427, open_tree 428, move_mount 429, fsopen 430,
    fsconfig 431, fsmount 432, fspick 433, mount_setattr 442, open_tree_attr 467
    """
)
_CALLS = {
    "x86_64": _table(
        """
        socket 41, socketpair 53, clone 56, prlimit64 302, setrlimit 160, setsockopt 54, fcntl 72, prctl 157,
        setpriority 141, seccomp 317, io_setup 206, io_destroy 207, io_getevents 208, io_submit 209, io_cancel 210,
        io_pgetevents 333, inotify_init 253, inotify_add_watch 254, inotify_init1 294, ioprio_set 251,
        sched_setaffinity 203, sched_setscheduler 144, sched_setparam 142, sched_setattr 314, shmget 29, semget 64,
        msgget 68, ptrace 101, syslog 103, personality 135, vhangup 153, modify_ldt 154, pivot_root 155,
        adjtimex 159, chroot 161, acct 163, settimeofday 164, mount 165, umount2 166, swapon 167, swapoff 168,
        reboot 169, sethostname 170, setdomainname 171, iopl 172, ioperm 173, init_module 175, delete_module 176,
        quotactl 179, lookup_dcookie 212, clock_settime 227, mbind 237, set_mempolicy 238, mq_open 240,
        kexec_load 246, add_key 248, request_key 249, keyctl 250, migrate_pages 256, unshare 272, move_pages 279,
        perf_event_open 298, fanotify_init 300, name_to_handle_at 303, open_by_handle_at 304, clock_adjtime 305,
        setns 308, process_vm_readv 310, process_vm_writev 311, kcmp 312, finit_module 313, memfd_create 319,
        kexec_file_load 320, bpf 321, userfaultfd 323
        """
    ),
    "aarch64": _table(
        """
        socket 198, socketpair 199, clone 220, prlimit64 261, setrlimit 164, setsockopt 208, fcntl 25, prctl 167,
        setpriority 140, seccomp 277, io_setup 0, io_destroy 1, io_submit 2, io_cancel 3, io_getevents 4,
        io_pgetevents 292, inotify_init1 26, inotify_add_watch 27, ioprio_set 30, sched_setaffinity 122,
        sched_setscheduler 119, sched_setparam 118, sched_setattr 274, shmget 194, semget 190, msgget 186,
        ptrace 117, syslog 116, personality 92, vhangup 58, pivot_root 41, adjtimex 171, chroot 51, acct 89,
        settimeofday 170, mount 40, umount2 39, swapon 224, swapoff 225, reboot 142, sethostname 161,
        setdomainname 162, init_module 105, delete_module 106, quotactl 60, lookup_dcookie 18, clock_settime 112,
        mbind 235, set_mempolicy 237, mq_open 180, kexec_load 104, add_key 217, request_key 218, keyctl 219,
        migrate_pages 238, unshare 97, move_pages 239, perf_event_open 241, fanotify_init 262, name_to_handle_at 264,
        open_by_handle_at 265, clock_adjtime 266, setns 268, process_vm_readv 270, process_vm_writev 271, kcmp 272,
        finit_module 273, memfd_create 279, kexec_file_load 294, bpf 280, userfaultfd 282
        """
    ),
}
_OWN_ONLY = _table(
    "sched_setaffinity 0, sched_setscheduler 0, sched_setparam 0, sched_setattr 0, setpriority 1, ioprio_set 1"
)
"""Calls that may name only this process (0), with the position of the argument that names it."""
_SOCKET_OPTIONS = (  # of SOL_SOCKET: kernel memory that no limit counts, and programs in the kernel
    *(7, 8, 32, 33),  # SO_SNDBUF, SO_RCVBUF and their FORCE
    *(26, 44, 50, 51, 52),  # SO_ATTACH_FILTER, SO_LOCK_FILTER, SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF and _EBPF
    *(60, 73),  # SO_ZEROCOPY, SO_RESERVE_MEM
    13,  # SO_LINGER: closing the last descriptor of such a socket waits, also in the supervisor
)
# F_OFD_SETLK and SETLKW, whose holder /proc/locks does not name; F_SETLEASE, F_NOTIFY
_FILE_COMMANDS = (
    37,
    38,
    1024,
    1026,
)
_PIPE_SIZE, _LARGEST_PIPE = 1031, 1 << 16
_TCP = (socket.SOCK_STREAM, socket.IPPROTO_TCP)
_UDP = (socket.SOCK_DGRAM, socket.IPPROTO_UDP)
_TCP_ULP = 31
_SPECIAL = (
    "socket",
    "socketpair",
    "clone",
    "clone3",
    "setsockopt",
    "fcntl",
    "prctl",
    "prlimit64",
    "setrlimit",
    *_OWN_ONLY,
)
_libc = ctypes.CDLL(None, use_errno=True)
_libc.prctl.argtypes = (ctypes.c_int, *4 * (ctypes.c_ulong,))


def filter_here(loopback: bool = False) -> bytes:
    """Return the filter's program for this machine; empty where its system calls are not known.

    Args:
        loopback: allow TCP and UDP sockets.
    """
    machine = os.uname().machine
    if machine not in _CALLS or struct.calcsize("P") != 8:
        return b""
    calls = {**_COMMON, **_CALLS[machine]}
    allow, refuse = _step(_RETURN, _ALLOW), _step(_RETURN, _ERRNO | errno.EPERM)
    program = [_step(_LOAD, _ARCHITECTURE), _step(_EQUAL, _AUDIT[machine], 1, 0), _step(_RETURN, _KILL)]
    program += [_step(_LOAD, _NUMBER), _step(_AT_LEAST, _X32, 0, 1), _step(_RETURN, _ERRNO | errno.ENOSYS)]
    program += [_step(_EQUAL, calls["clone3"], 0, 1), _step(_RETURN, _ERRNO | errno.ENOSYS)]
    program += _checked(calls["socket"], 0, _socket_families(loopback))
    program += _checked(calls["socketpair"], 0, _socket_families(False))
    program += _checked(calls["clone"], 0, [_step(_ANY_BIT, _CLONE_FLAGS, 0, 1), refuse])
    program += _checked(calls["setsockopt"], 1, _options())
    program += _checked(calls["fcntl"], 1, _file_commands())
    program += _checked(calls["prctl"], 0, _unless((_SET_SECCOMP,)))
    program += _checked(calls["setrlimit"], 0, _unless((resource.RLIMIT_CORE,)))
    program += _checked(calls["prlimit64"], 0, [_step(_EQUAL, 0, 1, 0), refuse, *_core_limit()])
    for name, place in _OWN_ONLY.items():
        program += _checked(calls[name], place, [_step(_EQUAL, 0, 1, 0), refuse])
    for name, number in calls.items():
        if name not in _SPECIAL:
            program += [_step(_EQUAL, number, 0, 1), refuse]
    return b"".join([*program, allow])


def _socket_families(internet: bool) -> list[bytes]:
    """Refuse sockets other than Unix ones and, with `internet`, TCP and UDP ones."""
    allow, refuse = _step(_RETURN, _ALLOW), _step(_RETURN, _ERRNO | errno.EAFNOSUPPORT)
    unix = [_step(_EQUAL, socket.AF_UNIX, 0, 1), allow]
    if not internet:
        return [*unix, refuse]
    checks = [*unix, _step(_EQUAL, socket.AF_INET, 2, 0), _step(_EQUAL, socket.AF_INET6, 1, 0), refuse]
    for kind, protocol in (_TCP, _UDP):
        body = [_argument(2), _step(_EQUAL, 0, 1, 0), _step(_EQUAL, protocol, 0, 1), allow, refuse]
        checks += [_argument(1), _step(_AND, _KIND), _step(_EQUAL, kind, 0, len(body)), *body]
    return [*checks, refuse]


def _options() -> list[bytes]:
    """Refuse some socket options, and TCP's upper layer protocols, which are modules of the kernel."""
    layers = [_argument(2), _step(_EQUAL, _TCP_ULP, 0, 1), _step(_RETURN, _ERRNO | errno.EPERM)]
    layers = [_step(_EQUAL, socket.IPPROTO_TCP, 0, len(layers)), *layers]
    body = [_argument(2), *_unless(_SOCKET_OPTIONS)]
    return [*layers, _argument(1), _step(_EQUAL, socket.SOL_SOCKET, 0, len(body)), *body]


def _file_commands() -> list[bytes]:
    """Refuse commands of fcntl beyond descriptors and POSIX locks, and pipes above the default size."""
    size = [_argument(2), _step(_AT_LEAST, _LARGEST_PIPE + 1, 0, 1), _step(_RETURN, _ERRNO | errno.EPERM)]
    return [*_unless(_FILE_COMMANDS), _step(_EQUAL, _PIPE_SIZE, 0, len(size)), *size]


def _core_limit() -> list[bytes]:
    """Refuse a new limit on core files: at 0 instead of 1, a core_pattern that is a pipe would get them."""
    refuse = _step(_RETURN, _ERRNO | errno.EPERM)
    new = [step for half in (0, 4) for step in (_argument(2, half), _step(_EQUAL, 0, 1, 0), refuse)]
    return [_argument(1), _step(_EQUAL, resource.RLIMIT_CORE, 0, len(new)), *new]


def _unless(values: Sequence[int]) -> list[bytes]:
    """Refuse these values and allow others."""
    last = len(values) - 1
    checks = [_step(_EQUAL, value, last - i, int(i == last)) for i, value in enumerate(values)]
    return [*checks, _step(_RETURN, _ERRNO | errno.EPERM)]


def _checked(call: int, place: int, checks: list[bytes]) -> list[bytes]:
    """Check a call by the lower half of one of its arguments; it is allowed unless a check refuses it."""
    body = [_argument(place), *checks, _step(_RETURN, _ALLOW)]
    return [_step(_EQUAL, call, 0, len(body)), *body]


def _argument(place: int, offset: int = 0) -> bytes:
    return _step(_LOAD, _ARGUMENTS + 8 * place + offset)


def _step(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, operand)


def install(program: bytes) -> None:
    """Apply a filter to this process and to what it starts; this cannot be undone.

    Raises:
        OSError: the kernel refuses.
    """
    buffer = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    place = ctypes.create_string_buffer(described, len(described))
    if _libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs")
    if _libc.prctl(_SET_SECCOMP, _FILTER, ctypes.addressof(place), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"seccomp: {os.strerror(ctypes.get_errno())}")
