"""The default engine: a tantivy index on disk, mapped into memory by all processes that search it.

A passage is indexed as `title`, as `body` (title and text), as `name` (the whole title as one term) and, if it has
Chinese, Japanese or Korean characters, as `cjk` (each character and each pair). English words are stemmed. A query is
built from term queries, so it has no syntax that could be wrong.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Any

from arpo_env.search.local.corpus import Passage
from arpo_env.search.local.query_words import ParsedQuery, divide, name_of
from envs_registry.install_line import install_line

TITLE_BOOST = 0.5  # weight of BM25 over the title, added to BM25 over title and text; 0.3 to 0.75 work as well
NAME_BONUS = 3.0  # added for each word of a title that the query contains as a whole
_HEAP = 128_000_000  # bytes of memory before passages go to disk
_LONGEST_NAME = 200  # characters; a longer title is not matched as a whole


class TantivyIndex:
    """An index that is open for searching, from any number of threads."""

    def __init__(self, folder: Path) -> None:
        tantivy = _tantivy()
        self._analyzer = _analyzer()
        with _linked(folder) as links:
            index = tantivy.Index.open(links)
            index.config_reader("manual")  # the index never changes, so no thread has to watch it
            index.reload()
            self._searcher = index.searcher()  # all files are mapped now, and the links may go
            self._schema = index.schema
            del index

    @staticmethod
    def write(folder: Path, passages: Iterable[Passage]) -> None:
        """Index passages into an empty folder, on one thread, so that the same corpus gives the same index."""
        tantivy = _tantivy()
        folder.mkdir()
        index = tantivy.Index(_schema(), path=str(folder))
        index.register_tokenizer("words", _analyzer())
        index.register_tokenizer("pairs", _pair_analyzer())
        writer = index.writer(_HEAP, 1)
        try:
            for number, passage in enumerate(passages):
                writer.add_document(_document(number, passage))
            writer.commit()
        finally:
            writer.wait_merging_threads()  # after that no thread writes, also if something failed

    def find(self, parsed: ParsedQuery, k: int) -> list[tuple[Passage, float]]:
        """Return the best k passages with their scores; equal scores are in the order of the corpus."""
        query = self._query(parsed)
        if query is None:
            return []
        found = self._search(query, k + 1)
        if len(found) > k and _equal(found[k - 1], found[k]):  # find all with an equal score, to choose by order
            found = self._search(query, 4 * k + 64)
        rows = [(round(score, 4), *self._row(address)) for score, address in found]
        rows.sort(key=lambda row: (-row[0], row[1]))
        return [(Passage(*fields), score) for score, _, *fields in rows[:k]]

    def _search(self, query: Any, limit: int) -> list[Any]:
        hits: list[Any] = self._searcher.search(query, min(limit, self._searcher.num_docs), count=False).hits
        return hits

    def _row(self, address: Any) -> list[Any]:
        row: list[Any] = json.loads(self._searcher.doc(address).get_first("row"))
        return row

    def _query(self, parsed: ParsedQuery) -> Any:
        query, schema = _tantivy().Query, self._schema
        parts = []
        for term in dict.fromkeys(self._analyzer.analyze(" ".join(parsed.terms))):
            parts.append(query.term_query(schema, "body", term, "freq"))
            parts.append(query.boost_query(query.term_query(schema, "title", term, "freq"), TITLE_BOOST))
        parts += [query.term_query(schema, "cjk", pair, "freq") for pair in parsed.pairs]
        if not parts:
            return None
        for name, words in parsed.names:
            if not self._searcher.doc_freq("name", name):
                continue
            found = query.term_query(schema, "name", name, "basic")
            parts.append(query.const_score_query(found, NAME_BONUS * words))
        return query.boolean_query([(_tantivy().Occur.Should, part) for part in parts])


@contextlib.contextmanager
def _linked(folder: Path) -> Iterator[str]:
    """Yield a folder of links to the files: tantivy writes a lock where it opens, and the index may be read-only."""
    links = tempfile.mkdtemp(prefix="arpo-index-")
    try:
        for file in folder.iterdir():
            if file.suffix != ".lock":
                os.symlink(file.resolve(), Path(links, file.name))
        yield links
    finally:
        for _ in range(2):  # a thread of tantivy may create the lock once more
            shutil.rmtree(links, ignore_errors=True)


def _equal(hit: Any, other: Any) -> bool:
    return bool(round(hit[0], 4) == round(other[0], 4))


def _document(number: int, passage: Passage) -> Any:
    document = _tantivy().Document()
    document.add_bytes("row", json.dumps((number, *astuple(passage)), ensure_ascii=False).encode())
    body, runs = divide(f"{passage.title}\n{passage.text}")
    document.add_text("title", divide(passage.title)[0])
    document.add_text("body", body)
    for run in runs:
        document.add_text("cjk", run)
    name = name_of(passage.title)
    if 0 < len(name) <= _LONGEST_NAME:
        document.add_text("name", name)
    return document


def _schema() -> Any:
    builder = _tantivy().SchemaBuilder()
    builder.add_bytes_field("row", stored=True)
    builder.add_text_field("title", tokenizer_name="words", index_option="freq")
    builder.add_text_field("body", tokenizer_name="words", index_option="freq")
    builder.add_text_field("name", tokenizer_name="raw", index_option="basic")
    builder.add_text_field("cjk", tokenizer_name="pairs", index_option="freq")
    return builder.build()


def _analyzer() -> Any:
    tantivy = _tantivy()
    filters = tantivy.Filter
    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
    for one in (filters.remove_long(64), filters.lowercase(), filters.ascii_fold(), filters.stemmer("english")):
        builder = builder.filter(one)
    return builder.build()


def _pair_analyzer() -> Any:
    tantivy = _tantivy()
    return tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.ngram(1, 2, False)).filter(tantivy.Filter.lowercase()).build()


def _tantivy() -> Any:
    try:
        import tantivy
    except ImportError as error:
        raise ImportError(f"this index needs tantivy: {install_line('search')}") from error
    return tantivy
