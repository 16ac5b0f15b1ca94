"""`open_search` finds a backend by what people write, and says what is near when they err."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from arpo_env.search import Hit, LocalSearch, SearchBackend, default_search, open_search, register_backend
from arpo_env.search import backends as registry


class Parrot(SearchBackend):
    name = "parrot"

    def __init__(self, address: str | None = None) -> None:
        self.address = address

    async def search(self, query: str, k: int) -> list[Hit]:
        return [Hit(query)] * k


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ARPO_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "corpus.jsonl"
    path.write_text(json.dumps({"title": "Radium", "text": "An element."}) + "\n")
    return path


@pytest.fixture
def parrot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_factories", dict(registry._factories))
    register_backend("parrot", Parrot)


@pytest.mark.usefixtures("parrot")
@pytest.mark.parametrize(("where", "address"), [("parrot", None), ("parrot:http://x:1/y", "http://x:1/y")])
def test_a_name_gets_its_address(where: str, address: str | None) -> None:
    backend = open_search(where)
    assert isinstance(backend, Parrot)
    assert backend.address == address


@pytest.mark.parametrize("prefix", ["", "local:"])
def test_a_corpus_is_indexed_once_and_again_when_it_changes(corpus: Path, prefix: str) -> None:
    first = open_search(f"{prefix}{corpus}")
    assert isinstance(first, LocalSearch)
    assert open_search(corpus) is first
    corpus.write_text(json.dumps({"title": "Polonium", "text": "Another element."}) + "\n")
    second = open_search(str(corpus))
    assert isinstance(second, LocalSearch)
    assert [hit.title for hit in second.search_sync("element", 5)] == ["Polonium"]


def test_processes_that_open_the_same_corpus_at_once_agree(corpus: Path) -> None:
    code = "import sys; from arpo_env.search import open_search\n"
    code += "print(open_search(sys.argv[1]).search_sync('radium', 1)[0].title)"
    command = [sys.executable, "-c", code, str(corpus)]
    all_of_them = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [one.communicate()[0] for one in all_of_them] == ["Radium\n"] * 3


@pytest.mark.parametrize(
    ("where", "kind", "said"),
    [
        ("serpr", ValueError, "did you mean 'serper'"),
        ("search-r2:http://x", ValueError, "did you mean 'search-r1'"),
        ("http://host:8000", ValueError, "search-r1:http://host:8000"),
        ("no/such/index", FileNotFoundError, "no/such/index"),
        ("absent.jsonl", FileNotFoundError, "absent.jsonl"),
        ("x" * 5000, ValueError, "There are: brave"),
        ("", ValueError, "There are: brave"),
        ("local", ValueError, "local:FOLDER"),
    ],
)
def test_an_error_names_the_cure(where: str, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        open_search(where)


def test_the_variable_names_the_default(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARPO_SEARCH", str(corpus))
    assert default_search() is open_search(corpus)


def test_without_a_default_the_cures_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ARPO_SEARCH", raising=False)
    with pytest.raises(RuntimeError, match=r"ARPO_SEARCH.*\.jsonl.*arpo search index.*search-r1:.*serper"):
        default_search()


def test_importing_search_imports_no_engine() -> None:
    code = "import sys, arpo_env.search as s; s.open_search; s.LocalSearch\n"
    code += "print({'tantivy', 'requests', 'trafilatura', 'bs4'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"
