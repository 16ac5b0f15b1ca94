"""The connection of this process to Ray: to a cluster that runs, or to one on this machine that ends with it.

Ray's own errors about a wrong address come after a minute or end the process; here the address is tried first.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator, Mapping
from typing import Any

from arpo_trainer.optional_dependencies import require

_CONNECT_SECONDS = 5.0


class RayClusterError(RuntimeError):
    """Raised when a Ray cluster cannot be used; the message says what to do."""


def connect(address: str | None, workers: int, cpus: float, options: Mapping[str, Any] | None = None) -> bool:
    """Connect this process to Ray, unless it is connected.

    Args:
        address: "auto", or "HOST:PORT" of the cluster's head as in `ray start --address`; None takes the variable
            RAY_ADDRESS, or else starts a cluster on this machine, which ends with this process.
        workers: number of workers, for a cluster of its own.
        cpus: that a worker asks for.
        options: more arguments of `ray.init`.

    Returns:
        Whether this call has connected, so that `ray.shutdown` is the caller's task.

    Raises:
        ModuleNotFoundError: Ray is not installed.
        ValueError: the address is none.
        RayClusterError: nothing answers there, or the cluster has another version of Ray or Python.
    """
    require("ray")
    import ray

    if ray.is_initialized():
        return False
    address = address or os.environ.get("RAY_ADDRESS") or None
    given = {"include_dashboard": False, "log_to_driver": False, "logging_level": "WARNING", **(options or {})}
    if address is None:
        # usage statistics are sent over the network; a cluster that others run has its own setting
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # without "local" Ray joins a cluster that `ray start` has begun on this machine
        given = {"address": "local", "num_cpus": max(os.cpu_count() or 1, round(workers * cpus + 0.5)), **given}
    else:
        check_address(address)
        # these are about a cluster that is started here
        given = {"address": address, **{name: value for name, value in given.items() if name != "include_dashboard"}}
    with _named_faults(address):
        ray.init(**given)
    return True


def check_address(address: str) -> None:
    """Refuse an address where nothing listens.

    Raises:
        ValueError: it is no address of a Ray cluster.
        RayClusterError: nothing answers there.
    """
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


@contextlib.contextmanager
def _named_faults(address: str | None) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        if "ersion mismatch" not in str(error):
            raise RayClusterError(f"no connection to Ray at {address or 'this machine'}: {error}") from error
        told = " ".join(str(error).split())
        raise RayClusterError(
            f"{told} Install the same versions of Ray and Python on all nodes: pip install ray==VERSION"
        ) from None
    except (ConnectionError, TimeoutError, ValueError) as error:
        raise RayClusterError(
            f"no connection to Ray at {address or 'this machine'}: {str(error).rstrip('.')}. `ray status --address "
            "HOST:PORT` says whether a cluster runs; this machine has to be one of its nodes (`ray start --address "
            "HOST:PORT`), and needs its token if there is one (RAY_AUTH_TOKEN, ~/.ray/auth_token)"
        ) from error


def cluster_cpus() -> tuple[float, float]:
    """Return the CPUs of the cluster, and those that nobody has taken."""
    import ray

    return ray.cluster_resources().get("CPU", 0.0), ray.available_resources().get("CPU", 0.0)
