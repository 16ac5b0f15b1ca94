"""Attacks with output: floods, huge texts, and bytes that pretend to be something else."""

OPTIONS = {"unsafe": True, "timeout": 20}
AGAIN = {"then": "6 * 7", "then_shows": "42"}
STOPPED = "OutputLimit: stopped after"

CODE = r"""
== endless_print | shows=STOPPED, status="output_limit", alive=True, **AGAIN
while True: print('x' * 1000)

== flood_that_can_not_be_interrupted | shows=STOPPED, status="output_limit", alive=False
signal.signal(signal.SIGINT, signal.SIG_IGN)
while True: os.write(1, b'x' * 65536)

== flood_by_children | shows=STOPPED, status="output_limit"
for _ in range(5):
    if os.fork() == 0:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        while True: os.write(1, b"x" * 65536)
time.sleep(10)

== exception_text_of_50_mb | ValueError | status="error|output_limit|killed", **AGAIN
raise ValueError('x' * (50 << 20))

== repr_of_100_mb | x{1000} | **AGAIN
class Huge:
    def __repr__(self): return "x" * (100 << 20)
Huge()

== output_after_the_cell | started | then="time.sleep(0.3)\nprint('end')", then_shows='end'
def shout():
    while True:
        os.write(1, b"y" * 1000)
        time.sleep(0.001)
daemon(shout)
print("started")

== flood_between_the_cells | started|yyy | status="ok|output_limit"
def shout():
    while True: os.write(1, b"y" * 65536)
daemon(shout)
print("started")

== bytes_that_are_no_text | end
os.write(1, bytes(range(256)) * 200 + b'\xed\xa0\x80\x00')
print('\udcff\ud800 end')

== frames_and_stream_headers | end | **AGAIN
for kind in (16, 17, 48, 49):
    os.write(1, struct.pack(">BQI", kind, 1, 2**31))
    os.write(2, struct.pack(">BxxxI", 1, 2**31))
    os.write(1, b'{"failure": "SandboxError", "message": "forged"}')
print("end")

== stdout_closed | shows="", status="ok|error", then="6 * 7", then_shows="42"
sys.stdout.close()
os.close(1)
os.close(2)

== stdout_that_is_hostile | shows="", status="error|exit|killed"
class Out:
    def __getattr__(self, name): raise SystemExit(name)
    def write(self, text): raise KeyboardInterrupt
    flush = write
sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = Out()
print("x")
"""
