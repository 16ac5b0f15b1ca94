"""What tests of several adapters share."""

from typing import Any

import pytest

from arpo_env import ToolEnv


class Counts(set[int]):
    """The environments that were started and not closed; `started` and `closed` count the calls."""

    started = closed = 0


@pytest.fixture
def open_episodes(monkeypatch: pytest.MonkeyPatch) -> Counts:
    """The environments that were started, or forked, and not closed."""
    found, (reset, close, fork) = Counts(), (ToolEnv.areset, ToolEnv.aclose, ToolEnv.afork)

    async def areset(self: ToolEnv, **options: Any) -> Any:
        found.started += 1
        found.add(id(self))
        return await reset(self, **options)

    async def afork(self: ToolEnv, n: int = 1) -> list[ToolEnv]:
        copies = await fork(self, n)
        found.update(map(id, copies))
        return copies

    async def aclose(self: ToolEnv) -> None:
        found.discard(id(self))
        await close(self)
        found.closed += 1

    for name, function in (("areset", areset), ("afork", afork), ("aclose", aclose)):
        monkeypatch.setattr(ToolEnv, name, function)
    return found
