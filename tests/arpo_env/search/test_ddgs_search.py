"""Search through the `ddgs` package, whose class is replaced by a recording: the engines behind it are the web."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

ddgs = pytest.importorskip("ddgs")
from ddgs.exceptions import DDGSException, RatelimitException  # noqa: E402

from arpo_env.net import ServiceError  # noqa: E402
from arpo_env.search.backends import (  # noqa: E402
    Ddgs,
    make_provider,
)
from arpo_env.search.search_backend import Hit  # noqa: E402

RECORDED = json.loads((Path(__file__).parent / "recorded" / "ddgs.json").read_text())


class Recording:
    """Stands for `ddgs.DDGS`."""

    asked: list[tuple[str, dict[str, Any]]]
    answer: Any

    def __init__(self, timeout: int) -> None: ...

    def text(self, query: str, **options: Any) -> Any:
        self.asked.append((query, options))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer() if callable(self.answer) else self.answer


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> type[Recording]:
    Recording.asked, Recording.answer = [], RECORDED
    monkeypatch.setattr(ddgs, "DDGS", Recording)
    return Recording


def search(query: str = "who wrote Solaris", k: int = 3) -> list[Hit]:
    return asyncio.run(make_provider("ddgs").search(query, k))


def test_hits_are_read(recording: type[Recording]) -> None:
    first = RECORDED[0]
    assert search()[0] == Hit(first["title"], first["href"], first["body"])
    assert recording.asked == [("who wrote Solaris", {"region": "us-en", "max_results": 3})]


def test_a_chinese_query_asks_a_chinese_region(recording: type[Recording]) -> None:
    search("黄金")
    assert recording.asked[0][1]["region"] == "cn-zh"


def test_an_honest_nothing_is_no_hits(recording: type[Recording]) -> None:
    recording.answer = DDGSException("No results found.")
    assert search() == []


@pytest.mark.parametrize("fault", [RatelimitException("403"), DDGSException("x"), OSError("no network"), KeyError("a")])
def test_a_fault_is_a_service_error(recording: type[Recording], fault: Exception) -> None:
    recording.answer = fault
    with pytest.raises(ServiceError, match="ddgs: the "):
        search()


@pytest.mark.parametrize("answer", [None, "text", {"results": []}])
def test_another_shape_is_a_service_error(recording: type[Recording], answer: Any) -> None:
    recording.answer = answer
    with pytest.raises(ServiceError, match="expected a list"):
        search()


def test_a_search_that_hangs_ends_on_time(recording: type[Recording], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arpo_env.search.backends._DDGS_SECONDS", 0.2)
    recording.answer = lambda *_: time.sleep(8)
    started = time.monotonic()
    with pytest.raises(ServiceError, match=r"nothing within 0\.2 s"):
        asyncio.run(Ddgs().search("q", 3))
    assert time.monotonic() - started < 6


def test_a_missing_package_is_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="pip install ddgs"):
        make_provider("ddgs")
