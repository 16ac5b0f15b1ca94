"""The child process that reads files as text, within limits that the kernel enforces.

Files of tasks come from elsewhere: they may be broken, locked, or made so that a reader never ends or takes all memory.
Here only a process is lost that has no keys and writes no files. Jobs arrive as `arpo_env.worker_pool` sends them: JSON
{path, inside, part, line, characters, seen}. A reply is JSON {label, text, part, line, note, picture}, or {fault} for
what the model reads, or {lacks} and {lost} for a library and a file that are not there.
"""

from __future__ import annotations

import functools
import json
import os
import resource
import signal
import struct
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from arpo_env.task_files.document import LABELS, Document, KeptLines, UnreadableFile, contradiction, kind_of, view
from arpo_env.task_files.office_text import pdf_document, sheet_document, slide_document, word_document
from arpo_env.task_files.plain_files import (
    DEEPEST,
    MOST_BYTES,
    check_office_size,
    image_document,
    mp3_document,
    text_document,
    wav_document,
    zip_document,
    zip_member,
)

_READERS: dict[str, Callable[[bytes], Document]] = {
    "pdf": pdf_document,
    "docx": word_document,
    "xlsx": sheet_document,
    "pptx": slide_document,
    "mp3": mp3_document,
    "wav": wav_document,
    "text": text_document,
}

_LONGEST_LABEL = 1000  # characters
_LEAST_ROOM = 200  # characters of text, however long the label is
_KEPT_FILES = 2  # Office files that stay open, since a reader comes back for the next piece
_KEPT_CHARACTERS = 16_000_000  # of the lines of each


def extract(job: dict[str, Any]) -> dict[str, Any]:
    """Return the wanted piece of a file, or why there is none."""
    path = Path(job["path"])
    try:
        size = path.stat().st_size
        data = path.read_bytes() if size <= MOST_BYTES else b""
    except OSError as error:
        return {"lost": error.strerror or type(error).__name__}
    if size > MOST_BYTES:
        return {"fault": f"it is too large: {size:,} bytes, and at most {MOST_BYTES:,} are read"}
    try:
        return _with_room(path.name, data, job)
    except UnreadableFile as fault:
        return {"fault": str(fault)}
    except MemoryError:
        return {"fault": "reading it needs too much memory"}
    except ImportError as error:
        return {"lacks": error.name or str(error)}
    except RecursionError:
        return {"fault": "it is nested too deeply"}
    except Exception as error:  # readers raise anything about a broken file
        if type(error).__name__ == "DependencyError":
            return {"lacks": "cryptography"}
        return {"fault": f"it is broken or cut off ({type(error).__name__})"}


def _with_room(name: str, data: bytes, job: dict[str, Any]) -> dict[str, Any]:
    """Do a job, once more without the files that are kept if memory was short."""
    try:
        return _extract(name, data, job)
    except MemoryError:
        if not _office_document.cache_info().currsize:
            raise
    _office_document.cache_clear()  # here, where the error no longer holds what it was raised over
    return _extract(name, data, job)


def _extract(name: str, data: bytes, job: dict[str, Any]) -> dict[str, Any]:
    full, inside = name, job["inside"]
    kind = kind_of(data)
    for _ in range(DEEPEST):
        if not inside:
            break
        if kind != "zip":
            raise UnreadableFile(f"{full} is no archive, so that there is no {inside[:100]!r} in it")
        data, rest = zip_member(data, inside)
        name = inside.removesuffix(rest).rstrip("/")
        full, inside, kind = f"{full}/{name}", rest, kind_of(data)
    if inside:
        raise UnreadableFile(f"archives within each other are read {DEEPEST} deep; unpack it with Python")
    document = image_document(data, job["seen"]) if kind == "image" else _document(kind, data, full)
    label, room = document.label[:_LONGEST_LABEL], job["characters"]
    shown = view(document, job["part"], job["line"], max(room - len(label), min(room, _LEAST_ROOM)))
    # PDFs may name halves of surrogate pairs as their letters, which no text for a model may hold.
    label, text = (each.encode("utf-8", "replace").decode() for each in (label, shown.text))
    facts = {"note": contradiction(name, kind), "picture": document.picture}
    return {"label": label, "text": text, "part": shown.part, "line": shown.line, **facts}


def _document(kind: str, data: bytes, name: str) -> Document:
    if kind == "zip":
        return zip_document(data, name)
    if kind not in LABELS:
        raise UnreadableFile(
            f"its content cannot be read as text: {kind}, {len(data):,} bytes, begins {data[:16].hex(' ')}"
        )
    return _office_document(kind, data) if kind in ("docx", "xlsx", "pptx") else _READERS[kind](data)


@functools.lru_cache(_KEPT_FILES)
def _office_document(kind: str, data: bytes) -> Document:
    """Return an Office file; kept by its content, since a file may change between calls."""
    check_office_size(data)
    document = _READERS[kind](data)
    return replace(document, lines=KeptLines(document.lines, _KEPT_CHARACTERS))


def main(seconds: float, memory: int) -> None:
    """Serve jobs until standard input ends.

    Args:
        seconds: CPU time of one job, after which the kernel ends this process.
        memory: most bytes of address space.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    for what, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(what, (most, most))
    warnings.simplefilter("ignore")
    jobs, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get between the replies
    _send(replies, b"")
    while len(length := jobs.read(4)) == 4:
        job = json.loads(jobs.read(struct.unpack("!I", length)[0]))
        signal.setitimer(signal.ITIMER_PROF, seconds)
        reply = json.dumps(extract(job)).encode()
        signal.setitimer(signal.ITIMER_PROF, 0)
        _send(replies, reply)


def _send(replies: BinaryIO, reply: bytes) -> None:
    replies.write(struct.pack("!I", len(reply)) + reply)
    replies.flush()
