"""Attacks on the share of others: processor time, memory, and places for processes.

A neighbour, an honest session of another family, does a bit of work again and again meanwhile. The bounds are wide,
since the machine that tests may be busy itself: what counts is that a neighbour is not slower by as many times as
there are hogs.
"""

OPTIONS = {"needs": "uid", "shows": "started|/dev/shm|memory", "status": "ok|killed|memory_limit"}

IN_A_CELL = 12.0
BETWEEN_CELLS = 4.0
AUTOGROUPS = (
    "bubblewrap: kernels with sched_autogroup_enabled=1 give each process group that calls setsid a share of CPU"
)
OUTRUN = "docker: sockets are filled faster than the watchdog looks, and then the kernel ends the largest process"

_HONEST = "def work(): return sum(i * i for i in range(600_000))\n"
_CROWDED = """
import subprocess, sys
crowd = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"]) for _ in range(20)]
own = bytearray(b"x") * (60 << 20)
def work(): return [one.poll() for one in crowd], len(own)
"""
CODE = r"""
== thirty_hogs_in_a_cell | neighbour=_HONEST, slowdown=IN_A_CELL
for _ in range(30):
    if os.fork() == 0: spin()
say("started")
time.sleep(1.2)

== hogs_that_outlive_their_cell | pause=1.2, not_on=AUTOGROUPS, neighbour=_HONEST, slowdown=BETWEEN_CELLS
for _ in range(20): daemon(spin)
say('started')

== threads_that_outlive_their_cell | pause=1.2, neighbour=_HONEST, slowdown=BETWEEN_CELLS
import hashlib, threading
data = bytes(1 << 22)
def hash_on():
    while True: hashlib.sha256(data).digest()
for _ in range(16): threading.Thread(target=hash_on, daemon=True).start()
say("started")

== memory_grown_between_cells | pause=1.2, neighbour=_CROWDED
import threading
def grow():
    time.sleep(0.1)
    for _ in range(6):
        if os.fork() == 0:
            area = bytearray(200 << 20)
            for page in range(0, len(area), 4096): area[page] = 1
            nap()
threading.Thread(target=grow, daemon=True).start()
say("started")

== memory_grown_at_once_by_many | neighbour=_CROWDED
reader, writer = os.pipe()
for _ in range(30):
    if os.fork() == 0:
        os.read(reader, 1)
        area = bytearray(b"x") * (60 << 20)
        nap()
say("started")
os.write(writer, b"x" * 30)
time.sleep(1.2)

== memory_in_sockets_that_outlives_its_cell | pause=1.2, not_on=OUTRUN, neighbour=_CROWDED
for _ in range(25):
    daemon(lambda: (fill_sockets(60 << 20), nap()))
say("started")

== memory_in_files_of_shared_memory | pause=1.2, neighbour=_CROWDED
import mmap
def fill(number):
    with contextlib.suppress(OSError):
        fd = os.open(f"/dev/shm/unfair-{os.getuid()}-{number}", os.O_RDWR | os.O_CREAT, 0o600)
        os.unlink(f"/dev/shm/unfair-{os.getuid()}-{number}")
        while True: os.write(fd, bytes(1 << 20))
    nap()
for number in range(5): daemon(lambda number=number: fill(number))
say("started")

== places_for_processes
| neighbour="import subprocess\ndef work(): return subprocess.run(['/bin/sh', '-c', 'exit 3']).returncode\n"
say("started")
with contextlib.suppress(OSError):
    while True:
        if os.fork() == 0: nap()
time.sleep(1)
"""
