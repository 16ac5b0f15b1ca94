"""Fixtures of the adapters' tests."""

from __future__ import annotations

from typing import Any

import pytest

from arpo_env import ToolEnv


@pytest.fixture
def open_episodes(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The environments that were started and not closed."""
    running: set[int] = set()
    start, end = ToolEnv.areset, ToolEnv.aclose

    async def areset(self: ToolEnv, **options: Any) -> Any:
        running.add(id(self))
        return await start(self, **options)

    async def aclose(self: ToolEnv) -> None:
        running.discard(id(self))
        await end(self)

    monkeypatch.setattr(ToolEnv, "areset", areset)
    monkeypatch.setattr(ToolEnv, "aclose", aclose)
    return running
