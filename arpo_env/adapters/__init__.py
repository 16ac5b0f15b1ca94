"""Adapters: environments of this library in other frameworks, each in a module of its own that imports its framework.

`docs/adapters/index.md` shows each of them in three lines. They share `chat_episode` (an episode as chat messages),
`load_peer` (a framework in a tested version) and `EnvFactory`, which travels between processes.

A failure of the infrastructure (`FAULTS`) is never turned into a reward of 0: each adapter hands it to its framework as
an exception, a missing reward or a sample to be left out, as far as the framework can take one.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import warnings
from dataclasses import dataclass
from types import ModuleType

from arpo_env.errors import GradingError, ServiceError
from envs_registry.install_line import install_line
from sandbox import SandboxError

FAULTS = (SandboxError, ServiceError, GradingError)
"""What a step raises if the infrastructure failed and not the policy."""


@dataclass(frozen=True)
class Peer:
    """A framework that an adapter is for: its distribution, how the versions that the tests cover begin, and its cure.

    `needs` are the arguments of `pip install`, where no extra of this package has the framework.
    """

    package: str
    tested: str
    needs: str = ""
    note: str = ""
    extra: str = ""

    @property
    def cure(self) -> str:
        """The command that installs it, and the note."""
        command = install_line(self.extra) if self.extra else f"pip install {self.needs}"
        return f"{command}. {self.note}" if self.note else command


PEERS: dict[str, Peer] = {
    "trl": Peer("trl", "1.16", extra="train"),
    "openenv": Peer(
        "openenv",
        "0.10",
        "'openenv>=0.10,<0.11'",
        "It needs an older mcp than the extra `mcp`; in one environment with that, pip would choose openenv 0.4.1.",
    ),
    "verifiers": Peer("verifiers", "0.4", "'verifiers>=0.4,<0.5'"),
    "verl": Peer("verl", "0.9", "'verl>=0.9,<0.10'", "It needs transformers < 5.11: use an environment of its own."),
    "skyrl_gym": Peer("skyrl-gym", "0.4", "'skyrl-gym>=0.4,<0.5'"),
    "gem": Peer("gem-llm", "0.1", "'gem-llm>=0.1,<0.2'"),
    "openrlhf": Peer("openrlhf", "0.11", "--no-deps 'openrlhf>=0.11,<0.12'"),
    "inspect_ai": Peer("inspect-ai", "0.3", "'inspect-ai>=0.3.200,<0.4'"),
    "mcp": Peer("mcp", "2", extra="mcp"),
}
"""Name of the imported package -> the framework."""


def load_peer(module: str) -> ModuleType:
    """Import a module of a framework, whose package is a key of `PEERS`.

    Warns (`UserWarning`) if its version is not one that the tests cover, and refuses another major version.

    Raises:
        ModuleNotFoundError: the framework is not installed; the message has the pip line.
        ImportError: another major version is installed; likewise.
    """
    name = module.partition(".")[0]
    peer = PEERS[name]
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise  # it is installed, but something that it needs is not
        raise ModuleNotFoundError(_how_to_install(peer), name=error.name) from error
    _check_version(peer)
    return found


def _how_to_install(peer: Peer) -> str:
    try:
        there = f"{peer.package} {importlib.metadata.version(peer.package)} is too old for this adapter"
    except importlib.metadata.PackageNotFoundError:
        there = f"this adapter needs {peer.package}"
    return f"{there}; install it with: {peer.cure}"


def _check_version(peer: Peer) -> None:
    try:
        version = importlib.metadata.version(peer.package)
    except importlib.metadata.PackageNotFoundError:
        return  # imported from a checkout, whose version is not known
    major, tested = version.partition(".")[0], peer.tested.partition(".")[0]
    if tested != "0" and major != tested:
        raise ImportError(
            f"{peer.package} {version} is installed, and this adapter is for {peer.package} {tested}; install it "
            f"with: {peer.cure}"
        )
    if not re.match(rf"{re.escape(peer.tested)}(?![0-9])", version):
        warnings.warn(
            f"{peer.package} {version} is not a version that this adapter was tested with ({peer.tested}.x). If "
            f"something fails: {peer.cure}",
            stacklevel=3,
        )
