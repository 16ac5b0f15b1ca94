"""The backend "docker": the server as the first process of one long-lived container.

The container has no network and no writable file system except a tmpfs for each group of sessions. Nothing is
mounted into it and no port is opened: everything goes over the attached stream, which works with every
DOCKER_HOST. The supervisor is the container's root, with only the capabilities to change users, to kill and to set
priorities; sessions have none, and users of their own. When this program ends, however it ends, the engine closes the
container's standard input, and the server ends.
"""

from __future__ import annotations

import contextlib
import os
import platform
import select
import socket
import ssl
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sandbox.backends import Stream
from sandbox.backends.processes import SHARED_FILES, random_uids, server_config, shared_memory
from sandbox.docker_engine import connect
from sandbox.errors import SandboxError
from sandbox.images.build import build_image, checked_preload
from sandbox.options import SandboxOptions, parse_size, unenforced_limits, warn_of_unenforced_limits
from sandbox.server.bundle import BOOTSTRAP, greeting

_PIECE = 1 << 16


class _HijackedSocket:
    """The connection of an attached container: what `attach_socket` of the Docker SDK has returned.

    Two threads can read and write a Unix or TCP socket at the same time. A TLS connection needs a lock for each
    operation, and no thread waits while it holds the lock.
    """

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._response: Any = getattr(raw, "_response", raw)  # the HTTP response that it was part of
        self._socket: Any = getattr(raw, "_sock", raw)
        self._tls = threading.Lock() if isinstance(self._socket, ssl.SSLSocket) else None
        self._socket.settimeout(None if self._tls is None else 0.0)

    def send(self, data: bytes) -> None:
        if self._tls is None:
            self._socket.sendall(data)
            return
        view = memoryview(data)
        while view:
            view = view[self._retry(lambda rest=view[:_PIECE]: self._socket.send(rest)) :]

    def receive(self) -> bytes:
        if self._tls is None:
            return bytes(self._socket.recv(_PIECE))
        return bytes(self._retry(lambda: self._socket.recv(_PIECE)))

    def _retry(self, act: Any) -> Any:
        """Do one TLS operation as soon as that is possible without waiting."""
        while True:
            try:
                with self._tls or contextlib.nullcontext():
                    return act()
            except ssl.SSLWantReadError:
                select.select([self._socket], [], [], 1.0)
            except ssl.SSLWantWriteError:
                select.select([], [self._socket], [], 1.0)

    def end(self) -> None:
        """Signal that nothing more will be sent; receiving goes on."""
        with contextlib.suppress(OSError):
            # the method of SSLSocket would end receiving as well
            socket.socket.shutdown(self._socket, socket.SHUT_WR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._response.close()  # first, since it warns when it is collected after its connection was closed
            self._raw.close()
            self._socket.close()


_ROOT = "/slots"
_INODES = 16_384
_MOST_PROCESSES, _LEAST_PROCESSES = 16_384, 256
_DEFAULT_PIDS = 32_768
# System V shared memory and message queues would be common to all sessions, and no limit counts them by group
_SYSCTLS = {
    "kernel.shmmni": "0",
    "kernel.msgmni": "0",
    "kernel.shm_rmid_forced": "1",
    "fs.mqueue.queues_max": "0",
}
# connections that wait to be accepted hold memory, and no descriptor shows them; a longer backlog becomes this one
_NETWORK_SYSCTLS = {"net.core.somaxconn": "16"}


class _DockerStream(Stream):
    """Bytes to and from a container's first process.

    The engine wraps the container's output in frames of its own: one byte for stdout or stderr, three zeros, four
    bytes of length.
    """

    def __init__(self, client: Any, container: str, runtime: str, unenforced: tuple[str, ...] = ()) -> None:
        self.isolation = f"docker({runtime})"
        self.unenforced = unenforced
        self._client = client
        self._container = container
        streams = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1, "logs": 0}
        self._socket = _HijackedSocket(client.api.attach_socket(container, params=streams))
        self._buffer = bytearray()
        self._log = b""

    def send(self, data: bytes) -> None:
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
        """Return what the engine reports about the container, and the end of its stderr."""
        import docker.errors

        words = self._log.decode("utf-8", "replace").strip().rpartition("\n")[2]
        try:
            state = self._client.api.inspect_container(self._container)["State"]
            memory = ", out of memory" if state.get("OOMKilled") else ""
            return f"its container ended with code {state.get('ExitCode')}{memory}{': ' if words else ''}{words}"
        except (docker.errors.DockerException, OSError):
            return f"its container, or the Docker engine, has ended{': ' if words else ''}{words}"

    def close(self) -> None:
        """Close the server's standard input, at which it ends."""
        self._socket.end()

    def kill(self) -> None:
        import docker.errors

        with contextlib.suppress(docker.errors.DockerException, OSError):
            self._client.api.remove_container(self._container, force=True)

    def finish(self) -> None:
        self.kill()
        self._socket.close()
        self._client.close()

    def abandon(self) -> None:
        self._socket.close()


def start_docker(options: SandboxOptions) -> _DockerStream:
    """Start a container and the server in it.

    Raises:
        SandboxError: the engine refuses.
    """
    import docker.errors

    image = options.image
    if image is None:
        plain_tmp = (options.runtime or "").startswith("runsc")
        image = build_image(None, options.profile, options.host, plain_tmp, options.packages)
    client = connect(options.host)
    container = ""
    try:
        preload = checked_preload(client, image)
        info = client.info()
        # an engine in a user namespace has only the lower 65,536 users
        first = random_uids(1 << 10, 60_000) if _in_user_namespace(info) else random_uids()
        unenforced = warn_of_unenforced_limits(unenforced_limits(info), options.limits)
        container = client.api.create_container(
            image,
            ["python3", "-I", "-c", BOOTSTRAP],
            user="0:0",
            working_dir="/",
            entrypoint="",
            environment={"MALLOC_ARENA_MAX": "2", "LANG": "C.UTF-8"},
            stdin_open=True,
            labels={
                "arpo.sandbox": "1",
                "arpo.sandbox.client": str(os.getpid()),
                "arpo.sandbox.client_host": socket.gethostname(),
            },
            host_config=_host_config(client, options, first, info, unenforced),
            # the proxies of the user's Docker configuration, whose addresses may hold passwords, are not for the code
            use_config_proxy=False,
        )["Id"]
        runtime = client.api.inspect_container(container)["HostConfig"].get("Runtime") or "default"
        stream = _DockerStream(client, container, runtime, unenforced)  # attached before the start, to miss nothing
        client.api.start(container)
        stream.send(greeting(server_config(options, _ROOT, first_uid=first, own_account=True, preload=preload)))
    except (docker.errors.DockerException, OSError) as error:
        with contextlib.suppress(docker.errors.DockerException, OSError):
            if container:
                client.api.remove_container(container, force=True)
        client.close()
        raise SandboxError(f"Docker cannot start a sandbox from image {image!r}: {error}") from error
    return stream


def _in_user_namespace(info: Mapping[str, Any]) -> bool:
    options = info.get("SecurityOptions") or []
    return any(name in option for option in options for name in ("name=userns", "name=rootless"))


def most_processes(options: SandboxOptions, info: Mapping[str, Any]) -> int:
    """Return how many processes and threads a container may have: all containers together half of the machine's.

    An engine does not report the machine's limits. Where it runs on the kernel that runs this program, /proc has them;
    for another machine, the kernel's default is used.
    """
    machine = [_DEFAULT_PIDS]
    if info.get("KernelVersion") == platform.release():
        with contextlib.suppress(OSError, ValueError):  # not Linux
            machine = [int(Path("/proc/sys/kernel", name).read_text()) for name in ("pid_max", "threads-max")]
    share = max(min(machine) // 2 // options.containers, _LEAST_PROCESSES)
    # 64 for the server itself: supervisor, zygotes, and what empties slots
    return min(options.sessions * options.limits.processes + 64, _MOST_PROCESSES, share)


def _host_config(
    client: Any, options: SandboxOptions, first_uid: int, info: Mapping[str, Any], unenforced: tuple[str, ...]
) -> Any:
    limits = options.limits
    memory = parse_size(limits.memory)
    cpus = None  # an engine refuses more than its machine has
    if limits.cpus is not None and "cpus" not in unenforced:
        cpus = int(1e9 * min(limits.cpus, info.get("NCPU") or limits.cpus))
    slots = {
        f"{_ROOT}/{number}": f"size={limits.disk},nr_inodes={_INODES},mode=1730,uid=0,gid={first_uid + number}"
        for number in range(options.sessions)
    }
    nameless = limits.processes * limits.open_files  # files without a name, by one group; no limit can attribute them
    shared = f"size={shared_memory(options)},nr_inodes={2 * options.sessions * SHARED_FILES + nameless}"
    return client.api.create_host_config(
        auto_remove=True,
        network_mode="none",
        read_only=True,
        cap_drop=["ALL"],
        cap_add=["SETUID", "SETGID", "KILL", "SYS_NICE"],
        security_opt=["no-new-privileges"],
        pids_limit=most_processes(options, info),
        nano_cpus=cpus,
        mem_limit=memory,
        memswap_limit=memory,  # equal to mem_limit: no swap
        ipc_mode="private",
        log_config={"Type": "none", "Config": {}},  # the stream would be written to disk
        # a user namespace does not have those of the network
        sysctls=_SYSCTLS if _in_user_namespace(info) else {**_SYSCTLS, **_NETWORK_SYSCTLS},
        # 1 byte: with 0 the kernel would still start the program of a core_pattern that is a pipe
        ulimits=[{"Name": "core", "Soft": 1, "Hard": 1}],
        runtime=options.runtime,
        tmpfs={
            "/dev/shm": f"{shared},mode=1733,nosuid,nodev,noexec",
            **{place: f"{how},nosuid,nodev" for place, how in slots.items()},
        },
    )
