"""Attacks by tricks with the interpreter, which runs the session's own code as well as the attacker's."""

from __future__ import annotations

from functools import partial

from attacks.attack import Attack, written

attack = partial(Attack, kind="interpreter", unsafe=True, timeout=3)
ANY = "ok|error|exit|killed|timeout"
GONE = {"status": "killed", "alive": False}
AGAIN = {"then": "6 * 7", "then_shows": "42"}

ATTACKS = (
    *written(
        attack,
        globals(),
        r"""
== segfault | last words(?s:.)*SIGSEGV | **GONE
print('last words')
ctypes.string_at(0)

== kills_itself | last words(?s:.)*SIGKILL | **GONE
print('last words')
os.kill(os.getpid(), signal.SIGKILL)

== stack_of_c_overflows | shows="", status="killed|error|timeout"
sys.setrecursionlimit(10**8)
class A: pass
x = A()
A.__getattr__ = lambda self, name: getattr(self, name + "x"[:0])
x.y

== memory_smashed | shows="", status="killed|timeout", alive=False
for address in (id(None), id(()), id(int), id(sys.modules)): ctypes.memset(address, 0xFF, 4096)

== names_of_os_replaced | shows="", status=ANY
import posix
for name in "_exit getpid fork close dup2 kill waitpid write read open listdir mkdir".split():
    for module in (os, posix): setattr(module, name, lambda *_, **__: 0)
socket.socket = struct.pack = struct.Struct = None

== builtins_replaced | shows="", status=ANY
import builtins
for name in "exec eval compile repr len open print isinstance str Exception BaseException".split():
    with contextlib.suppress(Exception): setattr(builtins, name, None)

== audit_hook_refuses_everything | shows="", status=ANY
def hook(*_): raise RuntimeError('no')
sys.addaudithook(hook)

== interpreter_finalized | shows="", status="killed|timeout|error"
ctypes.pythonapi.Py_FinalizeEx()

== asynchronous_exceptions | started | status="timeout|killed|exit|error", timeout=1
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

== another_program_in_its_place | shows="", status="timeout", alive=False, timeout=1
os.set_inheritable(channel(), True)
os.execv(sys.executable, [sys.executable, '-c', 'import time; time.sleep(100)'])

== child_returns_into_the_session | parent | then="6 * 7", then_shows="^42$"
child = os.fork()
if child: os.waitpid(child, 0); print('parent')

== child_answers_in_place_of_the_session | shows="", **GONE
if os.fork(): os._exit(0)
time.sleep(0.3)
print('child')
""",
    ),
    attack("source_with_null", "null bytes", "x = 1\0", status="error", **AGAIN),
    *written(
        attack,
        globals(),
        r"""
== session_object_rewritten | shows="", status=ANY
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
    ),
)
