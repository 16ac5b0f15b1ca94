"""What attacks use. The text of this module is the first cell of an attacking session: it runs inside the sandbox.

An attempt says "blocked: WHAT WHY" when the kernel refuses it, and ESCAPED when not. An error that shows that
the kernel has looked at the arguments (EFAULT, EINVAL) is no refusal. Attempts are harmless where they succeed.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import platform
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

ESCAPED = "ESC" + "APED:"
ISOLATION = "none"
VICTIMS: list[dict[str, Any]] = []
REFUSED = {
    errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EROFS, errno.ENOENT, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT,
    errno.ENETUNREACH, errno.ENXIO, errno.ENODEV,
}  # fmt: skip
_COMMON = {
    "pidfd_send_signal": 424, "pidfd_open": 434, "clone3": 435, "pidfd_getfd": 438, "process_madvise": 440,
    "process_mrelease": 448,
}  # fmt: skip
_X86_64 = {
    "clone": 56, "ptrace": 101, "capset": 126, "rt_sigqueueinfo": 129, "tkill": 200, "tgkill": 234, "ioprio_set": 251,
    "unshare": 272, "rt_tgsigqueueinfo": 297, "prlimit64": 302, "setns": 308, "memfd_create": 319,
}  # fmt: skip
_AARCH64 = {
    "ioprio_set": 30, "capset": 91, "unshare": 97, "ptrace": 117, "tkill": 130, "tgkill": 131, "rt_sigqueueinfo": 138,
    "clone": 220, "rt_tgsigqueueinfo": 240, "prlimit64": 261, "setns": 268, "memfd_create": 279,
}  # fmt: skip
NUMBERS = {**_COMMON, **(_AARCH64 if platform.machine() == "aarch64" else _X86_64)}
_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def say(text: str) -> None:
    """Print a line past whatever has become of `print`."""
    with contextlib.suppress(OSError):
        os.write(1, text.encode("utf-8", "replace") + b"\n")


def blocked(what: str, error: BaseException) -> None:
    """Report that an attempt has failed."""
    number = getattr(error, "errno", None)
    say(f"blocked: {what} {errno.errorcode.get(number, type(error).__name__) if number else type(error).__name__}")


def escaped(what: str, result: object) -> None:
    """Report that an attempt has succeeded."""
    say(f"{ESCAPED} {what} {result!r:.200}")


def refused(what: str, function: Callable[..., Any], *arguments: Any, also: Iterable[int] = ()) -> None:
    """Attempt something that has to be refused."""
    try:
        result = function(*arguments)
    except OSError as error:
        if error.errno in REFUSED or error.errno in also:
            blocked(what, error)
        else:
            escaped(what, error)
    else:
        escaped(what, result)


def syscall(name: str, *arguments: Any) -> int:
    """Make a system call; a name that this machine does not know counts as refused."""
    if name not in NUMBERS:
        raise OSError(errno.ENOSYS, name)
    return syscall_number(NUMBERS[name], *arguments)


def syscall_number(number: int, *arguments: Any) -> int:
    """Make a system call by its number."""
    plain = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    ctypes.set_errno(0)
    result: int = _libc.syscall(ctypes.c_long(number), *plain)
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def others() -> list[int]:
    """Return every process that can be seen but for this session's own: supervisor, zygote, victims and theirs."""
    if ISOLATION == "none":
        raise RuntimeError("this would attack the machine itself")
    found = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in found if pid != os.getpid() and _session_of(pid) not in (None, os.getsid(0))]


def _session_of(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[3])
    except OSError:
        return None


def victims() -> list[int]:
    """Return the process ids of the victims' sessions and of their subprocesses."""
    if ISOLATION == "none":
        raise RuntimeError("this would attack the machine itself")
    return [victim[name] for victim in VICTIMS for name in ("pid", "child")]


def daemon(work: Callable[[], object]) -> None:
    """Run something in a process that has left its session, its group and its parent."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            with contextlib.suppress(BaseException):
                work()
        os._exit(0)
    os.wait()


def channel() -> int:
    """Return the descriptor of the session's control socket."""
    for fd in range(3, 512):
        try:
            if os.path.stat.S_ISSOCK(os.fstat(fd).st_mode):  # type: ignore[attr-defined]
                return fd
        except OSError:
            continue
    raise RuntimeError("no control socket")


def frame(kind: int, number: int, payload: bytes = b"") -> bytes:
    """Return a message of the control channel."""
    return struct.pack(">BQI", kind, number, len(payload)) + payload


def kept_descriptors(only_sockets: bool = False) -> list[int]:
    """Duplicate every descriptor of this process but the outputs, and return the duplicates."""
    kept = []
    for fd in range(3, 300):
        with contextlib.suppress(OSError):
            if only_sockets and (os.fstat(fd).st_mode & 0o170000) != 0o140000:
                continue
            kept.append(fcntl.fcntl(fd, fcntl.F_DUPFD, 300))
    return kept


def in_flight(fds: list[int]) -> socket.socket:
    """Put descriptors on their way in a socket, where no list of descriptors shows them, and close them here."""
    near, far = socket.socketpair()
    for fd in fds:
        socket.send_fds(far, [b"x"], [fd])
        os.close(fd)
    far.close()
    near.setblocking(False)
    return near


def landed(near: socket.socket) -> list[int]:
    """Take the descriptors of `in_flight` out again."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        while True:
            data, fds, _, _ = socket.recv_fds(near, 1, 8)
            found += fds
            if not data:
                break
    return found


def obey(line: socket.socket) -> None:
    """Do what comes over a line, and answer what came of it; in the process or the thread that calls this."""
    while True:
        text = line.recv(65536)
        if not text:
            time.sleep(0.05)
            continue
        try:
            answer = repr(eval(text.decode(), globals()))
        except BaseException as error:
            answer = repr(error)
        line.send(answer.encode()[:60000])


def worker() -> socket.socket:
    """Start a process that obeys."""
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        near.close()
        with contextlib.suppress(BaseException):
            obey(far)
        os._exit(0)
    return near


def order(line: socket.socket, expression: str) -> None:
    """Let who obeys at the other end of a line evaluate something, and print it."""
    try:
        line.settimeout(0.5)
        line.send(expression.encode())
        say(f"ordered: {line.recv(65536).decode()}")
    except OSError as error:
        blocked("ordered", error)


def write_to_all(fds: list[int], data: bytes) -> None:
    """Write to all of some descriptors, without waiting for any."""
    say(f"tried {len(fds)}")
    written = 0
    for fd in fds:
        with contextlib.suppress(OSError):
            os.set_blocking(fd, False)
            written += os.write(fd, data)
    say(f"written {written}")


def fill_sockets(most: int) -> tuple[list[Any], int]:
    """Fill buffers of Unix sockets up to some size; return the sockets, and how much they hold."""
    held, size = [], 0
    with contextlib.suppress(OSError):
        while size < most:
            pair = socket.socketpair()
            held.append(pair)
            for one in pair:
                one.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    while True:
                        size += one.send(bytes(32768))
    return held, size


def machinery() -> list[dict[str, Any]]:
    """Return the globals of the modules of the interpreter itself, as its frames and functions show them."""
    found: dict[int, dict[str, Any]] = {}
    frame: Any = sys._getframe()
    while frame:
        found[id(frame.f_globals)] = frame.f_globals
        frame = frame.f_back
    for space in list(found.values()):
        for value in list(space.values()):
            inner = getattr(value, "__globals__", None)
            if type(value) is type(sys) and value.__name__.startswith("sandbox."):
                found[id(value)] = vars(value)
            if inner is not None and not getattr(value.__code__, "co_filename", "/").startswith(("/", "<frozen")):
                found[id(inner)] = inner
    return [space for space in found.values() if space is not globals()]


def forge(names: Iterable[str], value: object) -> None:
    """Replace names in the modules of the interpreter itself."""
    count = 0
    for space in machinery():
        for name in names:
            if name in space:
                space[name] = value
                count += 1
    say(f"forged {count}")


def raising(error: BaseException) -> Callable[..., Any]:
    """Return a function that raises."""

    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def spin() -> None:
    """Use a processor until killed, deaf to what can be ignored."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while True:
        pass


def nap() -> None:
    """Stay until killed."""
    while True:
        time.sleep(100)
