"""Corpora of other people's making are read, and what can not be read is named by file and line."""

import gzip
import json
from pathlib import Path

import pytest

from arpo_env.search import CorpusError, Passage, read_corpus


def written(folder: Path, *lines: str) -> Path:
    path = folder / "corpus.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("row", "passage"),
    [
        ({"id": "a", "title": "T", "text": "words"}, Passage("a", "T", "words")),
        ({"id": 7, "contents": '"The Title"\nwords\nmore'}, Passage("7", "The Title", "words\nmore")),
        ({"contents": "Bare Title\nwords"}, Passage("0", "Bare Title", "words")),
        ({"contents": "only words"}, Passage("0", "", "only words")),
        ({"title": "T", "contents": "words\nmore"}, Passage("0", "T", "words\nmore")),
        ({"title": "T", "contents": '"T"\nwords'}, Passage("0", "T", "words")),
        ({"title": "T", "text": "words", "contents": '"T"\nother'}, Passage("0", "T", "words")),
        ({"url": "http://x", "text": "words", "date": "1999", "n": [1]}, Passage("0", "", "words", "http://x", "1999")),
        ({"_id": "m", "title": "only a title"}, Passage("m", "only a title", "")),
        ({"id": "s", "text": "half \ud83d a pair"}, Passage("s", "", "half ? a pair")),
    ],
)
def test_a_row_becomes_a_passage(tmp_path: Path, row: object, passage: Passage) -> None:
    assert list(read_corpus(written(tmp_path, json.dumps(row)))) == [passage]


def test_gzipped_files_and_blank_lines_are_read(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"text": "one"}\n\n{"text": "two"}'))
    assert [(passage.id, passage.text) for passage in read_corpus(path)] == [("0", "one"), ("2", "two")]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{not json", "property name"),
        ("[1, 2]", "not list"),
        ('{"body": "x", "id": 1}', r"needs one of 'text', 'contents'.*\['body', 'id'\]"),
        ('{"text": ["a"]}', "'text' has to be a string, not list"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, said: str) -> None:
    path = written(tmp_path, '{"text": "fine"}', line)
    with pytest.raises(CorpusError, match=rf"(?s)corpus\.jsonl, line 2: .*{said}"):
        list(read_corpus(path))


def test_a_cut_off_archive_is_named(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"text": "one"}\n' * 1000)[:-12])
    with pytest.raises(CorpusError, match="damaged or cut off"):
        list(read_corpus(path))


def test_the_shared_corpus_is_read(shared: Path) -> None:
    passages = list(read_corpus(shared / "data/corpus/passages.jsonl"))
    assert len(passages) == 13_838
    assert passages[0].id == "p00000"
    assert passages[0].title == "Meet Corliss Archer"
