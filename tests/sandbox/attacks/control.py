"""Attacks on the control channel: the socket over which a session talks with its supervisor."""

OPTIONS = {"unsafe": True, "timeout": 3, "shows": "control channel", "status": "killed"}


def _send(bytes_expression: str) -> str:
    return f"os.write(channel(), {bytes_expression})\ntime.sleep(1)"


CODE = r"""
== closed_descriptors
os.closerange(0, 4096)

== garbage_to_every_descriptor
for fd in range(3, 300):
    try: os.write(fd, b'garbage' * 100)
    except OSError: pass

== shut_down
socket.socket(fileno=os.dup(channel())).shutdown(socket.SHUT_RDWR)
time.sleep(1)

== result_cut_short
<<_send(f"frame({DONE}, 1, b'ab')")>>

== length_of_2_gb
<<_send(f"struct.pack('>BQI', {DONE}, 1, 2**31)")>>

== file_that_nobody_asked_for
<<_send(f'frame({FILED}, 1, bytes(12))')>>

== lengths_that_do_not_add_up
<<_send(f"frame({DONE}, 1, struct.pack('{OUTCOME.format}', 0, 3, 2**32 - 1, 2**32 - 1) + b'x')")>>

== status_that_is_none
<<_send(f"frame({DONE}, 1, struct.pack('{OUTCOME.format}', 250, 255, 0, 0))")>>

== endless_bytes_of_one_frame
os.write(channel(), struct.pack('>BQI', <<DONE>>, 1, 2**32 - 1))
while True: os.write(channel(), bytes(65536))

== half_a_header | stopped after|control channel | status="timeout|killed", timeout=0.5
os.write(channel(), b'\x31\0')
time.sleep(60)

== results_for_all_numbers
good = struct.pack("<<OUTCOME.format>>", 0, 1, 6, 0) + b"forged"
for number in range(100_000):
    os.write(channel(), frame(<<DONE>>, number, good))

== descriptors_passed_along | passed|control channel | status="killed|timeout|ok"
import array
line = socket.socket(fileno=os.dup(channel()))
rights = array.array("i", [os.open("/dev/null", os.O_RDONLY)] * 200)
line.setblocking(False)
with contextlib.suppress(OSError):
    for _ in range(200):
        line.sendmsg([b"\x31"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
print("passed")
time.sleep(0.5)

== next_cell_stolen | waiting
| status="ok", then="print('second')", then_shows='second|stopped after|control channel|ended'
import threading
line = socket.socket(fileno=os.dup(channel()))
def steal():
    while True:
        line.recv(100_000)
threading.Thread(target=steal, daemon=True).start()
print("waiting")

== flood_between_cells | started | status="ok", then="time.sleep(1)", then_shows="control channel"
import threading
def flood():
    time.sleep(0.1)
    while True: os.write(channel(), b"x" * 65536)
threading.Thread(target=flood, daemon=True).start()
print("started")

== socket_that_is_never_read | stopped | status="timeout", timeout=0.5
os.kill(os.getpid(), signal.SIGSTOP); print('x' * 1000)

== given_to_a_daemon | started
def hold():
    for _ in range(50):
        os.write(channel(), b"")
        time.sleep(0.1)
    nap()
daemon(hold)
print("started", flush=True)
os._exit(0)
"""
