"""Readers of task files, as documents of parts, and the child process that runs them within limits of the kernel.

The files come from elsewhere: they may be broken, locked, or made so that a reader never ends or takes all memory. Here
only a process is lost that has no keys and writes no files. Each library is imported when the first such file is read.
"""

from __future__ import annotations

import base64
import functools
import io
import itertools
import json
import os
import re
import resource
import signal
import struct
import sys
import unicodedata
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from arpo_env.task_files.document import (
    LABELS,
    Document,
    KeptLines,
    UnreadableFile,
    decoded,
    kind_of,
    view,
)

if TYPE_CHECKING:
    from PIL.Image import Image


_LONGEST_CELL = 1000  # characters
_LONGEST_TITLE = 100  # characters
_DEEPEST_GROUP = 20
# A formula and the end of its cell, without a value in between.
_NO_VALUE = re.compile(
    rb"(?:</(?:\w+:)?f>|<(?:\w+:)?f[^<>]*/>)\s*+(?:<(?:\w+:)?v\s*+/>|<(?:\w+:)?v></(?:\w+:)?v>)?\s*+</(?:\w+:)?c>"
)
_MARK = 500  # bytes that such a place may take
_LONGEST_GAP = 20  # empty cells in a row that are shown as such


def pdf_document(data: bytes) -> Document:
    """Return the pages of a PDF."""
    from pypdf import PdfReader

    reader = PdfReader(io.BytesIO(data), strict=False)
    if reader.is_encrypted and not reader.decrypt(""):
        raise UnreadableFile("it is locked with a password")
    count = len(reader.pages)

    def lines(index: int) -> list[str]:
        return [line.rstrip() for line in reader.pages[index].extract_text().splitlines()]

    return Document(f"PDF, {_counted(count, 'page')}", lines, [str(n + 1) for n in range(count)], "page")


def word_document(data: bytes) -> Document:
    """Return the paragraphs and tables of a Word document in their order."""
    import docx

    document = docx.Document(io.BytesIO(data))
    return Document("Word document", lambda _: list(_word_blocks(document)))


def _word_blocks(document: Any) -> Iterator[str]:
    from docx.table import Table
    from docx.text.paragraph import Paragraph

    # Also those in content controls, such as the fields of a form, which `iter_inner_content` leaves out.
    for block in document.element.body.xpath(".//*[self::w:p or self::w:tbl][not(ancestor::w:p or ancestor::w:tbl)]"):
        if block.tag.endswith("}tbl"):
            yield from (_row(map(_cell_text, row.cells)) for row in Table(block, document).rows)
        elif text := _paragraph_text(block).strip():
            style = Paragraph(block, document).style
            name = (style.name or "") if style is not None else ""
            level = name.removeprefix("Heading ")
            mark = "#" * int(level) + " " if name != level and level.isdecimal() else ""
            yield from (mark + line for line in text.splitlines() if line.strip())


def _cell_text(cell: Any) -> str:
    return "\n".join(map(_paragraph_text, cell._tc.xpath(".//w:p[not(ancestor::w:txbxContent)]")))


def _paragraph_text(paragraph: Any) -> str:
    """Return the text of a paragraph with links, content controls, insertions and formulas; without text boxes."""
    outside = "not(ancestor::w:txbxContent or ancestor::w:moveFrom)"
    breaks = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
    found = paragraph.xpath(
        f".//*[self::w:t or self::m:t or self::w:tab[parent::w:r] or self::w:br or self::w:cr "
        f"or self::w:noBreakHyphen][{outside}]"
    )
    return "".join(breaks.get(each.tag.rpartition("}")[2], each.text or "") for each in found)


def slide_document(data: bytes) -> Document:
    """Return the slides of a PowerPoint presentation: texts, tables, names of pictures and charts, notes."""
    import pptx

    slides = list(pptx.Presentation(io.BytesIO(data)).slides)
    names = [str(number + 1) for number in range(len(slides))]
    label = f"PowerPoint presentation, {_counted(len(slides), 'slide')}"
    return Document(label, lambda index: list(_slide_lines(slides[index])), names, "slide")


def _slide_lines(slide: Any) -> Iterator[str]:
    yield from _shape_lines(slide.shapes, 0)
    if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
        notes = slide.notes_slide.notes_text_frame.text.strip()
        yield from (f"Notes: {line}" for line in notes.splitlines())


def _shape_lines(shapes: Any, depth: int) -> Iterator[str]:
    for shape in shapes:
        if hasattr(shape, "shapes") and depth < _DEEPEST_GROUP:
            yield from _shape_lines(shape.shapes, depth + 1)
        elif getattr(shape, "has_table", False) and shape.has_table:
            yield from (_row(cell.text for cell in row.cells) for row in shape.table.rows)
        elif getattr(shape, "has_chart", False) and shape.has_chart:
            yield from _chart_lines(shape)
        elif getattr(shape, "has_text_frame", False) and shape.has_text_frame:
            yield from (line for line in shape.text_frame.text.splitlines() if line.strip())
        # Asked of the type, since a picture that is only linked raises.
        elif hasattr(type(shape), "image"):
            yield f"[picture: {shape.name}]"


def _chart_lines(shape: Any) -> list[str]:
    lines = ["[chart]"]
    try:
        for plot in shape.chart.plots:
            lines.append(_row(["", *map(str, plot.categories)]))
            lines += [_row([str(series.name), *(_cell(value) for value in series.values)]) for series in plot.series]
    except (ValueError, KeyError, AttributeError):  # a type of chart that python-pptx does not know, or a lost part
        return ["[chart that cannot be read]"]
    return lines


def sheet_document(data: bytes) -> Document:
    """Return the sheets of an Excel workbook: a line per row that is not empty, with its number and filled colours.

    A formula is shown where the file has no value for it, as in files that no spreadsheet program has saved.
    """
    from openpyxl import load_workbook

    values = load_workbook(io.BytesIO(data), read_only=True, data_only=True)
    # A second workbook takes as long as the first, so it is opened only if a value is missing.
    written = load_workbook(io.BytesIO(data), read_only=True, data_only=False) if _lacks_values(data) else None

    def lines(index: int) -> Iterator[str]:
        sheets = [book.worksheets[index] for book in (values, written) if book is not None]
        for sheet in sheets:
            sheet.reset_dimensions()  # what a file says of its size may be wrong
        rows = zip(*(sheet.iter_rows() for sheet in sheets), strict=False)
        for number, row in enumerate(rows, start=1):
            cells = [_sheet_cell(pair) for pair in zip(*row, strict=False)]
            if any(cells):
                yield f"{number}: {_row(_without_gaps(cells))}"

    names = [_title(sheet) for sheet in values.worksheets]
    hidden = [_title(sheet) for sheet in values.worksheets if sheet.sheet_state != "visible"]
    label = f"Excel workbook, {_counted(len(names), 'sheet')}: {', '.join(names[:30])}"
    return Document(f"{label}; hidden: {', '.join(hidden[:30])}" if hidden else label, lines, names, "sheet")


def _title(sheet: Any) -> str:
    return " ".join(str(sheet.title).split())[:_LONGEST_TITLE]


def _without_gaps(cells: list[str]) -> Iterator[str]:
    """Yield the cells of a row up to its last; a long run of empty ones becomes one that says how many there are."""
    while cells and not cells[-1]:
        cells.pop()
    for filled, run in itertools.groupby(cells, bool):
        group = list(run)
        yield from group if filled or len(group) <= _LONGEST_GAP else [f"({len(group):,} empty cells)"]


def _lacks_values(data: bytes) -> bool:
    """Return whether a formula of a workbook has no value."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for name in archive.namelist():
            if not name.startswith("xl/worksheets/"):
                continue
            with archive.open(name) as file:
                seen = b""
                while piece := file.read(1 << 20):
                    seen = seen[-_MARK:] + piece
                    if _NO_VALUE.search(seen):
                        return True
    return False


def _sheet_cell(cells: Sequence[Any]) -> str:
    """Return a cell's value, else its formula (the second cell), and its colour in brackets if it is filled."""
    text, colour = _cell(next((cell.value for cell in cells if cell.value is not None), None)), _fill(cells[0])
    return f"{text} [{colour}]".lstrip() if colour else text


def _fill(cell: Any) -> str:
    """Return the colour of a filled cell, as in "#00FF00" or "theme colour 4"; "" for white and none."""
    from openpyxl.styles.colors import COLOR_INDEX

    try:
        fill = cell.fill
    except IndexError:  # a style that the file does not have
        return ""
    if fill is None or fill.fill_type != "solid":
        return ""
    colour = fill.fgColor
    if colour.type == "theme":
        return "" if colour.theme == 0 else f"theme colour {colour.theme}"
    if colour.type == "indexed":
        code = COLOR_INDEX[colour.indexed] if colour.indexed < len(COLOR_INDEX) else ""
    else:
        code = str(colour.rgb)
    return f"#{code[-6:]}" if len(code) == 8 and code[-6:].upper() != "FFFFFF" else ""


def _cell(value: Any) -> str:
    if value is None:
        return ""
    # dates at midnight are dates
    text = (
        value.isoformat(" ").removesuffix(" 00:00:00") if hasattr(value, "hour") and hasattr(value, "year") else value
    )
    return str(text)[:_LONGEST_CELL]


def _row(cells: Iterable[str]) -> str:
    texts = [" / ".join(cell.split("\n")).strip() for cell in cells]
    while texts and not texts[-1]:
        texts.pop()
    return " | ".join(texts)


def _counted(number: int, unit: str) -> str:
    return f"{number} {unit}{'' if number == 1 else 's'}"


# Of sounds only the format is told. Pictures that the model sees are decoded, made smaller and encoded anew: a model's
# server never gets the bytes of the file, and what it would refuse is gone by then.

LONGEST_SIDE = 2048  # pixels
MOST_PICTURE_BYTES = 1 << 20  # of the encoded picture
MOST_PIXELS = 89_478_485  # of the file: Pillow's own limit, above which it warns of decompression bombs
# Qwen-VL refuses sides below 28 pixels, and pictures that are 200 times as wide as high
_SHORTEST_SIDE, _MOST_RATIO = 28, 100
_QUALITIES = (90, 75, 50)  # of JPEG


def shown_picture(image: Image) -> tuple[str, str]:
    """Return a picture (of an animation the first frame) as a data URL, and a line that says what the model gets.

    Pillow raises many types if it is broken.
    """
    if image.width * image.height > MOST_PIXELS:
        raise UnreadableFile(
            f"it is a picture of {image.width:,} x {image.height:,} pixels, and at most {MOST_PIXELS:,} are decoded"
        )
    longest, animated = max(image.size), image.format != "MPO" and getattr(image, "n_frames", 1) > 1
    forms = [("JPEG", quality) for quality in _QUALITIES]
    small = _shrunk(image)
    data, form, final = _encoded(small, forms if image.format in ("JPEG", "MPO") else [("PNG", 0), *forms])
    what = "first frame" if animated else "picture"
    scaled = f", scaled to {final.width:,} x {final.height:,} pixels" if max(final.size) < longest else ""
    url = f"data:image/{form.lower()};base64,{base64.b64encode(data).decode('ascii')}"
    return url, f"(The {what} is attached{scaled}.)"


def _shrunk(image: Image) -> Image:
    """Return the picture upright, with 8 bits a colour and no transparency, and no side above `LONGEST_SIDE`."""
    from PIL import ImageOps
    from PIL.Image import Resampling

    image.draft("RGB", (LONGEST_SIDE, LONGEST_SIDE))  # a JPEG is decoded at a smaller size at once
    image.load()
    small: Image = image
    # "transparency" is a single colour of a picture without an alpha channel
    clear = image.mode in ("P", "PA", "LA", "La", "RGBa") or "transparency" in image.info
    if clear or image.mode not in ("L", "RGB", "RGBA"):
        # first, for memory's sake: several copies with up to 4 bytes a pixel follow
        image.thumbnail((4 * LONGEST_SIDE, 4 * LONGEST_SIDE), Resampling.NEAREST)
        small = _eight_bits(image) if image.mode[0] in "IF" else image.convert("RGBA" if clear else "RGB")
    small.thumbnail((LONGEST_SIDE, LONGEST_SIDE), reducing_gap=2.0)
    return _on_white(ImageOps.exif_transpose(small))


def _eight_bits(image: Image) -> Image:
    """Return a picture of more than 8 bits in grey levels from its darkest to its brightest pixel."""
    deep = image.convert("F")
    low, high = deep.getextrema()
    scale = 255 / ((high - low) or 1)
    return deep.point(lambda value: value * scale - low * scale).convert("L")


def _on_white(image: Image) -> Image:
    """Return a picture without transparency, on a white ground that is not too narrow for a model."""
    from PIL import Image as pillow

    least = max(_SHORTEST_SIDE, -(-max(image.size) // _MOST_RATIO))
    ground = pillow.new("RGB", (max(image.width, least), max(image.height, least)), "white")
    ground.paste(image, (0, 0), image if image.mode == "RGBA" else None)
    return ground


def _encoded(image: Image, forms: list[tuple[str, int]]) -> tuple[bytes, str, Image]:
    """Return the first form that is small enough, with its name and the picture in it, which is halved if none is."""
    while True:
        for form, quality in forms:
            file = io.BytesIO()
            image.save(file, form, **({"quality": quality} if quality else {}))
            if file.tell() <= MOST_PICTURE_BYTES:
                return file.getvalue(), form, image
        image = image.reduce(2)


MOST_BYTES = 64 << 20  # of a member of an archive
DEEPEST = 3  # archives within each other
_MOST_MEMBERS = 2000
_LONGEST_NAME = 300  # characters
_TEXT_ONLY = "Tools answer with text only, so that {what} itself cannot be {done} here."


def text_document(data: bytes) -> Document:
    """Return the lines of a text file."""
    text, coding = decoded(data)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n").split("\n")
    note = " (it is not UTF-8, and was read as Windows-1252)" if coding == "Windows-1252" else ""
    return Document(f"text, {len(lines):,} line{'' if len(lines) == 1 else 's'}{note}", lambda _: lines)


def zip_document(data: bytes, name: str) -> Document:
    """Return the list of an archive's members; they are read by their path behind the archive's name."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [member for member in archive.infolist() if not member.is_dir()]
    lines = [
        f"{name}/{_printable(member.filename)} ({member.file_size:,} bytes"
        f"{', locked with a password' * (member.flag_bits & 1)})"
        for member in members[:_MOST_MEMBERS]
    ]
    if len(members) > _MOST_MEMBERS:
        lines.append(f"... and {len(members) - _MOST_MEMBERS:,} more")
    return Document(f"ZIP archive, {len(members):,} files, each read by its path below", lambda _: lines)


def zip_member(data: bytes, path: str) -> tuple[bytes, str]:
    """Return the content of the member with which a path begins, and the rest of the path (inside that archive).

    Nothing is written anywhere, so that names with ".." lead nowhere.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        member, rest = _find(archive, path)
        name = _printable(member.filename)
        if member.flag_bits & 1:
            raise UnreadableFile(f"{name} in the archive is locked with a password")
        if member.file_size > MOST_BYTES:
            raise UnreadableFile(
                f"{name} in the archive is too large: {member.file_size:,} bytes unpacked, and at "
                f"most {MOST_BYTES:,} are read"
            )
        try:
            with archive.open(member) as file:
                content = file.read(MOST_BYTES + 1)
        except Exception as error:  # zlib, bz2 and lzma have errors of their own
            raise UnreadableFile(f"{name} in the archive is broken, or has a compression that is not read") from error
    return content, rest


def _find(archive: zipfile.ZipFile, path: str) -> tuple[zipfile.ZipInfo, str]:
    """Return the member with which a path begins, and the rest of the path. The names may be written as listed."""
    members = [member for member in archive.infolist() if not member.is_dir()]
    # Of two with the same name the last one counts, as it does for `zipfile`.
    named = {_plain(member.filename): member for member in members}
    parts = _plain(path).split("/")
    # The longest first: "a/b" is a member "a/b" before it is "b" in an archive "a".
    for end in range(len(parts), 0, -1):
        if member := named.get("/".join(parts[:end])):
            return member, "/".join(parts[end:])
    names = [_printable(member.filename) for member in members]
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    raise UnreadableFile(f"the archive has no file {path[:100]!r}; it has {', '.join(names[:20])[:1000]}{more}")


def _plain(name: str) -> str:
    """Return a path as it may be written by a model that has read the list."""
    return unicodedata.normalize("NFKC", _one_line(name.strip().removeprefix("./").strip("/")))


def _printable(name: str) -> str:
    return _one_line(name)[:_LONGEST_NAME]


def _one_line(name: str) -> str:
    return "".join(each if each.isprintable() else " " if each.isspace() else "?" for each in name)


def image_document(data: bytes, seen: bool = False) -> Document:
    """Return format, size and colours of a picture; the picture itself, decoded, only if the model sees it."""
    from PIL import Image

    try:
        # Without decoding only the header is read; `shown_picture` has a limit of its own.
        Image.MAX_IMAGE_PIXELS = None
        with Image.open(io.BytesIO(data)) as image:
            facts = f"{image.format} picture, {image.width} x {image.height} pixels, mode {image.mode}"
            frames = getattr(image, "n_frames", 1) if image.format in ("GIF", "TIFF") else 1
            picture, said = shown_picture(image) if seen else ("", _TEXT_ONLY.format(what="the picture", done="seen"))
    except (UnreadableFile, MemoryError):
        raise
    except Exception as error:  # Pillow raises many types for broken files
        raise UnreadableFile("it is a picture that is broken or cut off") from error
    lines = [*([f"{frames} frames"] if frames > 1 else []), said]
    return Document(facts, lambda _: lines, picture=picture)


# Jobs arrive as `arpo_env.worker_pool` sends them: JSON {path, inside, part, line, characters, seen}. A reply is JSON
# {label, text, part, line, picture}, or {fault} for what the model reads, or {lacks} and {lost} for a library and
# a file that are not there.

_READERS: dict[str, Callable[[bytes], Document]] = {
    "pdf": pdf_document,
    "docx": word_document,
    "xlsx": sheet_document,
    "pptx": slide_document,
    "text": text_document,
}

_LONGEST_LABEL = 1000  # characters
_LEAST_ROOM = 200  # characters of text, however long the label is
_KEPT_FILES = 2  # Office files that stay open, since a reader comes back for the next piece


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
    return {"label": label, "text": text, "part": shown.part, "line": shown.line, "picture": document.picture}


def _document(kind: str, data: bytes, name: str) -> Document:
    if kind == "zip":
        return zip_document(data, name)
    if kind in ("mp3", "wav"):
        return Document(LABELS[kind], lambda _: [_TEXT_ONLY.format(what="the sound", done="heard")])
    if kind not in LABELS:
        raise UnreadableFile(
            f"its content cannot be read as text: {kind}, {len(data):,} bytes, begins {data[:16].hex(' ')}"
        )
    return _office_document(kind, data) if kind in ("docx", "xlsx", "pptx") else _READERS[kind](data)


@functools.lru_cache(_KEPT_FILES)
def _office_document(kind: str, data: bytes) -> Document:
    """Return an Office file; kept by its content, since a file may change between calls."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        total = sum(member.file_size for member in archive.infolist())
    if total > 4 * MOST_BYTES:
        raise UnreadableFile(f"it is too large: {total:,} bytes unpacked, and at most {4 * MOST_BYTES:,} are read")
    document = _READERS[kind](data)
    return replace(document, lines=KeptLines(document.lines))


def main(seconds: float, memory: int) -> None:
    """Serve jobs until standard input ends; a job may take so many CPU seconds, the process so many bytes."""
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
