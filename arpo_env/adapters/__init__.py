"""Adapters: environments of this library in other frameworks, each in a module of its own that imports its framework.

`docs/adapters/index.md` shows each of them in three lines. They share `chat_episode` (an episode as chat messages),
`load_peer` (a framework in a tested version) and `EnvFactory`, which travels between processes.

A failure of the infrastructure (`FAULTS`) is never turned into a reward of 0: each adapter hands it to its framework as
an exception, a missing reward or a sample to be left out, as far as the framework can take one.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import warnings
from types import ModuleType
from typing import NamedTuple

from arpo_env.errors import GradingError, ServiceError
from envs_registry.install_line import install_line
from sandbox import SandboxError

FAULTS = (SandboxError, ServiceError, GradingError)
"""What a step raises if the infrastructure failed and not the policy."""


class Peer(NamedTuple):
    """A framework that an adapter is for: its distribution, the version that the tests cover, how to install it."""

    package: str
    tested: str
    install: str


PEERS: dict[str, Peer] = {
    "trl": Peer("trl", "1.16", install_line("train")),
    "openenv": Peer(
        "openenv",
        "0.10",
        "pip install 'openenv>=0.10,<0.11'. It needs an older mcp than the extra `mcp`; in one environment with that, "
        "pip would choose openenv 0.4.1.",
    ),
    "verifiers": Peer("verifiers", "0.4", "pip install 'verifiers>=0.4,<0.5'"),
    "verl": Peer(
        "verl", "0.9", "pip install 'verl>=0.9,<0.10'. It needs transformers < 5.11: use an environment of its own."
    ),
    "skyrl_gym": Peer("skyrl-gym", "0.4", "pip install 'skyrl-gym>=0.4,<0.5'"),
    "gem": Peer("gem-llm", "0.1", "pip install 'gem-llm>=0.1,<0.2'"),
    "openrlhf": Peer("openrlhf", "0.11", "pip install --no-deps 'openrlhf>=0.11,<0.12'"),
    "inspect_ai": Peer("inspect-ai", "0.3", "pip install 'inspect-ai>=0.3.200,<0.4'"),
    "mcp": Peer("mcp", "2", install_line("mcp")),
}
"""Name of the imported package -> the framework."""


def load_peer(module: str) -> ModuleType:
    """Import a module of a framework, whose package is a key of `PEERS`; warns of a version that is not tested."""
    package, tested, install = PEERS[module.partition(".")[0]]
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        version = ""  # not installed, or imported from a checkout
    there = f"{package} {version} is installed, and this adapter is for {package} {tested}"
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise  # it is installed, but something that it needs is not
        said = there if version else f"this adapter needs {package}"
        raise ModuleNotFoundError(f"{said}; install it with: {install}", name=error.name) from error
    if version and not f"{version}.".startswith(f"{tested}."):
        if (major := tested.partition(".")[0]) not in ("0", version.partition(".")[0]):
            raise ImportError(f"{there} ({major}.x); install it with: {install}")
        warnings.warn(f"{there}. If something fails: {install}", stacklevel=2)
    return found
