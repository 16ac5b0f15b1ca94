"""Attacks on the reward: code that ends, stops or breaks its own session, which must never look like a broken machine.

The next cell after it is a result as any other, `killed` mostly.
"""

ENDED = "killed|memory_limit|timeout"
MAY_LIVE = {"then_status": f"ok|{ENDED}", "then_alive": None}  # a session may add no filter, for one
OPTIONS = {"shows": "started", "unsafe": True, "pause": 0.25, "timeout": 4}
OPTIONS |= {"then": "6 * 7", "then_status": ENDED, "then_alive": False}


def _later(statement: str) -> str:
    return f"""
import threading
def later():
    time.sleep(0.1)
    {statement}
threading.Thread(target=later, daemon=True).start()
print("started")
"""


CODE = r"""
== killed
<<_later('os.kill(os.getpid(), signal.SIGKILL)')>>

== segfault
<<_later('ctypes.string_at(0)')>>

== control_channel_closed
<<_later('os.close(channel())')>>

== another_program_that_holds_the_channel | timeout=0.6
wait = [sys.executable, '-c', 'import time; time.sleep(100)']
<<_later('os.set_inheritable(channel(), True); os.execv(sys.executable, wait)')>>

== stopped_by_a_child_again_and_again | timeout=0.5
me = os.getpid()
def strike():
    time.sleep(0.1)
    for _ in range(400):
        os.kill(me, signal.SIGSTOP)
        time.sleep(0.005)
daemon(strike)
print("started")

== processor_time_used_up | pause=2.2, status="ok|killed", **MAY_LIVE
import resource, threading
def spend():
    while True: pass
print("started", flush=True)
used = int(time.process_time()) + 1
resource.setrlimit(resource.RLIMIT_CPU, (used, used))
threading.Thread(target=spend, daemon=True).start()

== filter_that_kills | **MAY_LIVE
program = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x80000000))
filters = struct.pack("HxxxxxxP", 1, ctypes.addressof(program))
number = {"x86_64": 317, "aarch64": 277}[platform.machine()]
<<_later('_libc.syscall(number, 1, 1, filters)')>>

== builtins_removed | status="ok|error|killed"
import builtins
print("started", flush=True)
for name in ("compile", "exec", "eval", "isinstance", "len", "repr", "str", "open", "__import__", "BaseException"):
    with contextlib.suppress(Exception): delattr(builtins, name)
"""
