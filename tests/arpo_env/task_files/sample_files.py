"""Small files of every type, made by the libraries that also read them, and broken ones."""

import io
import json
import zipfile
from collections.abc import Callable, Mapping

import docx
import openpyxl
import pptx
from PIL import Image

from tests.arpo_env.pdf_file import pdf


def locked_pdf(password: str) -> bytes:
    from pypdf import PdfReader, PdfWriter

    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(pdf("secret"))))
    writer.encrypt(password, algorithm="RC4-128")
    return saved(writer.write)


def saved(save: Callable[[io.BytesIO], object]) -> bytes:
    file = io.BytesIO()
    save(file)
    return file.getvalue()


def xlsx() -> bytes:
    book = openpyxl.Workbook()
    first = book.active
    first.title = "Sales"
    for row in (["city", "sold"], ["Oslo", 17], [], ["Rome", 25]):
        first.append(row)
    book.create_sheet("Sums").append(["all", "=SUM(Sales!B2:B4)"])
    return saved(book.save)


def word() -> bytes:
    document = docx.Document()
    document.add_heading("Report", 1)
    document.add_paragraph("The bridge was built in 1907.")
    cells = document.add_table(1, 2).rows[0].cells
    cells[0].text, cells[1].text = "length", "81 m"
    return saved(document.save)


def slides() -> bytes:
    presentation = pptx.Presentation()
    for number in (1, 2):
        slide = presentation.slides.add_slide(presentation.slide_layouts[1])
        slide.shapes.title.text = f"Animal {number}"
        slide.placeholders[1].text = ["a crab", "a heron"][number - 1]
    slide.notes_slide.notes_text_frame.text = "speak slowly"
    return saved(presentation.save)


def png(width: int = 30, height: int = 20) -> bytes:
    return saved(lambda file: Image.new("RGB", (width, height), (0, 128, 255)).save(file, "PNG"))


def zipped(**members: bytes) -> bytes:
    return archive_of({name.replace("__", "/").replace("_dot_", "."): content for name, content in members.items()})


def archive_of(members: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def rewritten(archive: bytes, member: str, old: bytes, new: bytes) -> bytes:
    """An Office file with another text in the XML of one member."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as source, zipfile.ZipFile(file, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            assert name != member or old in content
            target.writestr(name, content.replace(old, new) if name == member else content)
    return file.getvalue()


FILES: dict[str, bytes] = {
    "report.pdf": pdf("The tower is 324 metres high.", "The bridge is 81 metres long."),
    "sales.xlsx": xlsx(),
    "rows.csv": b"name,age\nAnn,31\nBob,44\n",
    "letter.docx": word(),
    "talk.pptx": slides(),
    "photo.png": png(),
    "sound.mp3": b"ID3\x03" + bytes(500),
    "sound.wav": b"RIFF\0\0\0\0WAVE" + bytes(500),
    "program.py": b"def f(n):\n    return n * 7\n\nprint(f(6))\n",
    "notes.txt": "Der Schlüssel liegt unter der Matte.\n".encode(),
    "data.json": json.dumps({"planets": ["Aru", "Belo", "Cyx"]}).encode(),
    "box.zip": zipped(deep__inner_dot_txt=b"the word is marzipan\n", book_dot_xlsx=xlsx()),
}
