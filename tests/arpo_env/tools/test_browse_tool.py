"""The tool `browse`: a walk through a local web site by link numbers, its faults, forks, and its replay."""

import asyncio
import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from arpo_env import PageReader, ServiceError, ToolEnv
from arpo_env.pages import Page
from arpo_env.tools.browse_tool import BrowseTool
from envs_registry import Task
from tests.arpo_env.pages.conftest import Site, answer

FILLER = "The conference has many pages, and each of them says something about it at some length. " * 4
PAGES = {
    "/": '<title>Root</title><body><nav><a href="dates.html#top">Dates</a> <a href="/venue/">Venue</a></nav>'
    f'<p>{FILLER}</p><a href="mailto:x@y.org">Mail</a><a href="#p">Here</a><a href="/gone">Old news</a></body>',
    "/dates.html": f'<title>Dates</title><body><p>{FILLER}</p><p>Papers are due on 4 May.</p><a href="/">up</a></body>',
    "/venue/": '<title>Venue</title><base href="/venue/rooms/"><body><a href="../map"><img alt="The map" src="m"></a>'
    '<a href="hall">Hall</a><a href="http://10.0.0.1/">Inside</a><a href="/private">Private</a></body>',
    "/venue/rooms/hall": f"<title>Hall</title><body><p>{FILLER}</p><p>The hall has 640 seats.</p></body>",
    "/private": "<p>never read</p>",
}
QUESTION = "How many seats has the hall of the conference?"


def html(body: str) -> Any:
    return lambda handler: answer(handler, body.encode(), "text/html")


@pytest.fixture
def conference() -> Iterator[Site]:
    made = Site()
    made.pages = {path: html(body) for path, body in PAGES.items()}
    made.pages["/robots.txt"] = b"User-agent: *\nDisallow: /private\n"
    yield made
    made.close()


@functools.cache  # one for all tests, since its parser takes a second to start
def local_reader() -> PageReader:
    return PageReader(links=True, allow_private=True, ports=None, per_host_per_second=1000)


@pytest.fixture(scope="module", autouse=True)
def reader() -> Iterator[None]:
    yield
    asyncio.run(local_reader().close())
    local_reader.cache_clear()


def walker(site: Site, folder: Path, **options: Any) -> ToolEnv:
    """The environment of WebWalkerQA with one invented question about a local site."""
    info = {"difficulty_level": "easy", "type": "single_source"}
    row = {"question": QUESTION, "answer": "640", "root_url": f"{site.url}/", "info": info}
    (folder / "webwalker.jsonl").write_text(json.dumps(row))
    options = {"page_reader": local_reader(), "browse": True, "scorer": "em", **options}
    env = gym.make("arpo/WebWalker-v0", data=str(folder / "webwalker.jsonl"), **options)
    assert isinstance(env, ToolEnv)
    return env


def go(action: str) -> str:
    return f"<think>g</think><browse>{action}</browse>"


def test_a_question_is_answered_by_following_links_from_the_root_page(conference: Site, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"give page_reader=PageReader\(links=True"):
        walker(conference, tmp_path, page_reader=PageReader())
    env = walker(conference, tmp_path)
    assert list(env.tools) == ["search", "python", "browse"]
    env.reset(seed=0)
    root = env.step(go("start"))[0]
    assert f"Root\n{conference.url}/\nThe conference has many pages" in root
    assert root.index("[1] Dates\n[2] Venue\n[3] Old news") > 0
    assert "Mail" not in root.split("Links:")[1]
    venue = env.step(go("2"))[0]
    assert "[1] The map\n[2] Hall\n[3] Inside\n[4] Private" in venue
    assert "The hall has 640 seats." in env.step(go("[2] Hall"))[0]
    _, reward, terminated, _, _ = env.step("<think>a</think><answer>\\boxed{640}</answer>")
    assert (reward, terminated) == (1.0, True)
    env.close()


def test_back_and_what_cannot_be_read(conference: Site, tmp_path: Path) -> None:
    env = walker(conference, tmp_path)
    env.reset(seed=0)
    assert "no page is open yet; write start first" in env.step(go("1"))[0]
    env.step(go("start"))
    assert f"no such page (status 404). You are still on {conference.url}/." in env.step(go("3"))[0]
    assert "there is no link 9; the page has links 1 to 3" in env.step(go("9"))[0]
    assert "there is no page before this one" in env.step(go("back"))[0]
    env.step(go("2"))
    assert "robots.txt does not allow" in env.step(go("4"))[0]
    assert "/private" not in conference.paths()
    assert "'climb' is no step; write start, the number of a link" in env.step(go("climb"))[0]
    before = len(conference.requests)
    assert "\nRoot\n" in env.step(go("back"))[0]
    assert len(conference.requests) == before  # pages on the way are kept
    env.close()


def test_a_start_page_that_is_down_voids_the_sample(conference: Site, tmp_path: Path) -> None:
    env = walker(conference, tmp_path)
    conference.pages["/"] = lambda handler: answer(handler, b"busy", status=503)
    env.reset(seed=0)
    with pytest.raises(ServiceError, match=r"the start page .*the site failed \(status 503\)"):
        env.step(go("start"))
    env.reset(seed=0)
    with pytest.raises(ServiceError):  # also if the model writes the address itself
        env.step(go(f"{conference.url}/"))
    conference.pages["/"] = lambda handler: answer(handler, b"gone", status=410)
    env.reset(seed=0)
    assert "the page is gone (status 410)" in env.step(go("start"))[0]
    env.close()


def test_a_fork_goes_its_own_way(conference: Site, tmp_path: Path) -> None:
    env = walker(conference, tmp_path)
    env.reset(seed=0)
    env.step(go("start"))
    twin = env.fork()
    env.step(go("1"))
    assert "[1] The map" in twin.step(go("2"))[0]
    assert "\nRoot\n" in env.step(go("back"))[0]
    env.close()
    twin.close()


def test_a_walk_is_recorded_and_replayed_without_the_site(conference: Site, tmp_path: Path) -> None:
    walks = []
    for mode in ("record", "replay"):
        env = walker(conference, tmp_path, cache=tmp_path / "walk.sqlite", cache_mode=mode)
        env.reset(seed=0)
        walks.append([env.step(go(step))[0] for step in ("start", "3", "2", "2")])
        env.close()
        conference.pages.clear()
    assert walks[0] == walks[1]
    assert "640 seats" in walks[0][-1]


class Shelf:
    """A reader of one long page with many links."""

    links = tuple((f"link number {n}", f"http://a/{n}") for n in range(1, 101))
    page = Page("http://a/", "Long", "\n".join(f"line {n}" for n in range(3000)), links)

    async def read(self, url: str) -> Page:
        return self.page


@pytest.mark.parametrize("characters", [1000, 3000])
def test_a_long_page_is_read_by_parts_and_every_line_and_link_is_shown_once(characters: int) -> None:
    tool = BrowseTool(Shelf, characters)
    tool.task = Task("t", "q?", ("1",), start_url="http://a/")
    results = [asyncio.run(tool.call(action="start")).text]
    while "(next shows" in results[-1]:
        results.append(asyncio.run(tool.call(action="next")).text)
    lines = [line for text in results for line in text.split("\n")]
    assert [line for line in lines if line.startswith("line ")] == Shelf.page.text.split("\n")
    assert [line for line in lines if line.startswith("[")] == [f"[{n}] link number {n}" for n in range(1, 101)]
    assert all(len(text) <= characters for text in results)
    assert asyncio.run(tool.call(action="part 2")).text == results[1]
    assert f"the page has {len(results)} parts" in asyncio.run(tool.call(action="part 999")).text
