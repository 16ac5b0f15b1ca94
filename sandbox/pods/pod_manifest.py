"""The pod of a sandbox as plain data: one container for many sessions, and nothing of the cluster in it.

"baseline" and "restricted" are the levels of Kubernetes' pod security standards. With "baseline" the server is root in
the container, with three capabilities, and gives each group of sessions a user and a quota of its own. "restricted"
allows neither: all sessions have one user, which nothing else on the node has, and Landlock separates them.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from typing import Any

from sandbox.config.limits import parse_size
from sandbox.config.options import ServerOptions

LABEL = "app.kubernetes.io/name"
APPLICATION = "arpo-sandbox"
CONTAINER = "sandbox"
LEVELS = ("baseline", "restricted")
_NOTES = "arpo.sandbox"


def pod_manifest(
    name: str, options: ServerOptions, image: str, level: str, server: Sequence[str], user: int, places: dict[str, int]
) -> dict[str, Any]:
    """Return the manifest of a pod.

    Args:
        name: of the pod.
        options: limits, number of sessions, and `runtime` as the name of a runtime class.
        image: an image with python3.
        level: one of LEVELS.
        server: what the container runs.
        user: the container's user and group for "restricted".
        places: the directories in memory that sessions write to, with their sizes in bytes.
    """
    root = level == "baseline"
    volumes = {f"memory-{number}": place for number, place in enumerate(places)}
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 5,
        # no account of the cluster, and no addresses of its services
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": _pod_security(root, user),
        "containers": [
            {
                "name": CONTAINER,
                "image": image,
                "command": list(server),
                "workingDir": "/",
                "stdin": True,
                "stdinOnce": True,  # the server ends when its client does
                "env": [{"name": "MALLOC_ARENA_MAX", "value": "2"}, {"name": "LANG", "value": "C.UTF-8"}],
                "resources": _resources(options),
                "securityContext": _container_security(root),
                "volumeMounts": [{"name": volume, "mountPath": place} for volume, place in volumes.items()],
            }
        ],
        "volumes": [
            {"name": volume, "emptyDir": {"medium": "Memory", "sizeLimit": str(places[place])}}
            for volume, place in volumes.items()
        ],
    }
    if options.runtime:
        spec["runtimeClassName"] = options.runtime
    metadata = {"name": name, "labels": {LABEL: APPLICATION}, "annotations": _notes()}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _pod_security(root: bool, user: int) -> dict[str, Any]:
    seccomp: dict[str, Any] = {"seccompProfile": {"type": "RuntimeDefault"}}
    if root:
        return {**seccomp, "runAsUser": 0, "runAsGroup": 0}
    return {**seccomp, "runAsNonRoot": True, "runAsUser": user, "runAsGroup": user, "fsGroup": user}


def _container_security(root: bool) -> dict[str, Any]:
    capabilities: dict[str, Any] = {"drop": ["ALL"]}
    if root:
        capabilities["add"] = ["SETUID", "SETGID", "KILL"]
    return {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": capabilities}


def _resources(options: ServerOptions) -> dict[str, Any]:
    memory, cpus = str(parse_size(options.limits.memory)), options.limits.cpus
    limits = {"memory": memory, **({"cpu": str(cpus)} if cpus else {})}
    return {"requests": {"memory": memory, "cpu": str(cpus or 1)}, "limits": limits}


def _notes() -> dict[str, str]:
    """Return annotations that say who has made the pod; labels could not hold every host name."""
    return {
        f"{_NOTES}/client": str(os.getpid()),
        f"{_NOTES}/client-host": socket.gethostname(),
        f"{_NOTES}/started": str(int(time.time())),
    }


def note(pod: dict[str, Any], name: str) -> str:
    """Return what an annotation of a pod says; empty if it has none."""
    return str(pod["metadata"].get("annotations", {}).get(f"{_NOTES}/{name}", ""))
