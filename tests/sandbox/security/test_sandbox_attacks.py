"""What hostile code does to a sandbox, and that nothing comes of it; the attacks are in the package `attacks`.

An attack that a backend does not contain is not run there, and skipped with what it takes: that is the expected
result. Run with -rs to see the list.
"""

import contextlib
import os
import platform
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from attacks import ATTACKS, Attack
from attacks.forking import HANGS
from attacks.fortress import SOON, TOOLS, Fortress, Victim, repeated
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
DOCKER = pytest.param("docker", marks=pytest.mark.docker)


@pytest.fixture(scope="module")
def open_fortress() -> Iterator[Callable[[str], Fortress]]:
    """Opens the fortress of a backend at its first use, and again when an attack has broken it."""
    fortresses: dict[str, Fortress] = {}

    def found(backend: str) -> Fortress:
        present = fortresses.get(backend)
        if present is None or present.broken:
            if present is not None:
                present.sandbox.close_sync()
            fortresses[backend] = Fortress(stack.enter_context(_opened(backend)), CLIENT_SECRET)
        return fortresses[backend]

    with contextlib.ExitStack() as stack:
        yield found


_OVER_HTTP = ["http"] if ALL_BACKENDS else []


@pytest.fixture(params=["command"] if CHOSEN else [DOCKER, "bubblewrap", "unsafe_local", *_OVER_HTTP])
def fortress(request: pytest.FixtureRequest, open_fortress: Callable[[str], Fortress]) -> Fortress:
    return open_fortress(request.param)


@contextlib.contextmanager
def _opened(backend: str) -> Iterator[Sandbox]:
    with contextlib.ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ARPO_TEST_SECRET", CLIENT_SECRET)
            sandbox = stack.enter_context(opened(backend, LIMITS, containers=1))
        yield sandbox


def _skip_where_not_defended(fortress: Fortress, attack: Attack) -> None:
    reason = attack.why_not_defended(fortress.sandbox.isolation)
    if reason:
        pytest.skip(f"not defended: {reason}")


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: f"{attack.kind}-{attack.name}")
def test_attack(fortress: Fortress, attack: Attack) -> None:
    _skip_where_not_defended(fortress, attack)
    with fortress.attacker(attack) as (attacker, victims):
        with fortress.at_work(attack, victims):
            execution = attacker.run(attack.code, timeout=attack.timeout)
            time.sleep(attack.pause)
        fortress.check_output(execution, victims)
        attack.check(execution)
        if attack.then and execution.alive:
            following = attacker.run(attack.then, timeout=attack.timeout)
            fortress.check_output(following, victims)
            attack.check(following, then=True)
        for what in attack.asks if execution.alive else ():
            fortress.ask(attacker, what)
        if attack.forks:
            fortress.check_fork(attacker, attack.forks)
        fortress.check_unharmed(victims)
    fortress.check_recovered()
    fortress.check_unharmed([])


def test_there_are_as_many_attacks_as_promised() -> None:
    assert len({(attack.kind, attack.name) for attack in ATTACKS}) == len(ATTACKS) >= 245


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


@pytest.mark.parametrize(
    "name",
    [
        "processes-fork_bomb_double_fork",
        "memory-gradual_with_the_error_swallowed",
        "output-flood_between_the_cells",
        "exhaustion-orphans_for_the_supervisor",
    ],
)
def test_a_neighbour_is_served_during_an_attack(fortress: Fortress, name: str) -> None:
    attack = _named(name)
    _skip_where_not_defended(fortress, attack)
    sentinel = fortress.sentinel.python
    with (
        fortress.attacker(attack) as (attacker, _),
        repeated(lambda: sentinel.run("sum(range(1000))", timeout=SOON).duration, pause=0.02) as waits,
    ):
        attacker.run(attack.code, attack.timeout)
    assert max(waits) < 2, f"{len(waits)} cells"
    fortress.check_recovered()


def test_a_neighbour_is_served_beside_busy_branches(fortress: Fortress) -> None:
    attack = Attack("", "", "", needs="uid", neighbour="def work(): return sum(i * i for i in range(600_000))")
    _skip_where_not_defended(fortress, attack)
    with contextlib.ExitStack() as stack:
        attacker, victims = stack.enter_context(fortress.attacker(attack))
        branches = [stack.enter_context(copy) for copy in attacker.fork(8)]
        with fortress.at_work(replace(attack, slowdown=IN_A_CELL), victims), ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda one: one.run("while True: pass", timeout=1.5), branches))
        fortress.check_unharmed(victims)
    fortress.check_recovered()


def test_what_was_kept_over_two_forks(fortress: Fortress) -> None:
    attack = Attack("", "", "", needs="uid landlock seccomp", position="fork")
    _skip_where_not_defended(fortress, attack)
    keep = "kept = globals().get('kept', []) + kept_descriptors()\nassert kept"
    with contextlib.ExitStack() as stack:
        origin = stack.enter_context(fortress.sandbox.interpreter_sync(TOOLS))
        assert origin.run(keep).status == "ok"
        child, sibling = (stack.enter_context(copy) for copy in origin.fork(2))
        assert child.run(keep).status == "ok"
        grandchild, cousin = (stack.enter_context(copy) for copy in child.fork(2))
        victims = [Victim(session) for session in (origin, child, sibling, cousin)]
        assert "tried" in grandchild.run("write_to_all(kept, b'garbage' * 50)").text
        fortress.check_unharmed(victims)
    fortress.check_recovered()


def test_many_bombs_at_once(fortress: Fortress) -> None:
    attack = _named("processes-fork_bomb_double_fork")
    _skip_where_not_defended(fortress, attack)
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(6) as pool:
        bombs = [stack.enter_context(fortress.attacker(attack))[0] for _ in range(6)]
        list(pool.map(lambda bomb: bomb.run(attack.code, attack.timeout), bombs))
        fortress.check_unharmed([])
    fortress.check_recovered()


@pytest.mark.docker
def test_forks_that_hang_are_given_up() -> None:
    """All of them at once, after five seconds. A session whose copies alone hang goes on without them."""
    with _opened("docker") as sandbox, contextlib.ExitStack() as stack:
        fortress, attack = Fortress(sandbox, CLIENT_SECRET), Attack("", "", "")
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


@pytest.mark.parametrize("fortress", ["unsafe_local"], indirect=True)
def test_an_escape_harm_and_what_is_left_over_would_be_seen(
    fortress: Fortress, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fortress.attacker(Attack("", "", "")) as (attacker, victims):
        for code in ("refused('stat', os.stat, '/')", "print('SENTINEL-' + '0' * 16)"):
            with pytest.raises(AssertionError):
                fortress.check_output(attacker.run(code), victims)
    for harm in ("open('secret.txt', 'a').write('x')", "secret = 'other'", "child.kill(); child.wait()"):
        with fortress.sandbox.interpreter_sync() as session:
            victim = Victim(session)
            victim.check()
            session.run(harm)
            with pytest.raises(AssertionError):
                victim.check()
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
