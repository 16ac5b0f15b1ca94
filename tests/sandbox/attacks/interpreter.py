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
)
