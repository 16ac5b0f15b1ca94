"""Attacks on what others know: their memory, files, environment and descriptors, and the machine's."""

OPTIONS = {"needs": "uid"}

CODE = r"""
== files_of_processes | (?s)blocked: cwd E(ACCES|NOENT).*blocked: fd E(ACCES|NOENT).*blocked: mem E(ACCES|NOENT)
for pid in {*others(), *victims(), 1}:
    for name in ("cwd", "root", "exe"):
        refused(name, os.readlink, f"/proc/{pid}/{name}")
    for name in ("cwd", "root", "fd", "fdinfo", "map_files"):
        refused(name, os.listdir, f"/proc/{pid}/{name}")
    for number in [*range(12), 199, 200]:
        refused("fd", os.open, f"/proc/{pid}/fd/{number}", os.O_RDWR)
    for place in ("cwd", "fd/200"):
        refused("secret", open, f"/proc/{pid}/{place}/secret.txt")
    for name in ("mem", "maps", "smaps", "environ", "auxv", "pagemap", "stack", "syscall", "io", "personality",
                 f"task/{pid}/mem", f"task/{pid}/environ"):
        refused(name, lambda: open(f"/proc/{pid}/{name}", "rb").read(64))
    refused("mem", open, f"/proc/{pid}/mem", "r+b")
for victim in VICTIMS:
    with contextlib.suppress(OSError), open(f"/proc/{victim['pid']}/mem", "rb", buffering=0) as file:
        file.seek(victim["address"])
        escaped("memory", file.read(100))

== pidfd | blocked: pidfd_getfd EPERM
for pid in victims() + [1]:
    for number in (0, 1, 3, 4, 199, 200):
        refused("pidfd_getfd", lambda: syscall("pidfd_getfd", syscall("pidfd_open", pid, 0), number, 0))
    vector = struct.pack("PN", VICTIMS[0]["address"] & ~4095, 4096)
    refused("process_madvise", lambda: syscall("process_madvise", syscall("pidfd_open", pid, 0), vector, 1, 21, 0))

== directories_listed | blocked: listdir EACCES
for victim in VICTIMS:
    place = victim["directory"]
    for path in (place, os.path.dirname(place), "/proc/self/root" + place):
        refused("listdir", os.listdir, path)
    for path in (place + "/secret.txt", "/work/../" + place.lstrip("/") + "/secret.txt"):
        for mode in ("r", "r+", "w", "x"):
            refused("open " + mode, open, path, mode)
        refused("stat", os.stat, path)
        refused("unlink", os.unlink, path)
        refused("utime", os.utime, path)
    refused("rename", os.rename, place, place + "x", also=(18,))
    refused("rmdir", os.rmdir, place)

== directories_walked_from_descriptors | walked
for fd in range(300):
    for up in ("..", "../..", "../../.."):
        with contextlib.suppress(OSError):
            names = os.listdir(os.open(up, os.O_RDONLY, dir_fd=fd))
            for name in names:
                with contextlib.suppress(OSError):
                    print(open(os.open(f"{up}/{name}/secret.txt", os.O_RDONLY, dir_fd=fd)).read())
                with contextlib.suppress(OSError):
                    print(open(os.open(f"{up}/{name}/{name}/secret.txt", os.O_RDONLY, dir_fd=fd)).read())
import glob
for path in glob.glob("/slots/**/secret.txt", recursive=True) + glob.glob("/proc/[0-9]*/cwd/secret.txt"):
    escaped("found", path)
print("walked")

== environment | environment
print("environment", sorted(os.environ.items()))
for pid in ["self", os.getpid(), 1, *others()]:
    with contextlib.suppress(OSError):
        print(open(f"/proc/{pid}/environ", "rb").read())

== own_memory | scanned [1-9] | needs=""
import re
scanned, found = 0, set()
with open("/proc/self/maps") as maps:
    areas = [line.split() for line in maps]
for area in areas:
    if area[1] == "rw-p":
        start, end = (int(part, 16) for part in area[0].split("-"))
        data = ctypes.string_at(start, end - start)
        scanned += len(data)
        found.update(re.findall(rb"SENTINEL-[0-9a-f]{16}", data))
print("scanned", scanned, found)

== objects_of_the_server | objects | needs="", status="ok|output_limit"
import gc
kinds = {type(thing).__module__ + "." + type(thing).__name__ for thing in gc.get_objects()}
for name in kinds:
    if name.startswith(("sandbox.server.sessions.", "sandbox.server.limits.")) or name.rpartition(".")[2] in (
        "Supervisor", "SessionHandle", "Requests", "ZygoteClient", "Slots", "MemoryWatchdog", "ClientStream",
        "EventLoop",
    ):
        escaped("object", name)
print("objects", len(kinds))
frame = sys._getframe()
while frame:
    for name, value in list(frame.f_locals.items()) + list(frame.f_globals.items()):
        print(name, repr(value).replace(ESCAPED, "")[:300])
    frame = frame.f_back

== machine | blocked: /etc/shadow | needs=""
for path in ("/etc/shadow", "/var/run/docker.sock", "/run/docker.sock", "/boot", "/home", "/root/.ssh",
             "/var/lib/docker", "/proc/1/root/etc/shadow", "/proc/kcore", "/proc/kmsg", "/proc/keys",
             "/sys/kernel/debug", "/dev/mem", "/sys/firmware/efi", "/sys/kernel/security", "/etc/ssh", MACHINE):
    def look(path=path):
        found = os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(1)
        if not found: raise PermissionError(1, "empty")
        return found
    refused(path, look)
kernel = [line.split()[0] for line in open("/proc/kallsyms")][:100] if os.path.exists("/proc/kallsyms") else []
if set(kernel) - {"0" * 16}: escaped("kallsyms", kernel[:3])

== processes_of_the_machine | commands | needs=""
commands = []
for name in os.listdir("/proc"):
    if name.isdigit():
        with contextlib.suppress(OSError):
            commands.append(open(f"/proc/{name}/cmdline").read())
print("commands", len(commands))
for word in ("pytest", "dockerd", "containerd", "systemd", "sshd", "bwrap"):
    if any(word in command for command in commands): escaped("process", word)
"""
