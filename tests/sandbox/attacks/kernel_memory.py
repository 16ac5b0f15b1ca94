"""Attacks with what the kernel keeps for a process: outside the limits of memory, or out of one store for all.

A number that is far above what honest code uses, and far below what does harm, is where an attempt counts as escaped.
"""

from __future__ import annotations

from functools import partial

from attacks.attack import Attack, written

attack = partial(Attack, kind="kernel_memory", needs="uid seccomp", status="ok|killed|memory_limit")

_FILTER = """
instructions = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7FFF0000))
program = struct.pack("HxxxxxxP", 1, ctypes.addressof(instructions))
"""
_FILL_SHM = """
held, size = [], 0
until = time.monotonic() + 1.5
while time.monotonic() < until:
    try:
        fd = os.open(f"/dev/shm/fill-{os.getuid()}-{len(held)}", os.O_RDWR | os.O_CREAT, 0o600)
        if UNLINKED: os.unlink(f"/dev/shm/fill-{os.getuid()}-{len(held)}")
        held.append(fd)
        while True: size += os.write(fd, bytes(1 << 20))
    except OSError as error:
        blocked("/dev/shm", error)
        time.sleep(0.1)
say(f"filled {size}")
"""

ATTACKS = (
    *written(
        attack,
        globals(),
        r"""
== posix_locks_of_many_files | locks
count, until = 0, time.monotonic() + 4
say("locks")
try:
    for number in range(100):
        file = os.open(f"locked{number}", os.O_RDWR | os.O_CREAT)
        for start in range(1500):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 2 * (10**6 - start))
            count += 1
        if time.monotonic() > until or count > 110_000: break
except OSError as error:
    blocked("lockf", error)
say(f"locks {count}")
if count > 100_000:
    time.sleep(0.5)
    escaped("locks", count)

== open_file_locks_of_many_processes | locks
def take():
    count = 0
    with contextlib.suppress(OSError):
        for number in range(15):
            file = os.open(f"locked{os.getpid()}-{number}", os.O_RDWR | os.O_CREAT)
            for start in range(1000):
                fcntl.fcntl(file, 37, struct.pack("hhqqixxxx", fcntl.F_WRLCK, 0, 2 * (10**6 - start), 1, 0))
                count += 1
    os.write(writer, struct.pack("i", count))
    nap()
reader, writer = os.pipe()
for _ in range(10):
    if os.fork() == 0: take()
say("locks")
total = sum(struct.unpack("i", os.read(reader, 4))[0] for _ in range(10))
say(f"locks {total}")
time.sleep(0.5)
if total > 100_000: escaped("locks", total)

== loopback_buffers | blocked: listen|loopback
held, size = [], 0
say("loopback")
try:
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    for _ in range(60):
        near = socket.create_connection(listener.getsockname(), 1)
        far = listener.accept()[0]
        held += [near, far]
        for one in (near, far):
            one.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True: size += one.send(bytes(65536))
    escaped("loopback buffers", size)
except OSError as error:
    blocked("listen", error)

== asynchronous_input | blocked: io_setup
numbers = {"x86_64": (206, 209, 207), "aarch64": (0, 2, 1)}[platform.machine()]
context = ctypes.c_ulong(0)
refused("io_setup", syscall_number, numbers[0], 1024, ctypes.byref(context))
refused("io_submit", syscall_number, numbers[1], context.value, 0, 0, also=(22,))

== filters_of_sockets | blocked: SO_ATTACH_FILTER
<<_FILTER>>

one, two = socket.socketpair()
for name, option in (("SO_ATTACH_FILTER", 26), ("SO_ATTACH_REUSEPORT_CBPF", 51)):
    refused(name, one.setsockopt, socket.SOL_SOCKET, option, program)
    refused(name + " long", one.setsockopt, socket.SOL_SOCKET, option, program + bytes(100))

== filter_with_a_listener | blocked: NEW_LISTENER
<<_FILTER>>

number = {"x86_64": 317, "aarch64": 277}[platform.machine()]
for name, flags in (("NEW_LISTENER", 8), ("NEW_LISTENER_TSYNC", 8 | 1 | 16), ("WAIT_KILLABLE", 8 | 32)):
    refused(name, syscall_number, number, 1, flags, program)

== filters_of_calls_piled_up | filters
instructions = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7FFF0000) * 4000)
program = struct.pack("HxxxxxxP", 4000, ctypes.addressof(instructions))
number = {"x86_64": 317, "aarch64": 277}[platform.machine()]
def pile():
    with contextlib.suppress(OSError):
        while True: syscall_number(number, 1, 0, program)
say("filters")
for _ in range(30):
    if os.fork() == 0:
        pile()
        nap()
time.sleep(1)

== rulesets_piled_up | rulesets
held, rules = [], 0
until = time.monotonic() + 1
try:
    while time.monotonic() < until:
        ruleset = syscall_number(444, struct.pack("=QQQ", 0x1FFF, 0, 0), 24, 0)
        held.append(ruleset)
        for name in os.listdir("/usr/bin")[:100]:
            with contextlib.suppress(FileNotFoundError):
                fd = os.open("/usr/bin/" + name, os.O_PATH)
                syscall_number(445, ruleset, 1, struct.pack("=Qi", 4, fd), 0)
                os.close(fd)
                rules += 1
except OSError as error:
    blocked("ruleset", error)
say(f"rulesets {len(held)}, {rules} rules")

== socket_buffers_of_many_processes | started | timeout=10, status="memory_limit"
def fill():
    held, size = [], 0
    with contextlib.suppress(OSError):
        while size < 80 << 20:
            pair = socket.socketpair()
            held.append(pair)
            for one in pair:
                one.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    while True: size += one.send(bytes(32768))
    os.write(writer, struct.pack("q", size))
    nap()
reader, writer = os.pipe()
say("started")
for _ in range(25):
    if os.fork() == 0: fill()
time.sleep(6)
os.set_blocking(reader, False)
with contextlib.suppress(BlockingIOError):
    sizes = os.read(reader, 8 * 25)
    total = sum(struct.unpack(f"{len(sizes) // 8}q", sizes))
    if total > 1200 << 20: escaped("memory in sockets", total)

== connections_that_nobody_accepts | started | timeout=15, status="memory_limit", meanwhile=True
held, size, until = [], 0, time.monotonic() + 6
say("started")
for number in range(400):
    place = socket.socket(socket.AF_UNIX)
    place.bind(f"place{number}")
    place.listen(4096)
    held.append(place)
    with contextlib.suppress(OSError):
        while time.monotonic() < until:
            one = socket.socket(socket.AF_UNIX)
            one.setblocking(False)
            one.connect(f"place{number}")
            with contextlib.suppress(BlockingIOError):
                while True: size += one.send(bytes(65536))
            one.close()
say(f"sent {size}")
if size > 1200 << 20: escaped("memory in connections", size)
time.sleep(2)

== pages_that_only_a_pipe_has | blocked: vmsplice
number = {"x86_64": 278, "aarch64": 75}[platform.machine()]
reader, writer = os.pipe()
data = ctypes.create_string_buffer(4096)
refused("vmsplice", syscall_number, number, writer, struct.pack("PQ", ctypes.addressof(data), 4096), 1, 0)

== pipe_buffers_of_many_processes | started | timeout=10
def fill():
    held = []
    with contextlib.suppress(OSError):
        while True:
            reader, writer = os.pipe()
            held.append((reader, writer))
            os.set_blocking(writer, False)
            with contextlib.suppress(BlockingIOError):
                while True: os.write(writer, bytes(4096))
    nap()
say("started")
for _ in range(30):
    if os.fork() == 0: fill()
time.sleep(1.5)

== datagrams_to_a_socket_that_is_not_read | started
held, sent = [], 0
say("started")
with contextlib.suppress(OSError):
    for number in range(200):
        box = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        box.bind(f"\0box-{os.getpid()}-{number}")
        held.append(box)
        for _ in range(2):
            one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            held.append(one)
            one.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True: sent += one.sendto(bytes(100_000), box.getsockname())
say(f"sent {sent}")
if sent > 400 << 20: escaped("memory in datagrams", sent)

== shared_memory_filled | filled|blocked: /dev/shm|/dev/shm | meanwhile=True
UNLINKED = False
<<_FILL_SHM>>

== shared_memory_filled_without_names | filled|blocked: /dev/shm|/dev/shm | meanwhile=True
UNLINKED = True
<<_FILL_SHM>>

== shared_memory_filled_by_mappings | filled|blocked: /dev/shm|/dev/shm | meanwhile=True, needs="quotas"
import mmap
held = []
until = time.monotonic() + 1
while time.monotonic() < until:
    try:
        fd = os.open(f"/dev/shm/map-{os.getuid()}", os.O_RDWR | os.O_CREAT, 0o600)
        os.unlink(f"/dev/shm/map-{os.getuid()}")
        os.posix_fallocate(fd, 0, 20 << 20)
        held.append(mmap.mmap(fd, 20 << 20))
        os.close(fd)
    except OSError as error:
        blocked("/dev/shm", error)
        time.sleep(0.1)
say(f"filled {len(held)}")

== shared_memory_inodes_of_many_processes | filled|blocked: /dev/shm|/dev/shm | meanwhile=True
def fill(number):
    held = []
    with contextlib.suppress(OSError):
        while True:
            name = f"/dev/shm/inode-{os.getuid()}-{number}-{len(held)}"
            fd = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
            os.unlink(name)
            held.append(fd)
    nap()
for number in range(40):
    if os.fork() == 0: fill(number)
time.sleep(1)
say("filled")

== epolls_nested | nested
import select
chain = [select.epoll()]
depth = 0
try:
    for depth in range(300):
        chain.append(select.epoll())
        chain[-1].register(chain[-2].fileno())
except OSError as error:
    blocked("epoll", error)
if depth > 20: escaped("epolls nested", depth)
wide, count = select.epoll(), 0
held = []
try:
    for _ in range(150):
        one = os.eventfd(0)
        held.append(one)
        for epoll in chain: epoll.register(one)
except OSError as error:
    blocked("epoll", error)
say(f"nested {depth}")

== timers_of_many_processes | timers
def take():
    event = struct.pack("QiiQ", 0, 0, 1, 0) + bytes(40)
    number = {"x86_64": 222, "aarch64": 107}[platform.machine()]
    timer = ctypes.c_int()
    count = 0
    with contextlib.suppress(OSError):
        while count < 200_000:
            syscall_number(number, 1, event, ctypes.byref(timer))
            count += 1
    os.write(writer, struct.pack("i", count))
    nap()
reader, writer = os.pipe()
for _ in range(8):
    if os.fork() == 0: take()
total = sum(struct.unpack("i", os.read(reader, 4))[0] for _ in range(8))
say(f"timers {total}")
if total > 200_000: escaped("timers", total)

== signals_queued | queued
signal.pthread_sigmask(signal.SIG_BLOCK, range(34, 64))
count = 0
try:
    while count < 500_000:
        syscall("rt_sigqueueinfo", os.getpid(), 40, struct.pack("iii", 40, 0, -1) + bytes(116))
        count += 1
except OSError as error:
    blocked("rt_sigqueueinfo", error)
say(f"queued {count}")
if count > 200_000: escaped("signals", count)

== faults_handled_by_a_device | blocked: /dev/userfaultfd
refused("userfaultfd", syscall, "userfaultfd", 0)
refused("/dev/userfaultfd", os.open, "/dev/userfaultfd", os.O_RDWR)

== core_limit_lowered_for_a_core_pattern_that_is_a_pipe | blocked
import resource, subprocess
try:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
except (OSError, ValueError) as error:
    blocked("RLIMIT_CORE", error)
say(f"blocked: {resource.getrlimit(resource.RLIMIT_CORE)}")
if 0 in resource.getrlimit(resource.RLIMIT_CORE): escaped("RLIMIT_CORE", resource.getrlimit(resource.RLIMIT_CORE))

== core_dumped | ended -?[0-9]+ | status="ok"
import subprocess
done = subprocess.run([sys.executable, "-c", "import os; os.abort()"])
say(f"ended {done.returncode}")
cores = [name for name in os.listdir(".") if "core" in name]
if cores: escaped("core", cores)
""",
    ),
)
