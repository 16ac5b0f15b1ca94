"""Finds out whether Docker can be used, and what to do if not."""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass
from typing import Any, Literal

State = Literal["ok", "missing", "not_running", "not_permitted"]


@dataclass(frozen=True)
class DockerDiagnosis:
    """Whether Docker can be used.

    Attributes:
        state: "ok", or which of three different faults it is.
        detail: what was seen.
        cure: the command that mends it; empty if all is well.
    """

    state: State
    detail: str
    cure: str = ""

    def __str__(self) -> str:
        words = {"missing": "is not installed", "not_running": "does not answer", "not_permitted": "refuses this user"}
        if self.state == "ok":
            return f"Docker answers ({self.detail})"
        return f"Docker {words[self.state]} ({self.detail}). To mend it: {self.cure}"


def check_docker() -> DockerDiagnosis:
    """Ask the Docker engine for its version; takes a few milliseconds where there is one."""
    import docker
    import docker.errors

    try:
        client = connect(timeout=5)
        with contextlib.closing(client):
            return DockerDiagnosis("ok", f"engine {client.version()['Version']}")
    except (docker.errors.DockerException, OSError) as error:
        return _explain(error)


def connect(host: str | None = None, timeout: float = 60) -> Any:
    """Return a client of an engine; without a host that of DOCKER_HOST, or the one on this machine."""
    import docker

    environment = {**os.environ, "DOCKER_HOST": host} if host else dict(os.environ)
    return docker.from_env(timeout=int(timeout), environment=environment)


def _explain(error: BaseException) -> DockerDiagnosis:
    host = os.environ.get("DOCKER_HOST", "")
    if _caused_by(error, PermissionError):
        return DockerDiagnosis(
            "not_permitted",
            f"no permission for {host or '/var/run/docker.sock'}",
            "sudo usermod -aG docker $USER, then log in again",
        )
    if host and not host.startswith("unix://"):
        return DockerDiagnosis(
            "not_running",
            f"DOCKER_HOST={host}: {_first_line(error)}",
            f"start the engine there, or unset DOCKER_HOST; to test: docker -H {host} version",
        )
    if not _installed():
        return DockerDiagnosis("missing", "neither docker nor dockerd is on PATH", "sudo apt-get install docker.io")
    detail = f"DOCKER_HOST={host}: {_first_line(error)}" if host else _first_line(error)
    return DockerDiagnosis("not_running", detail, "sudo systemctl start docker (without systemd: sudo dockerd &)")


def _installed() -> bool:
    return any(shutil.which(name) for name in ("docker", "dockerd"))


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:200]


def _caused_by(error: BaseException | None, kind: type[BaseException]) -> bool:
    """Look for a kind of error among the causes and, since urllib3 wraps them, among the arguments."""
    seen: set[int] = set()
    waiting: list[Any] = [error]
    while waiting:
        one = waiting.pop()
        if isinstance(one, tuple):
            waiting += one
        if id(one) in seen or not isinstance(one, BaseException):
            continue
        seen.add(id(one))
        if isinstance(one, kind):
            return True
        waiting += [one.__cause__, one.__context__, *one.args]
    return False
