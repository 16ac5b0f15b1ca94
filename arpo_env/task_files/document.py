"""`Document`: a file as numbered parts of lines, and `view`, the piece of it that a call shows. Runs in the child.

`KeptLines` is for documents whose lines are slow to make: a call for the next piece does not make earlier ones again.
"""

from __future__ import annotations

import io
import itertools
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

# What a file is, judged by its content: names may lie. Runs in the child process.

OFFICE = {"word/": "docx", "xl/": "xlsx", "ppt/": "pptx"}
"""Folder inside an Office file -> its kind."""
_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image"),
    (b"\xff\xd8\xff", "image"),
    (b"GIF8", "image"),
    (b"BM", "image"),
    (b"II*\0", "image"),
    (b"MM\0*", "image"),
    (b"ID3", "mp3"),
    (b"\x1f\x8b", "gzip archive"),
    (b"SQLite format 3\0", "SQLite database"),
    (b"PAR1", "Parquet table"),
)
_CODING_SAMPLE = 1 << 20  # characters
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
LABELS = {
    "pdf": "PDF",
    "docx": "Word document",
    "xlsx": "Excel workbook",
    "pptx": "PowerPoint presentation",
    "zip": "ZIP archive",
    "image": "picture",
    "mp3": "MP3 audio",
    "wav": "WAV audio",
    "text": "text",
}


class UnreadableFile(Exception):
    """Raised for a file without readable content; the text is a clause for the model."""


def kind_of(data: bytes) -> str:
    """Return the kind of a file: a key of `LABELS`, or a description of what cannot be read.

    Raises:
        UnreadableFile: it is empty, encrypted, or a ZIP archive that is broken.
    """
    if not data:
        raise UnreadableFile("the file is empty")
    if data[:64].lstrip().startswith(b"%PDF-"):
        return "pdf"
    if data.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _zip_kind(data)
    if data.startswith(_OLE):
        return _ole_kind(data)
    # Some of the marks below are letters, with which a text may begin as well.
    if data[:8].isascii() and _is_text(data):
        return "text"
    if data.startswith(b"RIFF"):
        return {b"WAVE": "wav", b"WEBP": "image"}.get(data[8:12], "RIFF file (video or sound)")
    if data[4:8] == b"ftyp":
        return "MP4, M4A or QuickTime file (video or sound)"
    if known := next((kind for magic, kind in _MAGIC if data.startswith(magic)), ""):
        return known
    # A frame of MPEG audio begins with eleven set bits; layer 3 is 01.
    if data[0] == 0xFF and len(data) > 3 and data[1] & 0xE6 == 0xE2:
        return "mp3"
    if _is_text(data):
        return "text"
    # Some PDFs have other bytes in front.
    return "pdf" if b"%PDF-" in data[:1024] else "unknown binary file"


def decoded(data: bytes) -> tuple[str, str]:
    """Return the text of a file and its coding: UTF-8 (with few faults), UTF-16 with a mark, else Windows-1252."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace"), "UTF-16"
    text = data.decode("utf-8-sig", "replace")
    # A file that was cut, or has a few wrong bytes, is still UTF-8: text of other codings has hardly any valid letters.
    if faults := text.count("\ufffd", 0, _CODING_SAMPLE):
        others = sum(character > "\x7f" for character in text[:_CODING_SAMPLE]) - faults
        if 2 * faults > others:
            return data.decode("cp1252", "replace"), "Windows-1252"
    return text, "UTF-8"


def _zip_kind(data: bytes) -> str:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
        raise UnreadableFile("it is a ZIP or Office file that is broken or cut off") from error
    if "xl/workbook.bin" in names:
        return "Excel workbook of the binary format (.xlsb)"
    if "[Content_Types].xml" in names:
        for folder, kind in OFFICE.items():
            if any(name.startswith(folder) for name in names):
                return kind
    return "zip"


def _ole_kind(data: bytes) -> str:
    # Office encrypts a file by putting it into a container of its old format.
    if "EncryptedPackage".encode("utf-16-le") in data:
        raise UnreadableFile("it is locked with a password")
    return "Office file of the old binary format (.doc, .xls or .ppt)"


def _is_text(data: bytes) -> bool:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return True
    start = data[:65536]
    control = sum(1 for byte in start if byte < 9 or 13 < byte < 27 or 27 < byte < 32)
    return 0 not in start and control <= 0.02 * len(start)


LONGEST_LINE = 2000  # characters, less if a piece is shorter; longer lines are shown as several
_MOST_NAMES = 30


@dataclass(frozen=True)
class Document:
    """A file that can be read by parts."""

    label: str  # what it is, as in "PDF, 12 pages"
    lines: Callable[[int], Iterable[str]]  # of part number i, from 0; called only for the parts that are shown
    names: Sequence[str] = ("",)  # of the parts: sheets by their names, pages and slides by their numbers
    unit: str = ""  # what a part is, "page", "slide" or "sheet"; "" if there is only one
    picture: str = ""  # as a data URL, for models that see


class KeptLines:
    """Lines of the parts of a document that are made once, when they are first read, by `make` of part i, from 0."""

    def __init__(self, make: Callable[[int], Iterable[str]]) -> None:
        self._make = make
        self._parts: dict[int, Iterator[str]] = {}  # never advanced itself: `tee` keeps what its copies have read

    def __call__(self, part: int) -> Iterator[str]:
        """Yield the lines of a part."""
        self._parts[part], lines = itertools.tee(self._parts.get(part) or self._make(part))
        try:
            yield from lines
        except (Exception, KeyboardInterrupt):
            del self._parts[part]  # the iterator has ended, and would pass for the end of the part
            raise


@dataclass(frozen=True)
class View:
    """A piece of a document, and where to go on."""

    text: str  # with a heading at each part
    part: str = ""  # "" for the same single part
    line: int = 0  # 0 at the end of the document


def view(document: Document, part: str, line: int, characters: int) -> View:
    """Return the lines from a part (its number or name, "" for the first) and a line of it on, as many as fit.

    At least one line is shown. The error says which parts or lines there are.
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
            where = f" in {document.unit} {document.names[index]}" if document.unit else ""
            raise UnreadableFile(f"there are only {number} lines{where}; line={line} is past the end")
        if number == 0 and document.unit:
            shown.append(f"{heading} (no text)")
            left -= len(shown[-1]) + 1
    return View("\n".join(shown))


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
