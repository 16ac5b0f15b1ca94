"""Caches from and to other files: ARPO's published one, JSONL, and the command."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from arpo_env.cache import Cache, CacheMiss, export_jsonl, import_jsonl
from arpo_env.search.search_backend import CachedSearch, RecordedSearch, import_arpo_json
from arpo_trainer.cli.arpo_command import main

PUBLISHED = {
    "Yuri Ozerov nationality": "Page 1: A Russian film director.\nPage 2: Born in 1921\nin Moscow.",
    "search query: yuri ozerov  NATIONALITY": "Page 1: Another text.",
    "x </search> <result>\nPage 1: y": "No search results found.",
}


def lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines()


@pytest.fixture
def published(tmp_path: Path) -> Path:
    path = tmp_path / "search_cache.json"
    path.write_text(json.dumps(PUBLISHED), encoding="utf-8")
    return path


def test_a_published_cache_replays_as_hits(tmp_path: Path, published: Path) -> None:
    import_arpo_json(Cache(tmp_path / "c.sqlite"), published)
    search = CachedSearch(RecordedSearch("bing-arpo"), Cache(tmp_path / "c.sqlite", mode="replay"))
    hits = asyncio.run(search.search("Yuri Ozerov nationality", 5))
    assert [hit.snippet for hit in hits] == ["A Russian film director.", "Born in 1921\nin Moscow."]
    assert asyncio.run(search.search("x </search> <result>\nPage 1: y", 5)) == []
    with pytest.raises(CacheMiss, match="bing-arpo"):
        asyncio.run(search.search("anything else", 5))


def test_the_published_cache_of_arpo_replays_whole(tmp_path: Path, shared: Path) -> None:
    source = shared / "data" / "arpo" / "search_cache" / "search_cache.json"
    found = import_arpo_json(Cache(tmp_path / "c.sqlite"), source)
    assert (found.entries, found.records) == (1000, 1000)
    search = CachedSearch(RecordedSearch("bing-arpo"), Cache(tmp_path / "c.sqlite", mode="replay"))

    async def main() -> list[list[str]]:
        return [[hit.snippet for hit in await search.search(query, 10)] for query in entries]

    entries = json.loads(source.read_text(encoding="utf-8"))
    for snippets, text in zip(asyncio.run(main()), entries.values(), strict=True):
        shown = "\n".join(f"Page {number}: {snippet}" for number, snippet in enumerate(snippets, 1))
        assert (shown or "No search results found.") == text


@pytest.mark.parametrize("text", ["[1]", "{", '{"q": 1}'])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"other\.json is not"):
        import_arpo_json(Cache(tmp_path / "c.sqlite"), path)


def test_an_export_comes_back_the_same(tmp_path: Path, published: Path) -> None:
    first, second = Cache(tmp_path / "a.sqlite"), Cache(tmp_path / "b.sqlite")
    import_arpo_json(first, published)
    first.store.put([first.record("judge", "m", "2", {"q": "\ud800二"}, {"v": [1.5, None]}, 60.0)])
    assert export_jsonl(first, tmp_path / "out.jsonl") == 3
    assert import_jsonl(second, tmp_path / "out.jsonl") == 3
    assert {r.key: r for r in first.store.records()} == {r.key: r for r in second.store.records()}
    export_jsonl(second, tmp_path / "again.jsonl")
    assert lines(tmp_path / "again.jsonl") == lines(tmp_path / "out.jsonl")


def test_a_line_that_is_no_record_is_named(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('\n{"kind": "search"}\n', encoding="utf-8")
    with pytest.raises(ValueError, match=r"in\.jsonl, line 2: not a cache record"):
        import_jsonl(Cache(tmp_path / "c.sqlite"), path)


def test_the_command_imports_shows_and_exports(tmp_path: Path, published: Path, capsys: Any) -> None:
    file, export = str(tmp_path / "c.sqlite"), str(tmp_path / "out.jsonl")
    assert main(["cache", "import", file, str(published)]) == 0
    assert "3 searches, 2 records of bing-arpo: 1 were equal" in capsys.readouterr().out
    assert main(["cache", "export", file, export]) == 0
    for taken in (export, file):  # neither an earlier export nor the records themselves are written over
        assert main(["cache", "export", file, taken]) == 1
        assert "is there already" in capsys.readouterr().err
    assert main(["cache", "import", str(tmp_path / "copy.sqlite"), export]) == 0
    assert "added 2 records" in capsys.readouterr().out
    assert main(["cache", "show", str(tmp_path / "copy.sqlite")]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:6] == ["search", "bing-arpo", "1", "2", "1", "0"]
    assert main(["cache", "show", str(tmp_path / "missing.sqlite")]) == 1
