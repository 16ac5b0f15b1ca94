"""Attacks with processes: bombs, daemons, threads, and whatever tries to outlive its session."""

CODE = r"""
== fork_bomb_double_fork | blocked: fork EAGAIN | status="timeout", timeout=1, needs="uid"
told = False
while True:
    try:
        if os.fork() == 0:
            os.setsid()
            if os.fork():
                os._exit(0)
    except OSError as error:
        if not told:
            told = True
            blocked("fork", error)
        time.sleep(0.01)

== fork_bomb_and_exit | dies | status="killed", alive=False, needs="uid"
say("dies")
if os.fork() == 0:
    while True:
        try:
            os.fork()
        except OSError:
            pass
os._exit(0)

== thread_bomb | blocked: thread | needs="uid"
import threading
gate = threading.Event()
threading.stack_size(64 << 10)
started = 0
try:
    while started < 5000:
        threading.Thread(target=gate.wait, daemon=True).start()
        started += 1
    escaped("threads", started)
except (RuntimeError, MemoryError) as error:
    blocked("thread", error)
gate.set()

== daemon_subreaper | started
def reaper():
    _libc.prctl(36, 1, 0, 0, 0)
    for _ in range(5):
        daemon(nap)
    nap()
daemon(reaper)
print("started")

== daemon_holds_stdout | started | then="print('next')", then_shows='next'
daemon(nap)
print('started')

== daemon_without_death_signal | started
def stay():
    _libc.prctl(1, 0, 0, 0, 0)
    for number in range(1, 65):
        try: signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError): pass
    nap()
daemon(stay)
print("started")

== daemons_left_by_a_segfault | dies | status="killed", alive=False
for _ in range(5): daemon(spin)
say('dies')
ctypes.string_at(0)

== stopped_children | stopped 20
for _ in range(20):
    if os.fork() == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
        nap()
print("stopped", 20)

== daemons_with_names_that_are_no_text | started
def rename():
    ctypes.CDLL(None).prctl(15, b"\xff\xfe) \n", 0, 0, 0)  # PR_SET_NAME
    nap()
for _ in range(5):
    daemon(rename)
print("started")
"""
