"""What an attack is: code that runs in a session, and what has to come of it."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from typing import Literal

from sandbox import Execution

Position = Literal["stranger", "fork", "original"]


@dataclass(frozen=True)
class Attack:
    """One attack. What is checked after every attack, whatever it was, is in `fortress`.

    Attributes:
        name: what the test is called.
        shows: a pattern that its output has to match: the proof that it was really tried, and what came of it.
        code: what runs; it may use everything of `tools`, and VICTIMS.
        kind: the class of attacks that it belongs to.
        status: how its cell ends; alternatives are separated by "|".
        alive: whether its session lives on; None where both are right.
        timeout: of its cell, in seconds.
        then: a second cell, of which `then_shows` has to be found; for what happens between cells.
        then_shows: a pattern for the output of the second cell.
        position: a "stranger" is a session of its own; a "fork" attacks the session that it was forked from and
            another fork of that; an "original" attacks its two forks.
        needs: what has to stand between sessions for it to be contained: "uid", "landlock", "seccomp".
        unsafe: it is contained, and harmless if not, where nothing is isolated: unsafe_local.
        machine: the only machine that it makes sense on.
        not_on: a backend that does not contain it, and why: "bubblewrap: ...".
        forks: how many copies the test makes of the session afterwards.
    """

    name: str
    shows: str
    code: str
    kind: str = ""
    status: str = "ok"
    alive: bool | None = None
    timeout: float = 8.0
    then: str = ""
    then_shows: str = ""
    position: Position = "stranger"
    needs: str = ""
    unsafe: bool = False
    machine: str = ""
    not_on: str = ""
    forks: int = 0

    def why_not_defended(self, isolation: str) -> str:
        """Return why this attack is not contained by an isolation, nothing if it has to be: the expected result."""
        walls = isolation.split("+")[1:]
        missing = [need for need in self.needs.split() if need not in walls]
        if self.machine and self.machine != platform.machine():
            return f"only on {self.machine}"
        if isolation == "none" and not self.unsafe:
            return "nothing is isolated here, so it is not run"
        if self.not_on and isolation.startswith(self.not_on.partition(":")[0]):
            return self.not_on
        if isolation != "none" and missing:
            return f"it takes {' and '.join(missing)}, and here is {isolation}"
        return ""

    def check(self, execution: Execution) -> None:
        """Compare what came of the code with what has to."""
        said = _shortened(execution)
        assert execution.status in self.status.split("|"), said
        assert self.alive is None or execution.alive == self.alive, said
        assert re.search(self.shows, execution.text), f"{self.shows!r} is not in: {said}"
        assert execution.duration < self.timeout + 6, said


def _shortened(execution: Execution) -> str:
    text = execution.text
    middle = f"... {len(text)} characters ..." if len(text) > 3000 else ""
    return f"{execution.status}, alive={execution.alive}: {text[:1500]}{middle}{text[-1500:] if middle else ''}"
