"""Attacks by tricks with the interpreter, which runs the session's own code as well as the attacker's."""

from __future__ import annotations

from functools import partial

from attacks.attack import Attack

attack = partial(Attack, kind="interpreter", unsafe=True, timeout=3)
ANY = "ok|error|exit|killed|timeout"
GONE = {"status": "killed", "alive": False}
AGAIN = {"then": "6 * 7", "then_shows": "42"}

ATTACKS = (
    attack("sys_exit", "7", "import sys; sys.exit(7)", status="exit", **AGAIN),
    attack("os_exit", "last words(?s:.)*exit code 3", "print('last words')\nos._exit(3)", **GONE),
    attack("abort", "last words(?s:.)*SIGABRT", "print('last words')\nos.abort()", **GONE),
    attack("segfault", "last words(?s:.)*SIGSEGV", "print('last words')\nctypes.string_at(0)", **GONE),
    attack(
        "kills_itself",
        "last words(?s:.)*SIGKILL",
        "print('last words')\nos.kill(os.getpid(), signal.SIGKILL)",
        **GONE,
    ),
    attack("recursion", "RecursionError", "def f(): f()\nf()", status="error", alive=True, **AGAIN),
    attack(
        "recursion_without_a_limit",
        "",
        "sys.setrecursionlimit(10**9)\ndef f(x): return f(x + 1)\nf(0)",
        status="killed|error|timeout",
    ),
    attack(
        "stack_of_c_overflows",
        "",
        """
sys.setrecursionlimit(10**8)
class A: pass
x = A()
A.__getattr__ = lambda self, name: getattr(self, name + "x"[:0])
x.y
""",
        status="killed|error|timeout",
    ),
    attack(
        "memory_smashed",
        "",
        "for address in (id(None), id(()), id(int), id(sys.modules)): ctypes.memset(address, 0xFF, 4096)",
        status="killed|timeout",
        alive=False,
    ),
    attack(
        "names_of_os_replaced",
        "",
        """
import posix
for name in "_exit getpid fork close dup2 kill waitpid write read open listdir mkdir".split():
    for module in (os, posix): setattr(module, name, lambda *_, **__: 0)
socket.socket = struct.pack = struct.Struct = None
""",
        status=ANY,
    ),
    attack(
        "builtins_replaced",
        "",
        """
import builtins
for name in "exec eval compile repr len open print isinstance str Exception BaseException".split():
    with contextlib.suppress(Exception): setattr(builtins, name, None)
""",
        status=ANY,
    ),
    attack("builtins_emptied", "", "__builtins__.__dict__.clear()", status=ANY),
    attack("modules_cleared", "", "sys.modules.clear()", status=ANY),
    attack(
        "audit_hook_refuses_everything",
        "",
        "def hook(*_): raise RuntimeError('no')\nsys.addaudithook(hook)",
        status=ANY,
    ),
    attack(
        "import_hook",
        "",
        """
class Finder:
    def find_spec(self, *_): raise SystemExit(9)
sys.meta_path[:] = [Finder()]
sys.path_hooks.clear()
""",
        status=ANY,
        then="import json; json.dumps(1)",
        then_shows="",
    ),
    attack(
        "finalizers_that_run_code",
        "",
        """
class Late:
    def __del__(self):
        while True:
            try: time.sleep(1)
            except BaseException: pass
late = Late()
sys.late = late
sys.exit()
""",
        status="exit",
    ),
    attack("interpreter_finalized", "", "ctypes.pythonapi.Py_FinalizeEx()", status="killed|timeout|error"),
    attack(
        "thread_state_taken",
        "",
        "ctypes.pythonapi.PyEval_SaveThread()\nctypes.pythonapi.PyErr_SetInterrupt()",
        status="killed|timeout|error",
    ),
    attack(
        "asynchronous_exceptions",
        "started",
        """
import threading
main = threading.main_thread().ident
def shoot():
    while True:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main), ctypes.py_object(SystemExit))
        time.sleep(0.001)
print("started", flush=True)
threading.Thread(target=shoot, daemon=True).start()
while True:
    try: time.sleep(0.01)
    except SystemExit: pass
""",
        status="timeout|killed|exit|error",
        timeout=1,
    ),
    attack("handlers_replaced", "set", "signal.signal(signal.SIGINT, lambda *_: None)\nprint('set')", **AGAIN),
    attack(
        "another_program_in_its_place",
        "",
        """
os.set_inheritable(channel(), True)
os.execv(sys.executable, [sys.executable, '-c', 'import time; time.sleep(100)'])
""",
        status="timeout",
        alive=False,
        timeout=1,
    ),
    attack("another_program_that_ends", "exit code 0", "os.execv('/bin/sh', ['sh', '-c', 'exit 0'])", **GONE),
    attack(
        "child_returns_into_the_session",
        "parent",
        "child = os.fork()\nif child: os.waitpid(child, 0); print('parent')",
        then="6 * 7",
        then_shows="^42$",
    ),
    attack(
        "child_answers_in_place_of_the_session",
        "",
        "if os.fork(): os._exit(0)\ntime.sleep(0.3)\nprint('child')",
        **GONE,
    ),
    attack("source_with_null", "null bytes", "x = 1\0", status="error", **AGAIN),
    attack("source_too_nested", "Error", "(" * 5000 + ")" * 5000, status="error", **AGAIN),
    attack(
        "unpickled_code",
        "uid=|ran",
        """
import pickle
class Bomb:
    def __reduce__(self): return (os.system, ("id || echo ran",))
pickle.loads(pickle.dumps(Bomb()))
""",
    ),
    attack(
        "session_object_rewritten",
        "",
        """
frame = sys._getframe()
while frame:
    session = frame.f_locals.get("self")
    if session is not None and hasattr(session, "directory"):
        session.directory = "/"
        session.pid = 1
        session.config = {}
        session.outputs = ()
    frame = frame.f_back
""",
        status=ANY,
    ),
)
