"""A sandbox under siege: sessions with something to lose, and what has to hold after every attack.

No victim is harmed or read: it has its variable, its files, its subprocess, its limits and its priority, and none of
its secrets has been printed. A fresh session starts at once and finds nothing. When the attacker is closed,
processes, slots and memory are as before. The server is still the same.
"""

import contextlib
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from sandbox_under_test import behind

from attacks.attack import Ask, Attack
from sandbox import Execution, ForkError, Sandbox, SandboxError, SessionLost, SyncInterpreter
from sandbox.pool import Container
from sandbox.server.processes import descendants
from sandbox.server.wire import PING

TOOLS = (Path(__file__).parent / "tools.py").read_text()
SOON = 8.0
SLACK = 0.05
SPARE_MEMORY = 48 << 20

_ARM = """
import multiprocessing, os, posix, resource, socket, subprocess, sys
secret = {secret!r}
ballast = b"b" * (20 << 20)
with open("secret.txt", "w") as file: file.write(secret)
sleep = [sys.executable, "-c", "import time; time.sleep(10000)", secret]
child = subprocess.Popen(sleep, env={{"SECRET": secret}})
listener = socket.socket(socket.AF_UNIX)
listener.bind("\\0" + {name!r})
listener.listen()
door = socket.socket(socket.AF_UNIX)
door.bind("listener")
door.listen()
def state():
    multiprocessing.Lock()
    limits = [resource.getrlimit(kind) for kind in range(16)]
    rank = os.getpriority(os.PRIO_PROCESS, 0), sorted(os.sched_getaffinity(0))  # the policy is the supervisor's affair
    return open("secret.txt").read(), secret, sorted(os.listdir(".")), child.poll(), os.getpid(), limits, rank
{{"pid": os.getpid(), "child": child.pid, "directory": posix.getcwd(), "address": id(secret), "socket": {name!r}}}
"""
_FRESH = """
import json, os, random
found = os.listdir("."), os.listdir(os.environ["HOME"]) if os.path.isdir(os.environ["HOME"]) else []
with open("own", "w") as file: file.write("x")
os.unlink("own")
own = 0
try: shared = os.listdir("/dev/shm")
except PermissionError: shared = []  # names are hidden there; test_sandbox_kernel.py sees that nothing is left
for name in shared:
    if name.startswith(OTHERS): continue
    try: seen = os.stat("/dev/shm/" + name)
    except OSError: continue
    own += seen.st_uid == os.getuid() and seen.st_ctime > BEGAN
found, own, json.loads("[42]")[0]
"""


class Victim:
    """A session that has something to lose."""

    def __init__(self, python: SyncInterpreter) -> None:
        self.python = python
        self.secret = f"SENTINEL-{secrets.token_hex(8)}"
        armed = python.run(_ARM.format(secret=self.secret, name=secrets.token_hex(8)))
        assert armed.status == "ok", armed.text
        self.facts: dict[str, Any] = eval(str(armed.value))
        self._state = python.run("state()").value
        assert self._state is not None

    def check(self) -> None:
        """See that nothing has been done to it: its cell, whose source is secret, gives the same, and no output."""
        execution = self.python.run(f"state()  # {self.secret}", timeout=SOON)
        assert execution.value == self._state, execution
        assert (execution.stdout, execution.stderr, execution.status) == ("", "", "ok"), execution


class Neighbour(Victim):
    """A victim with a function `work`, which it does again and again, and looks at the time that it takes."""

    def __init__(self, python: SyncInterpreter) -> None:
        super().__init__(python)
        self._done = python.run("work()").value
        self._peace = median(self._work() for _ in range(7))

    def _work(self) -> float:
        execution = self.python.run("work()", timeout=SOON)
        assert execution.value == self._done, execution
        return execution.duration

    @contextlib.contextmanager
    def at_work(self, slowdown: float) -> Iterator[None]:
        """Work all the time, and see that it takes no longer than some multiple of the time in peace."""
        with repeated(self._work, pause=0.02) as waits:
            yield
        if slowdown:
            assert median(waits) <= slowdown * self._peace + SLACK, f"{self._peace:.3f} s in peace, now {waits}"


@contextlib.contextmanager
def repeated(work: Callable[[], Any], pause: float) -> Iterator[list[Any]]:
    """Do something again and again meanwhile, at least once; gives what it gives."""
    done, found = threading.Event(), list[Any]()

    def repeat() -> None:
        found.append(work())
        while not done.wait(pause):
            found.append(work())

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(repeat)
        try:
            yield found
        finally:
            done.set()
    working.result()


class Fortress:
    """A sandbox with a sentinel; the secret is something that the client has in its environment."""

    def __init__(self, sandbox: Sandbox, client_secret: str) -> None:
        self.sandbox = sandbox
        self._began = time.time()  # what lay in shared memory before is nobody's here
        self.container = self._present_container()
        self._client_secret = client_secret
        self.sentinel = Victim(sandbox.interpreter_sync())
        self.check_fresh_session()
        time.sleep(0.2)
        self._start = self.level()

    def _present_container(self) -> Container:
        (container,) = behind.get(self.sandbox, self.sandbox)._pool.containers
        return container

    @property
    def broken(self) -> bool:
        """Whether an earlier attack has done harm, so that a new sandbox is needed."""
        try:
            self.sentinel.check()
            return self.level()["retired"] > self._start["retired"]
        except (SandboxError, AssertionError):
            return True

    def level(self) -> dict[str, int]:
        """Ask the server for its processes, memory, sessions and slots."""
        told: dict[str, int] = self.container.request(PING, {}).result(SOON)
        return {**told, "seen from outside": _seen_from_outside(self.container.stream)}

    @contextlib.contextmanager
    def attacker(self, attack: Attack) -> Iterator[tuple[SyncInterpreter, list[Victim]]]:
        """Open the session that an attack runs in, with its victims."""
        sessions = [self.sandbox.interpreter_sync()]
        victims = [self.sentinel]
        try:
            if attack.before:
                self._prepare(sessions[0], [], told=False)
                planted = sessions[0].run(attack.before)
                assert planted.status == "ok", planted.text
            if attack.position != "stranger":
                sessions += sessions[0].fork(2)
                place = 0 if attack.position == "original" else 1
                victims = [Victim(session) for session in sessions if session is not sessions[place]]
                sessions.insert(0, sessions.pop(place))
            if attack.neighbour:
                neighbour = Neighbour(self.sandbox.interpreter_sync(attack.neighbour))
                sessions.append(neighbour.python)
                victims = [*victims, neighbour]
            self._prepare(sessions[0], victims, told=attack.position == "stranger")
            yield sessions[0], victims
        finally:
            for session in sessions:
                session.close()

    def _prepare(self, attacker: SyncInterpreter, victims: list[Victim], told: bool) -> None:
        """Give the attacker its tools; branches are not told where the files of others are."""
        hidden = () if told else ("directory",)
        known = [{name: fact for name, fact in one.facts.items() if name not in hidden} for one in victims]
        facts = f"VICTIMS = {known!r}\nISOLATION = {self.sandbox.isolation!r}\n"
        facts += f"MACHINE = {__file__!r}"
        for cell in (TOOLS, facts):
            prepared = attacker.run(cell)
            assert prepared.status == "ok", prepared.text

    @contextlib.contextmanager
    def at_work(self, attack: Attack, victims: list[Victim]) -> Iterator[None]:
        """Let those run cells all the time that the attack is to disturb."""
        with contextlib.ExitStack() as stack:
            for victim in victims:
                if attack.meanwhile:
                    stack.enter_context(repeated(victim.check, pause=0.01))
                if isinstance(victim, Neighbour):
                    stack.enter_context(victim.at_work(attack.slowdown))
            yield

    def ask(self, attacker: SyncInterpreter, what: Ask) -> None:
        """Ask something of a hostile session: it gives a result of the right kind, or one neutral failure."""
        if what == "run":
            assert isinstance(attacker.run("6 * 7", timeout=2), Execution)
            return
        with contextlib.suppress(ForkError if what == "fork" else OSError):
            if what == "get":
                assert isinstance(attacker.get("asked"), bytes)
            elif what == "put":
                attacker.put("asked", b"x" * 1000)
            else:
                for copy in attacker.fork(2):
                    copy.close()

    def check_output(self, execution: Execution, victims: list[Victim]) -> None:
        """See that nothing has escaped, and nothing is known that should not be."""
        said = f"{execution.stdout}\n{execution.value}\n{execution.stderr}\n{execution.error}"
        escapes = sorted({line for line in said.splitlines() if "ESCAPED:" in line})
        assert not escapes, escapes[:20]
        known = [*(victim.secret for victim in victims), self.sentinel.secret, self._client_secret]
        assert not [secret for secret in known if secret in said], "a secret has been read"
        assert not re.search(r"SENTINEL-[0-9a-f]{16}", said), "an old secret has been read"

    def check_unharmed(self, victims: list[Victim]) -> None:
        """See that victims, sentinel and server are as before, and that newcomers are welcome."""
        assert not self.sandbox._pool.closed
        assert self._present_container() is self.container, "the server has been replaced"
        for victim in {*victims, self.sentinel}:
            victim.check()
        self.check_fresh_session()

    def check_fork(self, attacker: SyncInterpreter, copies: int, within: float = SOON) -> None:
        """See that forking a hostile session comes to an end: with copies, a ForkError, or the session's own."""
        with ThreadPoolExecutor(1) as pool:
            try:
                for copy in pool.submit(attacker.fork, copies).result(within):
                    with contextlib.suppress(SessionLost):
                        copy.run("6 * 7", timeout=1)
                    copy.close()
            except ForkError:
                assert attacker.run("6 * 7", timeout=1).value in ("42", None)
            except SessionLost:
                return

    def check_fresh_session(self) -> None:
        """See that a session starts in time, works, and has nothing of others."""
        began = time.monotonic()
        with self.sandbox.interpreter_sync() as fresh:
            others = ("sem.mp-",) if self.sandbox.isolation == "none" else ()  # programs of this machine have them, too
            execution = fresh.run(f"BEGAN, OTHERS = {self._began}, {others}\n{_FRESH}", timeout=SOON)
            assert execution.value == "(([], []), 0, 42)", execution.text
        assert time.monotonic() - began < SOON

    def check_recovered(self) -> None:
        """See that processes, sessions, slots and memory come back to where they were."""
        begin = self._start
        conditions: dict[str, Callable[[int], bool]] = {
            "processes": lambda now: now <= begin["processes"],
            "seen from outside": lambda now: now <= begin["seen from outside"],
            "sessions": lambda now: now == begin["sessions"],
            "free": lambda now: now == begin["free"],
            "retired": lambda now: now == begin["retired"],
            "memory": lambda now: now <= begin["memory"] + SPARE_MEMORY,
        }
        deadline = time.monotonic() + SOON
        while True:
            level = self.level()
            wrong = {name: (level[name], begin[name]) for name, holds in conditions.items() if not holds(level[name])}
            if not wrong or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        assert not wrong, f"not as before (now, before): {wrong}"


def _seen_from_outside(stream: Any) -> int:
    """Count a sandbox's processes without asking the sandbox."""
    if hasattr(stream, "_container"):
        return len(stream._client.api.top(stream._container)["Processes"])
    return sum(1 for _ in descendants(stream._process.pid))
