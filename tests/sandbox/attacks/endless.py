"""Attacks with time: code that does not end, and does not want to be interrupted."""

from __future__ import annotations

from functools import partial

from attacks.attack import Attack

attack = partial(Attack, kind="endless", status="timeout", timeout=0.5, unsafe=True)
AGAIN = {"then": "6 * 7", "then_shows": "42"}
STOPPED = "stopped after 0.5 s"

ATTACKS = (
    attack("loop", STOPPED, "while True: pass", alive=True, **AGAIN),
    attack(
        "all_signals_ignored",
        STOPPED,
        """
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
while True: pass
""",
        alive=False,
    ),
    attack("stops_itself", STOPPED, "os.kill(os.getpid(), signal.SIGSTOP)", alive=False),
    attack("c_loop_holds_the_interpreter", STOPPED, "sum(range(10**13))", alive=False),
    attack("c_loop_of_big_integers", STOPPED, "x = 10 ** 10**8", status="timeout"),
    attack("catastrophic_regex", STOPPED, "import re; re.match('(a+)+$', 'a' * 60 + 'b')"),
    attack(
        "swallows_the_interrupt",
        STOPPED,
        """
while True:
    try:
        time.sleep(100)
    except BaseException:
        pass
""",
        alive=False,
    ),
    attack(
        "never_leaves_finally",
        STOPPED,
        """
try:
    time.sleep(100)
finally:
    while True:
        try: time.sleep(1)
        except BaseException: pass
""",
        alive=False,
    ),
    attack(
        "waits_for_a_child_like_vfork",
        STOPPED,
        """
if syscall("clone", 0x4000 | signal.SIGCHLD, 0, 0, 0, 0) == 0:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    nap()
""",
        alive=False,
    ),
    attack(
        "repr_that_never_returns",
        STOPPED,
        """
class Slow:
    def __repr__(self):
        while True: pass
Slow()
""",
        **AGAIN,
    ),
    attack(
        "exception_that_never_speaks",
        STOPPED,
        """
class Slow(Exception):
    def __str__(self):
        while True: pass
raise Slow
""",
        **AGAIN,
    ),
    attack(
        "trace_function_that_loops",
        STOPPED,
        """
def trace(*_):
    while True:
        try: time.sleep(1)
        except BaseException: pass
sys.settrace(trace)
(lambda: 1)()
""",
        alive=False,
    ),
    attack(
        "storm_of_timers",
        STOPPED,
        """
def tick(*_): pass
signal.signal(signal.SIGALRM, tick)
signal.signal(signal.SIGINT, tick)
signal.setitimer(signal.ITIMER_REAL, 1e-5, 1e-5)
while True: pass
""",
        alive=False,
    ),
    attack(
        "exit_handler_hangs",
        "",
        "import atexit\natexit.register(nap)\nsys.exit()",
        status="exit|timeout",
    ),
    attack(
        "thread_never_ends",
        "started",
        """
import threading
def work():
    while True: pass
threading.Thread(target=work).start()
print("started")
""",
        status="ok",
        then="6 * 7",
        then_shows="42",
        timeout=3,
    ),
    attack(
        "cell_ends_but_the_next_does_not_start",
        "set",
        """
import threading
def hold():
    sum(range(10**13))
threading.Timer(0.2, hold).start()
print("set")
""",
        status="ok",
        timeout=3,
        then="time.sleep(0.5)\n1",
        then_shows="stopped after|1",
    ),
)
