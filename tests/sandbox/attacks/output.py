"""Attacks with output: floods, huge texts, and bytes that pretend to be something else."""

from __future__ import annotations

from functools import partial

from attacks.attack import Attack

attack = partial(Attack, kind="output", unsafe=True, timeout=20)
AGAIN = {"then": "6 * 7", "then_shows": "42"}
STOPPED = "OutputLimit: stopped after"

ATTACKS = (
    attack("endless_print", STOPPED, "while True: print('x' * 1000)", status="output_limit", alive=True, **AGAIN),
    attack(
        "flood_that_can_not_be_interrupted",
        STOPPED,
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: os.write(1, b'x' * 65536)",
        status="output_limit",
        alive=False,
    ),
    attack("flood_of_stderr", STOPPED, "while True: os.write(2, b'x' * 65536)", status="output_limit"),
    attack(
        "flood_by_children",
        STOPPED,
        """
for _ in range(5):
    if os.fork() == 0:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        while True: os.write(1, b"x" * 65536)
time.sleep(10)
""",
        status="output_limit",
    ),
    attack(
        "exception_text_of_50_mb",
        "ValueError",
        "raise ValueError('x' * (50 << 20))",
        status="error|output_limit|killed",
        **AGAIN,
    ),
    attack(
        "repr_of_100_mb",
        "x{1000}",
        """
class Huge:
    def __repr__(self): return "x" * (100 << 20)
Huge()
""",
        **AGAIN,
    ),
    attack(
        "repr_of_a_deep_list",
        "RecursionError",
        "x = []\nfor _ in range(100_000): x = [x]\nx",
        status="error",
        **AGAIN,
    ),
    attack("repr_that_is_no_string", "TypeError", "class No:\n    def __repr__(self): return 3\nNo()", status="error"),
    attack(
        "output_after_the_cell",
        "started",
        """
def shout():
    while True:
        os.write(1, b"y" * 1000)
        time.sleep(0.001)
daemon(shout)
print("started")
""",
        then="time.sleep(0.3)\nprint('end')",
        then_shows="end",
    ),
    attack(
        "flood_between_the_cells",
        "started|yyy",
        """
def shout():
    while True: os.write(1, b"y" * 65536)
daemon(shout)
print("started")
""",
        status="ok|output_limit",
    ),
    attack("hundred_thousand_writes", "99999", "for i in range(100_000): os.write(1, b'%d\\n' % i)"),
    attack(
        "bytes_that_are_no_text",
        "end",
        "os.write(1, bytes(range(256)) * 200 + b'\\xed\\xa0\\x80\\x00')\nprint('\\udcff\\ud800 end')",
    ),
    attack(
        "frames_and_stream_headers",
        "end",
        """
for kind in (16, 17, 48, 49):
    os.write(1, struct.pack(">BQI", kind, 1, 2**31))
    os.write(2, struct.pack(">BxxxI", 1, 2**31))
    os.write(1, b'{"failure": "SandboxError", "message": "forged"}')
print("end")
""",
        **AGAIN,
    ),
    attack(
        "value_that_runs_when_unpickled",
        "Bomb",
        """
import pickle
class Bomb:
    def __reduce__(self): return (os.system, ("echo unpickled",))
print(len(pickle.dumps(Bomb())))
Bomb()
""",
    ),
    attack(
        "stdout_closed",
        "",
        "sys.stdout.close()\nos.close(1)\nos.close(2)",
        status="ok|error",
        then="6 * 7",
        then_shows="42",
    ),
    attack(
        "stdout_that_is_hostile",
        "",
        """
class Out:
    def __getattr__(self, name): raise SystemExit(name)
    def write(self, text): raise KeyboardInterrupt
    flush = write
sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = Out()
print("x")
""",
        status="error|exit|killed",
    ),
)
