"""Caches from and to other files: ARPO's published one, JSONL, and the command."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from arpo_env.cache import Cache, CacheMiss, export_jsonl, import_jsonl
from arpo_env.search.published_cache import import_arpo_json
from arpo_env.search.search_backend import CachedSearch, RecordedSearch
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


def test_a_published_cache_is_counted(tmp_path: Path, published: Path) -> None:
    found = import_arpo_json(Cache(tmp_path / "c.sqlite"), published)
    assert (found.entries, found.records, found.collisions) == (3, 2, 1)
    assert (found.prefixed, found.leaked, found.nothing) == (1, 1, 1)


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
    assert (found.entries, found.records, found.leaked, found.nothing) == (1000, 1000, 3, 4)
    assert found.prefixed == 626
    search = CachedSearch(RecordedSearch(), Cache(tmp_path / "c.sqlite", mode="replay"))

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
    first.store.put([first.record("judge", "m", "2", {"q": "\ud800二"}, {"v": [1.5, None]}, nothing=True)])
    assert export_jsonl(first, tmp_path / "out.jsonl") == 3
    assert import_jsonl(second, tmp_path / "out.jsonl") == 3
    assert {r.key: r for r in first.store.records()} == {r.key: r for r in second.store.records()}
    export_jsonl(second, tmp_path / "again.jsonl")
    assert lines(tmp_path / "again.jsonl") == lines(tmp_path / "out.jsonl")


def test_an_import_keeps_what_is_there_unless_told_to_replace_it(tmp_path: Path) -> None:
    old, new = Cache(tmp_path / "old.sqlite"), Cache(tmp_path / "new.sqlite")
    for cache, value in ((old, "old"), (new, "new")):
        cache.store.put([cache.record("search", "s", 1, {"query": "q"}, value)])
    export_jsonl(old, tmp_path / "old.jsonl")
    values = []
    for replace in (False, True):
        import_jsonl(new, tmp_path / "old.jsonl", replace)
        values.append([new.store.unpack(record) for record in new.store.records()])
    assert values == [["new"], ["old"]]


def test_a_line_that_is_no_record_is_named(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('\n{"kind": "search"}\n', encoding="utf-8")
    with pytest.raises(ValueError, match=r"in\.jsonl, line 2: not a cache record"):
        import_jsonl(Cache(tmp_path / "c.sqlite"), path)


def test_an_export_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "c.sqlite")
    record = cache.record("search", "s", 1, {"query": "q"}, "v")
    cache.store.put([record])
    export_jsonl(cache, tmp_path / "out.jsonl")
    before = (tmp_path / "out.jsonl").read_bytes()
    with cache.store._writer.use() as connection:
        connection.execute("UPDATE records SET value = x'00'")
    with pytest.raises(RuntimeError, match="damaged"):
        export_jsonl(cache, tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_bytes() == before
    assert not list(tmp_path.glob("*.part")) + list(tmp_path.glob(".*.part"))


def test_the_command_imports_shows_and_exports(
    tmp_path: Path, published: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, export = str(tmp_path / "c.sqlite"), str(tmp_path / "out.jsonl")
    assert main(["cache", "import", file, str(published), "--provider", "bing"]) == 0
    assert "3 searches, 2 records of bing: 1 were equal" in capsys.readouterr().out
    assert main(["cache", "export", file, export]) == 0
    assert main(["cache", "import", str(tmp_path / "copy.sqlite"), export]) == 0
    assert "added 2 records" in capsys.readouterr().out
    assert main(["cache", "show", str(tmp_path / "copy.sqlite")]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:6] == ["search", "bing", "1", "2", "1", "0"]
    assert main(["cache", "show", str(tmp_path / "missing.sqlite")]) == 1


@pytest.mark.parametrize("field", ['"expires": "never"', '"version": 1', '"status": "?"', '"provider": null'])
def test_a_line_with_a_field_of_another_type_is_named(tmp_path: Path, field: str) -> None:
    cache = Cache(tmp_path / "c.sqlite")
    cache.store.put([cache.record("search", "s", 1, {"query": "q"}, "v")])
    export_jsonl(cache, tmp_path / "out.jsonl")
    line = json.loads((tmp_path / "out.jsonl").read_text()) | json.loads("{" + field + "}")
    (tmp_path / "out.jsonl").write_text(json.dumps(line))
    with pytest.raises(ValueError, match=f"line 1: .*{field.split(chr(34))[1]}"):
        import_jsonl(Cache(tmp_path / "new.sqlite"), tmp_path / "out.jsonl")


@pytest.mark.parametrize(
    ("source", "option", "said"),
    [("a.jsonl", ["--provider", "x"], "--provider names"), ("a.json", ["--replace"], "--replace is for a .jsonl")],
)
def test_an_option_for_the_other_kind_of_file_is_refused(
    tmp_path: Path, source: str, option: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / source).write_text("{}")
    assert main(["cache", "import", str(tmp_path / "c.sqlite"), str(tmp_path / source), *option]) == 1
    assert said in capsys.readouterr().err


def test_an_export_to_a_folder_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"the folder .*absent for .* does not exist"):
        export_jsonl(Cache(tmp_path / "c.sqlite"), tmp_path / "absent" / "out.jsonl")
