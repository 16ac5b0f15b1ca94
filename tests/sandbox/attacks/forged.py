"""Attacks with lies about itself: a session answers for files, forks and cells, and says what it likes.

The client sees a result of the right kind, or one neutral failure: an OSError for a file, a ForkError for a fork, an
`Execution` for a cell. Neither the supervisor nor another session notices.
"""

from sandbox.server.wire import CELL, DONE, OUTCOME

OPTIONS = {"shows": "forged [1-9]", "status": "ok|killed", "asks": ("get", "put", "fork", "run"), "needs": "uid"}
OPTIONS |= {"before": "open('asked', 'wb').write(b'x' * 100)"}
FORK = {"asks": ("fork", "get", "run")}

_ANSWERING = f"""
import threading
line = channel()
def answer():
    while True:
        asked = os.read(line, 1 << 20)
        if len(asked) < 13: os._exit(0)
        kind, number, length = struct.unpack_from(">BQI", asked)
        if kind == {CELL}: os.write(line, frame({DONE}, number, struct.pack("{OUTCOME.format}", 0, 0, 0, 0)))
        else: os.write(line, reply(kind, number))
threading.Thread(target=answer, daemon=True).start()
say("forged 1")
"""


def _answer(expression: str) -> str:
    return f"def reply(kind, number): return {expression}\n{_ANSWERING}"


CODE = r"""
== files_fail_with_a_huge_number
forge(("answer_file",), raising(OSError(2**40, 'x')))

== files_fail_with_a_name_of_the_machinery
forge(("answer_file",), raising(type('SessionLost', (OSError,), {})(5, 'the session is gone')))

== files_fail_with_an_exit
forge(("answer_file",), raising(SystemExit(0)))

== files_answered_with_nothing
forge(("answer_file",), lambda *_, **__: None)

== files_answered_with_the_end_of_the_session
forge(("answer_file",), lambda *_, **__: os._exit(0))

== files_answered_with_endless_bytes
forge(("answer_file",), lambda *_, **__: (0, 10, bytes(10 << 20)))

== files_answered_with_a_size_that_is_a_lie
forge(("answer_file",), lambda *_, **__: struct.pack('>IQ', 0, 2**63) + b'x')

== files_fail_with_an_error_that_acts
class Acting(OSError):
    def __str__(self): raise SystemExit(1)
    __repr__ = __reduce__ = __getattribute__ = __str__
forge(("answer_file",), raising(Acting(5, "x")))

== file_of_another_number
<<_answer(f'frame({FILED}, number + 1, bytes(12))')>>

== file_longer_than_it_says
<<_answer(f"frame({FILED}, number, struct.pack('>IQ', 0, 1) + b'x' * 1000)")>>

== file_that_fails_with_every_number
<<_answer(f"frame({FILED}, number, struct.pack('>IQ', 9999, 0))")>>

== fork_answered_without_copies | **FORK
<<_answer(f"frame({BRANCHED}, number, bytes({LOSSES.size}) + b'/etc')")>>

== fork_refused_with_endless_text | **FORK
<<_answer(f"frame({UNABLE}, number, b'x' * (1 << 20))")>>

== fork_answered_with_a_neighbours_directory | **FORK
there = VICTIMS[0]['directory'].encode()
def reply(kind, number): return frame(<<BRANCHED>>, number, bytes(<<LOSSES.size>>) + there)
<<_ANSWERING>>

== fork_with_a_neighbours_directory | **FORK
frame, count = sys._getframe(), 0
while frame:
    for holder in list(frame.f_locals.values()):
        for name, value in list(getattr(holder, "__dict__", {}).items()):
            if isinstance(value, (str, bytes)) and str(value).startswith("/slots"):
                with contextlib.suppress(Exception):
                    setattr(holder, name, VICTIMS[0]["directory"])
                    count += 1
    frame = frame.f_back
say(f"forged {count}")

== ready_with_a_neighbours_directory | **FORK
there = VICTIMS[0]['directory'].encode()
def reply(kind, number): return frame(<<READY>>, number, there)
<<_ANSWERING>>

== os_fork_is_the_child_always | **FORK
import posix
os.fork = posix.fork = lambda: 0
say("forged 1")

== os_fork_is_the_client_of_a_neighbour | **FORK
import posix
os.fork = posix.fork = lambda: VICTIMS[0]["pid"]
say("forged 1")

== os_write_that_says_more
import posix
write = os.write
say("forged 1")
os.write = posix.write = lambda fd, data: write(fd, data) + 1000

== os_functions_that_fail
say("forged 1")
for name in ("open", "read", "write", "fstat", "stat", "lseek", "dup2", "close", "listdir", "rename", "pread"):
    if hasattr(os, name): setattr(os, name, raising(OSError(5, name)))

== functions_that_give_nothing
import types
names = [name for space in machinery() for name, value in list(space.items())
         if isinstance(value, types.FunctionType) and value.__globals__ is space]
forge(names, lambda *_, **__: None)

== formats_replaced
names = [name for space in machinery() for name, value in list(space.items()) if isinstance(value, struct.Struct)]
forge(names, struct.Struct(">QQQQ"))

== values_that_are_no_texts | status="ok|error|killed"
class Text(str):
    def encode(self, *_): return b"x" * (20 << 20)
    def __len__(self): return -5
    def __getitem__(self, _): return b"x"
class Value:
    def __repr__(self): return Text("value")
say("forged 1")
Value()
"""
