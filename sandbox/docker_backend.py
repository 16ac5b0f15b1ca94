"""The backend "docker": the server as the first process of one long-lived container.

The container has no network, no writable file system but a tmpfs, no capability and no root; nothing is
mounted into it and no port is opened: everything goes over the attached stream, which works with every
DOCKER_HOST. When this program ends, however it ends, the engine closes the container's standard input, and
the server ends.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from sandbox.docker_check import connect
from sandbox.docker_socket import HijackedSocket
from sandbox.errors import SandboxError
from sandbox.image import build_image
from sandbox.limits import Limits, parse_size
from sandbox.local import server_config
from sandbox.server_source import BOOTSTRAP, greeting

_ROOT = "/slots"
_USER = "65534:65534"
_INODES = 100_000
_SYSCTLS = {
    "kernel.shmmni": "0",
    "kernel.msgmni": "0",
    "kernel.shm_rmid_forced": "1",
    "fs.mqueue.queues_max": "0",
}


class DockerStream:
    """Bytes to and from a container's first process.

    The engine wraps what the container writes in frames of its own: one byte that tells stdout from stderr,
    three zeros, four bytes of length.

    Args:
        client: of the engine.
        container: its id.
        runtime: what the engine runs it with, "runc" mostly.
    """

    def __init__(self, client: Any, container: str, runtime: str) -> None:
        self.isolation = f"docker({runtime})"
        self._client = client
        self._container = container
        streams = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1, "logs": 0}
        self._socket = HijackedSocket(client.api.attach_socket(container, params=streams))
        self._buffer = bytearray()
        self._log = b""

    def send(self, data: bytes) -> None:
        """Send everything."""
        self._socket.send(data)

    def receive(self) -> bytes:
        """Wait for bytes of the server's stdout; empty at the end."""
        while True:
            output = self._unwrap()
            if output:
                return output
            data = self._socket.receive()
            if not data:
                return b""
            self._buffer += data

    def _unwrap(self) -> bytes:
        output = bytearray()
        while len(self._buffer) >= 8:
            end = 8 + int.from_bytes(self._buffer[4:8], "big")
            if len(self._buffer) < end:
                break
            if self._buffer[0] == 2:
                self._log = (self._log + self._buffer[8:end])[-2000:]
            else:
                output += self._buffer[8:end]
            del self._buffer[:end]
        return bytes(output)

    def post_mortem(self) -> str:
        """Return what the engine says about the container, and its last words."""
        import docker.errors

        words = self._log.decode("utf-8", "replace").strip()
        try:
            state = self._client.api.inspect_container(self._container)["State"]
            memory = ", for want of memory" if state.get("OOMKilled") else ""
            return f"its container ended with code {state.get('ExitCode')}{memory}{': ' if words else ''}{words}"
        except (docker.errors.DockerException, OSError):
            return f"its container, or the Docker engine, has ended{': ' if words else ''}{words}"

    def close(self) -> None:
        """Close the server's standard input, at which it ends."""
        self._socket.end()

    def kill(self) -> None:
        """Have the engine remove the container, whatever it does."""
        import docker.errors

        with contextlib.suppress(docker.errors.DockerException, OSError):
            self._client.api.remove_container(self._container, force=True)

    def finish(self) -> None:
        """Make sure that the container is gone, and close the connections."""
        self.kill()
        self._socket.close()
        self._client.close()

    def abandon(self) -> None:
        """Close this process's copy of the socket."""
        self._socket.close()


def start_docker(limits: Limits, image: str | None) -> DockerStream:
    """Start a container and the server in it.

    Raises:
        SandboxError: the engine refuses.
    """
    import docker.errors

    image = image or build_image()
    client = connect()
    container = ""
    try:
        container = client.api.create_container(
            image,
            ["python3", "-I", "-c", BOOTSTRAP],
            user=_USER,
            working_dir="/",
            entrypoint="",
            environment={"MALLOC_ARENA_MAX": "2", "LANG": "C.UTF-8"},
            stdin_open=True,
            labels={"arpo.sandbox": "1", "arpo.sandbox.client": str(os.getpid())},
            host_config=_host_config(client, limits),
            use_config_proxy=False,
        )["Id"]
        runtime = client.api.inspect_container(container)["HostConfig"].get("Runtime") or "default"
        stream = DockerStream(client, container, runtime)
        client.api.start(container)
        stream.send(greeting(server_config(limits, _ROOT)))
    except (docker.errors.DockerException, OSError) as error:
        with contextlib.suppress(docker.errors.DockerException, OSError):
            if container:
                client.api.remove_container(container, force=True)
        client.close()
        raise SandboxError(f"Docker can not start a sandbox from image {image!r}: {error}") from error
    return stream


def _host_config(client: Any, limits: Limits) -> Any:
    memory = parse_size(limits.memory)
    return client.api.create_host_config(
        auto_remove=True,
        network_mode="none",
        read_only=True,
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        pids_limit=limits.processes,
        mem_limit=memory,
        memswap_limit=memory,
        ipc_mode="private",
        shm_size=16 << 20,
        log_config={"Type": "none", "Config": {}},
        sysctls=_SYSCTLS,
        tmpfs={_ROOT: f"size={limits.disk},nr_inodes={_INODES},mode=1733,nosuid,nodev"},
    )
