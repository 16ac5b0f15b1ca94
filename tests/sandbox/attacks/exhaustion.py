"""Attacks on what all sessions share: descriptors, terminals, watches, process ids, the supervisor's time."""

CODE = r"""
== descriptors_of_many_processes | blocked: open EMFILE
for _ in range(40):
    if os.fork() == 0:
        try:
            while True: os.open("/dev/null", os.O_RDONLY)
        except OSError as error:
            blocked("open", error)
        nap()
time.sleep(0.5)

== descriptors_in_flight | sent
import array
held = [os.open("/dev/null", os.O_RDONLY)] * 250
sent = 0
with contextlib.suppress(OSError):
    for _ in range(100):
        one, two = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        one.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                one.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", held))])
                sent += len(held)
        two.detach(), one.detach()
print("sent", sent)
if sent > 20_000: escaped("in flight", sent)

== terminals | terminals|blocked
def take():
    try:
        while True: os.openpty()
    except OSError as error:
        blocked("openpty", error)
    nap()
for _ in range(20):
    if os.fork() == 0: take()
time.sleep(1)
print("terminals", len(os.listdir("/dev/pts")) - 1 if os.path.isdir("/dev/pts") else 0)
if os.path.isdir("/dev/pts") and len(os.listdir("/dev/pts")) > 2000: escaped("terminals", len(os.listdir("/dev/pts")))

== long_names_in_the_slot | made | timeout=10
place = os.path.dirname(os.readlink("/proc/self/fd/200"))
with contextlib.suppress(OSError):
    for number in range(6000): os.mkdir(f"{place}/{number:0240}")
print("made")

== shared_memory_inodes | blocked: /dev/shm|too much of /dev/shm | timeout=10, status="ok|memory_limit", needs="uid"
try:
    for number in range(400_000): os.mknod(f"/dev/shm/{number}")
    escaped("files in /dev/shm", number)
except OSError as error:
    blocked("/dev/shm", error)

== inotify | blocked: inotify
try:
    for _ in range(100_000):
        if _libc.inotify_init() < 0: raise OSError(ctypes.get_errno(), "inotify")
    escaped("inotify", 100_000)
except OSError as error:
    blocked("inotify", error)

== timers | blocked: timer_create | needs="uid", timeout=15
rt = ctypes.CDLL(None, use_errno=True)
timer = ctypes.c_void_p()
try:
    for _ in range(1_000_000):
        if rt.timer_create(1, None, ctypes.byref(timer)): raise OSError(ctypes.get_errno(), "timer")
    escaped("timers", 1_000_000)
except OSError as error:
    blocked("timer_create", error)

== orphans_for_the_supervisor | end | status="ok|error"
end = time.monotonic() + 2
while time.monotonic() < end:
    with contextlib.suppress(OSError):
        daemon(lambda: None)
print("end")
"""
