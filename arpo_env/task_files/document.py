"""`Document`: a file as numbered parts of lines, and `view`, the piece of it that a call shows. Runs in the child.

`KeptLines` is for documents whose lines are slow to make: a call for the next piece does not make earlier ones again.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from arpo_env.task_files.file_kinds import UnreadableFile

LONGEST_LINE = 2000  # characters, less if a piece is shorter; longer lines are shown as several
_MOST_NAMES = 30


@dataclass(frozen=True)
class Document:
    """A file that can be read by parts.

    Attributes:
        label: what it is, as in "PDF, 12 pages".
        lines: returns the lines of part number i, from 0; called only for the parts that are shown.
        names: names of the parts: sheets by their names, pages and slides by their numbers; one "" for a single part.
        unit: what a part is, "page", "slide" or "sheet"; "" if there is only one.
        picture: the picture as a data URL, for models that see; "" if it is none.
    """

    label: str
    lines: Callable[[int], Iterable[str]]
    names: Sequence[str] = ("",)
    unit: str = ""
    picture: str = ""


class KeptLines:
    """Lines of the parts of a document that are made once, when they are first read, as long as there is room.

    Args:
        make: returns the lines of part number i, from 0.
        room: most characters to keep, of all parts; what follows is made at each reading.
    """

    def __init__(self, make: Callable[[int], Iterable[str]], room: int) -> None:
        self._make, self._room = make, room
        self._parts: dict[int, tuple[list[str], Iterator[str]]] = {}  # lines so far, and those to come

    def __call__(self, part: int) -> Iterator[str]:
        """Yield the lines of a part."""
        if part not in self._parts:
            self._parts[part] = [], iter(self._make(part))
        known, coming = self._parts[part]
        for number in itertools.count():
            if number == len(known):
                if self._room <= 0:
                    yield from itertools.islice(self._make(part), number, None)
                    return
                if (line := self._next(part, coming)) is None:
                    return
                known.append(line)
                self._room -= len(line)
            yield known[number]

    def _next(self, part: int, coming: Iterator[str]) -> str | None:
        try:
            return next(coming, None)
        except BaseException:
            del self._parts[part]  # the iterator has ended, and would pass for the end of the part
            raise


@dataclass(frozen=True)
class View:
    """A piece of a document.

    Attributes:
        text: with a heading at each part.
        part: where to go on, or "" for the same single part.
        line: line of that part at which to go on; 0 if this is the end of the document.
    """

    text: str
    part: str = ""
    line: int = 0


def view(document: Document, part: str, line: int, characters: int) -> View:
    """Return the lines from a place on, as many as fit.

    Args:
        document: the document.
        part: number or name of the part to begin with; "" for the first.
        line: line of that part to begin with, from 1.
        characters: most characters; at least one line is shown.

    Raises:
        UnreadableFile: there is no such part or line; the message says what there is.
    """
    first = _index(document, part)
    shown: list[str] = []
    left, longest = characters, min(LONGEST_LINE, characters)
    for index in range(first, len(document.names)):
        start = line if index == first else 1
        heading = f"--- {document.unit} {document.names[index]} ---" if document.unit else ""
        number = 0
        for number, text in enumerate(_wrapped(document.lines(index), longest), start=1):
            if number < start:
                continue
            needed = len(text) + 1 + (len(heading) + 1 if heading else 0)
            if needed > left and shown:
                return View("\n".join(shown), document.names[index], number)
            shown += [heading, text] if heading else [text]
            left, heading = left - needed, ""
        if number < start and start > 1:
            raise UnreadableFile(f"there are only {number} lines{_of(document, index)}; line={line} is past the end")
        if number == 0 and document.unit:
            shown.append(f"{heading} (no text)")
            left -= len(shown[-1]) + 1
    return View("\n".join(shown))


def _of(document: Document, index: int) -> str:
    return f" in {document.unit} {document.names[index]}" if document.unit else ""


def _index(document: Document, part: str) -> int:
    wanted = part.strip().strip("\"'")
    if not wanted:
        return 0
    folded = [name.strip().casefold() for name in document.names]
    if document.unit:
        # The name as it is comes first: "Sheet2" is the sheet of that name, "sheet 2" may be the second one.
        space = r"\s+" if document.unit == "sheet" else r"\s*"
        without = re.sub(rf"^{document.unit}{space}(?=.)", "", wanted, flags=re.IGNORECASE)
        for name in (wanted.casefold(), without.casefold()):
            if name in folded:
                return folded.index(name)
        wanted = without
    # Sheets may be asked for by number as well.
    if wanted.isdecimal() and len(wanted) < 9 and 1 <= int(wanted) <= len(document.names):
        return int(wanted) - 1
    if not document.unit:
        raise UnreadableFile(f"it has no parts, so there is no part {part[:50]!r}; ask for a line instead")
    raise UnreadableFile(f"there is no {document.unit} {wanted[:50]!r}; there are {_listed(document)}")


def _listed(document: Document) -> str:
    if document.unit in ("page", "slide"):
        return f"{document.unit}s 1 to {len(document.names)}"
    more = len(document.names) - _MOST_NAMES
    names = ", ".join(repr(name) for name in document.names[:_MOST_NAMES])
    return f"{names} and {more} more" if more > 0 else names


def _wrapped(lines: Iterable[str], longest: int) -> Iterator[str]:
    for line in lines:
        for start in range(0, max(1, len(line)), longest):
            yield line[start : start + longest]
