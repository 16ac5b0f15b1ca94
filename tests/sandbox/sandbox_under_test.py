"""Opens the sandboxes that the tests use."""

from __future__ import annotations

import os
import warnings
from typing import Unpack

import pytest

from sandbox import Limits, Sandbox, SandboxUnavailable
from sandbox.bubblewrap import why_no_bubblewrap
from sandbox.sandbox import PoolOptions

LIMITS = Limits(session_memory=256 << 20, grace=0.5)


def fastest() -> str:
    """The backend that stands for all where one is enough: bubblewrap starts fastest, and Docker is there mostly."""
    return "docker" if why_no_bubblewrap() else "bubblewrap"


def open_or_skip(
    backend: str, limits: Limits = LIMITS, containers: int = 4, sessions: int = 64, **options: Unpack[PoolOptions]
) -> Sandbox:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            return Sandbox.open_sync(backend, limits, containers=containers, sessions=sessions, **options)
    except SandboxUnavailable as error:
        if backend == os.environ.get("ARPO_SANDBOX"):  # `make` has found it here: nothing to skip
            raise
        pytest.skip(f"NOT TESTED on {backend}: {error}")
