"""What a pod's status and events say, in words: whether it runs, why it does not, and whether it ever will."""

from __future__ import annotations

from datetime import datetime
from typing import Any

# in these states a pod stays until somebody changes it
_HOPELESS = {
    "CreateContainerConfigError": "the container cannot be configured",
    "CreateContainerError": "the container cannot be made",
    "ErrImageNeverPull": "put the image on the node, or let it be pulled",
    "ImagePullBackOff": "is the image in a registry that the nodes reach, with its pull secret in the pod's patch?",
    "InvalidImageName": "image= has to be a name such as registry/arpo-sandbox:TAG",
    "RunContainerError": "the container cannot be started",
}


def is_running(pod: dict[str, Any]) -> bool:
    """Whether the pod's container runs."""
    return any("running" in one.get("state", {}) for one in _containers(pod))


def has_ended(pod: dict[str, Any]) -> bool:
    """Whether a pod has ended, well or not."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def is_hopeless(pod: dict[str, Any]) -> bool:
    """Whether waiting for the pod makes no sense."""
    waiting = [one.get("state", {}).get("waiting", {}).get("reason", "") for one in _containers(pod)]
    return has_ended(pod) or any(reason in _HOPELESS for reason in waiting)


def describe(pod: dict[str, Any]) -> str:
    """Return in words what the status says about why the pod does not run."""
    status = pod.get("status", {})
    words = [f"{status.get('reason', '')} {status.get('message', '')}"]
    for condition in status.get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            words.append(f"{condition.get('reason', 'not scheduled')}: {condition.get('message', '')}")
    for container in _containers(pod):
        for name in ("waiting", "terminated"):
            if found := container.get("state", {}).get(name):
                code = f" with code {found['exitCode']}" if "exitCode" in found else ""
                reason = found.get("reason", name)
                cure = f" ({_HOPELESS[reason]})" if reason in _HOPELESS else ""
                words.append(f"{reason}{code} {found.get('message', '').strip()}{cure}")
    return "; ".join(text.strip() for text in words if text.strip()) or f"its phase is {status.get('phase', 'unknown')}"


def warnings_of(events: dict[str, Any]) -> list[str]:
    """Return the warnings in a list of events, oldest first, each once."""
    items = [event for event in events.get("items", []) if event.get("type") == "Warning"]
    items.sort(key=lambda event: event.get("lastTimestamp") or event.get("eventTime") or "")
    texts = (f"{event.get('reason', '')}: {event.get('message', '').strip()}" for event in items)
    return list(dict.fromkeys(texts))


def created(pod: dict[str, Any]) -> float:
    """Return when a pod was created, in seconds since the epoch."""
    return datetime.fromisoformat(pod["metadata"]["creationTimestamp"].replace("Z", "+00:00")).timestamp()


def _containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return list(pod.get("status", {}).get("containerStatuses", []))
