"""Opens the sandboxes that the tests use."""

from __future__ import annotations

import warnings

import pytest

from sandbox import Limits, Sandbox, SandboxUnavailable

LIMITS = Limits(session_memory=256 << 20, grace=0.5)


def open_or_skip(backend: str, limits: Limits = LIMITS, containers: int = 4, sessions: int = 64) -> Sandbox:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            return Sandbox.open_sync(backend, limits, containers=containers, sessions=sessions)
    except SandboxUnavailable as error:
        pytest.skip(f"NOT TESTED on {backend}: {error}")
