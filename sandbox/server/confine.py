"""Confines a freshly forked process: user, limits, Landlock, seccomp. Runs inside the sandbox.

What the kernel lacks is left out and reported: `Confinement.facts` says what really separates sessions.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import signal
import socket
import struct
from collections.abc import Container, Mapping, Sequence
from functools import lru_cache
from typing import Any

# Landlock: what a session may write to, and whom it may signal, enforced by the kernel.
#
# A session may write to its slot, /dev/shm and harmless devices, whatever file permissions say. It can send signals and
# connect to abstract sockets only within its own domain (Linux 6.12, ABI 6). Each fork enters a domain of its own
# within that of its origin, so that branches cannot kill each other. Domains nest 16 deep.

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_VERSION = 1
_PATH_BENEATH = 1
_SCOPES = 3  # abstract Unix sockets, and signals
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL = 1, 2, 4, 8, 1 << 14, 1 << 15
_MAKE_DIR = 1 << 7  # not in /dev/shm, where the contents of directories would not be counted
_REFER = 1 << 13  # to link and to move between directories
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_WRITE = _WRITE_FILE | _TRUNCATE | _IOCTL
_DEVICES = ("/dev/null", "/dev/full", "/dev/random", "/dev/urandom")  # no terminals: they are few
_ZEROS = "/dev/zero"  # to read: a shared mapping for writing is memory that stays when nobody maps it any more
_ALL_OF_ABI = (0, 0x1FFF, 0x3FFF, 0x7FFF, 0x7FFF, 0xFFFF)

DEEPEST = 16
"""How many domains can be nested."""
_libc = ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: object) -> int:
    result: int = _libc.syscall(ctypes.c_long(number), *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"Landlock: {os.strerror(ctypes.get_errno())}")
    return result


@lru_cache(maxsize=None)  # noqa: UP033  (Python 3.8 has no functools.cache)
def abi() -> int:
    """Return the version of Landlock that the kernel offers here; 0 if it does not."""
    try:
        return _call(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION))
    except OSError:
        return 0


def separates_branches() -> bool:
    """Whether domains restrict signals."""
    return abi() >= 6


def _ruleset(access: int) -> int:
    # older versions know only the first field, and refuse a longer struct
    attributes = struct.pack("=QQQ", access, 0, _SCOPES)[: 24 if separates_branches() else 8]
    return _call(_CREATE, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))


@lru_cache(maxsize=None)  # noqa: UP033
def ruleset_for(slot: str) -> int:
    """Return a descriptor of the rules for sessions in a slot; created once for each slot."""
    everything = _ALL_OF_ABI[min(abi(), len(_ALL_OF_ABI) - 1)]
    ruleset = _ruleset(everything)
    rules = {"/": _READ_DIR, **dict.fromkeys(_readable(slot), _READ)}
    rules.update(dict.fromkeys(_DEVICES, _READ_FILE | _WRITE))
    rules.update({_ZEROS: _READ_FILE, "/dev/shm": everything & ~_MAKE_DIR, slot: everything})
    for path, access in rules.items():
        _allow(ruleset, path, access & everything)
    return ruleset


def _readable(slot: str) -> list[str]:
    """Return the top-level directories that sessions may read: not devices, and not the slots of others."""
    own = os.path.join("/", slot.split("/")[1])
    places = [os.path.join("/", name) for name in os.listdir("/")]
    return [path for path in places if path not in ("/dev", own) and os.path.isdir(path) and not os.path.islink(path)]


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        rule = struct.pack("=Qi", access, place)
        _call(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), rule, ctypes.c_uint32(0))
    finally:
        os.close(place)


def restrict(ruleset: int) -> None:
    """Enter the domain of a ruleset for ever; OSError with E2BIG when the domain is nested too deeply."""
    _call(_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint32(0))


# A seccomp filter for sessions: allows the system calls that programs need, and no other.
#
# It is added to the container engine's own filter, and is the only one under bubblewrap. Calls that a kernel has got
# since this list was made fail with ENOSYS, as they do on a kernel without them, so that programs fall back; the others
# that are not on the list fail with EPERM. Sockets other than Unix ones fail with EAFNOSUPPORT: AF_VSOCK would reach
# the hypervisor of a virtual machine, past every network namespace, and the buffers of Internet sockets are memory that
# no limit counts. clone3 fails with ENOSYS, so that the C library uses clone, whose flags a filter can see. Calls of
# another architecture kill the process.
#
# Shared memory without a file is refused: its pages stay in memory when no process maps them any more, so that nobody
# can tell whose they are. `python_environment` makes `mmap.mmap(-1, n)` a file of the session instead. So are calls
# that give a thread a table of descriptors of its own, which /proc does not count with the process's, and vmsplice, by
# which a pipe keeps pages that its process has given back.

_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16


def _step(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, operand)


def _error(number: int) -> bytes:
    return _step(_RETURN, _ERRNO | number)


_REFUSE = _error(errno.EPERM)
_X32 = 0x40000000
_NAMESPACES = 0x7E020000 | 0x8000  # flags of clone: new namespaces, and CLONE_PARENT, which makes a sibling
_CLONE_FILES, _CLONE_THREAD, _CLOSE_RANGE_UNSHARE = 0x400, 0x10000, 2
_MAP_SHARED, _MAP_ANONYMOUS, _MAP_HUGETLB = 0x01, 0x20, 0x40000

_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_UNKNOWN = ((335, 424), (451, 1 << 10))
"""Numbers that no kernel had when the list was made, apart from those on it; the first are unused on both machines."""


def _table(text: str) -> dict[str, tuple[int, int]]:
    """Return pairs of numbers by name; "-" is -1."""
    words = (entry.split() for entry in text.split(","))
    return {name: (int(x86.replace("-", "-1")), int(arm.replace("-", "-1"))) for name, x86, arm in words}


# with the number on x86_64 and on aarch64
_ALLOWED = _table(
    """
    accept 43 202, accept4 288 242, access 21 -, alarm 37 -, arch_prctl 158 -, bind 49 200, brk 12 214, capget 125 90,
    capset 126 91, chdir 80 49, chmod 90 -, chown 92 -, clock_getres 229 114, clock_gettime 228 113,
    clock_nanosleep 230 115, clone 56 220, clone3 435 435, close 3 57, close_range 436 436, connect 42 203,
    copy_file_range 326 285, creat 85 -, dup 32 23, dup2 33 -, dup3 292 24, epoll_create 213 -, epoll_create1 291 20,
    epoll_ctl 233 21, epoll_pwait 281 22, epoll_pwait2 441 441, epoll_wait 232 -, eventfd 284 -, eventfd2 290 19,
    execve 59 221, execveat 322 281, exit 60 93, exit_group 231 94, faccessat 269 48, faccessat2 439 439,
    fadvise64 221 223, fallocate 285 47, fchdir 81 50, fchmod 91 52, fchmodat 268 53, fchmodat2 452 452, fchown 93 55,
    fchownat 260 54, fcntl 72 25, fdatasync 75 83, fgetxattr 193 10, flistxattr 196 13, flock 73 32, fork 57 -,
    fremovexattr 199 16, fsetxattr 190 7, fstat 5 80, fstatfs 138 44, fsync 74 82, ftruncate 77 46, futex 202 98,
    futex_waitv 449 449, futimesat 261 -, get_mempolicy 239 236, getcpu 309 168, getcwd 79 17, getdents 78 -,
    getdents64 217 61, getegid 108 177, geteuid 107 175, getgid 104 176, getgroups 115 158, getitimer 36 102,
    getpeername 52 205, getpgid 121 155, getpgrp 111 -, getpid 39 172, getppid 110 173, getpriority 140 141,
    getrandom 318 278, getresgid 120 150, getresuid 118 148, getrlimit 97 163, getrusage 98 165, getsid 124 156,
    getsockname 51 204, getsockopt 55 209, gettid 186 178, gettimeofday 96 169, getuid 102 174, getxattr 191 8,
    ioctl 16 29, ioprio_get 252 31, ioprio_set 251 30, kill 62 129, landlock_add_rule 445 445,
    landlock_create_ruleset 444 444, landlock_restrict_self 446 446, lchown 94 -, lgetxattr 192 9, link 86 -,
    linkat 265 37, listen 50 201, listxattr 194 11, llistxattr 195 12, lremovexattr 198 15, lseek 8 62,
    lsetxattr 189 6, lstat 6 -, madvise 28 233, membarrier 324 283, mincore 27 232, mkdir 83 -, mkdirat 258 34,
    mknod 133 -, mknodat 259 33, mlock 149 228, mlock2 325 284, mlockall 151 230, mmap 9 222, mprotect 10 226,
    mremap 25 216, msync 26 227, munlock 150 229, munlockall 152 231, munmap 11 215, nanosleep 35 101,
    newfstatat 262 79, open 2 -, openat 257 56, openat2 437 437, pause 34 -, pidfd_open 434 434,
    pidfd_send_signal 424 424, pipe 22 -, pipe2 293 59, pkey_alloc 330 289, pkey_free 331 290, pkey_mprotect 329 288,
    poll 7 -, ppoll 271 73, prctl 157 167, pread64 17 67, preadv 295 69, preadv2 327 286, prlimit64 302 261,
    pselect6 270 72, pwrite64 18 68, pwritev 296 70, pwritev2 328 287, read 0 63, readahead 187 213, readlink 89 -,
    readlinkat 267 78, readv 19 65, recvfrom 45 207, recvmmsg 299 243, recvmsg 47 212, removexattr 197 14, rename 82 -,
    renameat 264 38, renameat2 316 276, restart_syscall 219 128, rmdir 84 -, rseq 334 293, rt_sigaction 13 134,
    rt_sigpending 127 136, rt_sigprocmask 14 135, rt_sigqueueinfo 129 138, rt_sigreturn 15 139, rt_sigsuspend 130 133,
    rt_sigtimedwait 128 137, rt_tgsigqueueinfo 297 240, sched_get_priority_max 146 125, sched_get_priority_min 147 126,
    sched_getaffinity 204 123, sched_getattr 315 275, sched_getparam 143 121, sched_getscheduler 145 120,
    sched_rr_get_interval 148 127, sched_setaffinity 203 122, sched_setattr 314 274, sched_setparam 142 118,
    sched_setscheduler 144 119, sched_yield 24 124, select 23 -, sendfile 40 71, sendmmsg 307 269, sendmsg 46 211,
    sendto 44 206, set_robust_list 273 99, set_tid_address 218 96, setfsgid 123 152, setfsuid 122 151, setgid 106 144,
    setgroups 116 159, setitimer 38 103, setpgid 109 154, setpriority 141 140, setregid 114 143, setresgid 119 149,
    setresuid 117 147, setreuid 113 145, setrlimit 160 164, setsid 112 157, setsockopt 54 208, setuid 105 146,
    setxattr 188 5, shutdown 48 210, sigaltstack 131 132, signalfd 282 -, signalfd4 289 74, socket 41 198,
    socketpair 53 199, splice 275 76, stat 4 -, statfs 137 43, statx 332 291, symlink 88 -, symlinkat 266 36,
    sync_file_range 277 84, sysinfo 99 179, tee 276 77, tgkill 234 131, time 201 -, timer_create 222 107,
    timer_delete 226 111, timer_getoverrun 225 109, timer_gettime 224 108, timer_settime 223 110,
    timerfd_create 283 85, timerfd_gettime 287 87, timerfd_settime 286 86, times 100 153, tkill 200 130,
    truncate 76 45, umask 95 166, uname 63 160, unlink 87 -, unlinkat 263 35, utime 132 -, utimensat 280 88,
    utimes 235 -, vfork 58 -, wait4 61 260, waitid 247 95, write 1 64, writev 20 66
    """
)
_SCHEDULING = ("sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr")
_OWN_ONLY = {**dict.fromkeys(_SCHEDULING, 0), "setpriority": 1, "ioprio_set": 1}
"""Calls that may name only this process (0), with the position of the argument that names it."""
_PROCESS_OPTIONS = (  # of prctl; not PR_SET_VMA, whose names are memory of the kernel, nor PR_SCHED_CORE
    *(1, 2, 3, 4),  # PR_SET_PDEATHSIG, GET_PDEATHSIG, GET_DUMPABLE, SET_DUMPABLE
    *(15, 16, 21, 23, 27, 29, 30),  # SET_NAME, GET_NAME, GET_SECCOMP, CAPBSET_READ, GET_SECUREBITS, timer slack
    *(36, 37, 38, 39, 40, 41, 42),  # subreaper, NO_NEW_PRIVS, GET_TID_ADDRESS, THP_DISABLE
    *(50, 51, 54, 55, 56),  # of ARM processors: lengths of vectors, pointer authentication, tagged addresses
)
_SOCKET_OPTIONS = (  # of SOL_SOCKET: kernel memory that no limit counts, and programs in the kernel
    *(7, 8, 32, 33),  # SO_SNDBUF, SO_RCVBUF and their FORCE
    *(26, 44, 50, 51, 52),  # SO_ATTACH_FILTER, SO_LOCK_FILTER, SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF and _EBPF
    *(60, 73),  # SO_ZEROCOPY, SO_RESERVE_MEM
    13,  # SO_LINGER: closing the last descriptor of such a socket waits, also in the supervisor
)
# F_OFD_SETLK and SETLKW, whose holder /proc/locks does not name; F_SETLEASE, F_NOTIFY
_FILE_COMMANDS = (37, 38, 1024, 1026)
_PIPE_SIZE, _LARGEST_PIPE = 1031, 1 << 16
_libc.prctl.argtypes = (ctypes.c_int, *4 * (ctypes.c_ulong,))


def filter_here() -> bytes:
    """Return the filter's program for this machine; empty where its calls are not known."""
    machine = os.uname().machine
    if machine not in _AUDIT or struct.calcsize("P") != 8:
        return b""
    calls = allowed_calls(machine)
    only_unix = [_step(_EQUAL, socket.AF_UNIX, 1, 0), _error(errno.EAFNOSUPPORT)]
    other_zero = [_step(_EQUAL, 0, 1, 0), _REFUSE]
    # by call: which argument is looked at, and the steps that refuse some of its values
    checks: dict[str, tuple[int, list[bytes]]] = {
        "mmap": (3, _mappings()),  # the most frequent first
        "fcntl": (1, _file_commands()),
        "clone": (0, _flags_of_clone()),
        "clone3": (0, [_error(errno.ENOSYS)]),
        "close_range": (2, [_step(_ANY_BIT, _CLOSE_RANGE_UNSHARE, 0, 1), _REFUSE]),
        "socket": (0, only_unix),
        "socketpair": (0, only_unix),
        "setsockopt": (1, [_step(_EQUAL, socket.SOL_SOCKET, 1, 0), _REFUSE, _argument(2), *_unless(_SOCKET_OPTIONS)]),
        "prctl": (0, [*_only(_PROCESS_OPTIONS), _REFUSE]),
        "setrlimit": (0, _unless((resource.RLIMIT_CORE,))),
        "prlimit64": (0, [*other_zero, *_core_limit()]),
        **{name: (place, other_zero) for name, place in _OWN_ONLY.items()},
    }
    program = [_step(_LOAD, _ARCHITECTURE), _step(_EQUAL, _AUDIT[machine], 1, 0), _step(_RETURN, _KILL)]
    program += [_step(_LOAD, _NUMBER), _step(_AT_LEAST, _X32, 0, 1), _error(errno.ENOSYS)]
    for name, (place, steps) in checks.items():
        body = [_argument(place), *steps, _step(_RETURN, _ALLOW)]
        program += [_step(_EQUAL, calls[name], 0, len(body)), *body]
    return b"".join([*program, *_by_number(set(calls.values()))])


def allowed_calls(machine: str) -> dict[str, int]:
    """Return the numbers of the calls that sessions may make, some of them only with certain arguments."""
    place = list(_AUDIT).index(machine)
    return {name: numbers[place] for name, numbers in _ALLOWED.items() if numbers[place] >= 0}


def _by_number(allowed: Container[int]) -> list[bytes]:
    """Allow these calls and refuse others: one comparison for each run of numbers with the same answer."""
    steps: list[bytes] = []
    for number in range(_UNKNOWN[-1][1], -1, -1):  # from the top, so that a comparison with the lowest decides
        unknown = any(first <= number < last for first, last in _UNKNOWN)
        answer = _ALLOW if number in allowed else _ERRNO | (errno.ENOSYS if unknown else errno.EPERM)
        if steps and steps[-1] == _step(_RETURN, answer):
            steps[-2:] = []
        steps += [_step(_AT_LEAST, number, 0, 1), _step(_RETURN, answer)]
    return [*steps, _step(_RETURN, _KILL)]  # never reached: 0 is the lowest number


def _mappings() -> list[bytes]:
    """Refuse shared memory without a file, and pages of the machine's pool of huge ones, which no limit counts."""
    both = _MAP_SHARED | _MAP_ANONYMOUS
    huge = [_step(_ANY_BIT, _MAP_HUGETLB, 0, 1), _error(errno.ENOMEM)]
    return [*huge, _step(_AND, both), _step(_EQUAL, both, 0, 1), _REFUSE]


def _flags_of_clone() -> list[bytes]:
    """Refuse new namespaces, siblings, and threads with descriptors of their own."""
    threads = [_step(_AND, _CLONE_FILES | _CLONE_THREAD), _step(_EQUAL, _CLONE_THREAD, 0, 1), _REFUSE]
    return [_step(_ANY_BIT, _NAMESPACES, 0, 1), _REFUSE, *threads]


def _file_commands() -> list[bytes]:
    """Refuse commands of fcntl beyond descriptors and POSIX locks, and pipes above the default size."""
    size = [_argument(2), _step(_AT_LEAST, _LARGEST_PIPE + 1, 0, 1), _REFUSE]
    return [*_unless(_FILE_COMMANDS), _step(_EQUAL, _PIPE_SIZE, 0, len(size)), *size]


def _core_limit() -> list[bytes]:
    """Refuse a new limit on core files: at 0 instead of 1, a core_pattern that is a pipe would get them."""
    new = [step for half in (0, 4) for step in (_argument(2, half), _step(_EQUAL, 0, 1, 0), _REFUSE)]
    return [_argument(1), _step(_EQUAL, resource.RLIMIT_CORE, 0, len(new)), *new]


def _only(values: Sequence[int]) -> list[bytes]:
    """Allow these values; what follows decides on others."""
    return [step for value in values for step in (_step(_EQUAL, value, 0, 1), _step(_RETURN, _ALLOW))]


def _unless(values: Sequence[int]) -> list[bytes]:
    """Refuse these values; what follows decides on others."""
    return [step for value in values for step in (_step(_EQUAL, value, 0, 1), _REFUSE)]


def _argument(place: int, offset: int = 0) -> bytes:
    return _step(_LOAD, _ARGUMENTS + 8 * place + offset)


def _check(result: int, what: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def _prctl(option: int, value: int, argument: int = 0) -> None:
    _check(_libc.prctl(option, value, argument, 0, 0), f"prctl({option}, {value})")


def install(program: bytes) -> None:
    """Apply a filter to this process and to what it starts; this cannot be undone."""
    buffer = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    place = ctypes.create_string_buffer(described, len(described))
    _prctl(_NO_NEW_PRIVS, 1)
    _prctl(_SET_SECCOMP, _FILTER, ctypes.addressof(place))


# Linux calls that the server needs and the standard library lacks.

_PDEATHSIG, _DUMPABLE, _CHILD_SUBREAPER = 1, 4, 36
_CAPABILITIES_V3 = 0x20080522
_COLLAPSE, _HUGE = 25, 2 << 20
_NO_CORE = 1  # byte; with 0 the kernel would still start the program of a core_pattern that is a pipe, as root
_REMOUNT = 32 | 2 | 4 | 8  # MS_REMOUNT, NOSUID, NODEV, NOEXEC


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
    # /proc is read-only in some containers; the kernel then chooses by itself
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")  # 1000 is for the group that the watchdog finds to hold most


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
    """Hide processes in /proc from users who may not inspect them, where the capability to mount allows that."""
    options = f"hidepid=2,gid={os.getgid()}".encode()
    _libc.mount(b"proc", b"/proc", b"proc", ctypes.c_ulong(_REMOUNT), options)


def shorten_backlogs() -> None:
    """Let 16 connections wait at a socket at most: they hold memory, and no descriptor shows them."""
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
    _check(_libc.capset(header, sets), "capset")


def limit_processes(most: int) -> None:
    """Limit the processes and threads of this user, which has to be the sandbox's own."""
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def _limit(kind: int, most: int) -> None:
    hard = resource.getrlimit(kind)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, most))


def dump_no_core() -> None:
    """Prevent core files of this process and of what it starts, and programs of a core_pattern."""
    _limit(resource.RLIMIT_CORE, _NO_CORE)


def limit_process(limits: Mapping[str, int]) -> None:
    """Set the limits of a session's process; whatever it starts inherits them."""
    _limit(resource.RLIMIT_DATA, limits["session_memory"])
    _limit(resource.RLIMIT_AS, limits["session_memory"] + (1 << 30))
    _limit(resource.RLIMIT_FSIZE, limits["file_size"])
    _limit(resource.RLIMIT_NOFILE, limits["open_files"])
    dump_no_core()


def raise_file_limit() -> None:
    """Raise the limit on descriptors as far as allowed: the supervisor holds three for each session."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def capabilities() -> int:
    """Return the capabilities that this process may use, as a bit mask."""
    with open("/proc/self/status") as file:
        return next((int(line.split()[1], 16) for line in file if line.startswith("CapPrm:")), 0)


def process_facts() -> dict[str, object]:
    """Return the confinement of this process: user, capabilities, whether it can gain privileges."""
    with open("/proc/self/status") as file:
        status = dict(line.split(":", 1) for line in file)
    return {
        "uid": os.getuid(),
        "capabilities": int(status["CapEff"], 16) | int(status["CapPrm"], 16),
        "no_new_privileges": _libc.prctl(39, 0, 0, 0, 0) == 1,
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


_SPARE = 4
_NICE = 5


class Confinement:
    """What confines every session; created once, in the zygote.

    With "first_uid" in the client's configuration each group has a user of its own; with "harden" Landlock and seccomp
    are used.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self._limits = config["limits"]
        self._own_users = bool(config["first_uid"])
        self._landlock = bool(config["harden"] and abi())
        self._filter = filter_here() if config["harden"] else b""
        self._layers = 0
        self._ruleset = -1

    def begin(self) -> None:
        """In the zygote: apply what is the same for all sessions; forks inherit it."""
        limit_process(self._limits)
        if self._filter:
            install(self._filter)

    def prepare(self, slot: str) -> None:
        """In the zygote, before a fork: create the rules for this slot."""
        if self._landlock:
            self._ruleset = ruleset_for(slot)

    def separate(self, uid: int) -> None:
        """Become the user of an empty slot, and kill whatever may still run as that user."""
        prefer_for_oom()  # as root, and not in the zygote, with which all sessions would end
        if self._own_users:
            drop_to(uid)
            end_all_of_this_user()
        hide_memory()

    def close_off(self) -> None:
        """Set the remaining limits and enter the Landlock domain; no code can undo that."""
        os.nice(_NICE)  # the supervisor and the client come first
        resource.setrlimit(resource.RLIMIT_CPU, (self._limits["cpu_seconds"],) * 2)  # what it forks starts at zero
        if self._own_users:
            limit_processes(self._limits["processes"])
        if self._landlock:
            restrict(self._ruleset)
            self._layers = 1

    def check_depth(self) -> None:
        """Raise OSError if one more fork could not be separated from its parent."""
        if self._branches and self._layers >= DEEPEST:
            raise OSError(errno.E2BIG, "forks in a line cannot be nested deeper")

    def enter_branch(self) -> None:
        """In a fork: make its origin and its siblings unreachable for signals."""
        if not self._branches:
            return
        ruleset = _ruleset(_REFER)  # every domain denies it where no rule allows it
        try:
            _allow(ruleset, "/", _REFER)
            restrict(ruleset)
        finally:
            os.close(ruleset)
        self._layers += 1

    def leave_branches(self) -> None:
        """In the original: make its forks unreachable for it, as long as enough domains are left for more forks."""
        if self._branches and self._layers < DEEPEST - _SPARE:
            with contextlib.suppress(OSError):  # the code itself has nested domains; the forks are made
                self.enter_branch()

    @property
    def _branches(self) -> bool:
        return self._layers > 0 and separates_branches()

    def facts(self, uid: int) -> dict[str, Any]:
        """Confine this process, a child that is about to end, and return what has worked."""
        separation = []
        if self._own_users:
            drop_to(uid)
            separation.append("uid")
        hide_memory()
        if self._landlock:
            restrict(ruleset_for("/dev/shm"))
            separation.append("landlock")
        if self._filter:
            separation.append("seccomp")
        return {
            "separation": separation,
            "internet": _makes_internet_sockets(),
            "session": process_facts(),
        }


def _makes_internet_sockets() -> bool:
    try:
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()
    except OSError:
        return False
    return True


def end_all_of_this_user() -> None:
    """Kill every other process of this user, at once, so that none escapes by forking."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(-1, signal.SIGKILL)
