"""Attacks with what the kernel keeps for a process: outside the limits of memory, or out of one store for all.

A number that is far above what honest code uses, and far below what does harm, is where an attempt counts as escaped.
"""

from __future__ import annotations

from functools import partial

from attacks.attack import Attack, written

attack = partial(Attack, kind="kernel_memory", needs="uid seccomp", status="ok|killed|memory_limit")

_FILL_SHM = """
held, size = [], 0
until = time.monotonic() + 1.5
while time.monotonic() < until:
    try:
        fd = os.open(f"/dev/shm/fill-{os.getuid()}-{len(held)}", os.O_RDWR | os.O_CREAT, 0o600)
        os.unlink(f"/dev/shm/fill-{os.getuid()}-{len(held)}")
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


== shared_memory_filled_without_names | filled|blocked: /dev/shm|/dev/shm | meanwhile=True
<<_FILL_SHM>>


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
""",
    ),
)
