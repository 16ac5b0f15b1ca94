"""Text of PDF, Word, Excel and PowerPoint files, as documents of pages, slides and sheets. Runs in the child.

The libraries are pypdf, python-docx, openpyxl and python-pptx, each imported when the first such file is read.
"""

from __future__ import annotations

import io
import itertools
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from arpo_env.task_files.document import Document, UnreadableFile

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
    """Return the pages of a PDF.

    Raises:
        UnreadableFile: it is locked with a password.
    """
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
    """Return a cell's value, or its formula where the file has no value, and its colour in brackets if it is filled.

    Args:
        cells: with the value, and with the formula if the workbook lacks values.
    """
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
