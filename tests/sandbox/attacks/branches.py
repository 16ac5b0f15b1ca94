"""Attacks between branches: forks of one session share a user, and are kept apart by Landlock and seccomp."""

OPTIONS = {"position": "fork", "both": True, "needs": "uid landlock seccomp"}

CODE = r"""
== kill | blocked: kill EPERM
for pid in victims():
    for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        refused("kill", os.kill, pid, number)
        refused("tgkill", syscall, "tgkill", pid, pid, number)
        refused("pidfd_send_signal", lambda: syscall("pidfd_send_signal", syscall("pidfd_open", pid, 0), number, 0, 0))
    with contextlib.suppress(ProcessLookupError):
        refused("killpg", os.killpg, os.getpgid(pid), signal.SIGKILL)

== kill_everything | shows="", status="ok|error|killed"
os.kill(-1, signal.SIGKILL)

== kill_by_a_descriptor | tried
import fcntl
for pid in victims():
    one, two = socket.socketpair()
    with contextlib.suppress(OSError):
        fcntl.fcntl(one, fcntl.F_SETOWN, pid)
        fcntl.fcntl(one, 10, signal.SIGKILL)
        fcntl.fcntl(one, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        two.send(b"x")
print("tried")

== look_into | blocked: mem (EACCES|ENOENT)
for pid in victims():
    for name in ("mem", "environ", "maps", "auxv"):
        refused(name, lambda: open(f"/proc/{pid}/{name}", "rb").read(64))
    for name in ("cwd", "root", "exe"):
        refused(name, os.readlink, f"/proc/{pid}/{name}")
    for number in (0, 1, 2, 199, 200):
        refused("fd", os.open, f"/proc/{pid}/fd/{number}", os.O_RDWR)
    refused("secret", open, f"/proc/{pid}/cwd/secret.txt")

== files_found | searched
import gc, glob, posix, re
slot = os.path.dirname(posix.getcwd())
with contextlib.suppress(OSError):
    for name in os.listdir(slot): print(name, os.listdir(f"{slot}/{name}"))
places = set(glob.glob(slot + "/*")) | set(re.findall(slot + "/[0-9a-f]{8,}", repr(sorted(os.environ.items()))))
with open("/proc/self/maps") as maps: areas = [line.split() for line in maps]
for area in areas:
    if area[1] == "rw-p":
        start, end = (int(part, 16) for part in area[0].split("-"))
        data = ctypes.string_at(start, end - start)
        places |= {place.decode() for place in re.findall(slot.encode() + b"/[0-9a-f]{32}", data)}
for place in places - {posix.getcwd()}:
    with contextlib.suppress(OSError):
        print(open(place + "/secret.txt").read())
        with open(place + "/secret.txt", "w") as file: file.write("changed")
print("searched", len(places))

== descriptors_inherited | descriptors
import stat
sockets = []
for name in os.listdir("/proc/self/fd"):
    with contextlib.suppress(OSError):
        if stat.S_ISSOCK(os.fstat(int(name)).st_mode): sockets.append(int(name))
print("descriptors", sockets)
if len(sockets) != 1: escaped("sockets", sockets)
for number in range(3, 300):
    for up in ("secret.txt", "../secret.txt"):
        with contextlib.suppress(OSError):
            text = open(os.open(up, os.O_RDONLY, dir_fd=number)).read()
            print(number, text)

== sockets | blocked: abstract
for victim in VICTIMS:
    refused("abstract", socket.socket(socket.AF_UNIX).connect, "\0" + victim["socket"])

== fork_bomb | blocked: fork EAGAIN | status="timeout", timeout=1
told = False
while True:
    try:
        os.fork()
    except OSError as error:
        if not told:
            told = True
            blocked("fork", error)
        time.sleep(0.01)

== dies_with_daemons | dies | status="killed", alive=False
daemon(spin)
say('dies')
os._exit(1)

== memory | started | status="memory_limit", alive=False, timeout=10
print("started", flush=True)
for _ in range(20):
    if os.fork() == 0:
        area = bytearray(100 << 20)
        for page in range(0, len(area), 4096): area[page] = 1
        nap()
time.sleep(6)
"""
