"""What a sandbox may do: how many containers, how large, for how long."""

from __future__ import annotations

from dataclasses import dataclass

from sandbox.config.server_options import Options


@dataclass(frozen=True)
class Plan:
    """What a pool may do.

    Attributes:
        backend: "auto", "docker", "bubblewrap" or "unsafe_local".
        options: of each container.
        containers: at most so many; one more may exist for as long as one is drained.
        recycle_after: families that a container serves before it is drained.
        wait: seconds that a request waits for a slot.
    """

    backend: str
    options: Options
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
