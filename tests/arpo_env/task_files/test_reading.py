"""Reading files: text by parts for every type, and a clear fault for whatever cannot be read; nothing crashes."""

import asyncio
import contextlib
import os
import random
import signal
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from arpo_env.errors import ServiceError
from arpo_env.task_files import readers
from arpo_env.task_files.file_extractor import ExtractionFailed, FileExtractor
from arpo_env.task_files.readers import extract
from arpo_env.tools.read_file_tool import ReadFileTool
from envs_registry import Task
from tests.arpo_env.task_files import sample_files
from tests.arpo_env.task_files.sample_files import FILES, zipped


def fault(read: Any, content: bytes, name: str = "file", **arguments: Any) -> str:
    with pytest.raises(ExtractionFailed) as failed:
        read(content, name, **arguments)
    return str(failed.value)


@pytest.mark.parametrize(
    ("name", "label", "text"),
    [
        ("report.pdf", "PDF, 2 pages", "--- page 1 ---\nThe tower is 324 metres high.\n--- page 2 ---\nThe bridge"),
        ("sales.xlsx", "2 sheets: Sales, Sums", "--- sheet Sales ---\n1: city | sold\n2: Oslo | 17\n4: Rome | 25\n---"),
        ("rows.csv", "text, 3 lines", "name,age\nAnn,31"),
        ("letter.docx", "Word document", "# Report\nThe bridge was built in 1907.\nlength | 81 m"),
        ("talk.pptx", "2 slides", "--- slide 2 ---\nAnimal 2\na heron\nNotes: speak slowly"),
        ("photo.png", "PNG picture, 30 x 20 pixels, mode RGB", "cannot be seen here"),
        ("sound.mp3", "MP3 audio", "be heard"),
        ("sound.wav", "WAV audio", "cannot be heard"),
        ("program.py", "text, 4 lines", "return n * 7"),
        ("box.zip", "ZIP archive, 2 files", "box.zip/deep/inner.txt (21 bytes)"),
    ],
)
def test_each_type_is_read(read: Any, name: str, label: str, text: str) -> None:
    found = read(FILES[name], name)
    assert label in found.label
    assert text in found.text
    assert found.line == 0


def test_reading_piece_by_piece_gives_every_line_once(read: Any) -> None:
    random_lines = random.Random(0)
    lines = [f"{n}:" + "x" * random_lines.randrange(300) for n in range(200)]
    seen, line = [], 1
    while line:
        found = read("\n".join(lines).encode(), line=line, characters=1000)
        seen += found.text.split("\n")
        assert len(found.text) <= 1000
        line = found.line
    assert seen == lines


def test_the_type_is_that_of_the_content_and_parts_are_asked_for_by_number_or_name(read: Any) -> None:
    assert "PNG picture" in read(FILES["photo.png"], "report.pdf").label
    assert "Excel" in read(FILES["sales.xlsx"], "sales.txt").label
    assert read(FILES["report.pdf"], part="2").text == "--- page 2 ---\nThe bridge is 81 metres long."
    assert read(FILES["report.pdf"], part="page 2").text.startswith("--- page 2")
    assert read(FILES["sales.xlsx"], part="sums").text == "--- sheet Sums ---\n1: all | =SUM(Sales!B2:B4)"
    assert read(FILES["report.pdf"], characters=30).part == "2"
    assert "there is no page '7'; there are pages 1 to 2" in fault(read, FILES["report.pdf"], part="7")
    assert "there are 'Sales', 'Sums'" in fault(read, FILES["sales.xlsx"], part="Costs")
    assert "there are only 3 lines" in fault(read, FILES["rows.csv"], line=9)


def test_each_row_of_a_workbook_is_read_once_and_a_changed_file_anew(tmp_path: Path, monkeypatch: Any) -> None:
    book, path, fill, made = openpyxl.Workbook(), tmp_path / "rows.xlsx", readers._fill, []
    for _ in range(40):
        book.active.append(["x" * 30])
    path.write_bytes(sample_files.saved(book.save))
    monkeypatch.setattr(readers, "_fill", lambda cell: made.append(cell) or fill(cell))
    job, seen, line = {"path": str(path), "inside": "", "part": "", "characters": 300, "seen": False}, [], 1
    while line:
        found = extract({**job, "line": line})
        seen, line = seen + found["text"].split("\n")[1:], found["line"]
    assert seen == [f"{number}: {'x' * 30}" for number in range(1, 41)]
    assert len(made) == 40
    book.active["A1"] = "new"
    path.write_bytes(sample_files.saved(book.save))
    assert "1: new" in extract({**job, "line": 1})["text"]


def test_members_of_archives_are_read_by_their_path_also_in_an_archive(read: Any) -> None:
    assert read(FILES["box.zip"], inside="deep/inner.txt").text == "the word is marzipan"
    assert "Excel" in read(FILES["box.zip"], inside="book.xlsx").label
    assert read(zipped(box_dot_zip=FILES["box.zip"]), inside="box.zip/deep/inner.txt").text == "the word is marzipan"
    assert "it has deep/inner.txt, book.xlsx" in fault(read, FILES["box.zip"], inside="../../etc/passwd")
    nested = FILES["box.zip"]
    for _ in range(4):
        nested = zipped(a=nested)
    assert "3 deep" in fault(read, nested, inside="a/a/a/a/deep/inner.txt")


def test_a_text_is_in_utf_8_and_neither_long_nor_with_half_a_surrogate_pair(read: Any) -> None:
    found = read("Größe\n".encode() + b"\xc3")
    assert (found.label, found.text) == ("text, 2 lines", "Größe\n\ufffd")
    for word in ("café", "Größe"):
        found = read(word.encode("cp1252"))
        assert found.text == word
        assert "read as Windows-1252" in found.label
    title = b"D" * 50_000 + b"&#10;x"
    book = sample_files.rewritten(FILES["sales.xlsx"], "xl/workbook.xml", b'"Sales"', b'"%s"' % title)
    found = read(book, characters=400)
    assert len(found.label) + len(found.text) <= 400
    assert max(map(len, read(b"x" * 5000, characters=300).text.split("\n"))) < 300
    letters = "begincmap\n1 beginbfchar\n<61> <D800>\nendbfchar\nendcmap"
    text = read(sample_files.pdf("abc", letters=letters)).text
    assert text.endswith("\n?bc")


def test_modules_in_the_current_directory_are_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The folder with the attached files may be the current one, and one of them may be named json.py.
    (tmp_path / "json.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path)
    with contextlib.closing(FileExtractor(processes=1)) as fresh:
        assert asyncio.run(fresh.extract(str(tmp_path / "json.py"))).text == "raise SystemExit"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        *((b"", "the file is empty"), (FILES["report.pdf"][:200], "it is broken or cut off")),
        *((FILES["sales.xlsx"][:3000], "broken or cut off"), (sample_files.locked_pdf("pw"), "locked with a password")),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600) + "EncryptedPackage".encode("utf-16-le"), "locked with"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "Office file of the old binary format"),
        (zipped(xl__workbook_dot_bin=b"x"), r"Excel workbook of the binary format (.xlsb)"),
        (b"\x00\x01\x02\x03" * 100, "unknown binary file, 400 bytes, begins 00 01 02 03"),
    ],
)
def test_what_cannot_be_read_says_why(read: Any, content: bytes, reason: str) -> None:
    assert reason in fault(read, content, "file.xlsx")


def test_a_locked_member_of_an_archive_and_a_bomb_are_refused(read: Any) -> None:
    content = bytearray(zipped(a_dot_txt=b"secret"))
    # the flag of encryption, in the member's head and in the directory
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(signature) + offset] |= 1
    assert "a.txt (6 bytes, locked with a password)" in read(bytes(content)).text
    assert "locked with a password" in fault(read, bytes(content), inside="a.txt")
    bomb = zipped(bomb_dot_txt=bytes(65 << 20))
    assert "bomb.txt in the archive is too large" in fault(read, bomb, inside="bomb.txt")
    # One that understates its size is cut there, and fails its checksum.
    small = zipped(x=bytes(3000)).replace((3000).to_bytes(4, "little"), (30).to_bytes(4, "little"))
    assert "x in the archive is broken" in fault(read, small, inside="x")


def test_cut_and_mixed_up_files_give_text_or_a_fault(read: Any) -> None:
    rng = random.Random(1)
    for name, content in FILES.items():
        for _ in range(4):
            broken = bytearray(content[: rng.randrange(1, len(content) + 1)])
            for _ in range(rng.randrange(4)):
                broken[rng.randrange(len(broken))] = rng.randrange(256)
            # any other exception fails the test
            with contextlib.suppress(ExtractionFailed):
                assert isinstance(read(bytes(broken), name).text, str)


def test_a_reader_that_takes_too_long_or_dies_costs_only_the_call(tmp_path: Path) -> None:
    # rows up to a number that the file says, which take an hour to count
    book = FILES["sales.xlsx"]
    for old, new in {b'<row r="4"': b'<row r="999999999"', b'r="A4"': b"", b'r="B4"': b""}.items():
        book = sample_files.rewritten(book, "xl/worksheets/sheet1.xml", old, new)
    (tmp_path / "never.xlsx").write_bytes(book)
    (tmp_path / "ok.txt").write_text("fine")
    slow = FileExtractor(processes=1, seconds=1)

    def read(name: str) -> str:
        return asyncio.run(slow.extract(str(tmp_path / name))).text

    try:
        assert read("ok.txt") == "fine"
        with pytest.raises(ExtractionFailed, match="longer than 1 s"):
            read("never.xlsx")
        assert read("ok.txt") == "fine"
        with pytest.raises(ServiceError, match=r"gone\.txt cannot be opened: No such file"):  # no fault of the policy
            read("gone.txt")
    finally:
        slow.close()
    with pytest.raises(ServiceError):  # closed: a failure on our side, not of the file
        read("ok.txt")


def test_a_process_that_is_killed_from_outside_is_not_the_fault_of_the_file(
    extractor: FileExtractor, tmp_path: Path
) -> None:
    # a FIFO has no content until somebody writes, so that its reader waits
    os.mkfifo(tmp_path / "pipe.txt")

    async def read_twice() -> str:
        waiting = asyncio.ensure_future(extractor.extract(str(tmp_path / "pipe.txt")))
        with await asyncio.to_thread(open, tmp_path / "pipe.txt", "w"):  # open once the first process reads
            [process] = extractor._pool.pids
            os.kill(process, signal.SIGKILL)
            while extractor._pool.pids in ([process], []):
                await asyncio.sleep(0.01)
        with await asyncio.to_thread(open, tmp_path / "pipe.txt", "w") as file:
            file.write("fine")
        return (await waiting).text

    assert asyncio.run(asyncio.wait_for(read_twice(), 20)) == "fine"


def test_the_tool_names_the_files_there_are_and_how_to_go_on(extractor: FileExtractor, tmp_path: Path) -> None:
    for name in ("rows.csv", "report.pdf"):
        (tmp_path / name).write_bytes(FILES[name])
    tool = ReadFileTool(extractor=extractor)
    tool.task = Task("t", "q?", ("1",), files=tuple(str(tmp_path / name) for name in ("rows.csv", "report.pdf")))

    def call(**arguments: Any) -> str:
        return asyncio.run(tool.call(**arguments)).text

    assert call(file="./ROWS.csv").startswith("./ROWS.csv: text, 3 lines\nname,age")
    assert call(file="row.csv") == (
        "Error: there is no attached file 'row.csv'; did you mean 'rows.csv'? the files are: rows.csv, report.pdf."
    )
    (tmp_path / "rows.csv").write_text("long line\n" * 2000)
    assert '(continues; go on with {"file": "rows.csv", "line": ' in call(file="rows.csv")
    [copy] = asyncio.run(tool.fork(1))
    assert "324 metres" in asyncio.run(copy.call(file="report.pdf")).text
    names = ("a.csv", "A.csv", "'q'.txt", " s .txt", "e\u0301\u202f1.txt")
    for name in names:
        (tmp_path / name).write_text(f"in {name}")
    tool.task = Task("t", "q?", ("1",), files=tuple(str(tmp_path / name) for name in names))
    spellings = {" 'A.csv'": "A.csv", "s .txt": " s .txt", "é 1.txt": names[-1]}
    for wanted, name in {**dict(zip(names, names, strict=True)), **spellings}.items():
        assert call(file=wanted).endswith(f"\nin {name}")
    assert "there are only 1 lines; line=1000000000 is past the end" in call(file="a.csv", line=10**1000)
    tool.task = None
    assert call(file="rows.csv") == "Error: no file is attached to this question."
