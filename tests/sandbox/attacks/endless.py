"""Attacks with time: code that does not end, and does not want to be interrupted."""

OPTIONS = {"status": "timeout", "timeout": 0.5, "unsafe": True}
AGAIN = {"then": "6 * 7", "then_shows": "42"}
STOPPED = "stopped after 0.5 s"

CODE = r"""
== loop | shows=STOPPED, alive=True, **AGAIN
while True: pass

== all_signals_ignored | shows=STOPPED, alive=False
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
while True: pass

== stops_itself | shows=STOPPED, alive=False
os.kill(os.getpid(), signal.SIGSTOP)

== c_loop_holds_the_interpreter | shows=STOPPED, alive=False
sum(range(10**13))

== swallows_the_interrupt | shows=STOPPED, alive=False
while True:
    try:
        time.sleep(100)
    except BaseException:
        pass

== waits_for_a_child_like_vfork | shows=STOPPED, alive=False
if syscall("clone", 0x4000 | signal.SIGCHLD, 0, 0, 0, 0) == 0:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    nap()

== repr_that_never_returns | shows=STOPPED, **AGAIN
class Slow:
    def __repr__(self):
        while True: pass
Slow()

== exit_handler_hangs | shows="", status="exit|timeout"
import atexit
atexit.register(nap)
sys.exit()

== thread_never_ends | started | status="ok", then="6 * 7", then_shows="42", timeout=3
import threading
def work():
    while True: pass
threading.Thread(target=work).start()
print("started")

== cell_ends_but_the_next_does_not_start | set
| status="ok", timeout=3, then="time.sleep(0.5)\n1", then_shows="stopped after|1"
import threading
def hold():
    sum(range(10**13))
threading.Timer(0.2, hold).start()
print("set")
"""
