"""`ActorGroup`: the rollout actors of this process as Ray sees them: started, watched, replaced and ended.

The actors belong to this process. They end with it, however it ends, and their sandboxes end with them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from arpo_trainer.optional_dependencies import require
from arpo_trainer.ray_rollouts.rollout_actor import RemoteRollout, RolloutActor
from envs_registry.install_line import install_line

# The connection of this process to Ray: to a cluster that runs, or to one on this machine that ends with it.
#
# Ray's own errors about a wrong address come after a minute or end the process; here the address is tried first.

_CONNECT_SECONDS = 5.0


class RayClusterError(RuntimeError):
    """Raised when a Ray cluster cannot be used; the message says what to do."""


def connect(address: str | None, workers: int, cpus: float) -> bool:
    """Connect this process to Ray, unless it is connected; see `RolloutWorkers`.

    Returns:
        Whether this call has connected, so that `ray.shutdown` is the caller's task.
    """
    require("ray")
    import ray

    if ray.is_initialized():
        return False
    address = address or os.environ.get("RAY_ADDRESS") or None
    given: dict[str, Any] = {"log_to_driver": False, "logging_level": "WARNING"}
    if address is None:
        # usage statistics are sent over the network; a cluster that others run has its own setting
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # without "local" Ray joins a cluster that `ray start` has begun on this machine
        given |= {"address": "local", "num_cpus": max(os.cpu_count() or 1, round(workers * cpus + 0.5))}
        given["include_dashboard"] = False
    else:
        check_address(address)
        given["address"] = address
    try:
        ray.init(**given)
    except (RuntimeError, ConnectionError, TimeoutError, ValueError) as error:
        told = " ".join(str(error).split()).rstrip(".")
        raise RayClusterError(
            f"no connection to Ray at {address or 'this machine'}: {told}. `ray status --address HOST:PORT` says "
            "whether a cluster runs; this machine has to be one of its nodes (`ray start --address HOST:PORT`), with "
            "the same versions of Ray and Python as the others, and needs its token if there is one (RAY_AUTH_TOKEN, "
            "~/.ray/auth_token)"
        ) from error
    return True


def check_address(address: str) -> None:
    """Refuse an address that is none (ValueError), or where nothing listens (RayClusterError)."""
    if address.startswith("ray://"):
        raise ValueError(
            f"{address!r} is the address of a Ray client server, which a trainer cannot use: run `ray start "
            "--address HEAD:6379` on this machine, and give HEAD:6379, or auto"
        )
    if address in ("auto", "local"):
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(
            f"{address!r} is no address of a Ray cluster: give HOST:PORT (6379 is the usual port), or auto"
        )
    try:
        with socket.create_connection((host, int(port)), _CONNECT_SECONDS):
            pass
    except OSError as error:
        raise RayClusterError(
            f"nothing answers at {address} ({error}). Is it the address that `ray start --head` printed, and open to "
            "this machine? Without --ray a cluster is started on this machine"
        ) from None


def cluster_cpus() -> tuple[float, float]:
    """Return the CPUs of the cluster, and those that nobody has taken."""
    import ray

    return ray.cluster_resources().get("CPU", 0.0), ray.available_resources().get("CPU", 0.0)


logger = logging.getLogger(__name__)
_CALLS = 10_000  # calls that an actor takes at once; how many groups it plays is decided elsewhere
_FINISH_SECONDS = 30.0
_SHARED_VARIABLES = ("HF_HUB_OFFLINE", "TOKENIZERS_PARALLELISM")


class RolloutWorkerError(RuntimeError):
    """Raised when rollout workers cannot start or cannot play; the message says where, and what to do."""


@dataclass(eq=False)
class ActorHandle:
    """An actor of the group."""

    number: int  # its place in the group, which its replacement takes over
    actor: Any  # Ray's handle
    name: str = ""  # number, node and process; the number alone until it runs
    ready: bool = False  # whether it has run

    def __str__(self) -> str:
        return self.name


class ActorGroup:
    """Rollout actors; this process has to be connected to Ray. The arguments are those of `RolloutWorkers`."""

    silence = 120.0  # seconds without an answer after which an actor counts as lost

    def __init__(self, count: int, cpus: float, resources: Mapping[str, float], start_timeout: float) -> None:
        import ray

        self._ray = ray
        self.count, self.cpus, self.resources = count, cpus, dict(resources)
        self.start_timeout = start_timeout
        self.members: list[ActorHandle] = []
        try:
            self._start_all()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the actors, and with them their sandboxes."""
        for member in list(self.members):
            self.drop(member)

    def room(self) -> str:
        """Say what the actors ask for and what the cluster has."""
        asked = f"Each asks for {self.cpus:g} CPU" + (f" and {self.resources}" if self.resources else "")
        with contextlib.suppress(Exception):  # this is part of a message about another fault
            total, free = cluster_cpus()
            return f"{asked}; the cluster has {total:g} CPUs, of which {free:g} are free."
        return f"{asked}."

    def start(self, number: int) -> ActorHandle:
        """Ask Ray for an actor; `ready` waits until it runs."""
        shared = {
            name: os.environ[name] for name in os.environ if name.startswith("ARPO_") or name in _SHARED_VARIABLES
        } | {"RANK": str(rank_of(number, os.environ))}
        actor = self._ray.remote(RolloutActor).options(
            num_cpus=self.cpus, resources=self.resources, max_concurrency=_CALLS, scheduling_strategy="SPREAD"
        )
        member = ActorHandle(number, actor.remote(number, shared), str(number))
        self.members.append(member)
        return member

    def start_missing(self) -> None:
        """Ask for the actors that were lost and could not be replaced at that time."""
        for number in sorted(set(range(self.count)) - {member.number for member in self.members}):
            self.start(number)

    def drop(self, member: ActorHandle) -> None:
        """End an actor and forget it."""
        if member in self.members:
            self.members.remove(member)
        with contextlib.suppress(Exception):
            # it may still run where only the network to it broke, and then it must not play on
            self._ray.kill(member.actor)

    def restart(self, member: ActorHandle) -> ActorHandle:
        """Ask for another actor in the place of this one, or return the one that another rollout has asked for."""
        if member not in self.members:
            for other in self.members:
                if other.number == member.number:
                    return other
        self.drop(member)
        return self.start(member.number)

    async def ready(self, member: ActorHandle, rollout: RemoteRollout, tries: int = 2) -> ActorHandle | None:
        """Return an actor once it can play, another one if it is gone, or None if that does not start either.

        Raises:
            RolloutWorkerError: the environment cannot be made there, or has no sandbox.
        """
        try:
            async with asyncio.timeout(None if member.ready else self.start_timeout):
                member.name = await member.actor.where.remote()
            member.ready = True
            await member.actor.prepare.remote(rollout)
            return member
        except TimeoutError:
            logger.warning("rollout worker %d was not scheduled again. %s", member.number, self.room())
        except self._ray.exceptions.RayTaskError as error:
            raise _unready(member, error) from error
        except self._ray.exceptions.RayError as error:
            logger.warning("rollout worker %s is lost (%s)", member.name, last_line(error))
            if tries > 1:
                return await self.ready(self.restart(member), rollout, tries - 1)
        self.drop(member)
        return None

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """End actors that do not answer, upon which the calls to them fail."""
        watch = asyncio.ensure_future(self._watch())
        try:
            yield
        finally:
            watch.cancel()

    async def finish(self, name: str) -> list[tuple[float, float]]:
        """End a rollout on all actors, and return what `RolloutActor.finish` returns on those that answer."""
        spent = await asyncio.gather(*(self._finish(member, name) for member in self.members if member.ready))
        return [one for one in spent if one is not None]

    async def _finish(self, member: ActorHandle, name: str) -> tuple[float, float] | None:
        try:
            async with asyncio.timeout(min(self.silence, _FINISH_SECONDS)):
                spent: tuple[float, float] = await member.actor.finish.remote(name)
                return spent
        except (TimeoutError, self._ray.exceptions.RayError) as error:
            # it would play on for a rollout that is over; the next one starts another
            logger.warning("rollout worker %s does not answer (%s): it is ended", member.name, last_line(error))
            self.drop(member)
            return None

    def _start_all(self) -> None:
        waiting = {member.actor.where.remote(): member for member in map(self.start, range(self.count))}
        if (needed := self.count * self.cpus) > cluster_cpus()[0]:
            logger.warning("%d rollout workers need %g CPUs. %s", self.count, needed, self.room())
        ends = time.monotonic() + self.start_timeout
        while waiting:
            done, _ = self._ray.wait(list(waiting), timeout=max(0.0, ends - time.monotonic()))
            if not done:
                raise self._unscheduled(len(waiting))
            member = waiting.pop(done[0])
            try:
                member.name, member.ready = str(self._ray.get(done[0])), True
            except self._ray.exceptions.RayError as error:
                raise RolloutWorkerError(
                    f"rollout worker {member.number} could not start: {last_line(error)}. Every node needs this "
                    f"package with the extra `ray`, in the same version as here: {install_line('ray')}"
                ) from error

    def _unscheduled(self, waiting: int) -> RolloutWorkerError:
        return RolloutWorkerError(
            f"{waiting} of {self.count} rollout workers were not scheduled within {self.start_timeout:g} s. "
            f"{self.room()} Start {self.count - waiting or 'fewer'} (rollout_workers), let each ask for less "
            "(rollout_worker_cpus), or add nodes"
        )

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self.silence / 4)
            await asyncio.gather(*(self._listen(member) for member in self.members if member.ready))

    async def _listen(self, member: ActorHandle) -> None:
        try:
            async with asyncio.timeout(self.silence):
                await member.actor.ping.remote()
        except TimeoutError:
            logger.warning("rollout worker %s has not answered for %g s: it is ended", member.name, self.silence)
            self._ray.kill(member.actor)
        except self._ray.exceptions.RayError:
            return  # it is gone; the calls that wait for it say so


def rank_of(number: int, environ: Mapping[str, str]) -> int:
    """Return the rank of an actor among those of all training processes, by which it chooses its first server."""
    return number * int(environ.get("WORLD_SIZE") or 1) + int(environ.get("RANK") or 0)


def _unready(member: ActorHandle, error: Exception) -> RolloutWorkerError:
    cause, cure = getattr(error, "cause", None) or error, ""
    if type(cause).__name__ == "SandboxUnavailable":
        cure = (
            ". Every node with a rollout worker needs a sandbox: start Docker there, choose another backend with "
            "ARPO_SANDBOX, or choose nodes by a resource (`ray start --resources`, rollout_worker_resources)"
        )
    said = str(cause).strip().rstrip(".")
    return RolloutWorkerError(f"rollout worker {member.name} cannot play: {type(cause).__name__}: {said}{cure}")


def last_line(error: BaseException) -> str:
    """Return the last line of an error's message, where Ray says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
