"""Attacks on the control channel: the socket over which a session talks with its supervisor."""

from __future__ import annotations

from functools import partial

from attacks.attack import Attack
from sandbox.server.wire import BRANCHED, DIED, DONE, FILED, OUTCOME, READY, SPAWN, UNABLE

attack = partial(Attack, kind="control", unsafe=True, timeout=3)
ENDED = {"status": "killed", "alive": False}
TOLD = "control channel"

_FRAME = "def frame(kind, number, payload=b''): return struct.pack('>BQI', kind, number, len(payload)) + payload\n"


def _send(bytes_expression: str) -> str:
    return f"{_FRAME}os.write(channel(), {bytes_expression})\ntime.sleep(1)"


ATTACKS = (
    attack("closed_descriptors", TOLD, "os.closerange(0, 4096)", **ENDED),
    attack(
        "garbage_to_every_descriptor",
        TOLD,
        "for fd in range(3, 300):\n    try: os.write(fd, b'garbage' * 100)\n    except OSError: pass",
        **ENDED,
    ),
    attack("replaced", TOLD, "os.dup2(os.open('/dev/null', os.O_RDWR), channel())", **ENDED),
    attack(
        "shut_down",
        TOLD,
        "socket.socket(fileno=os.dup(channel())).shutdown(socket.SHUT_RDWR)\ntime.sleep(1)",
        **ENDED,
    ),
    attack("result_of_another_cell", TOLD, _send(f"frame({DONE}, 10**6, b'ab')"), **ENDED),
    attack("result_cut_short", TOLD, _send(f"frame({DONE}, 1, b'ab')"), **ENDED),
    attack("length_of_2_gb", TOLD, _send(f"struct.pack('>BQI', {DONE}, 1, 2**31)"), **ENDED),
    attack("ready_again", TOLD, _send(f"frame({READY}, 0)"), **ENDED),
    attack("ready_with_another_process", TOLD, _send(f"frame({READY}, 1, struct.pack('>Q', 1))"), **ENDED),
    attack("branched_without_a_fork", TOLD, _send(f"frame({BRANCHED}, 0, bytes(16))"), **ENDED),
    attack("unable_without_a_fork", TOLD, _send(f"frame({UNABLE}, 0, b'no')"), **ENDED),
    attack("file_that_nobody_asked_for", TOLD, _send(f"frame({FILED}, 1, bytes(12))"), **ENDED),
    attack("death_of_the_supervisor_told", TOLD, _send(f"frame({DIED}, 1, bytes(4))"), **ENDED),
    attack("order_to_spawn", TOLD, _send(f"frame({SPAWN}, 0, b'/slots/0')"), **ENDED),
    attack("request_of_a_client", TOLD, _send("frame(1, 1, b'{\"session\": 1}')"), **ENDED),
    attack(
        "lengths_that_do_not_add_up",
        TOLD,
        _send(f"frame({DONE}, 1, struct.pack('{OUTCOME.format}', 0, 3, 2**32 - 1, 2**32 - 1) + b'x')"),
        **ENDED,
    ),
    attack(
        "status_that_is_none",
        TOLD,
        _send(f"frame({DONE}, 1, struct.pack('{OUTCOME.format}', 250, 255, 0, 0))"),
        **ENDED,
    ),
    attack(
        "deep_json",
        TOLD,
        _send(f"frame({DONE}, 1, b'[' * 100_000)"),
        **ENDED,
    ),
    attack(
        "endless",
        TOLD,
        f"{_FRAME}while True: os.write(channel(), frame({READY}, 0) * 1000)",
        **ENDED,
    ),
    attack(
        "endless_bytes_of_one_frame",
        TOLD,
        f"""
os.write(channel(), struct.pack('>BQI', {DONE}, 1, 2**32 - 1))
while True: os.write(channel(), bytes(65536))
""",
        **ENDED,
    ),
    attack(
        "half_a_header",
        "stopped after|control channel",
        "os.write(channel(), b'\\x31\\0')\ntime.sleep(60)",
        status="timeout|killed",
        timeout=0.5,
    ),
    attack(
        "results_for_all_numbers",
        TOLD,
        f"""
{_FRAME}
good = struct.pack("{OUTCOME.format}", 0, 1, 6, 0) + b"forged"
for number in range(100_000):
    os.write(channel(), frame({DONE}, number, good))
""",
        **ENDED,
    ),
    attack(
        "descriptors_passed_along",
        "passed|control channel",
        f"""
import array
{_FRAME}
line = socket.socket(fileno=os.dup(channel()))
rights = array.array("i", [os.open("/dev/null", os.O_RDONLY)] * 200)
line.setblocking(False)
with contextlib.suppress(OSError):
    for _ in range(200):
        line.sendmsg([b"\\x31"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
print("passed")
time.sleep(0.5)
""",
        status="killed|timeout|ok",
    ),
    attack(
        "next_cell_stolen",
        "waiting",
        """
import threading
line = socket.socket(fileno=os.dup(channel()))
def steal():
    while True:
        line.recv(100_000)
threading.Thread(target=steal, daemon=True).start()
print("waiting")
""",
        then="print('second')",
        then_shows="second|stopped after|control channel|ended",
    ),
    attack(
        "flood_between_cells",
        "started",
        """
import threading
def flood():
    time.sleep(0.1)
    while True: os.write(channel(), b"x" * 65536)
threading.Thread(target=flood, daemon=True).start()
print("started")
""",
        then="time.sleep(1)",
        then_shows="control channel",
    ),
    attack(
        "socket_that_is_never_read",
        "stopped",
        "os.kill(os.getpid(), signal.SIGSTOP); print('x' * 1000)",
        status="timeout",
        timeout=0.5,
    ),
    attack(
        "given_to_a_daemon",
        "started",
        """
def hold():
    for _ in range(50):
        os.write(channel(), b"")
        time.sleep(0.1)
    nap()
daemon(hold)
print("started", flush=True)
os._exit(0)
""",
        status="killed",
        alive=False,
    ),
)
