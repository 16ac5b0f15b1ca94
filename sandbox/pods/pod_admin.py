"""Lists and removes the pods of sandboxes in the namespace that kubectl chooses.

A pod's server ends with its client. The pod itself stays, as "Succeeded", if the client was killed before it could
delete it.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from typing import Any

from sandbox.docker_engine.admin import ContainerInfo, client_is_alive
from sandbox.pods.kubectl import Kubectl
from sandbox.pods.pod_manifest import APPLICATION, CONTAINER, LABEL, note
from sandbox.pods.pod_status import created, describe, has_ended, is_running


def pods(command: Sequence[str] | None = None) -> list[ContainerInfo]:
    """Return the pods of all sandboxes in one namespace, oldest first; `host` is the namespace, `id` the pod's name.

    Args:
        command: the words of kubectl with its options; None takes those of the environment.

    Raises:
        SandboxUnavailable: there is no kubectl, or the cluster does not answer.
        SandboxError: kubectl fails.
    """
    found = Kubectl(command).ask("get", "pods", f"--selector={LABEL}={APPLICATION}")
    return [_info(pod) for pod in sorted(found["items"], key=created)]


def prune_pods(everything: bool = False, command: Sequence[str] | None = None) -> list[str]:
    """Delete pods that have ended or whose client is gone; returns what was deleted.

    Args:
        everything: also delete those that are in use, of whatever client; their sessions are lost.
        command: the words of kubectl with its options; None takes those of the environment.

    Raises:
        SandboxUnavailable: there is no kubectl, or the cluster does not answer.
        SandboxError: kubectl fails.
    """
    unused = [info for info in pods(command) if everything or info.orphan]
    for info in unused:
        Kubectl(command).delete_pod(info.id)
    return [f"pod {info.id}" for info in unused]


def clients_of(found: list[ContainerInfo]) -> str:
    """Return in words who holds pods, such as "3 of process 71 on trainer-0"."""
    held: dict[tuple[int, str], int] = {}
    for info in found:
        held[info.client, info.client_host] = held.get((info.client, info.client_host), 0) + 1
    return ", ".join(f"{number} of process {pid} on {host}" for (pid, host), number in sorted(held.items()))


def _info(pod: dict[str, Any]) -> ContainerInfo:
    since = created(pod)
    client, machine = int(note(pod, "client") or 0), note(pod, "client-host")
    gone = machine == socket.gethostname() and not client_is_alive(client, since)
    image = next((one["image"] for one in pod["spec"]["containers"] if one["name"] == CONTAINER), "")
    return ContainerInfo(
        host=pod["metadata"].get("namespace", ""),
        id=pod["metadata"]["name"],
        state=_state(pod),
        age=max(0.0, time.time() - since),
        image=image,
        memory=0,
        client=client,
        client_host=machine,
        orphan=has_ended(pod) or gone,
    )


def _state(pod: dict[str, Any]) -> str:
    phase = pod.get("status", {}).get("phase", "Unknown").lower()
    return "running" if is_running(pod) else f"{phase}: {describe(pod)}"[:60]
