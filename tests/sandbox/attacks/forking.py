"""Attacks on the forking of a session, which its own process does: it is made to fail, to hang, or to take too much.

Afterwards the test forks the session. Either it works, or it is a `ForkError` and the session lives on, or the
session is lost; nothing hangs, and nobody else notices.
"""

OPTIONS = {"forks": 2, "unsafe": True}

HANGS = (
    "os.register_at_fork(after_in_child=nap)",
    "os.register_at_fork(before=nap)",
    "os.register_at_fork(before=lambda: all(iter(lambda: True, None)))",
    "os.register_at_fork(after_in_parent=nap)",
    "os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGSTOP))",
)

CODE = r"""
== hook_ends_the_child | shows=""
os.register_at_fork(after_in_child=lambda: os._exit(0))

== hook_ends_the_parent | shows=""
os.register_at_fork(after_in_parent=lambda: os._exit(0))

== hook_forks_again | shows=""
os.register_at_fork(after_in_child=lambda: len(os.listdir('.')) or os.fork())

== hook_closes_everything | shows=""
os.register_at_fork(after_in_child=lambda: os.closerange(0, 4096))

== children_not_waited_for | shows=""
signal.signal(signal.SIGCHLD, signal.SIG_IGN)

== directory_that_does_not_fit_twice | written
for number in range(5):
    with open(f"part{number}", "wb") as file: file.write(bytes(5 << 20))
print("written")

== directory_of_pipes_and_links | made
os.mkfifo("pipe")
socket.socket(socket.AF_UNIX).bind("socket")
os.symlink(".", "here")
os.symlink("loop", "loop")
os.symlink("/proc/self/fd", "descriptors")
os.mkdir("locked")
open("locked/file", "w").write("x")
os.chmod("locked/file", 0)
os.chmod("locked", 0)
print("made")

== directory_too_deep | deep
import posix
top = posix.getcwd()
for _ in range(2000):
    os.mkdir("d")
    posix.chdir("d")
posix.chdir(top)
print("deep")

== directory_replaced_by_a_link | replaced
import posix
here = posix.getcwd()
os.rename(here, here + "x")
os.symlink("/", here)
print("replaced")

== descriptors_all_used | used
held = []
with contextlib.suppress(OSError):
    while True: held.append(os.open("/dev/null", os.O_RDONLY))
print("used", len(held))

== descriptors_of_all_kinds | opened
import select
os.mkfifo("pipe")
held = [os.open("pipe", os.O_RDWR), select.epoll(), os.eventfd(0), os.open("/", os.O_PATH), os.open("/proc/stat", 0),
        *os.pipe(), *socket.socketpair(), os.open("/dev/null", os.O_RDWR), os.open(".", os.O_TMPFILE | os.O_RDWR)]
os.unlink("pipe")
print("opened", len(held))

== memory_all_used | full
held = []
try:
    while True: held.append(b"x" * 10**6)
except MemoryError: pass
print("full")

== processes_all_used | full | unsafe=False, needs="uid"
try:
    while True:
        if os.fork() == 0: nap()
except OSError: print("full")

== channel_flooded_meanwhile | started
import threading
def flood():
    time.sleep(0.2)
    while True: os.write(channel(), b"x" * 65536)
threading.Thread(target=flood, daemon=True).start()
print("started")

== domains_all_used | nested
nested = 0
with contextlib.suppress(OSError):
    while nested < 30:
        ruleset = syscall_number(444, struct.pack("=QQQ", 0, 0, 2), 24, 0)
        syscall_number(446, ruleset, 0)
        os.close(ruleset)
        nested += 1
print("nested", nested)

== source_of_the_server_replaced | shows=""
sys.modules['os'] = sys.modules['posix'] = None
import json
"""
