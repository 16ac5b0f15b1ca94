"""What hostile code does to a sandbox, and that nothing comes of it; the attacks are in the package `attacks`.

An attack that a backend does not contain is not run there, and skipped with what it takes: that is the expected
result. Run with -rs to see the list.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest
from attacks import ATTACKS, Attack
from attacks.fortress import Fortress
from sandbox_under_test import open_or_skip

from sandbox import Limits, Sandbox

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
def fortresses() -> Iterator[dict[str, Fortress]]:
    """The fortress of each backend, opened at its first use, and again when an attack has broken it."""
    opened: dict[str, Fortress] = {}
    yield opened
    for fortress in opened.values():
        fortress.sandbox.close_sync()


@pytest.fixture(params=[DOCKER, "bubblewrap", "unsafe_local"])
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
        return open_or_skip(backend, LIMITS)
    finally:
        del os.environ["ARPO_TEST_SECRET"]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: f"{attack.kind}-{attack.name}")
def test_attack(fortress: Fortress, attack: Attack) -> None:
    reason = attack.why_not_defended(fortress.sandbox.isolation)
    if reason:
        pytest.skip(f"not defended: {reason}")
    with fortress.attacker(attack) as (attacker, victims):
        execution = attacker.run(attack.code, timeout=attack.timeout)
        fortress.check_output(execution, victims)
        attack.check(execution)
        if attack.then:
            following = attacker.run(attack.then, timeout=attack.timeout)
            fortress.check_output(following, victims)
            assert re.search(attack.then_shows, following.text), following.text[-2000:]
        fortress.check_unharmed(victims)
    fortress.check_recovered()
    fortress.check_unharmed([])
