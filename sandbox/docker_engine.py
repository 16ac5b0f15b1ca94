"""Docker engines: whether one can be used and what to do if not, those of other hosts, and what is left on them."""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from sandbox.errors import SandboxError, SandboxUnavailable
from sandbox.options import UNENFORCED, unenforced_limits

_DAEMON_PLACES = ("/usr/sbin", "/usr/local/sbin", "/sbin")
"""Where the daemon may be, apart from an ordinary user's PATH."""
_WORDS = {"missing": "is not installed", "not_running": "does not answer", "not_permitted": "refuses this user"}


@dataclass(frozen=True)
class DockerDiagnosis:
    """Whether Docker can be used.

    Attributes:
        state: "ok", or the problem: "missing", "not_running" or "not_permitted".
        detail: what was found.
        cure: the command that fixes it; empty if the state is "ok".
    """

    state: Literal["ok", "missing", "not_running", "not_permitted"]
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
        with contextlib.closing(connect(host, timeout=5)) as client:
            return DockerDiagnosis("ok", f"engine {client.version().get('Version', 'of unknown version')}")
    except (docker.errors.DockerException, SandboxUnavailable, OSError) as error:
        return _explain(error, host or os.environ.get("DOCKER_HOST", ""))


def connect(host: str | None = None, timeout: float = 60) -> Any:
    """Return a client of an engine.

    Args:
        host: "unix:///path", "tcp://name:port" (TLS by DOCKER_TLS_VERIFY and DOCKER_CERT_PATH) or "ssh://user@name",
            which opens a tunnel with the `ssh` program; None uses what DOCKER_HOST names, or this machine's engine.
        timeout: seconds an answer may take.

    Raises:
        docker.errors.DockerException: it does not answer.
        SandboxUnavailable: ssh has failed.
    """
    import docker

    name = host or os.environ.get("DOCKER_HOST", "")
    address = _tunnel_to(name) if name.startswith("ssh://") else name
    environment = {**os.environ, "DOCKER_HOST": address} if address else dict(os.environ)
    return docker.from_env(timeout=int(timeout), environment=environment)


def _explain(error: BaseException, host: str) -> DockerDiagnosis:
    words = str(error).partition("\n")[0][:200]
    detail = f"{host}: {words}" if host else words
    # another machine: what is installed on this one says nothing about it
    if host and not host.startswith("unix://"):
        cure = f"start the engine there, or name another host; to test: docker -H {host} version"
        return DockerDiagnosis("not_running", detail, cure)
    # before the others: the engine may well run, and starting it would not help
    if isinstance(error, PermissionError) or "Permission denied" in str(error):
        where, cure = host or "/var/run/docker.sock", "sudo usermod -aG docker $USER, then log in again"
        return DockerDiagnosis("not_permitted", f"no permission for {where}", cure)
    if shutil.which("dockerd") or shutil.which("dockerd", path=os.pathsep.join(_DAEMON_PLACES)):
        return DockerDiagnosis("not_running", detail, "sudo systemctl start docker (without systemd: sudo dockerd &)")
    cure = "sudo apt-get install docker.io, or start Docker Desktop, or set DOCKER_HOST to an engine elsewhere"
    return DockerDiagnosis("missing", f"there is no dockerd; {detail}", cure)


# An engine is named as in DOCKER_HOST: unix:///var/run/docker.sock, tcp://host:2376, ssh://user@host:22, which may be
# followed by the path of the engine's socket.

_SOCKET = "/var/run/docker.sock"
_READY = b"ready\n"
_OPEN_SECONDS = 30.0
_FIRST_DELAY, _LONGEST_DELAY = 0.5, 30.0


class Host:
    """An engine, and when to try it again after a failure; without a name it is the one of the environment.

    Attributes:
        fault: why the last start there failed; empty after a start that worked.
        closed_until: no start is tried before this time, by `time.monotonic`.
    """

    def __init__(self, name: str | None) -> None:
        self.name = name
        self.fault = ""
        self.closed_until = 0.0
        self._delay = _FIRST_DELAY

    def failed(self, fault: str) -> None:
        """Do not try the engine for a while, longer each time."""
        self.fault = fault
        self.closed_until = time.monotonic() + self._delay
        self._delay = min(2 * self._delay, _LONGEST_DELAY)

    def worked(self) -> None:
        """Forget earlier failures."""
        self.fault, self.closed_until, self._delay = "", 0.0, _FIRST_DELAY

    def __str__(self) -> str:
        return self.name or os.environ.get("DOCKER_HOST") or "this machine"


def hosts_of(names: Sequence[str] | None) -> list[Host]:
    """Return the engines of this list, or of DOCKER_HOST, which may list several, separated by commas."""
    if isinstance(names, str):
        raise ValueError(f"hosts={names!r}; it has to be a list, such as [{names!r}]")
    if names is None:
        given = os.environ.get("DOCKER_HOST", "")
        if "," not in given:  # one engine is left to the Docker SDK, which reads its variables itself
            return [Host(None)]
        names = [name.strip() for name in given.split(",") if name.strip()]
    if not names:
        raise ValueError("hosts=[] names no engine; leave it out to use the one of this machine")
    for name in names:
        _check(name)
    return [Host(name) for name in names]


def _check(name: str) -> None:
    if not isinstance(name, str):
        raise ValueError(f"hosts= names engines by strings, such as 'unix:///var/run/docker.sock'; {name!r} is not one")
    parts = urlsplit(name)
    try:
        parts.port  # noqa: B018  (looking is checking)
    except ValueError as error:
        raise ValueError(f"{name!r} names no Docker engine: {error}") from error
    if parts.scheme not in ("unix", "tcp", "ssh") or not (parts.netloc or (parts.scheme == "unix" and parts.path)):
        raise ValueError(
            f"{name!r} names no Docker engine; write unix:///var/run/docker.sock, tcp://host:2376 or ssh://user@host"
        )


class _Tunnel:
    """A local socket that leads to the remote engine's socket, held open by an `ssh` process.

    The process waits for the end of its standard input, which comes when this program ends, however it ends.
    """

    def __init__(self, name: str) -> None:
        self._directory = tempfile.mkdtemp(prefix="arpo-ssh-")
        self.address = f"unix://{self._directory}/docker.sock"
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        parts = urlsplit(name)
        # no questions to a user, no connection that another program owns, and an end if the tunnel cannot be made
        command = ["ssh", "-T", "-o", "ExitOnForwardFailure=yes", "-o", "BatchMode=yes", "-o", "ControlPath=none"]
        command += ["-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15"]
        command += ["-p", str(parts.port)] if parts.port else []
        command += ["-l", parts.username] if parts.username else []
        command += ["-L", f"{self._directory}/docker.sock:{parts.path.rstrip('/') or _SOCKET}", "--"]
        try:
            self.process = subprocess.Popen(
                [*command, parts.hostname or "", "echo ready; exec cat > /dev/null"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                start_new_session=True,  # Ctrl-C is for us: the containers are closed through the tunnel
            )
        except OSError as error:
            shutil.rmtree(self._directory)
            raise SandboxUnavailable(f"{name}: ssh does not start ({error}); install openssh-client") from error
        if not self._ready():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(1)
            self._log.seek(0)
            words = self._log.read()[-2000:].decode("utf-8", "replace").strip()
            self.close()
            raise SandboxUnavailable(f"{name}: no tunnel: {words or f'not ready within {_OPEN_SECONDS:.0f} s'}")

    def _ready(self) -> bool:
        """Wait until the remote command runs, which is after the tunnel has been set up."""
        seen, deadline = b"", time.monotonic() + _OPEN_SECONDS
        while self.process.stdout and _READY not in seen:  # a login script may have printed something before
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                return False
            data = os.read(self.process.stdout.fileno(), 4096)
            if not data:
                return False
            seen += data
        return True

    def close(self) -> None:
        """End the `ssh` process and remove the socket."""
        self.process.kill()
        self.process.communicate()  # waits, and closes the pipes
        self._log.close()
        shutil.rmtree(self._directory, ignore_errors=True)


_tunnels: dict[tuple[int, str], _Tunnel] = {}  # by process, since a forked one must not end those of its parent
_tunnels_lock = threading.Lock()


def _tunnel_to(name: str) -> str:
    """Return the address of a tunnel to an engine, which is opened if it is not open; raises SandboxUnavailable."""
    with _tunnels_lock:
        key = (os.getpid(), name)
        found = _tunnels.get(key)
        if found is None or found.process.poll() is not None:
            if found is not None:
                found.close()
                del _tunnels[key]
            found = _tunnels[key] = _Tunnel(name)
        return found.address


def _close_tunnels() -> None:
    for (pid, _), tunnel in _tunnels.items():
        if pid == os.getpid():
            tunnel.close()


atexit.register(_close_tunnels)


# What sandboxes have on engines. A container ends by itself with its client. One is left over only if it was created
# and never started, or if the engine was restarted or disconnected at the wrong moment.

_LABEL = "arpo.sandbox"
_PROFILE = "arpo.sandbox.profile"
_REPOSITORY = "arpo-sandbox"
_STARTING = 60.0


@dataclass(frozen=True)
class ContainerInfo:
    """A container of a sandbox.

    Attributes:
        host: the engine it is on, as in DOCKER_HOST; empty for the one of this machine.
        id: of the container, 12 digits.
        state: as the engine reports it, such as "running" or "created".
        age: seconds since it was created.
        image: the image it was created from.
        client: process that opened it; 0 if unknown.
        client_host: machine of that process.
        orphan: its client is gone. The client can be looked up on its own machine only; on other machines, only a
            container that was never started counts as an orphan.
    """

    host: str
    id: str
    state: str
    age: float
    image: str
    client: int
    client_host: str
    orphan: bool


def containers(host: str | None = None) -> list[ContainerInfo]:
    """Return the containers of all sandboxes, on one engine or on all that DOCKER_HOST names.

    Raises:
        SandboxUnavailable: an engine does not answer.
    """
    return [info for one in _hosts(host) for info in _containers_of(one)]


def prune(everything: bool = False, images: bool = False, host: str | None = None) -> list[str]:
    """Remove containers without a client; returns what was removed.

    Args:
        everything: also remove those that are in use; their sessions are lost.
        images: also remove images that were replaced by a newer one of the same profile and are not in use.
        host: the engine; None uses all that DOCKER_HOST names.

    Raises:
        SandboxUnavailable: an engine does not answer.
    """
    removed: list[str] = []
    for one in _hosts(host):
        unused = [info for info in _containers_of(one) if everything or info.orphan]
        with _client(one) as client:
            removed += [f"container {info.id}" for info in unused if _remove(client.api.remove_container, info.id)]
            if images:
                removed += [f"image {tag}" for tag in _old_images(client) if _remove(client.api.remove_image, tag)]
    return removed


def describe_unenforced_limits(backend: str) -> list[str]:
    """Return which limits a backend cannot enforce on this machine, one sentence each.

    What lacks behind "command" is known once a server runs there: see `Sandbox.isolation`.

    Raises:
        SandboxUnavailable: an engine does not answer.
    """
    if backend == "command":
        return []
    names: list[str] = [] if backend == "docker" else unenforced_limits(None)
    for one in hosts_of(None) if backend == "docker" else ():
        with _client(one) as client:
            names += unenforced_limits(client.info())
    return [UNENFORCED[name] for name in dict.fromkeys(names)]


def _hosts(name: str | None) -> list[Host]:
    return hosts_of(None if name is None else [name])


@contextlib.contextmanager
def _client(host: Host) -> Iterator[Any]:
    import docker.errors

    try:
        with contextlib.closing(connect(host.name)) as client:
            yield client
    except (docker.errors.DockerException, OSError) as error:
        raise SandboxUnavailable(f"the Docker engine of {host} does not answer: {error}") from error


def _containers_of(host: Host) -> list[ContainerInfo]:
    with _client(host) as client:
        # `all`: also those that do not run
        found = client.api.containers(all=True, filters={"label": f"{_LABEL}=1"})
        return [_info(host, one) for one in sorted(found, key=lambda one: one["Created"])]


def _info(host: Host, found: dict[str, Any]) -> ContainerInfo:
    labels = found["Labels"]
    age = max(0.0, time.time() - found["Created"])
    pid, machine = int(labels.get(f"{_LABEL}.client", 0)), labels.get(f"{_LABEL}.client_host", "")
    # its client may be about to start a container that is younger
    never_started = found["State"] == "created" and age > _STARTING
    client_gone = machine == socket.gethostname() and not _is_alive(pid)
    orphan = never_started or client_gone
    return ContainerInfo(host.name or "", found["Id"][:12], found["State"], age, found["Image"], pid, machine, orphan)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user
        pass
    return True


def _remove(remove: Any, name: str) -> bool:
    import docker.errors

    try:
        # by force only containers: an image that is in use stays
        remove(name, force=remove.__name__ == "remove_container")
    except docker.errors.NotFound:
        return False
    except docker.errors.APIError as error:
        if error.status_code == 409:  # in use, or being removed already
            return False
        raise SandboxError(f"the Docker engine does not remove {name}: {error}") from error
    return True


def _old_images(client: Any) -> list[str]:
    """Return the tags of all images except the newest of each profile."""
    seen: set[str] = set()
    old: list[str] = []
    for image in sorted(client.api.images(name=_REPOSITORY), key=lambda image: -image["Created"]):
        profile = (image["Labels"] or {}).get(_PROFILE, "")
        if profile in seen:
            old += image["RepoTags"] or []
        seen.add(profile)
    return old
