"""Attacks by tricks with the interpreter, which runs the session's own code as well as the attacker's."""

OPTIONS = {"unsafe": True, "timeout": 3}
ANY = "ok|error|exit|killed|timeout"
GONE = {"status": "killed", "alive": False}
AGAIN = {"then": "6 * 7", "then_shows": "42"}

CODE = r"""
== stack_of_c_overflows | shows="", status="killed|error|timeout"
sys.setrecursionlimit(10**8)
class A: pass
x = A()
A.__getattr__ = lambda self, name: getattr(self, name + "x"[:0])
x.y

== memory_smashed | shows="", status="killed|timeout", alive=False
for address in (id(None), id(()), id(int), id(sys.modules)): ctypes.memset(address, 0xFF, 4096)

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

== source_with_null | null bytes | status="error", **AGAIN
x = 1<<chr(0)>>
"""
