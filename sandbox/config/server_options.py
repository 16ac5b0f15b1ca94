"""What a server is started with: everything a backend needs to know, in one object."""

from __future__ import annotations

from dataclasses import dataclass, field

from sandbox.config.limits import Limits

PROFILES = ("minimal", "math", "data")


@dataclass(frozen=True)
class Options:
    """How to start one server (a container, or what takes its place).

    Attributes:
        limits: what it and its sessions may use.
        sessions: how many sessions it holds, their forks not counted.
        profile: the packages that the code finds, one of PROFILES.
        image: a Docker image with python3; None takes the one that `build_image` makes for the profile.
        runtime: what Docker runs the container with ("runc", "runsc", "kata-runtime"); None is the engine's own.
        containers: how many such servers there may be beside each other.
        host: the Docker engine, as DOCKER_HOST names it; None takes the one of the environment.
        loopback: whether sessions may open TCP and UDP sockets, which reach all sessions of the container.
    """

    limits: Limits = field(default_factory=Limits)
    sessions: int = 64
    profile: str = "math"
    image: str | None = None
    runtime: str | None = None
    host: str | None = None
    containers: int = 1
    loopback: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.sessions, bool) or not isinstance(self.sessions, int) or not 1 <= self.sessions <= 128:
            raise ValueError(f"sessions={self.sessions!r}; one container holds 1 to 128, a whole number")
        if not isinstance(self.limits, Limits):
            raise TypeError(f"limits={self.limits!r}; write Limits(...)")
        for name in ("image", "runtime", "host"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value):
                raise ValueError(f"{name}={value!r}; it has to be a name, or None")
        if not isinstance(self.loopback, bool):
            raise TypeError(f"loopback={self.loopback!r}; it has to be True or False")
        if self.profile not in PROFILES:
            raise ValueError(f"no profile {self.profile!r}; there are: {', '.join(PROFILES)}")
