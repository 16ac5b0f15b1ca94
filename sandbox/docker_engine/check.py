"""Checks whether Docker can be used, and what to do if not."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
from dataclasses import dataclass
from typing import Any, Literal

State = Literal["ok", "missing", "no_engine", "not_running", "not_permitted", "too_old"]
OLDEST_API = (1, 40)
"""The API of Docker Engine 19.03."""
_DAEMON_PLACES = ("/usr/sbin", "/usr/local/sbin", "/sbin")
"""Where the daemon may be, apart from an ordinary user's PATH."""
_WORDS = {
    "missing": "is not installed",
    "no_engine": "has no engine here, only its command line",
    "not_running": "does not answer",
    "not_permitted": "refuses this user",
    "too_old": "is too old",
}


@dataclass(frozen=True)
class DockerDiagnosis:
    """Whether Docker can be used.

    Attributes:
        state: "ok", or the problem: "missing" (nothing is installed), "no_engine" (only the command line is installed),
            "not_running", "not_permitted", "too_old".
        detail: what was found.
        cure: the command that fixes it; empty if the state is "ok".
    """

    state: State
    detail: str
    cure: str = ""

    def __str__(self) -> str:
        if self.state == "ok":
            return f"Docker answers ({self.detail})"
        return f"Docker {_WORDS[self.state]} ({self.detail}). To fix it: {self.cure}"


def check_docker(host: str | None = None) -> DockerDiagnosis:
    """Ask a Docker engine for its version; takes a few milliseconds if there is one.

    Args:
        host: as in DOCKER_HOST; None uses the one of the environment.
    """
    import docker.errors

    try:
        client = connect(host, timeout=5)
        with contextlib.closing(client):
            return _judge(client.version())
    except docker.errors.InvalidVersion as error:
        return _too_old(_first_line(error))
    except (docker.errors.DockerException, OSError) as error:
        return _explain(error, host or os.environ.get("DOCKER_HOST", ""))


def connect(host: str | None = None, timeout: float = 60) -> Any:
    """Return a client of an engine.

    Args:
        host: "unix:///path", "tcp://name:port" (TLS by DOCKER_TLS_VERIFY and DOCKER_CERT_PATH) or "ssh://name"
            (needs paramiko); None uses what DOCKER_HOST names, or the engine on this machine.
        timeout: seconds an answer may take.

    Raises:
        docker.errors.DockerException: it does not answer.
    """
    import docker
    import docker.errors

    environment = {**os.environ, "DOCKER_HOST": host} if host else dict(os.environ)
    if environment.get("DOCKER_HOST", "").startswith("ssh://") and importlib.util.find_spec("paramiko") is None:
        raise docker.errors.DockerException(
            "ssh needs paramiko: pip install 'docker[ssh]'; or forward the socket yourself "
            "(ssh -nNTL /tmp/box.sock:/var/run/docker.sock box) and name unix:///tmp/box.sock"
        )
    return docker.from_env(timeout=int(timeout), environment=environment)


def _judge(version: dict[str, Any]) -> DockerDiagnosis:
    engine, api = version.get("Version", "of unknown version"), version.get("ApiVersion", "0.0")
    # compared as numbers: as texts, 1.9 would be newer than 1.40
    if tuple(int(part) for part in api.split(".")) < OLDEST_API:
        return _too_old(f"engine {engine} has API {api}; 1.{OLDEST_API[1]} is needed")
    return DockerDiagnosis("ok", f"engine {engine}")


def _too_old(detail: str) -> DockerDiagnosis:
    return DockerDiagnosis("too_old", detail, "upgrade it to Docker Engine 19.03 or newer")


def _explain(error: BaseException, host: str) -> DockerDiagnosis:
    # before the others: the engine may well run, and starting it would not help
    if _caused_by(error, PermissionError):
        return DockerDiagnosis(
            "not_permitted",
            f"no permission for {host or '/var/run/docker.sock'}",
            "sudo usermod -aG docker $USER, then log in again",
        )
    detail = f"{host}: {_first_line(error)}" if host else _first_line(error)
    # another machine: what is installed on this one says nothing about it
    if host and not host.startswith("unix://"):
        return DockerDiagnosis(
            "not_running", detail, f"start the engine there, or name another host; to test: docker -H {host} version"
        )
    if _has_daemon():
        return DockerDiagnosis("not_running", detail, "sudo systemctl start docker (without systemd: sudo dockerd &)")
    if shutil.which("docker"):
        return DockerDiagnosis(
            "no_engine",
            f"there is a docker command, but no dockerd; {detail}",
            "sudo apt-get install docker.io, or start Docker Desktop, or set DOCKER_HOST to an engine elsewhere",
        )
    return DockerDiagnosis("missing", "neither docker nor dockerd is on PATH", "sudo apt-get install docker.io")


def _has_daemon() -> bool:
    return bool(shutil.which("dockerd") or shutil.which("dockerd", path=os.pathsep.join(_DAEMON_PLACES)))


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:200]


def _caused_by(error: BaseException | None, kind: type[BaseException]) -> bool:
    """Look for a kind of error among the causes and, since urllib3 wraps them, among the arguments."""
    # exceptions can refer to each other in a circle
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
