"""Attacks with what the kernel keeps for a process: outside the limits of memory, or out of one store for all.

A number that is far above what honest code uses, and far below what does harm, is where an attempt counts as escaped.
"""

OPTIONS = {"needs": "uid seccomp", "status": "ok|killed|memory_limit"}

CODE = r"""
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
    held, size = fill_sockets(80 << 20)
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
"""
