"""After a fork, original and copies share nothing through which one could harm or watch another."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from sandbox_under_test import values, wait_for

from sandbox import ForkError, Sandbox, SyncInterpreter
from sandbox.server.wire import DONE, HAS_VALUE, OUTCOME, pack

_FORGED = OUTCOME.pack(0, HAS_VALUE, 6, 0) + b"forged"
_FRAMES = b"".join(pack(DONE, number, _FORGED) for number in range(200))
STATE = """
def state(pid):
    try: return open(f"/proc/{pid}/stat").read().split()[2]
    except FileNotFoundError: return "-"
"""


def test_what_a_subprocess_says_on_the_control_channel_is_not_heard(python: SyncInterpreter) -> None:
    send = f"import os\npid = os.fork()\nif not pid: os.write(199, {_FRAMES!r}); os._exit(0)\nos.waitpid(pid, 0)"
    execution = python.run(f"{send}\n'mine'")
    assert (execution.value, execution.alive) == ("'mine'", True)
    flood = "pid = os.fork()\nif not pid:\n    for _ in range(200): os.write(199, bytes(65536))\nos.waitpid(pid, 0)"
    assert python.run(flood, timeout=5).status == "killed"  # it keeps the supervisor busy


def test_output_of_before_the_fork_is_shown_by_the_original_alone(python: SyncInterpreter) -> None:
    python.run("import threading, time\nthreading.Timer(.05, print, ['late']).start()")
    time.sleep(0.3)
    (copy,) = python.fork()
    assert [session.run("print('own')").stdout for session in (python, copy)] == ["late\nown\n", "own\n"]


def test_workers_are_ended_for_the_original_too(python: SyncInterpreter) -> None:
    code = """
import os, subprocess, sys
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
if os.fork() == 0:  # and one that has left
    if os.fork() == 0:
        os.setsid(); open("daemon", "w").write(str(os.getpid()))
        import time; time.sleep(60)
    os._exit(0)
os.wait()
while not os.path.exists("daemon") or not open("daemon").read(): pass
daemon = int(open("daemon").read())
"""
    assert python.run(code + STATE).status == "ok"
    (copy,) = python.fork()
    assert copy.interpreter.lost_on_fork["processes"] == 2
    for session in (python, copy):  # the kernel takes a moment for it
        wait_for(lambda session=session: session.run("{state(worker.pid), state(daemon)} <= {*'Z-'}").value == "True")
    assert python.run("worker.wait()").value == "-9"


def test_a_fork_that_does_not_even_begin_leaves_workers_alone(python: SyncInterpreter) -> None:
    python.run("import os, subprocess, sys\nworker = subprocess.Popen([sys.executable, '-'], stdin=subprocess.PIPE)")
    python.run("fds = []\ntry:\n    while True: fds.append(os.open('/dev/null', 0))\nexcept OSError: pass")
    with pytest.raises(ForkError, match="no descriptors left"):
        python.fork(2)
    assert python.run("for fd in fds: os.close(fd)\nworker.stdin.close(); worker.wait()").value == "0"


def test_threads_are_ended_for_the_original_too_and_the_rest_of_it_goes_on(python: SyncInterpreter) -> None:
    code = """
import os, random, threading, time
ticks = 0
def tick():
    global ticks
    while True: ticks += 1; time.sleep(0.001)
threading.Thread(target=tick, daemon=True).start()
file = open("file", "w+"); file.write("0123456789"); file.flush(); file.seek(4)
os.mkdir("deep"); os.chdir("deep"); here = os.getcwd()
r, w = os.pipe(); random.seed(3)
"""
    python.run(code)
    (copy,) = python.fork()
    assert copy.interpreter.lost_on_fork["threads"] == 1
    both = [python, copy]
    seen = values(both, "threading.active_count(), file.read(2), os.path.basename(os.getcwd())")
    assert seen == ["(1, '45', 'deep')"] * 2
    before = values(both, "ticks")
    time.sleep(0.05)
    assert values(both, "ticks") == before
    assert len(set(values(both, "random.random()"))) == 1
    assert python.run("os.write(w, b'mine'); os.read(r, 9)").value == "b'mine'"
    assert python.run("while True: pass", timeout=0.2).status == "timeout"
    assert values([*both, *python.fork(2)], "len(file.read())") == ["4"] * 4


def test_what_replaces_a_session_with_threads_is_no_orphan_while_others_close(sandbox: Sandbox) -> None:
    code = "import os, threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    code += "os.register_at_fork(after_in_child=lambda: time.sleep(0.2))"
    with sandbox.interpreter_sync(code) as python, ThreadPoolExecutor(1) as pool:
        forking = pool.submit(python.fork)
        while not forking.done():
            sandbox.interpreter_sync().close()  # after which orphans are looked for
        (copy,) = forking.result()
        assert values([python, copy], "1") == ["1"] * 2
        copy.close()


def test_pipes_and_sockets_are_dead_ends_in_copies(python: SyncInterpreter) -> None:
    code = """
import os, select, socket, sys
r, w = os.pipe(); os.write(w, b"before")
a, b = socket.socketpair()
a.send(b"before")
os.mkfifo("fifo"); fifo = os.open("fifo", os.O_RDWR)
poll = select.epoll(); poll.register(r, select.EPOLLIN)
def attempt(function, *arguments):
    try: return function(*arguments)
    except OSError as error: return type(error).__name__
def state():
    return (attempt(os.write, w, b"x"), attempt(b.send, b"x"), attempt(os.read, r, 9), attempt(a.recv, 9),
            attempt(b.recv, 9), attempt(os.read, fifo, 9) if copied else "", len(poll.poll(0)))
"""
    python.run(code)
    (copy,) = python.fork()
    assert copy.interpreter.lost_on_fork == {"pipes_and_sockets": 5}
    assert copy.run("copied = True; state()").value == "('BrokenPipeError', 'BrokenPipeError', b'', b'', b'', b'', 0)"
    assert python.run("copied = False; a.send(b'x'); state()").value == "(1, 1, b'beforex', b'x', b'beforex', '', 0)"
    for session in (python, copy):  # which other descriptors still work
        assert session.run("sys.stdin.read(), open('new', 'w').write('x'), os.listdir('.')[0] != ''").status == "ok"
        assert session.run("import subprocess; subprocess.check_output(['/bin/sh', '-c', 'echo 1'])").value == "b'1\\n'"


def test_shared_memory_becomes_private_memory_with_the_same_contents(python: SyncInterpreter) -> None:
    code = """
import mmap, os
nameless = mmap.mmap(-1, 10000); nameless[:5] = b"start"
with open("file", "w+b") as file:
    file.write(b"start" + bytes(9000)); file.flush()
    mapped = mmap.mmap(file.fileno(), 0)
    watched = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
with open("gone", "w+b") as file:
    file.write(b"start" + bytes(100)); file.flush()
    gone = mmap.mmap(file.fileno(), 0)
os.unlink("gone")
untouched = mmap.mmap(-1, 1 << 20)
def seen(): return [bytes(one[:5]) for one in (nameless, mapped, watched, gone, untouched)]
def write(text): nameless[:5] = mapped[:5] = gone[:5] = untouched[:5] = text
"""
    assert python.run(code).status == "ok"
    one, two = python.fork(2)
    assert one.interpreter.lost_on_fork == {"shared_mappings": 4}
    assert values([python, one, two], "seen()[:4]") == [str([b"start"] * 4)] * 3
    one.run("write(b'other')")
    assert values([python, one, two], "seen()[1:4]") == [str([b"start"] * 3), str([b"other"] * 3), str([b"start"] * 3)]
    python.run("write(b'first')")
    seen = [str([text] * 5) for text in (b"first", b"other")]
    assert values([python, one], "seen()") == seen
    assert two.run("seen()").value == str([b"start"] * 4 + [bytes(5)])
    written = values([python, one, two], "mapped.flush(); open('file', 'rb').read(5)")
    assert written == ["b'first'", "b'other'", "b'start'"]


def test_files_that_can_not_be_opened_again_are_not_shared(python: SyncInterpreter) -> None:
    code = """
import os
os.makedirs("inner"); os.mkdir("left")
inner, left = (os.open(name, os.O_RDONLY | os.O_DIRECTORY) for name in ("inner", "left"))
os.rmdir("left")
handle = os.open("nameless", os.O_CREAT | os.O_RDWR); path = os.open("nameless", os.O_PATH)
os.unlink("nameless")
late = []
os.register_at_fork(before=lambda: late.append(os.open("late", os.O_CREAT | os.O_RDWR)))
def attempt(function, *arguments, **named):
    try: return function(*arguments, **named)
    except OSError as error: return None
def write():
    attempt(lambda: os.write(os.open("made", os.O_CREAT | os.O_WRONLY, dir_fd=inner), b"x"))
    attempt(lambda: os.write(os.open(f"/proc/self/fd/{path}", os.O_WRONLY), b"x"))
    attempt(os.write, late[0], b"x")
    return attempt(os.open, ".", os.O_RDONLY, dir_fd=left)
def seen(): return os.listdir(inner), os.fstat(handle).st_size, os.stat("late").st_size
"""
    python.run(code)
    (copy,) = python.fork()
    assert copy.run("write()").value is None
    assert python.run("seen()").value == "([], 0, 0)"


def test_code_that_starts_threads_in_a_fork_can_not_be_forked(python: SyncInterpreter) -> None:
    code = "import os, threading, time\nx = 3\ndef start(): threading.Thread(target=time.sleep, args=(60,)).start()\n"
    python.run(code)
    for moment in ("after_in_child", "after_in_parent"):
        (copy,) = python.fork()
        copy.run(f"os.register_at_fork({moment}=start)")
        with pytest.raises(ForkError, match="goes on"):
            copy.fork()
        assert copy.run("x").value == "3"
        copy.close()


def test_processes_started_in_a_fork_are_ended_with_it(python: SyncInterpreter) -> None:
    code = """
import os, subprocess, sys
born = []
def start(): born.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]))
os.register_at_fork(after_in_parent=start)
"""
    python.run(code + STATE)
    (copy,) = python.fork()
    wait_for(lambda: python.run("{state(one.pid) for one in born} <= {*'Z-'}").value == "True")
    assert copy.run("1").value == "1"


_REWRITE = """
frame = sys._getframe()
while not hasattr(frame.f_locals.get("self"), "confinement"): frame = frame.f_back
session = frame.f_locals["self"]
"""


@pytest.mark.parametrize("code", ["28, 'evil'", "2**40, 'evil'", "'evil'"])
def test_a_session_can_not_choose_what_a_failed_fork_says(python: SyncInterpreter, code: str) -> None:
    python.run(f"import sys\n{_REWRITE}\ndef refuse(): raise OSError({code})\nsession.confinement.check_depth = refuse")
    with pytest.raises(ForkError, match=r"goes on: (there is no space left for|its copies could not)") as error:
        python.fork()
    assert "evil" not in str(error.value)
    assert python.run("1").value == "1"


def test_a_copy_can_not_take_another_place_or_bring_another_channel(python: SyncInterpreter) -> None:
    code = f"""
import os, sys
{_REWRITE}
origin = os.getpid()
channel = session.channel
move = channel.move
def lie(kind, number, payload):
    if os.getpid() != origin: payload = bytes(4) + payload[4:]
    return move(kind, number, payload)
type(channel).move = lambda self, *arguments: lie(*arguments)
"""
    assert python.run(code).status == "ok"
    with pytest.raises(ForkError, match="goes on"):
        python.fork(3)
    assert python.run("os.getpid() == origin").value == "True"
