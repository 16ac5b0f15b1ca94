"""What a file is, judged by its content: names may lie. Runs in the child process."""

from __future__ import annotations

import io
import re
import zipfile

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
    (b"fLaC", "FLAC audio"),
    (b"OggS", "Ogg audio or video"),
    (b"\x1aE\xdf\xa3", "Matroska or WebM video"),
    (b"\x1f\x8b", "gzip archive"),
    (b"7z\xbc\xaf\x27\x1c", "7-Zip archive"),
    (b"Rar!\x1a\x07", "RAR archive"),
    (b"SQLite format 3\0", "SQLite database"),
    (b"PAR1", "Parquet table"),
    (b"\x7fELF", "Linux program"),
    (b"MZ", "Windows program"),
)
_CODING_SAMPLE = 1 << 20  # characters
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_SUFFIXES = {
    "pdf": (".pdf",),
    "docx": (".docx", ".docm", ".dotx"),
    "xlsx": (".xlsx", ".xlsm", ".xltx"),
    "pptx": (".pptx", ".pptm", ".ppsx"),
    "image": (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp"),
    "mp3": (".mp3",),
    "wav": (".wav",),
}
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


def contradiction(name: str, kind: str) -> str:
    """Return a note if a name's ending promises another kind than the content has, else ""."""
    ending = re.search(r"\.\w+$", name)
    promised = next((each for each, endings in _SUFFIXES.items() if ending and ending[0].lower() in endings), None)
    if promised is None or promised == kind:
        return ""
    return f"the name ends in {ending[0]}, but the content is: {LABELS.get(kind, kind)}" if ending else ""


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
