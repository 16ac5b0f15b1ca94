"""Attacks on the reward: code that ends, stops or breaks its own session, which must never look like a broken machine.

The next cell after it is a result as any other, `killed` mostly. `test_sandbox_attacks_in_an_environment.py` plays all
of them in an environment, too, where no step may fail for it.
"""

from __future__ import annotations

from functools import partial

from attacks.attack import Attack, written

ENDED = "killed|memory_limit|timeout"

between = partial(
    Attack,
    kind="own_death",
    shows="started",
    unsafe=True,
    pause=0.25,
    timeout=4,
    then="6 * 7",
    then_shows="",
    then_status=ENDED,
    then_alive=False,
)
within = partial(Attack, kind="own_death", unsafe=True, timeout=2, status=ENDED, alive=False)
broken = partial(between, then_status=f"ok|error|exit|output_limit|{ENDED}", then_alive=None)


def _later(statement: str) -> str:
    return f"""
import threading
def later():
    time.sleep(0.1)
    {statement}
threading.Thread(target=later, daemon=True).start()
print("started")
"""


ATTACKS = (
    *written(
        between,
        globals(),
        r"""
== timer_that_exits
import threading
threading.Timer(.1, os._exit, (0,)).start()
print('started')

== killed
<<_later('os.kill(os.getpid(), signal.SIGKILL)')>>


== segfault
<<_later('ctypes.string_at(0)')>>

== every_descriptor_closed
<<_later('os.closerange(0, 4096)')>>

== control_channel_closed
<<_later('os.close(channel())')>>
""",
    ),
    between(
        "another_program_that_holds_the_channel",
        code=_later(
            "os.set_inheritable(channel(), True); "
            "os.execv(sys.executable, [sys.executable, '-c', 'import time; time.sleep(100)'])"
        ),
        timeout=0.6,
    ),
    *written(
        between,
        globals(),
        r"""
== stack_of_a_thread
import threading
def later():
    time.sleep(0.1)
    sys.setrecursionlimit(10**9)
    key = lambda x: sorted([1], key=key)
    sorted([1], key=key)
threading.stack_size(64 << 10)
threading.Thread(target=later, daemon=True).start()
print("started")

== stopped | timeout=1
<<_later('os.kill(os.getpid(), signal.SIGSTOP)')>>

== stopped_by_a_child_again_and_again | timeout=0.5
me = os.getpid()
def strike():
    time.sleep(0.1)
    for _ in range(400):
        os.kill(me, signal.SIGSTOP)
        time.sleep(0.005)
daemon(strike)
print("started")

== processor_time_used_up | pause=2.2, status="ok|killed", then_status=f"ok|{ENDED}", then_alive=None
import resource, threading
def spend():
    while True: pass
print("started", flush=True)
used = int(time.process_time()) + 1
resource.setrlimit(resource.RLIMIT_CPU, (used, used))
threading.Thread(target=spend, daemon=True).start()
""",
    ),
    between(
        "filter_that_kills",
        code=_later(
            "_libc.syscall({'x86_64': 317, 'aarch64': 277}[platform.machine()], 1, 1, struct.pack('HxxxxxxP', 1, "
            "ctypes.addressof(ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0x80000000)))))"
        ),
        then_status=f"ok|{ENDED}",  # a session may add no filter
        then_alive=None,
    ),
    *written(
        between,
        globals(),
        r"""
== every_signal_blocked_and_busy | timeout=0.5
import threading
def busy():
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
    ctypes.PyDLL(None).sleep(1000)
print("started")
threading.Timer(0.1, busy).start()

== memory_of_many_children | pause=1.2, unsafe=False, then_status=f"ok|{ENDED}", then_alive=None
def take():
    time.sleep(0.1)
    area = bytearray(100 << 20)
    for page in range(0, len(area), 4096): area[page] = 1
    nap()
for _ in range(20):
    if os.fork() == 0: take()
print("started")
""",
    ),
    *written(
        broken,
        globals(),
        r"""
== builtins_removed | status="ok|error|killed"
import builtins
print("started", flush=True)
for name in ("compile", "exec", "eval", "isinstance", "len", "repr", "str", "open", "__import__", "BaseException"):
    with contextlib.suppress(Exception): delattr(builtins, name)
""",
    ),
    *written(
        within,
        globals(),
        r"""
== fork_that_goes_on_in_the_child | shows=""
if os.fork(): os._exit(0)
print('child')
6 * 7
""",
    ),
)
