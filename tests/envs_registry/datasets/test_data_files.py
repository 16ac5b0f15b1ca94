"""Data files: what can be read is read, what is broken is named by line and column."""

from pathlib import Path

import pytest

from envs_registry import DataFileError
from envs_registry.datasets.rows import column, read_rows

ROWS = [{"question": "a?", "answer": "1"}, {"question": "b, c?", "answer": "2"}]


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.jsonl", '{"question": "a?", "answer": "1"}\n\n{"question": "b, c?", "answer": "2"}\n'),
        ("a.json", '[{"question": "a?", "answer": "1"}, {"question": "b, c?", "answer": "2"}]'),
        ("lines.json", '{"question": "a?", "answer": "1"}\n{"question": "b, c?", "answer": "2"}\n'),
        ("a.csv", 'question,answer\na?,1\n"b, c?",2\n'),
    ],
)
def test_every_text_format_gives_the_same_rows(tmp_path: Path, name: str, text: str) -> None:
    assert [row for _, row in read_rows(write(tmp_path, name, text))] == ROWS


def test_rows_know_where_they_stand(tmp_path: Path) -> None:
    assert [place for place, _ in read_rows(write(tmp_path, "a.jsonl", '{"q": 1}\n\n\n{"q": 2}\n'))] == [
        "line 1",
        "line 4",
    ]
    assert [place for place, _ in read_rows(write(tmp_path, "a.csv", 'q\n"a\nb"\nc\n'))] == ["line 3", "line 4"]


def test_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    assert read_rows(tmp_path / "a.parquet") == [("row 1", ROWS[0]), ("row 2", ROWS[1])]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.jsonl", '{"q": 1}\n{"q": }\n', "line 2, column 7"),
        ("a.jsonl", '{"q": 1}\n[1]\n', "line 2, column 1: expected an object, got list"),
        ("a.json", '[{"q": 1},\n {"q" 2}]', "line 2, column 7"),
        ("a.csv", "question,answer\na?,1,2\n", "line 2, column 3: expected 2 columns"),
        ("a.csv", "question,answer\na?\n", "line 2, column 1: expected 2 columns"),
        ("a.jsonl", b'{"q": "a"}\n{"q": "\xff"}', "line 2: not UTF-8"),
        ("a.jsonl", "\n", "holds no rows"),
        ("a.txt", "x", "cannot read .txt"),
    ],
)
def test_broken_files_are_named_by_line_and_column(tmp_path: Path, name: str, text: str | bytes, words: str) -> None:
    with pytest.raises(DataFileError, match=r".*") as caught:
        read_rows(write(tmp_path, name, text))
    assert words in str(caught.value)
    assert name in str(caught.value)


def test_missing_file_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"give a \.jsonl"):
        read_rows(tmp_path / "none.jsonl")


def test_missing_or_blank_column_is_named() -> None:
    with pytest.raises(DataFileError, match=r"row 3: no column 'question'; it has 'q'"):
        column({"q": "x"}, ("question",), "row 3")
    with pytest.raises(DataFileError, match=r"column 'q': is blank"):
        column({"q": " "}, ("q",), "row 3")
