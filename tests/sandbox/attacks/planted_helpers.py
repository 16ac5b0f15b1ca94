"""Attacks that were planted before a fork: what acts by itself, such as workers, threads, hooks, timers and signals.

A thread or a worker from before the fork belongs to the origin. A branch must not be able to make it do something
there, over whatever connects the two.
"""

OPTIONS = {"position": "fork", "needs": "uid landlock seccomp", "status": "ok|killed"}

_READ = "order(line, \"open('secret.txt').read()\")\n"
_OVERWRITE = """
order(line, "open('secret.txt', 'w').write('changed')")
order(line, "open('more', 'w').write('x')")
"""
_KILL = """
for pid in victims():
    order(line, f"os.kill({pid}, signal.SIGKILL)")
"""
_KEEP_NEW = "kept = []\ndef keep(*_): kept.extend(kept_descriptors(only_sockets=True))\n"
_USE_KEPT = "write_to_all(kept, b'garbage' * 10)"
_SHELL = """
import subprocess
shell = subprocess.Popen(["/bin/sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
"""

CODE = r"""
== worker | ordered
line = worker()
----
<<_READ>>
<<_OVERWRITE>>
<<_KILL>>

== worker_that_has_left | ordered
line, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
daemon(lambda: obey(far))
----
<<_READ>>
<<_OVERWRITE>>
<<_KILL>>

== worker_reached_over_shared_memory | ordered
place = f"/dev/shm/meet-{os.getuid()}"
with contextlib.suppress(OSError): os.unlink(place)
meeting = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
meeting.bind(place)
meeting.listen()
if os.fork() == 0:
    with contextlib.suppress(BaseException):
        while True: obey(meeting.accept()[0])
    os._exit(0)
----
line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
with contextlib.suppress(OSError):
    line.settimeout(1)
    line.connect(place)
<<_READ>>
<<_KILL>>

== pool_of_processes | ordered
import multiprocessing
pool = multiprocessing.get_context("fork").Pool(2)
pool.apply(os.getpid)
----
with contextlib.suppress(Exception):
    for pid in victims(): pool._inqueue.put((0, 0, os.kill, (pid, 9), {}))
    for _ in range(2): pool._inqueue.put((0, 0, os.replace, ("secret.txt", "more"), {}))
time.sleep(0.5)
say("ordered")

== thread | ordered
import threading
line, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
threading.Thread(target=obey, args=(far,), daemon=True).start()
----
<<_READ>>
<<_OVERWRITE>>
order(line, "secret")
order(line, "os._exit(0)")

== thread_reached_over_shared_memory | ordered
import threading
place = f"/dev/shm/orders-{os.getuid()}"
def watch():
    while True:
        with contextlib.suppress(Exception): eval(open(place).read())
        time.sleep(0.05)
open(place, "w").close()
origin = os.getpid()
threading.Thread(target=watch, daemon=True).start()
----
with contextlib.suppress(OSError):
    with open(place, "w") as file: file.write(f"os._exit(0) if os.getpid() == {origin} else None")
    time.sleep(0.3)
    os.unlink(place)
say("ordered")

== shell | ordered
<<_SHELL>>
----
with contextlib.suppress(OSError):
    os.set_blocking(shell.stdout.fileno(), False)
    shell.stdin.write(b"read x < secret.txt; echo $x\n")
    shell.stdin.flush()
    time.sleep(0.3)
    say(repr(os.read(shell.stdout.fileno(), 4096)))
with contextlib.suppress(OSError):
    for pid in victims(): shell.stdin.write(f"kill -9 {pid}\n".encode())
    shell.stdin.write(b"echo changed > secret.txt; rm -f listener\n")
    shell.stdin.flush()
time.sleep(0.3)
say("ordered")

== shell_started_anew_with_every_fork | ordered | position="original"
<<_SHELL>>

def again():
    global shell
    shell = subprocess.Popen(["/bin/sh"], stdin=subprocess.PIPE)
os.register_at_fork(after_in_parent=again)
----
with contextlib.suppress(OSError):
    for pid in victims(): shell.stdin.write(f"kill -9 {pid}\n".encode())
    shell.stdin.flush()
time.sleep(0.3)
say("ordered")

== hook_in_the_original_keeps_descriptors | tried [1-9] | position="original"
<<_KEEP_NEW>>
os.register_at_fork(before=keep, after_in_parent=keep)
----
<<_USE_KEPT>>

== hook_in_the_copies_sends_descriptors_home | tried | position="original"
<<_KEEP_NEW>>
near, far = socket.socketpair()
near.setblocking(False)
def send_home():
    keep()
    for fd in kept:
        with contextlib.suppress(OSError): socket.send_fds(far, [b"x"], [fd])
    kept.clear()
os.register_at_fork(after_in_child=send_home)
----
kept = landed(near)
<<_USE_KEPT>>

== thread_in_the_original_keeps_descriptors | tried [1-9] | position="original"
<<_KEEP_NEW>>
import threading
def always():
    seen = set()
    while len(kept) < 100:
        for fd in range(3, 300):
            with contextlib.suppress(OSError):
                status = os.fstat(fd)
                if not os.path.stat.S_ISSOCK(status.st_mode) or status.st_ino in seen: continue
                kept.append(fcntl.fcntl(fd, fcntl.F_DUPFD, 300))
                seen.add(status.st_ino)
threading.Thread(target=always, daemon=True).start()
time.sleep(0.1)
----
<<_USE_KEPT>>

== functions_replaced_keep_descriptors | tried | position="original"
kept = []
def keeping(function):
    def call(*arguments, **named):
        result = function(*arguments, **named)
        for one in result if isinstance(result, tuple) else (result,):
            number = one if isinstance(one, int) else getattr(one, "fileno", lambda: -1)()
            with contextlib.suppress(OSError, TypeError, ValueError):
                if os.path.stat.S_ISSOCK(os.fstat(number).st_mode) and len(kept) < 100:
                    kept.append(fcntl.fcntl(number, fcntl.F_DUPFD, 300))
        return result
    return call
receive = socket.socket.recvmsg
def receiving(*arguments):
    result = receive(*arguments)
    for _, kind, data in result[1]:
        for number in struct.unpack(f"{len(data) // 4}i", data) if kind == socket.SCM_RIGHTS else ():
            kept.append(fcntl.fcntl(number, fcntl.F_DUPFD, 300))
    return result
socket.socket.recvmsg = receiving
import posix, _socket
for module, names in ((socket, ("socketpair", "socket", "fromfd")), (os, ("pipe", "pipe2", "dup", "dup2", "open")),
                      (_socket, ("socketpair", "dup")), (posix, ("pipe", "pipe2", "dup", "dup2"))):
    for name in names:
        if name != "socket" and hasattr(module, name): setattr(module, name, keeping(getattr(module, name)))
----
<<_USE_KEPT>>

== signal_of_a_descriptor | tried | status="ok|killed|timeout", timeout=2
pairs = []
def signals(one, two, number, call, *arguments):
    pairs.append((one, two))
    with contextlib.suppress(OSError):
        call(one, *arguments)
        fcntl.fcntl(one, 10, number)
        fcntl.fcntl(one, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
me = struct.pack("i", os.getpid())
for number in (signal.SIGKILL, signal.SIGSTOP):
    for owner in (os.getpid(), -os.getpgrp()): signals(*socket.socketpair(), number, fcntl.fcntl, fcntl.F_SETOWN, owner)
    for request in (0x8901, 0x8902): signals(*socket.socketpair(), number, fcntl.ioctl, request, me)
    signals(*os.pipe(), number, fcntl.fcntl, 15, struct.pack("i", 1) + me)
----
say("tried")
for _, two in pairs:
    with contextlib.suppress(OSError): os.write(two if isinstance(two, int) else two.fileno(), b"x")
time.sleep(0.2)

== signal_of_a_lease | tried
place = f"/dev/shm/lease-{os.getuid()}"
leased = os.open(place, os.O_RDONLY | os.O_CREAT, 0o600)
with contextlib.suppress(OSError):
    fcntl.fcntl(leased, 10, signal.SIGKILL)
    fcntl.fcntl(leased, 1024, fcntl.F_RDLCK)
----
with contextlib.suppress(OSError): os.close(os.open(place, os.O_WRONLY | os.O_NONBLOCK))
time.sleep(0.2)
with contextlib.suppress(OSError): os.unlink(place)
say("tried")

== process_descriptor_kept | blocked|tried
pidfd = -1
with contextlib.suppress(OSError): pidfd = os.pidfd_open(os.getpid())
----
refused("pidfd_send_signal", syscall, "pidfd_send_signal", pidfd, signal.SIGKILL, 0, 0, also=(9,))
refused("pidfd_getfd", syscall, "pidfd_getfd", pidfd, 1, 0, also=(9,))
"""
