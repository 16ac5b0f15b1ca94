"""What an attack is: code that runs in a session, and what has to come of it."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable
from dataclasses import dataclass
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
        needs: what has to stand between sessions for it to be contained: "uid", "landlock", "seccomp";
            "quotas" of /dev/shm no backend has.
        unsafe: it is contained, and harmless if not, where nothing is isolated: unsafe_local.
        machine: the only machine that it makes sense on.
        not_on: a backend that does not contain it, and why: "bubblewrap: ...".
        forks: how many copies the test makes of the session afterwards.
        before: what a "fork" or an "original" runs in the session before it is forked: it plants something that the
            code uses afterwards. The victims get their secrets after the fork.
        meanwhile: the victims run cells all the time while the code runs; see `Victim.check`.
        pause: seconds between the cell and what follows.
        then_status: how the second cell ends, with alternatives as in `status`; empty where any will do.
        then_alive: whether the session lives on after the second cell; None where both are right.
        asks: what the client asks of the session afterwards: "get", "put", "fork", "run". Each has to give its result
            or one neutral failure, see `Fortress.ask`.
        neighbour: what an honest session of another family runs first. It is a victim beside the others, and what it
            calls `work` gives the same all the time.
        slowdown: the most that the neighbour's work may take during the attack, as a multiple of its time in peace;
            0 where it is not measured.
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
    before: str = ""
    meanwhile: bool = False
    pause: float = 0.0
    then_status: str = ""
    then_alive: bool | None = None
    asks: tuple[Ask, ...] = ()
    neighbour: str = ""
    slowdown: float = 0.0

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

    def check(self, execution: Execution) -> None:
        """Compare what came of the code with what has to."""
        said = _shortened(execution)
        assert execution.status in self.status.split("|"), said
        assert self.alive is None or execution.alive == self.alive, said
        assert re.search(self.shows, execution.text), f"{self.shows!r} is not in: {said}"
        assert execution.duration < self.timeout + 6, said

    def check_next(self, execution: Execution) -> None:
        """Compare what came of the second cell with what has to."""
        said = _shortened(execution)
        assert not self.then_status or execution.status in self.then_status.split("|"), said
        assert self.then_alive is None or execution.alive == self.then_alive, said
        assert re.search(self.then_shows, execution.text), f"{self.then_shows!r} is not in: {said}"
        assert execution.duration < self.timeout + 6, said


def written(make: Callable[..., Attack], names: dict[str, Any], text: str) -> tuple[Attack, ...]:
    """Return attacks from a text, in which each has a line "== name | shows | options" and then its code.

    What stands above a line "----" runs before the fork. Options may have a line of their own, and any but the name may
    be missing; they and what is between << and >> in the code may use `names` and those of the wire.
    """
    attacks, names = [], {**vars(wire), **names}
    for part in re.split(r"^== ", text, flags=re.MULTILINE)[1:]:
        head, code = re.split(r"\n(?!\|)", part, maxsplit=1)
        name, *fields = (field.strip() for field in re.split(r" \| |\n\| ", head))
        options: dict[str, Any] = {}
        for field in fields:
            is_options = re.match(r"\w+=|\*\*", field)
            options |= eval(f"dict({field})", names) if is_options else {"shows": field}
        *before, code = re.split(r"^----\n", code, flags=re.MULTILINE)
        filled = [re.sub(r"<<(.+?)>>", lambda found: str(eval(found[1], names)), one) for one in (*before, code)]
        if before:
            options["before"] = filled[0]
        attacks.append(make(name, code=filled[-1], **options))
    return tuple(attacks)


def _shortened(execution: Execution) -> str:
    text = execution.text
    middle = f"... {len(text)} characters ..." if len(text) > 3000 else ""
    return f"{execution.status}, alive={execution.alive}: {text[:1500]}{middle}{text[-1500:] if middle else ''}"
