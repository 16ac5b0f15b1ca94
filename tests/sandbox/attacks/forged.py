"""Attacks with lies about itself: a session answers for files, forks and cells, and says what it likes.

The client sees a result of the right kind, or one neutral failure: an OSError for a file, a ForkError for a fork, an
`Execution` for a cell. Neither the supervisor nor another session notices.
"""

from __future__ import annotations

from functools import partial

from attacks.attack import Attack, written
from sandbox.server.wire import CELL, DONE, OUTCOME

attack = partial(
    Attack,
    kind="forged",
    shows="forged [1-9]",
    status="ok|killed",
    asks=("get", "put", "fork", "run"),
    needs="uid",
)

_ASKED = "open('asked', 'wb').write(b'x' * 100)\n"
_FILES = '("answer_file",)'
_FUNCTIONS = """
import types
names = [name for space in machinery() for name, value in list(space.items())
         if isinstance(value, types.FunctionType) and value.__globals__ is space]
"""
_ANSWERING = f"""
import threading
def frame(kind, number, payload=b''): return struct.pack('>BQI', kind, number, len(payload)) + payload
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


file = partial(attack, asks=("get", "put", "run"))
fork = partial(attack, asks=("fork", "get", "run"))


def _answer(expression: str) -> str:
    return _ASKED + f"def reply(kind, number): return {expression}\n" + _ANSWERING


ATTACKS = (
    *(
        attack(f"files_fail_with_{name}", code=f"{_ASKED}{before}forge({_FILES}, raising({error}))")
        for name, before, error in (
            ("an_error_without_a_number", "", "OSError('only text')"),
            ("a_huge_number", "", "OSError(2**40, 'x')"),
            ("a_name_of_the_machinery", "class SessionLost(OSError): pass\n", "SessionLost(5, 'the session is gone')"),
            ("endless_text", "", "OSError(5, 'x' * (5 << 20))"),
            ("an_exit", "", "SystemExit(0)"),
        )
    ),
    *written(
        file,
        globals(),
        r"""
== files_fail_with_an_error_that_acts
<<_ASKED>>

class Acting(OSError):
    def __str__(self): raise SystemExit(1)
    __repr__ = __reduce__ = __getattribute__ = __str__
forge(<<_FILES>>, raising(Acting(5, "x")))
""",
    ),
    *(
        attack(f"files_answered_with_{name}", code=f"{_ASKED}forge({_FILES}, lambda *_, **__: {value})")
        for name, value in (
            ("nothing", "None"),
            ("endless_bytes", "(0, 10, bytes(10 << 20))"),
            ("a_size_that_is_a_lie", "struct.pack('>IQ', 0, 2**63) + b'x'"),
            ("a_negative_size", "struct.pack('>Iq', 0, -1)"),
            ("numbers", "(2**70, -1, 1.5)"),
        )
    ),
    *written(
        file,
        globals(),
        r"""
== files_that_end_the_session
<<_ASKED>>forge(<<_FILES>>, lambda *_: os._exit(0))

== file_of_another_number
<<_answer(f'frame({FILED}, number + 1, bytes(12))')>>

== file_longer_than_it_says
<<_answer(f"frame({FILED}, number, struct.pack('>IQ', 0, 1) + b'x' * 1000)")>>

== file_that_fails_with_every_number
<<_answer(f"frame({FILED}, number, struct.pack('>IQ', 9999, 0))")>>
""",
    ),
    *written(
        fork,
        globals(),
        r"""
== fork_answered_without_copies
<<_answer(f"frame({BRANCHED}, number, bytes({LOSSES.size}) + b'/etc')")>>

== fork_refused_with_endless_text
<<_answer(f"frame({UNABLE}, number, b'x' * (1 << 20))")>>

== fork_answered_with_a_neighbours_directory
<<_ASKED>>
there = VICTIMS[0]['directory'].encode()
def reply(kind, number): return frame(<<BRANCHED>>, number, bytes(<<LOSSES.size>>) + there)
<<_ANSWERING>>

== fork_with_a_neighbours_directory
<<_ASKED>>

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

== ready_with_a_neighbours_directory
<<_ASKED>>
there = VICTIMS[0]['directory'].encode()
def reply(kind, number): return frame(<<READY>>, number, there)
<<_ANSWERING>>
""",
    ),
    *(
        fork(f"os_fork_{name}", code=f"{_ASKED}import posix\nos.fork = posix.fork = {value}\nsay('forged 1')")
        for name, value in (
            ("is_the_child_always", "lambda: 0"),
            ("is_the_client_of_a_neighbour", "lambda: VICTIMS[0]['pid']"),
        )
    ),
    *written(
        attack,
        globals(),
        r"""
== os_write_that_says_more
<<_ASKED>>

import posix
write = os.write
say("forged 1")
os.write = posix.write = lambda fd, data: write(fd, data) + 1000

== os_functions_that_fail
<<_ASKED>>

say("forged 1")
for name in ("open", "read", "write", "fstat", "stat", "lseek", "dup2", "close", "listdir", "rename", "pread"):
    if hasattr(os, name): setattr(os, name, raising(OSError(5, name)))

== functions_that_give_nothing
<<_ASKED>>
<<_FUNCTIONS>>
forge(names, lambda *_, **__: None)

== formats_replaced
<<_ASKED>>

names = [name for space in machinery() for name, value in list(space.items()) if isinstance(value, struct.Struct)]
forge(names, struct.Struct(">QQQQ"))

== values_that_are_no_texts | status="ok|error|killed"
<<_ASKED>>

class Text(str):
    def encode(self, *_): return b"x" * (20 << 20)
    def __len__(self): return -5
    def __getitem__(self, _): return b"x"
class Value:
    def __repr__(self): return Text("value")
say("forged 1")
Value()
""",
    ),
)
