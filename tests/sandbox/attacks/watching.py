"""Attacks that only watch: what a session can learn of its neighbours by looking at what they share."""

OPTIONS = {"needs": "uid"}
SHOWN = "docker: it has no option that hides processes of other users, and whoever sees one reads its command line"

CODE = r"""
== command_lines | looked | not_on=SHOWN
for name in os.listdir("/proc"):
    for what in ("cmdline", "comm", "environ", "task", "wchan", "stack"):
        with contextlib.suppress(OSError):
            if what == "task": os.listdir(f"/proc/{name}/task")
            else: say(open(f"/proc/{name}/{what}").read().replace("\0", " "))
say("looked")

== shared_memory_listed | blocked: listdir
refused("listdir", os.listdir, "/dev/shm")
refused("scandir", lambda: list(os.scandir("/dev/shm/.")))
for flags in (os.O_RDONLY | os.O_DIRECTORY, os.O_PATH):
    with contextlib.suppress(OSError):
        fd = os.open("/dev/shm", flags)
        with contextlib.suppress(OSError): escaped("listed", os.listdir(fd))
        with contextlib.suppress(OSError): escaped("listed", os.listdir(f"/proc/self/fd/{fd}"))
        with contextlib.suppress(OSError): escaped("opened", os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd))

== shared_memory_watched_by_signals | watched | meanwhile=True
seen = []
signal.signal(signal.SIGIO, lambda *_: seen.append(1))
with contextlib.suppress(OSError):
    fd = os.open("/dev/shm", os.O_RDONLY)
    fcntl.fcntl(fd, 1026, 0x8000003F)
until = time.monotonic() + 0.7
while time.monotonic() < until: time.sleep(0.05)
say("watched")
if seen: escaped("changes of /dev/shm", len(seen))
"""
