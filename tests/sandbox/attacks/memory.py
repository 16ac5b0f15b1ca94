"""Attacks with memory: of one process, of many, and of what the kernel keeps for them."""

CODE = r"""
== gradual_with_the_error_swallowed | shows="", status="timeout", timeout=1, unsafe=True
x = []
while True:
    try:
        x.append(b"x" * 10**6)
    except MemoryError:
        pass

== private_mapping | blocked: mmap | unsafe=True
import mmap
held = []
try:
    while len(held) < 100:
        held.append(mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE))
    escaped("mmap", len(held))
except (OSError, MemoryError) as error:
    blocked("mmap", error)

== shared_memory_that_no_process_maps | blocked: mmap | timeout=20, needs="landlock seccomp", meanwhile=True
import mmap
plain = next(kind for kind in mmap.mmap.__mro__ if kind.__flags__ & 1 << 8 or kind.__base__ is object)
def fill(area):
    for page in range(0, len(area), 4096):
        area[page] = 1
    area.madvise(mmap.MADV_DONTNEED)
def taken(name, area):
    if os.fork() == 0:
        fill(area)
        os._exit(0)
    os.wait()
    return area
kinds = {
    "mmap": lambda: plain(-1, 64 << 20),
    "/dev/zero": lambda: plain(os.open("/dev/zero", os.O_RDWR), 64 << 20),
    "in the session": lambda: mmap.mmap(-1, 20 << 20),
}
for name, make in kinds.items():
    held = []
    try:
        while len(held) < 40:
            held.append(taken(name, make()))
        escaped(name, len(held))
    except (OSError, MemoryError) as error:
        blocked(name, error)

== threads_that_outlive_their_process | started | status="memory_limit", alive=False, timeout=15
import threading
def take():
    time.sleep(0.3)
    area = bytearray(100 << 20)
    for page in range(0, len(area), 4096):
        area[page] = 1
    nap()
print("started", flush=True)
for _ in range(15):
    if os.fork() == 0:
        threading.Thread(target=take).start()
        syscall_number({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)  # exit: of this thread alone
time.sleep(12)

== daemons_that_have_left_their_session | left | timeout=15
def take():
    os.write(writer, b"x")
    area = bytearray(b"x") * (100 << 20)
    nap()
reader, writer = os.pipe()
_libc.prctl(36, 0, 0, 0, 0)  # the session adopts no orphans
for _ in range(12):
    daemon(take)
os.read(reader, 1)
os.close(writer)
os.set_blocking(reader, False)
until = time.monotonic() + 8
while time.monotonic() < until:
    with contextlib.suppress(BlockingIOError):
        if not os.read(reader, 64): break
    time.sleep(0.05)
else: escaped("daemons", 12)
say("left")

== copy_on_write | started | status="memory_limit", alive=False, timeout=10
area = bytearray(100 << 20)
print("started", flush=True)
for _ in range(20):
    if os.fork() == 0:
        for page in range(0, len(area), 4096):
            area[page] = 2
        nap()
time.sleep(6)

== pipes | pipes
import fcntl
held, size = [], 0
try:
    while size < 1 << 30:
        reader, writer = os.pipe()
        held.append((reader, writer))
        with contextlib.suppress(OSError):
            fcntl.fcntl(writer, 1031, 1 << 20)
        os.set_blocking(writer, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                size += os.write(writer, bytes(65536))
except OSError as error:
    blocked("pipe", error)
print("pipes", len(held), size)
if size > 300 << 20:
    escaped("memory in pipes", size)
"""
