"""What a backend needs to know to start a server, in one object, and how many servers a pool may start."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from sandbox.config.limits import Limits

PROFILES = ("minimal", "math", "data")
_VERSION = r"(===?|~=|!=|[<>]=?)[\w.*+!-]+"
# a name as pip has it, with extras and versions, and nothing that pip would take for an option, a file or an address
_PACKAGE = re.compile(rf"\w[\w.-]*(\[\w[\w.,-]*\])?({_VERSION}(,{_VERSION})*)?", re.ASCII)


def package_names(packages: Sequence[str]) -> tuple[str, ...]:
    """Return requirements of pip in one order and without spaces, so that equal ones are the same.

    Raises:
        ValueError: they are not a list, or one is not a name with at most extras and versions.
    """
    if isinstance(packages, str) or not isinstance(packages, Sequence):
        raise ValueError(f"packages={packages!r}; it has to be a list, such as ['networkx', 'pandas==3.0.6']")
    words = sorted({"".join(str(one).split()) for one in packages})
    for word in words:
        if not _PACKAGE.fullmatch(word):
            raise ValueError(f"packages: {word!r} is not a package, such as 'networkx', 'pandas==3.0.6' or 'rich>=13'")
    return tuple(words)


def command_words(command: str | Sequence[str], name: str = "command") -> tuple[str, ...]:
    """Return the words of a command.

    Args:
        command: its words, or a text that is split as a shell does it.
        name: where it comes from, for the message.

    Raises:
        ValueError: the text cannot be split, or a word is not one that a program can be given.
    """
    try:
        words = tuple(shlex.split(command) if isinstance(command, str) else command)
    except (TypeError, ValueError) as error:  # the command is not shown, since it may hold a password
        raise ValueError(f"{name} cannot be split into words as a shell does it: {error}") from None
    if not all(isinstance(word, str) and "\0" not in word for word in words) or "" in words[:1]:
        raise ValueError(f"{name} has to be a text or a list of texts, of which the first names a program")
    return words


@dataclass(frozen=True)
class ServerOptions:
    """How to start one server (a container, or what a backend has in its place).

    Attributes:
        limits: what it and its sessions may use.
        sessions: how many sessions it holds, not counting their forks.
        profile: the packages that the code can import, one of PROFILES.
        packages: further ones, as pip takes them, in the form of `package_names`.
        image: a Docker image with python3; None uses the one that `build_image` makes for the profile.
        runtime: what Docker runs the container with ("runc", "runsc", "kata-runtime"); None is the engine's default.
        containers: how many such servers there may be at the same time.
        host: the Docker engine, as in DOCKER_HOST; None uses the one of the environment.
        loopback: whether sessions may open TCP and UDP sockets, which reach all sessions of the container.
        command: for "command": its words; the server's own command line replaces "{server}", or is appended. For
            "kubernetes": kubectl with its options. None takes those of the environment.
        start_wait: seconds that a command or a pod may take until the server in it answers.
        token: what a sandbox server is sent (backend "http").
        wait: seconds that a session may wait for a slot of a sandbox server.
    """

    limits: Limits = field(default_factory=Limits)
    sessions: int = 64
    profile: str = "math"
    image: str | None = None
    runtime: str | None = None
    host: str | None = None
    containers: int = 1
    loopback: bool = False
    command: tuple[str, ...] | None = None
    start_wait: float = 300.0
    token: str = field(default="", repr=False)
    wait: float = 600.0
    packages: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.sessions, bool) or not isinstance(self.sessions, int) or not 1 <= self.sessions <= 128:
            raise ValueError(f"sessions={self.sessions!r}; one container holds 1 to 128, a whole number")
        if not isinstance(self.limits, Limits):
            raise TypeError(f"limits={self.limits!r}; write Limits(...)")
        # an empty text would be taken for None in some places, and for a name in others
        for name in ("image", "runtime", "host"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value):
                raise ValueError(f"{name}={value!r}; it has to be a name, or None")
        if (
            isinstance(self.start_wait, bool)
            or not isinstance(self.start_wait, (int, float))
            or not self.start_wait > 0
        ):
            raise ValueError(f"start_wait={self.start_wait!r}; it has to be a positive number of seconds")
        if not isinstance(self.loopback, bool):
            raise TypeError(f"loopback={self.loopback!r}; it has to be True or False")
        if self.profile not in PROFILES:
            raise ValueError(f"there is no profile {self.profile!r}; choose one of {', '.join(PROFILES)}")
        if self.packages and self.image is not None:
            raise ValueError(
                f"packages={list(self.packages)} go into the image that is built here, not into image={self.image!r}: "
                "give one of the two, or build an image with both by hand (docs/how-to/sandbox-images.md)"
            )

    @property
    def software(self) -> str:
        """What the code can import, in one text: the profile, and the packages added to it."""
        return " ".join((self.profile, *self.packages))


@dataclass(frozen=True)
class PoolPlan:
    """How many servers a pool may start, and how long requests wait.

    Attributes:
        backend: "auto", "docker", "bubblewrap", "command", "kubernetes", "unsafe_local" or "http".
        options: of each container.
        containers: the maximum number. One more may exist while one is drained.
        recycle_after: number of session groups that a container serves before it is drained.
        wait: seconds that a request waits for a slot.
    """

    backend: str
    options: ServerOptions
    containers: int
    recycle_after: int
    wait: float

    def __post_init__(self) -> None:
        for name in ("containers", "recycle_after"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}={value!r}; it has to be a whole number, at least 1")
        if isinstance(self.wait, bool) or not isinstance(self.wait, (int, float)) or not self.wait > 0:
            raise ValueError(f"wait={self.wait!r}; it has to be a positive number of seconds")
