"""The backend "kubernetes": the server in a pod, which `kubectl attach` connects to this program.

One pod holds many sessions, as one container does: ten pods of 64 sessions hold 640. kubectl's own configuration says
which cluster and namespace; `ARPO_SANDBOX_COMMAND="kubectl --context lab --namespace sandboxes"` chooses others. Three
more variables of the environment: ARPO_SANDBOX_IMAGE is the image where none is given, ARPO_SANDBOX_POD_SECURITY is
"baseline" or "restricted" (see `sandbox.pods.pod_manifest`), and ARPO_SANDBOX_POD_PATCH names a file, YAML or JSON,
that is merged into the pod: node selectors, tolerations, pull secrets, other resources.

A pod that does not start is deleted, and the error says what the cluster has said about it. A server ends when its
client is gone; its pod then has ended too, and `arpo sandbox prune --pods` deletes it.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import threading
import time
from typing import Any

from sandbox.backends.command import ROOT, CommandStream, server_words
from sandbox.backends.local_process import random_uids, server_config, shared_memory
from sandbox.config.options import ServerOptions
from sandbox.errors import SandboxError, SandboxUnavailable
from sandbox.images.profiles import preload
from sandbox.pods.kubectl import Kubectl
from sandbox.pods.pod_admin import clients_of, pods
from sandbox.pods.pod_manifest import CONTAINER, LEVELS, pod_manifest
from sandbox.pods.pod_status import describe, is_hopeless, is_running, warnings_of

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
                return b""
            if self._closed.is_set():  # closed while it was being attached
                self._attached.close()
        return self._attached.receive()

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
        try:
            self._kubectl.delete_pod(self._pod)
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
