"""What an attack is: code that runs in a session, and what has to come of it."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Literal

from sandbox import Execution
from sandbox.server import wire

Position = Literal["stranger", "fork", "original"]
Ask = Literal["get", "put", "fork", "run"]


# what is behind a command of the tests is known
_KINDS = {"command(docker)": "docker", "command(ssh)": "docker", "command(bwrap)": "bubblewrap"}
_KINDS["command(sandbox-pod.sh)"] = "docker"


@dataclass(frozen=True)
class Attack:
    """One attack. What is checked after every attack, whatever it was, is in `fortress`."""

    name: str
    shows: str  # a pattern that its output has to match: the proof that it was really tried, and what came of it
    code: str  # what runs; it may use everything of `tools`, and VICTIMS
    kind: str = ""
    status: str = "ok"  # how its cell ends; alternatives are separated by "|"
    alive: bool | None = None  # whether its session lives on; None where both are right
    timeout: float = 8.0  # of its cell, in seconds
    then: str = ""  # a second cell, for what happens between cells; `then_shows` has to be found in its output
    then_shows: str = ""
    position: Position = "stranger"  # a "fork" attacks its origin and another fork, an "original" its two forks
    needs: str = ""  # the walls that contain it: "uid", "landlock", "seccomp"; "quotas" of /dev/shm no backend has
    unsafe: bool = False  # it is contained, and harmless if not, where nothing is isolated: unsafe_local
    machine: str = ""  # the only machine that it makes sense on
    not_on: str = ""  # a backend that does not contain it, and why: "bubblewrap: ..."
    forks: int = 0  # how many copies the test makes of the session afterwards
    before: str = ""  # what a "fork" or an "original" runs before the fork; the victims get their secrets after it
    meanwhile: bool = False  # the victims run cells all the time while the code runs; see `Victim.check`
    pause: float = 0.0  # seconds between the cell and what follows
    then_status: str = ""  # as `status`, of the second cell; empty where any will do
    then_alive: bool | None = None
    asks: tuple[Ask, ...] = ()  # what the client asks of the session afterwards; see `Fortress.ask`
    neighbour: str = ""  # what an honest session of another family runs first; what it calls `work` gives the same
    slowdown: float = 0.0  # the most that this work may take meanwhile, as a multiple of its time in peace; 0: any

    def why_not_defended(self, isolation: str) -> str:
        """Return why this attack is not contained by an isolation, nothing if it has to be: the expected result."""
        isolation = isolation.removeprefix("http+")
        walls = isolation.split("+")[1:]
        missing = [need for need in self.needs.split() if need not in walls]
        if self.machine and self.machine != platform.machine():
            return f"only on {self.machine}"
        if isolation == "none" and not self.unsafe:
            return "nothing is isolated here, so it is not run"
        kind = _KINDS.get(isolation.partition("+")[0], isolation)
        if self.not_on and kind.startswith(self.not_on.partition(":")[0]):
            return self.not_on
        if isolation != "none" and missing:
            return f"it takes {' and '.join(missing)}, and here is {isolation}"
        return ""

    def check(self, execution: Execution, then: bool = False) -> None:
        """Compare what came of the code, or `then` of the second cell, with what has to."""
        said = _shortened(execution)
        if then:
            status, alive, shows = self.then_status, self.then_alive, self.then_shows
        else:
            status, alive, shows = self.status, self.alive, self.shows
        assert not status or execution.status in status.split("|"), said
        assert alive is None or execution.alive == alive, said
        assert re.search(shows, execution.text), f"{shows!r} is not in: {said}"
        assert execution.duration < self.timeout + 6, said


def written(kind: str, module: ModuleType) -> Iterator[Attack]:
    """Give the attacks of a module from its text CODE: each has a line "== name | shows | options" and then its code.

    What stands above a line "----" runs before the fork. Options may have a line of their own, and any but the name may
    be missing; those of the module, OPTIONS, hold for all. Options, and what is between << and >> in the code, may use
    the names of the module and those of the wire. One with `both` is also tried by the original, against its forks.
    """
    names = {**vars(wire), **vars(module)}
    for part in re.split(r"^== ", module.CODE, flags=re.MULTILINE)[1:]:
        head, code = re.split(r"\n(?!\|)", part, maxsplit=1)
        name, *fields = (field.strip() for field in re.split(r" \| |\n\| ", head))
        options: dict[str, Any] = dict(names.get("OPTIONS", {}))
        for field in fields:
            is_options = re.match(r"\w+=|\*\*", field)
            options |= eval(f"dict({field})", names) if is_options else {"shows": field}
        filled = re.sub(r"<<(.+?)>>", lambda found: str(eval(found[1], names)), code)
        *before, code = re.split(r"^----\n", filled, flags=re.MULTILINE)
        both = options.pop("both", False)
        if before:
            options["before"] = before[0]
        attack = Attack(name, code=code, kind=kind, **options)
        yield attack
        if both:
            yield replace(attack, name=f"original_{name}", position="original")


def _shortened(execution: Execution) -> str:
    text = execution.text
    middle = f"... {len(text)} characters ..." if len(text) > 3000 else ""
    return f"{execution.status}, alive={execution.alive}: {text[:1500]}{middle}{text[-1500:] if middle else ''}"
