"""Lists and removes what sandboxes have on Docker engines: containers, containers without a client, old images.

A container ends by itself with its client. One is left over only if it was created and never started, or if the
engine was restarted or disconnected at the wrong moment.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sandbox.config import limits
from sandbox.docker_engine.check import connect
from sandbox.docker_engine.hosts import Host, hosts_of
from sandbox.errors import SandboxError, SandboxUnavailable

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
        memory: bytes it uses; 0 where the engine does not report them.
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
    memory: int
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


def describe_unenforced_limits(backend: str, host: str | None = None) -> list[str]:
    """Return which limits a backend cannot enforce on this machine, one sentence each.

    Args:
        backend: its name. What lacks behind "command" and "kubernetes" is known once a server runs there: see
            `Sandbox.isolation`.
        host: the engine; None uses all that DOCKER_HOST names.

    Raises:
        SandboxUnavailable: an engine does not answer.
    """
    if backend in ("command", "kubernetes"):
        return []
    if backend != "docker":
        return list(limits.unenforced_limits(backend).values())
    found: list[str] = []
    for one in _hosts(host):
        with _client(one) as client:
            found += limits.unenforced_limits(backend, client.info()).values()
    return list(dict.fromkeys(found))


def _hosts(name: str | None) -> list[Host]:
    return hosts_of(None if name is None else [name])


@contextlib.contextmanager
def _client(host: Host) -> Iterator[Any]:
    import docker.errors

    try:
        with contextlib.closing(connect(host.address())) as client:
            yield client
    except (docker.errors.DockerException, OSError) as error:
        raise SandboxUnavailable(f"the Docker engine of {host} does not answer: {error}") from error
    finally:
        host.close()


def _containers_of(host: Host) -> list[ContainerInfo]:
    with _client(host) as client:
        # `all`: also those that do not run
        found = client.api.containers(all=True, filters={"label": f"{_LABEL}=1"})
        return [_info(client, host, one) for one in sorted(found, key=lambda one: one["Created"])]


def _info(client: Any, host: Host, found: dict[str, Any]) -> ContainerInfo:
    labels = found["Labels"]
    age = max(0.0, time.time() - found["Created"])
    pid, machine = int(labels.get(f"{_LABEL}.client", 0)), labels.get(f"{_LABEL}.client_host", "")
    # its client may be about to start a container that is younger
    never_started = found["State"] == "created" and age > _STARTING
    client_gone = machine == socket.gethostname() and not client_is_alive(pid, found["Created"])
    memory = _memory(client, found["Id"]) if found["State"] == "running" else 0
    orphan = never_started or client_gone
    return ContainerInfo(
        host.name or "", found["Id"][:12], found["State"], age, found["Image"], memory, pid, machine, orphan
    )


def client_is_alive(pid: int, before: float) -> bool:
    """Whether a process exists that was started before a time; a later one only has the same number."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        with open("/proc/uptime") as file:
            booted = time.time() - float(file.read().split()[0])
    except FileNotFoundError:
        # macOS has no /proc at all; where there is one, the process is gone
        return not os.path.exists("/proc/uptime") and _can_be_signalled(pid)
    except ProcessLookupError:
        return False
    # 2 s for rounding: the engine reports whole seconds, and the clocks are read one after the other
    return booted + ticks / os.sysconf("SC_CLK_TCK") <= before + 2


def _can_be_signalled(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _memory(client: Any, container: str) -> int:
    import docker.errors

    with contextlib.suppress(docker.errors.DockerException, OSError):
        # `one_shot`: otherwise the engine waits for a second reading, to compute the use of the CPU
        usage = client.api.stats(container, stream=False, one_shot=True).get("memory_stats", {})
        return int(usage.get("usage", 0))
    return 0


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
