"""What sessions may ask of the kernel: sockets, asynchronous I/O, filters, locks, pipes, /dev/shm, cores."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sandbox_under_test import open_or_skip, wait_for

from sandbox import Limits, Sandbox
from sandbox.server import confine

BACKENDS = [pytest.param("docker", marks=pytest.mark.docker), "bubblewrap"]
LIMITS = Limits(memory="1g", timeout=20)
HEADERS = {
    "x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
    "aarch64": "/usr/include/asm-generic/unistd.h",
}
TRIES = """
import ctypes, errno, fcntl, os, platform, socket, struct
libc = ctypes.CDLL(None, use_errno=True); libc.syscall.restype = ctypes.c_long
def call(number, *arguments):
    plain = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    if libc.syscall(ctypes.c_long(number), *plain) == -1:
        raise OSError(ctypes.get_errno(), "")
def tried(function, *arguments):
    try: function(*arguments)
    except OSError as error: return errno.errorcode[error.errno]
    return "done"
"""


@pytest.fixture(scope="module", params=BACKENDS)
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    with open_or_skip(request.param, LIMITS, containers=1, sessions=8) as sandbox:
        yield sandbox


@pytest.fixture
def with_users(sandbox: Sandbox) -> Sandbox:
    if "+uid" not in sandbox.isolation:
        pytest.skip("families share a user here")
    return sandbox


def said(sandbox: Sandbox, code: str) -> str:
    execution = sandbox.run_sync(TRIES + code)
    assert execution.status == "ok", execution.text
    return execution.stdout.strip()


def test_options_of_sockets_that_take_memory_of_the_kernel_are_refused(sandbox: Sandbox) -> None:
    code = """
program = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 1))
filter = struct.pack("@HP", 1, ctypes.addressof(program))
one, two = socket.socketpair()
options = ((26, filter), (50, 0), (51, filter), (52, 0), (44, 1), (7, 1), (8, 1), (60, 1), (73, 1), (13, filter))
for option, value in options: print(tried(one.setsockopt, socket.SOL_SOCKET, option, value))  # 13: SO_LINGER
"""
    assert said(sandbox, code).split() == ["EPERM"] * 10


def test_calls_that_are_not_on_the_list_are_refused_and_later_ones_are_unknown(sandbox: Sandbox) -> None:
    # x86-64's 335 and 336 are the kernel's own, for probes: they pass by every filter, and end who calls them
    allowed = {machine: set(confine.allowed_calls(machine).values()) for machine in HEADERS}
    code = f"""
for number in set(range(600)) - {{335, 336}} - {allowed}[platform.machine()]:
    print(number, tried(call, number, *[0] * 6))
"""
    answers = {int(number): answer for number, answer in map(str.split, said(sandbox, code).splitlines())}
    assert {answer for number, answer in answers.items() if number < 295 or 424 <= number < 451} == {"EPERM"}
    assert {answer for number, answer in answers.items() if 335 <= number < 424 or number >= 451} == {"ENOSYS"}
    assert len(answers) > 200


def test_calls_are_refused_by_their_arguments(sandbox: Sandbox) -> None:
    """Namespaces, threads with descriptors of their own, names of mappings, memory without a file, huge pages."""
    code = """
numbers = {"x86_64": (56, 436, 157, 9), "aarch64": (220, 436, 167, 222)}[platform.machine()]
clone, close_range, prctl, mmap = numbers
for flags in (0x10000000, 0x10000 | 0x800 | 0x100): print(tried(call, clone, flags, 0, 0, 0, 0))
print(tried(call, close_range, 1000, 1000, 2), tried(call, close_range, 1000, 1000, 0))
for option, value in ((0x53564d41, 0), (62, 1), (38, 1)): print(tried(call, prctl, option, value, 0, 0, 0))
for flags in (0x21, 0x23, 0x40022, 0x22): print(tried(call, mmap, 0, 4096, 3, flags, -1, 0))
zeros = os.open("/dev/zero", os.O_RDONLY)
print(tried(os.open, "/dev/zero", os.O_RDWR), tried(call, mmap, 0, 4096, 3, 1, zeros, 0), tried(os.read, zeros, 1))
"""
    found = said(sandbox, code).split()
    assert found[:7] == ["EPERM", "EPERM", "EPERM", "done", "EPERM", "EPERM", "done"]
    assert found[7:] == ["EPERM", "EPERM", "ENOMEM", "done", "EACCES", "EACCES", "done"]


def test_of_file_locks_there_are_the_usual_ones_and_pipes_can_not_be_enlarged(sandbox: Sandbox) -> None:
    code = """
file = open("locked", "w+")
lock = struct.pack("hhqqi", fcntl.F_WRLCK, 0, 0, 0, 0)
fcntl.lockf(file, fcntl.LOCK_EX); fcntl.flock(file, fcntl.LOCK_EX)
for command, argument in ((37, lock), (38, lock), (1024, fcntl.F_WRLCK), (1026, 2)):
    print(tried(fcntl.fcntl, file, command, argument))
end = os.pipe()[1]
for size in (4096, 65536, 65537): print(tried(fcntl.fcntl, end, 1031, size))
"""
    assert said(sandbox, code).split() == [*["EPERM"] * 4, "done", "done", "EPERM"]


GRAB = """
import ctypes, fcntl, os, time
def grab(files, locks=500):
    held = [os.open("locked-%d-%d" % (os.getpid(), number), os.O_CREAT | os.O_RDWR) for number in range(files)]
    for file in held:
        for start in range(0, 2 * locks, 2): fcntl.lockf(file, fcntl.LOCK_EX, 1, start)
    return held
"""


def test_a_session_that_takes_too_many_locks_is_ended_and_no_other(sandbox: Sandbox) -> None:
    with sandbox.interpreter_sync() as modest, sandbox.interpreter_sync() as greedy:
        assert modest.run(GRAB + "held = grab(9, 100)").status == "ok"
        with greedy.fork(1)[0] as sibling:
            assert sibling.run(GRAB + "held = grab(1, 100)").status == "ok"
            execution = greedy.run(GRAB + "held = grab(400)\ntime.sleep(15)")
            assert execution.status == "memory_limit", execution.text
            assert "file locks" in execution.text
            assert execution.duration < 5
            assert sibling.run("len(held)").value == "1"
        assert modest.run("time.sleep(0.5); len(held)").value == "9"


def test_processes_that_have_left_their_session_are_ended_for_their_locks(sandbox: Sandbox) -> None:
    code = """
ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)  # the session adopts no orphans
for _ in range(30):
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
            grab(1, 100)
            time.sleep(100)
        os._exit(0)
    os.wait()
deadline = time.monotonic() + 10
def left(): return open("/proc/locks").read().count("POSIX")
while time.monotonic() < deadline and left() > 1000: time.sleep(0.1)
print(left())
"""
    with sandbox.interpreter_sync() as python:
        execution = python.run(GRAB + code)
        assert execution.status == "ok", execution.text
        assert int(execution.stdout) <= 1000


def test_names_in_shared_memory_can_not_be_listed(with_users: Sandbox) -> None:
    with with_users.interpreter_sync() as one, with_users.interpreter_sync() as two:
        one.run("from multiprocessing import shared_memory\nx = shared_memory.SharedMemory(create=True, size=100)")
        name = one.run("print(x.name, end='')").stdout
        assert "PermissionError" in two.run("import os; os.listdir('/dev/shm')").text
        assert "PermissionError" in two.run(f"open('/dev/shm/{name}')").text
        assert one.run("shared_memory.SharedMemory(x.name).size").status == "ok"


FILLED = """
import os
def fill(many, size):
    try:
        for number in range(many):
            with open("/dev/shm/%d-%d" % (os.getpid(), number), "wb") as file: file.write(bytes(size))
    except OSError as error: print(error)
fill({0}, {1})
"""
LOCKED = """
import multiprocessing
lock = multiprocessing.Lock()
with lock: print("locked")
queue = multiprocessing.Queue(); queue.put(3); print(queue.get())
"""


@pytest.mark.parametrize(("many", "size"), [(126, 4096), (1, 4 << 20)], ids=["files", "bytes"])
def test_families_that_take_their_share_of_shared_memory_leave_a_neighbour_his(
    with_users: Sandbox, many: int, size: int
) -> None:
    with ExitStack() as stack:
        greedy = [stack.enter_context(with_users.interpreter_sync()) for _ in range(7)]
        for one in greedy:
            assert one.run(FILLED.format(many, size)).status == "ok"
        assert with_users.run_sync(LOCKED).stdout == "locked\n3\n"
        assert all(one.run("6 * 7").value == "42" for one in greedy)


def test_a_family_that_takes_more_than_its_share_is_ended_when_room_is_short(with_users: Sandbox) -> None:
    with with_users.interpreter_sync() as greedy:
        execution = greedy.run(FILLED.format(1500, 100) + "import time; time.sleep(5)")
        assert execution.status == "memory_limit", execution.text
        assert "/dev/shm" in execution.text
    assert with_users.run_sync(LOCKED).stdout == "locked\n3\n"
    count = "import os\nfound = os.statvfs('/dev/shm')\nprint(found.f_files - found.f_ffree)"
    wait_for(lambda: with_users.run_sync(count).stdout == "1\n")  # what a run leaves is removed after its answer


def test_no_process_leaves_a_core(sandbox: Sandbox) -> None:
    code = """
import resource
for pid in (1, os.getppid(), "self"):
    if os.path.exists(f"/proc/{pid}"): print(open(f"/proc/{pid}/limits").read())
number = {"x86_64": 160, "aarch64": 164}[platform.machine()]
for new in ((0, 0), (0, 1), (1, 1)):
    try: resource.setrlimit(resource.RLIMIT_CORE, new)
    except ValueError: print(tried(call, number, 4, struct.pack("QQ", *new)))
    print("limit", resource.getrlimit(resource.RLIMIT_CORE))
resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))
print("limit", resource.getrlimit(resource.RLIMIT_NOFILE))
"""
    told = said(sandbox, code)
    found = re.findall(r"Max core file size +(\S+) +(\S+)", told)
    assert len(found) == (1 if sandbox.isolation.startswith(("bubblewrap+uid", "command(bwrap)")) else 3)
    assert set(found) == {("1", "1")}  # 0 would let a core_pattern that is a pipe have it
    assert told.split("EPERM\n")[1:] == ["limit (1, 1)\n"] * 2 + ["limit (1, 1)\nlimit (300, 300)"]


NEVER = """
acct add_key adjtimex bpf chroot clock_adjtime clock_settime delete_module fanotify_init finit_module fsopen
init_module inotify_add_watch inotify_init inotify_init1 io_setup io_submit io_uring_setup ioperm iopl kcmp
kexec_file_load kexec_load keyctl memfd_create migrate_pages mount mount_setattr move_mount move_pages mq_open msgget
open_by_handle_at open_tree perf_event_open personality pidfd_getfd pivot_root process_madvise process_vm_readv
process_vm_writev ptrace quotactl reboot request_key seccomp semget setdomainname sethostname setns settimeofday
shmget swapoff swapon syslog umount2 unshare userfaultfd vhangup vmsplice
"""


@pytest.mark.parametrize("machine", HEADERS)
def test_no_call_that_turns_into_rights_is_on_the_list(machine: str) -> None:
    assert not set(NEVER.split()) & set(confine.allowed_calls(machine))


@pytest.mark.parametrize("machine", HEADERS)
def test_numbers_of_calls_are_those_of_the_kernels_headers(machine: str) -> None:
    if not Path(HEADERS[machine]).exists():
        pytest.skip("the kernel's headers are not installed")
    text = Path(HEADERS[machine]).read_text()
    known = {name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text)}
    calls = confine.allowed_calls(machine)
    assert {name: known.get(name, number) for name, number in calls.items()} == calls
