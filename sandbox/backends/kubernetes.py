"""The backend "kubernetes": the server in a pod, which `kubectl attach` connects to this program.

One pod holds many sessions, as one container does: ten pods of 64 sessions hold 640. kubectl's own configuration says
which cluster and namespace; `ARPO_SANDBOX_COMMAND="kubectl --context lab --namespace sandboxes"` chooses others. Three
more variables of the environment: ARPO_SANDBOX_IMAGE is the image where none is given, ARPO_SANDBOX_POD_SECURITY is
"baseline" or "restricted" (see `sandbox.backends.kubernetes`), and ARPO_SANDBOX_POD_PATCH names a file, YAML or JSON,
that is merged into the pod: node selectors, tolerations, pull secrets, other resources.

A pod that does not start is deleted, and the error says what the cluster has said about it. A server ends when its
client is gone; its pod then has ended too, and `arpo sandbox prune --pods` deletes it.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import shlex
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sandbox.backends.command import ROOT, CommandStream, server_words
from sandbox.backends.local_process import random_uids, server_config, shared_memory
from sandbox.docker_engine import ContainerInfo, client_is_alive
from sandbox.errors import SandboxError, SandboxUnavailable
from sandbox.images.profiles import preload
from sandbox.options import ServerOptions, command_words, parse_size

# Runs kubectl, which knows the cluster, the namespace and who is asking from its kubeconfig.
#
# The command is the words of ARPO_SANDBOX_COMMAND ("kubectl --context lab --namespace sandboxes"), or `kubectl`.

COMMAND_VARIABLE = "ARPO_SANDBOX_COMMAND"
_SECONDS = 30
_CURES = {
    "exceeded quota": "ask for less (containers=, Limits(memory=...)), or have the namespace's ResourceQuota raised",
    "violates PodSecurity": 'the namespace enforces "restricted": set ARPO_SANDBOX_POD_SECURITY=restricted',
    "RuntimeClass": "`kubectl get runtimeclass` lists what runtime= may name",
    "Forbidden": "the role that sandboxes need is in deploy/kubernetes/access.yaml",
    "refused": "`kubectl cluster-info` says which server is asked; is it the right context?",
    "no such host": "`kubectl cluster-info` says which server is asked; is it the right context?",
    "You must be logged in": "log in to the cluster, or point KUBECONFIG to a file with valid credentials",
}


class Kubectl:
    """kubectl with the options that choose cluster and namespace.

    Args:
        command: its words; None takes those of the environment.
    """

    def __init__(self, command: Sequence[str] | None = None) -> None:
        self.words = list(
            command or command_words(os.environ.get(COMMAND_VARIABLE, ""), COMMAND_VARIABLE) or ["kubectl"]
        )

    def run(self, *arguments: str, given: str = "") -> str:
        """Run a subcommand and return what it prints.

        Args:
            arguments: of the subcommand.
            given: its standard input.

        Raises:
            SandboxUnavailable: there is no kubectl, or the cluster does not answer in time.
            SandboxError: it fails; the message has its words and, if it is known, a cure.
        """
        command = [*self.words, *arguments]
        options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 2 * _SECONDS, "check": False}
        try:
            done = subprocess.run(command, input=given, **options)
        except OSError as error:
            raise SandboxUnavailable(f"{command[0]} does not start: {error}; install kubectl") from error
        except subprocess.TimeoutExpired as error:
            raise SandboxUnavailable(f"the cluster has not answered `{shlex.join(command)[:200]}`") from error
        if done.returncode:
            words = _without_log(done.stderr) or f"exit code {done.returncode}"
            cure = next((cure for sign, cure in _CURES.items() if sign in words), "")
            raise SandboxError(f"{' '.join(self.words)} {arguments[0]}: {words}{'; to fix it: ' if cure else ''}{cure}")
        return str(done.stdout)

    def ask(self, *arguments: str, given: str = "") -> dict[str, Any]:
        """Run a subcommand that speaks to the cluster, and return the object that it prints."""
        answer = self.run(*arguments, f"--request-timeout={_SECONDS}s", "--output=json", given=given)
        found: dict[str, Any] = json.loads(answer)
        return found

    def delete_pod(self, name: str, grace: int = 5) -> None:
        """Have a pod deleted, without waiting for its end; one that is gone already is no error."""
        options = ["--ignore-not-found", "--wait=false", f"--grace-period={grace}", f"--request-timeout={_SECONDS}s"]
        self.run("delete", "pod", name, *options, *(["--force"] if grace == 0 else []))


def _without_log(text: str) -> str:
    """Return kubectl's own words, without the lines of its client library, which repeat themselves."""
    lines = text.strip().splitlines()
    own = [line for line in lines if not re.match(r"[EWI]\d{4} ", line)]
    return "\n".join(own or lines[-1:])[-1500:]


# The pod of a sandbox as plain data: one container for many sessions, and nothing of the cluster in it.
#
# "baseline" and "restricted" are the levels of Kubernetes' pod security standards. With "baseline" the server is root
# in the container, with three capabilities, and gives each group of sessions a user and a quota of its own.
# "restricted" allows neither: all sessions have one user, which nothing else on the node has, and Landlock separates
# them.

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
        "dnsPolicy": "Default",  # which every cluster has; sessions cannot ask it
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


# What a pod's status and events say, in words: whether it runs, why it does not, and whether it ever will.

# in these states a pod stays until somebody changes it
_HOPELESS = {
    "CreateContainerConfigError": "the container cannot be configured",
    "CreateContainerError": "the container cannot be made",
    "ErrImageNeverPull": "put the image on the node, or let it be pulled",
    "ImagePullBackOff": "is the image in a registry that the nodes reach, with its pull secret in the pod's patch?",
    "InvalidImageName": "image= has to be a name such as registry/arpo-sandbox:TAG",
    "RunContainerError": "the container cannot be started",
}
_REPEATS = ("Error: ErrImagePull", "Error: ImagePullBackOff", "Error: InvalidImageName")


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
    if "deletionTimestamp" in pod["metadata"]:
        words.append("it was deleted")
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
    """Return the warnings in a list of events, oldest first, each once, without what only repeats a status."""
    items = [event for event in events.get("items", []) if event.get("type") == "Warning"]
    items = [event for event in items if not event.get("message", "").startswith(_REPEATS)]
    items = [event for event in items if event.get("reason") != "MissingClusterDNS"]  # sessions ask no server
    items.sort(key=lambda event: event.get("lastTimestamp") or event.get("eventTime") or "")
    texts = (f"{event.get('reason', '')}: {event.get('message', '').strip()}" for event in items)
    return list(dict.fromkeys(texts))


def created(pod: dict[str, Any]) -> float:
    """Return when a pod was created, in seconds since the epoch."""
    return datetime.fromisoformat(pod["metadata"]["creationTimestamp"].replace("Z", "+00:00")).timestamp()


def _containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return list(pod.get("status", {}).get("containerStatuses", []))


# Lists and removes the pods of sandboxes in the namespace that kubectl chooses.
#
# A pod's server ends with its client. The pod itself stays, as "Succeeded", if the client was killed before it could
# delete it.


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
    if "deletionTimestamp" in pod["metadata"]:
        return "terminating"
    phase = pod.get("status", {}).get("phase", "Unknown").lower()
    return "running" if is_running(pod) else f"{phase}: {describe(pod)}"[:60]


IMAGE_VARIABLE = "ARPO_SANDBOX_IMAGE"
SECURITY_VARIABLE = "ARPO_SANDBOX_POD_SECURITY"
PATCH_VARIABLE = "ARPO_SANDBOX_POD_PATCH"
_PATCH = ("patch", "--local", "--filename=-", "--type=strategic", "--output=json")
_ATTACH_SECONDS = 60.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 2.0
_log = logging.getLogger(__name__)


class PodStream:
    """Bytes to and from the server in a pod, which may first have to be scheduled.

    Args:
        kubectl: speaks to the cluster.
        pod: the pod's name.
        isolation: what to call it.
        config: for the server.
        start_wait: seconds until the pod has to run.
    """

    unenforced: tuple[str, ...] = ()

    def __init__(self, kubectl: Kubectl, pod: str, isolation: str, config: dict[str, Any], start_wait: float) -> None:
        self.isolation = isolation
        self.start_seconds = start_wait + _ATTACH_SECONDS + 60  # the deadlines here come first: they know more
        self._kubectl = kubectl
        self._pod = pod
        self._config = config
        self._wait = start_wait
        self._attached: CommandStream | None = None
        self._closed = threading.Event()
        self._fault = ""
        self._deleted = False

    def send(self, data: bytes) -> None:
        """Send everything."""
        if self._attached is not None:
            self._attached.send(data)

    def receive(self) -> bytes:
        """Wait for bytes; empty at the end. The first call waits for the pod."""
        if self._attached is None:
            try:
                self._attached = self._attach()
            except SandboxError as error:
                self._fault = str(error)
            if self._attached is None:
                self._delete()  # before anybody hears of it, since the program may end at once
                return b""
            if self._closed.is_set():  # closed while it was being attached
                self._attached.close()
        data = self._attached.receive()
        if not data and not self._closed.is_set():
            self._fault = self.post_mortem()
            self._delete()  # likewise
        return data

    def _attach(self) -> CommandStream | None:
        if not self._runs():
            return None
        command = [*self._kubectl.words, "attach", "--stdin", "--quiet", f"--container={CONTAINER}", self._pod]
        return CommandStream(command, self.isolation, self._config, _ATTACH_SECONDS)

    def _runs(self) -> bool:
        """Wait until the pod runs; if it does not, say why."""
        deadline, pause, pod = time.monotonic() + self._wait, _FIRST_PAUSE, dict[str, Any]()
        while time.monotonic() < deadline:
            if self._closed.wait(pause):
                return False
            pod = self._kubectl.ask("get", "pod", self._pod)
            if is_running(pod):
                return True
            if is_hopeless(pod):
                break
            pause = min(1.5 * pause, _LONGEST_PAUSE)
        late = "" if is_hopeless(pod) else f" within {self._wait:g} s"
        self._fault = f"the pod {self._pod} has not started{late}: {'; '.join([describe(pod), *self._warnings()])}"
        return False

    def _warnings(self) -> list[str]:
        try:
            events = self._kubectl.ask("get", "events", f"--field-selector=involvedObject.name={self._pod}")
        except SandboxError as error:
            return [f"(its events cannot be read: {error})"]
        return warnings_of(events)[-3:]

    def post_mortem(self) -> str:
        """Return what the cluster says about the end of the pod, and the end of kubectl's stderr."""
        if self._fault:
            return self._fault
        end = self._attached.post_mortem() if self._attached is not None else "it was closed"
        try:
            pod = self._kubectl.ask("get", "pod", self._pod)
        except SandboxError as error:
            return f"{end}; {error}"
        return f"the pod {self._pod}: {describe(pod)}; {end}"

    def close(self) -> None:
        """Close the server's standard input, at which it ends, or stop waiting for the pod."""
        self._closed.set()
        if self._attached is not None:
            self._attached.close()

    def kill(self) -> None:
        """Have the pod deleted at once."""
        self._closed.set()
        self._kubectl.delete_pod(self._pod, grace=0)
        if self._attached is not None:
            self._attached.kill()

    def finish(self) -> None:
        """Wait for the end of the connection, and delete the pod."""
        if self._attached is not None:
            self._attached.finish()
        self._delete()

    def _delete(self) -> None:
        if self._deleted:
            return
        try:
            self._kubectl.delete_pod(self._pod)
            self._deleted = True
        except SandboxError as error:
            _log.warning("the pod %s is not deleted: %s", self._pod, error)

    def abandon(self) -> None:
        """Close this process's copy of the socket."""
        if self._attached is not None:
            self._attached.abandon()


def start_kubernetes(options: ServerOptions) -> PodStream:
    """Create a pod, and return a stream that waits for the server in it.

    Raises:
        SandboxUnavailable: no image is named, or there is no kubectl or no cluster.
        SandboxError: the cluster refuses the pod.
    """
    image = options.image or os.environ.get(IMAGE_VARIABLE, "")
    if not image:
        raise SandboxUnavailable(
            f'the sandbox backend "kubernetes" needs image=, or {IMAGE_VARIABLE}: `arpo sandbox build` makes one; push '
            "it to a registry that the cluster's nodes pull from"
        )
    level = os.environ.get(SECURITY_VARIABLE) or LEVELS[0]
    if level not in LEVELS:
        raise ValueError(f"{SECURITY_VARIABLE}={level!r}; choose one of {', '.join(LEVELS)}")
    kubectl, name, user = Kubectl(options.command), f"arpo-sandbox-{secrets.token_hex(5)}", random_uids()
    server = server_words(options.start_wait + _ATTACH_SECONDS)
    manifest = pod_manifest(name, options, image, level, server, user, _places(options, level))
    _create(kubectl, json.dumps(manifest))
    own_user = level == "restricted"
    config = server_config(
        options, ROOT, first_uid=random_uids(), own_user=own_user, fit=True, preload=preload(options.profile)
    )
    return PodStream(kubectl, name, f"kubernetes({options.runtime or 'default'})", config, options.start_wait)


def _places(options: ServerOptions, level: str) -> dict[str, int]:
    shared, disk = {"/dev/shm": shared_memory(options)}, options.limits.disk
    if level == "restricted":
        return {**shared, ROOT: disk}  # for all groups together, since they share a user
    return {**shared, **{f"{ROOT}/{number}": disk for number in range(options.sessions)}}


def _create(kubectl: Kubectl, manifest: str) -> None:
    patch = os.environ.get(PATCH_VARIABLE)
    if patch:
        manifest = kubectl.run(*_PATCH, f"--patch-file={patch}", given=manifest)
    try:
        kubectl.ask("create", "--filename=-", given=manifest)
    except SandboxError as error:
        if "exceeded quota" not in str(error):
            raise
        raise SandboxError(f"{error}; the namespace has sandbox pods: {clients_of(pods(kubectl.words))}") from error
