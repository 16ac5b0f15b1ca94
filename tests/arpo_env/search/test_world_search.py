"""Search over a generated world: the right queries find its gold passages, the bare question does not."""

import asyncio

import pytest

from arpo_env.search.local_search import WorldSearch
from arpo_env.search.search_backend import Hit
from envs_registry.generated.multihop import MultiHopSource

K = 5


@pytest.fixture(scope="module")
def source() -> MultiHopSource:
    return MultiHopSource("test")


@pytest.fixture(scope="module")
def search(source: MultiHopSource) -> WorldSearch:
    return WorldSearch(source.passages)


def find(search: WorldSearch, query: str, k: int = K) -> list[Hit]:
    return asyncio.run(search.search(query, k))


def test_the_queries_of_the_solution_find_the_gold_passages(search: WorldSearch, source: MultiHopSource) -> None:
    found = []
    for index in range(200):
        for fact, query in zip(source.proof(index).facts, source.solution(index), strict=True):
            found.append(fact.subject in {hit.url for hit in find(search, query)})
    assert sum(found) / len(found) > 0.96


def test_the_bare_question_finds_fewer_gold_passages_the_more_hops_it_has(
    search: WorldSearch, source: MultiHopSource
) -> None:
    recall: dict[str, list[float]] = {"2": [], "3": [], "4": []}
    for index in range(300):
        gold, task = source.proof(index).passages, source.task(index)
        hits = {hit.url for hit in find(search, task.question)}
        recall[task.level].append(len(hits.intersection(gold)) / len(gold))
    two, three, four = (sum(shares) / len(shares) for shares in recall.values())
    assert 0.7 > two > three > four
    assert four < 0.4


@pytest.mark.parametrize(
    "query", ["", "   ", "()\"'", '"', "NEAR(", "title:x AND", "* OR -", "黄金", "x" * 100_000, "\x00"]
)
def test_no_query_is_an_error(search: WorldSearch, query: str) -> None:
    assert len(find(search, query)) <= K


def test_two_worlds_are_told_apart_by_their_parameters(source: MultiHopSource) -> None:
    assert WorldSearch(source.passages).parameters != WorldSearch(source.passages, seed=1).parameters
    assert WorldSearch(source.passages).parameters != WorldSearch(source.passages[:300]).parameters
