"""What hostile code does to a sandbox, and that nothing comes of it; the attacks are in the package `attacks`.

An attack that a backend does not contain is not run there, and skipped with what it takes: that is the expected
result. Run with -rs to see the list.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest
from attacks import ATTACKS, Attack
from attacks.forking import HANGS
from attacks.fortress import SOON, TOOLS, Fortress, Victim
from attacks.unfair import IN_A_CELL
from commands_under_test import CHOSEN
from sandbox_under_test import ALL_BACKENDS, open_or_skip, opened

from sandbox import Limits, Sandbox, SandboxError, SyncInterpreter

LIMITS = Limits(
    memory="1g",
    session_memory=256 << 20,
    processes=64,
    disk=32 << 20,
    file_size=24 << 20,
    timeout=8,
    grace=0.5,
)
CLIENT_SECRET = "the-client's-own-secret"
_managers: list[AbstractContextManager[Sandbox]] = []
DOCKER = pytest.param("docker", marks=pytest.mark.docker)
ONE_IS_ENOUGH = pytest.mark.parametrize("fortress", ["unsafe_local"], indirect=True)


@pytest.fixture(scope="module")
def fortresses() -> Iterator[dict[str, Fortress]]:
    """The fortress of each backend, opened at its first use, and again when an attack has broken it."""
    fortresses: dict[str, Fortress] = {}
    yield fortresses
    for fortress in fortresses.values():
        fortress.sandbox.close_sync()
    while _managers:
        _managers.pop().__exit__(None, None, None)


_OVER_HTTP = ["http"] if ALL_BACKENDS else []


@pytest.fixture(params=["command"] if CHOSEN else [DOCKER, "bubblewrap", "unsafe_local", *_OVER_HTTP])
def fortress(request: pytest.FixtureRequest, fortresses: dict[str, Fortress]) -> Fortress:
    present = fortresses.get(request.param)
    if present is not None and not present.broken:
        return present
    if present is not None:
        present.sandbox.close_sync()
    fortresses[request.param] = Fortress(_opened(request.param), CLIENT_SECRET)
    return fortresses[request.param]


def _opened(backend: str) -> Sandbox:
    os.environ["ARPO_TEST_SECRET"] = CLIENT_SECRET
    try:
        if backend == "http":
            manager = opened(backend, LIMITS, containers=1)
            _managers.append(manager)
            return manager.__enter__()
        return open_or_skip(backend, LIMITS, containers=1)
    finally:
        del os.environ["ARPO_TEST_SECRET"]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: f"{attack.kind}-{attack.name}")
def test_attack(fortress: Fortress, attack: Attack) -> None:
    reason = attack.why_not_defended(fortress.sandbox.isolation)
    if reason:
        pytest.skip(f"not defended: {reason}")
    with fortress.attacker(attack) as (attacker, victims):
        with fortress.at_work(attack, victims):
            execution = attacker.run(attack.code, timeout=attack.timeout)
            time.sleep(attack.pause)
        fortress.check_output(execution, victims)
        attack.check(execution)
        if attack.then and execution.alive:
            following = attacker.run(attack.then, timeout=attack.timeout)
            fortress.check_output(following, victims)
            attack.check_next(following)
        for what in attack.asks if execution.alive else ():
            fortress.ask(attacker, what)
        if attack.forks:
            fortress.check_fork(attacker, attack.forks)
        fortress.check_unharmed(victims)
    fortress.check_recovered()
    fortress.check_unharmed([])


def test_there_are_as_many_attacks_as_promised() -> None:
    assert len(ATTACKS) >= 290
    names = Counter((attack.kind, attack.name) for attack in ATTACKS)
    assert max(names.values()) == 1


@pytest.mark.parametrize("backend", [DOCKER, "bubblewrap"])
def test_nothing_that_this_machine_offers_is_left_out(backend: str) -> None:
    """Else attacks that need it would be skipped, and nobody would know."""
    kernel = tuple(int(part) for part in re.findall(r"\d+", platform.release())[:2])
    if backend == "bubblewrap" and os.getuid() != 0:
        pytest.skip("bubblewrap has one user for all sessions where it is not started by root")
    with open_or_skip(backend, LIMITS) as sandbox:
        walls = sandbox.isolation.split("+")[1:]
    assert "uid" in walls
    assert "landlock" in walls or kernel < (6, 12)
    assert "seccomp" in walls or platform.machine() not in ("x86_64", "aarch64")


def _named(name: str) -> Attack:
    return next(attack for attack in ATTACKS if f"{attack.kind}-{attack.name}" == name)


ROBUST = [
    "processes-fork_bomb_double_fork",
    "memory-gradual_with_the_error_swallowed",
    "output-flood_between_the_cells",
    "exhaustion-orphans_for_the_supervisor",
]


@pytest.mark.parametrize("name", ROBUST)
def test_a_neighbour_is_served_during_an_attack(fortress: Fortress, name: str) -> None:
    attack = _named(name)
    reason = attack.why_not_defended(fortress.sandbox.isolation)
    if reason:
        pytest.skip(f"not defended: {reason}")
    waits: list[float] = []
    with fortress.attacker(attack) as (attacker, _):
        raging = threading.Thread(target=attacker.run, args=(attack.code, attack.timeout))
        raging.start()
        while raging.is_alive() or not waits:
            waits.append(fortress.sentinel.python.run("sum(range(1000))", timeout=SOON).duration)
            raging.join(0.02)
    assert max(waits) < 2, f"{len(waits)} cells"
    fortress.check_recovered()


def test_a_neighbour_is_served_beside_busy_branches(fortress: Fortress) -> None:
    attack = Attack("", "", "", needs="uid", neighbour="def work(): return sum(i * i for i in range(600_000))")
    reason = attack.why_not_defended(fortress.sandbox.isolation)
    if reason:
        pytest.skip(f"not defended: {reason}")
    with contextlib.ExitStack() as stack:
        attacker, victims = stack.enter_context(fortress.attacker(attack))
        branches = [stack.enter_context(copy) for copy in attacker.fork(8)]
        with fortress.at_work(replace(attack, slowdown=IN_A_CELL), victims), ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda one: one.run("while True: pass", timeout=1.5), branches))
        fortress.check_unharmed(victims)
    fortress.check_recovered()


def test_what_was_kept_over_two_forks(fortress: Fortress) -> None:
    attack = Attack("", "", "", needs="uid landlock seccomp", position="fork")
    reason = attack.why_not_defended(fortress.sandbox.isolation)
    if reason:
        pytest.skip(f"not defended: {reason}")
    keep = "kept = globals().get('kept', []) + kept_descriptors()\nassert kept"
    with contextlib.ExitStack() as stack:
        origin, (child, sibling) = stack.enter_context(_with_forks(fortress, keep))
        assert child.run(keep).status == "ok"
        grandchild, cousin = (stack.enter_context(copy) for copy in child.fork(2))
        victims = [Victim(session) for session in (origin, child, sibling, cousin)]
        assert "tried" in grandchild.run("write_to_all(kept, b'garbage' * 50)").text
        fortress.check_unharmed(victims)
    fortress.check_recovered()


@contextlib.contextmanager
def _with_forks(fortress: Fortress, code: str) -> Iterator[tuple[SyncInterpreter, list[SyncInterpreter]]]:
    with fortress.sandbox.interpreter_sync(TOOLS) as origin:
        assert origin.run(code).status == "ok"
        copies = origin.fork(2)
        yield origin, copies
        for copy in copies:
            copy.close()


def test_many_bombs_at_once(fortress: Fortress) -> None:
    attack = _named("processes-fork_bomb_double_fork")
    reason = attack.why_not_defended(fortress.sandbox.isolation)
    if reason:
        pytest.skip(f"not defended: {reason}")
    with contextlib.ExitStack() as stack:
        bombs = [stack.enter_context(fortress.attacker(attack))[0] for _ in range(6)]
        threads = [threading.Thread(target=bomb.run, args=(attack.code, attack.timeout)) for bomb in bombs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        fortress.check_unharmed([])
    fortress.check_recovered()


@pytest.mark.docker
def test_forks_that_hang_are_given_up() -> None:
    """All of them at once, after five seconds. A session whose copies alone hang goes on without them."""
    fortress = Fortress(_opened("docker"), CLIENT_SECRET)
    with fortress.sandbox, contextlib.ExitStack() as stack:
        attack = Attack("", "", "")
        sessions = [stack.enter_context(fortress.attacker(attack))[0] for _ in HANGS]
        for session, hook in zip(sessions, HANGS, strict=True):
            session.run(hook)
        with ThreadPoolExecutor(len(HANGS)) as pool:
            for done in [pool.submit(fortress.check_fork, session, 2, 9) for session in sessions]:
                done.result()
        for session, hook in zip(sessions, HANGS, strict=True):
            if "after_in_child" in hook:
                assert session.run("print(1)").stdout == "1\n"
        fortress.check_unharmed([])
        stack.close()
        fortress.check_recovered()


@ONE_IS_ENOUGH
@pytest.mark.parametrize(
    "code",
    [
        "refused('stat', os.stat, '/')",
        "refused('dup', os.dup, 9999)",
        "print('SENTINEL-' + '0' * 16)",
        "print('the-client' + chr(39) + 's-own-secret')",
    ],
)
def test_an_escape_would_be_seen(fortress: Fortress, code: str) -> None:
    with fortress.attacker(Attack("", "", code)) as (attacker, victims):
        execution = attacker.run(code)
        with pytest.raises(AssertionError):
            fortress.check_output(execution, victims)


@ONE_IS_ENOUGH
@pytest.mark.parametrize(
    "harm",
    [
        "open('secret.txt', 'a').write('x')",
        "open('more', 'w')",
        "secret = 'other'",
        "child.kill(); child.wait()",
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))",
        "os.nice(1)",
        "os._exit(0)",
    ],
)
def test_harm_would_be_seen(fortress: Fortress, harm: str) -> None:
    with fortress.sandbox.interpreter_sync() as session:
        victim = Victim(session)
        victim.check()
        session.run(harm)
        with pytest.raises((AssertionError, SandboxError)):
            victim.check()


@ONE_IS_ENOUGH
def test_what_is_left_over_would_be_seen(fortress: Fortress, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attacks.fortress.SOON", 0.5)
    with fortress.sandbox.interpreter_sync(), pytest.raises(AssertionError, match="sessions"):
        fortress.check_recovered()


@pytest.mark.docker
def test_a_family_that_splits_its_memory_pays_for_it_and_no_other() -> None:
    with open_or_skip("docker", LIMITS, containers=1) as sandbox:
        neighbour = sandbox.interpreter_sync("x = bytearray(b'x') * (120 << 20)")
        family = [sandbox.interpreter_sync()]
        family += family[0].fork(8)
        with ThreadPoolExecutor(len(family)) as pool:
            list(pool.map(lambda one: _status(one, "x = bytearray(b'x') * (90 << 20)"), family))
        deadline = time.monotonic() + SOON
        while time.monotonic() < deadline and all(_status(one, "1") == "ok" for one in family):
            time.sleep(0.1)
        assert "lost" in [_status(one, "1") for one in family]
        assert neighbour.run("len(x)").value == str(120 << 20)


def _status(session: SyncInterpreter, code: str) -> str:
    try:
        return session.run(code).status
    except SandboxError:
        return "lost"
