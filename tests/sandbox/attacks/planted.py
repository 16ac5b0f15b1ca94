"""Attacks that were planted before a fork: descriptors of the common past, used by one branch against the others.

What is kept is the control channel, both outputs, and files; as duplicates, on their way in a socket, or as memory.
Some are also tried by the origin, which has the same from before as its copies.
"""

OPTIONS = {"position": "fork", "needs": "uid landlock seccomp", "status": "ok|killed", "shows": "tried [1-9]"}

_KEEP = "kept = kept_descriptors()\nassert kept\n"
_KEEP_IN_FLIGHT = "near = in_flight(kept_descriptors())\n"
_OUTPUTS = "kept = [fcntl.fcntl(fd, fcntl.F_DUPFD, 300) for fd in (1, 2)]\n"

CODE = r"""
== results_forged | both=True
<<_KEEP>>
----
good = struct.pack("<<OUTCOME.format>>", 0, 1, 6, 0) + b"forged"
write_to_all(kept, b''.join(frame(<<DONE>>, number, good) for number in range(300)))

== result_of_the_next_cell_forged | meanwhile=True
<<_KEEP>>
numbers = set()
frames = sys._getframe()
while frames:
    numbers |= {value for value in list(frames.f_locals.values()) if type(value) is int and 0 <= value < 10**6}
    for holder in list(frames.f_locals.values()):
        numbers |= {value for value in list(getattr(holder, "__dict__", {}).values()) if type(value) is int}
    frames = frames.f_back
----
good = struct.pack("<<OUTCOME.format>>", 0, 1, 6, 0) + b"forged"
for number in sorted(n + step for n in numbers for step in (1, 2, 3) if 0 <= n < 10**6):
    write_to_all(kept, frame(<<DONE>>, number, good))

== channel_shut_down_and_given_a_timeout
<<_KEEP>>
----
tried = 0
for fd in kept:
    with contextlib.suppress(OSError):
        line = socket.socket(fileno=os.dup(fd))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            line.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", 0, 1000))
        line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        os.set_blocking(fd, False)
        line.shutdown(socket.SHUT_RDWR)
        tried += 1
say(f"tried {len(kept)}, shut down {tried}")

== next_cell_stolen | both=True, meanwhile=True
<<_KEEP>>
----
say(f"tried {len(kept)}")
until = time.monotonic() + 0.7
for fd in kept: os.set_blocking(fd, False)
while time.monotonic() < until:
    for fd in kept:
        with contextlib.suppress(OSError):
            say(repr(socket.socket(fileno=os.dup(fd)).recv(65536, socket.MSG_PEEK | socket.MSG_DONTWAIT)))
        with contextlib.suppress(OSError):
            say(repr(os.read(fd, 65536)))
    time.sleep(0.001)

== channel_in_flight | both=True
<<_KEEP_IN_FLIGHT>>
----
write_to_all(landed(near) or [near.fileno()], b'garbage' * 100)

== channel_in_flight_in_a_socket_in_flight
<<_KEEP_IN_FLIGHT>>
outer = in_flight([near.detach()])
----
inner = landed(outer)
fds = landed(socket.socket(fileno=inner[0])) if inner else []
write_to_all(fds or [outer.fileno()], b'garbage' * 100)

== channel_held_by_a_worker
line = worker()
----
order(line, "[fd for fd in kept_descriptors() if write_to_all([fd], b'garbage' * 100)]")
say("tried 1")

== output_injected | both=True, meanwhile=True
<<_OUTPUTS>>
----
until = time.monotonic() + 0.6
while time.monotonic() < until:
    write_to_all(kept, b'injected\n')
    time.sleep(0.01)

== output_injected_by_descriptors_in_flight
near = in_flight([os.dup(1), os.dup(2)])
----
write_to_all(landed(near) or [near.fileno()], b'injected\n')

== output_stopped_up
<<_OUTPUTS>>
----
say(f"tried {len(kept)}")
for fd in kept:
    with contextlib.suppress(OSError):
        os.set_blocking(fd, False)
        fcntl.fcntl(fd, 1031, 4096)
        for _ in range(20): os.write(fd, bytes(4096))

== output_read | meanwhile=True
kept = []
for fd in (1, 2):
    with contextlib.suppress(OSError): kept.append(os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK))
----
say(f"tried 1, {len(kept)}")
until = time.monotonic() + 0.6
while time.monotonic() < until:
    for fd in kept:
        with contextlib.suppress(OSError): say(repr(os.read(fd, 65536)))

== directory_in_flight
near = in_flight([os.open('.', os.O_RDONLY | os.O_DIRECTORY), os.open('.', os.O_PATH)])
----
for fd in landed(near):
    with contextlib.suppress(OSError):
        say(open(os.open("secret.txt", os.O_RDONLY, dir_fd=fd)).read())
    with contextlib.suppress(OSError):
        os.write(os.open("secret.txt", os.O_WRONLY | os.O_TRUNC, dir_fd=fd), b"changed")
    with contextlib.suppress(OSError):
        os.rename("listener", "gone", src_dir_fd=fd, dst_dir_fd=fd)
say("tried 1")

== file_in_flight | both=True
open("secret.txt", "w").close()
near = in_flight([os.open("secret.txt", os.O_RDWR)])
----
for fd in landed(near):
    say(repr(os.pread(fd, 100, 0)))
    os.pwrite(fd, b"changed", 0)
say("tried 1")

== file_mapped
import mmap
with open("secret.txt", "w+b") as file:
    file.truncate(4096)
    mapped = mmap.mmap(file.fileno(), 4096)
----
say("tried 1")
if not os.fork():
    say(repr(mapped[:100]))
    mapped[:7] = b"changed"
    os._exit(0)
os.wait()

== directory_by_its_name
import posix
place = posix.getcwd()
link = os.readlink('/proc/self/cwd')
----
for name in {place, link} - {posix.getcwd()}:
    with contextlib.suppress(OSError): say(open(name + "/secret.txt").read())
    with contextlib.suppress(OSError): open(name + "/secret.txt", "w").write("changed")
    with contextlib.suppress(OSError): os.mkdir(name + "/made")
say("tried 1")

== memory_by_a_file_kept
kept = []
for name in ("mem", "environ", "maps", "fd", "root", "cwd"):
    for flags in (os.O_RDWR, os.O_RDONLY, os.O_PATH):
        with contextlib.suppress(OSError): kept.append((name, os.open(f"/proc/self/{name}", flags)))
kept.append(("process", os.open("/proc/self", os.O_PATH)))
near = in_flight([os.dup(fd) for _, fd in kept])
----
fds = [fd for _, fd in kept] + landed(near)
for fd in fds:
    for victim in VICTIMS:
        with contextlib.suppress(OSError): say(repr(os.pread(fd, 200, victim["address"])))
        with contextlib.suppress(OSError): os.pwrite(fd, b"x" * 60, victim["address"])
    for name in ("mem", "environ", "fd/1", "cwd/secret.txt", "secret.txt"):
        with contextlib.suppress(OSError):
            say(repr(os.pread(os.open(name, os.O_RDONLY, dir_fd=fd), 200, 0)))
            if name == "mem": escaped("opened", name)
say(f"tried {len(fds)}")

== settings_by_files_kept
kept = []
for name in ("oom_score_adj", "comm", "timerslack_ns", "coredump_filter", "clear_refs", "sched", "autogroup",
             "loginuid"):
    with contextlib.suppress(OSError): kept.append((name, os.open(f"/proc/self/{name}", os.O_WRONLY)))
----
for name, fd in kept:
    with contextlib.suppress(OSError):
        os.write(fd, b"1000")
        if name in ("oom_score_adj", "autogroup"): escaped(name, "of another process")
say("tried 1")
"""
