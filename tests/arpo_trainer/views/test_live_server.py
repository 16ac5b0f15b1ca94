"""`arpo view --serve`: the same page from a local server that follows a run and answers nobody else."""

import http.client
import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arpo_trainer.evaluation.episode_store import EpisodeStore, UnitKey, load_eval_run
from arpo_trainer.views.live_server import ViewServer
from tests.arpo_trainer.views.browser import Browser
from tests.arpo_trainer.views.sample_runs import make_run, make_tree
from tests.arpo_trainer.views.test_run_page import COUNT, open_task


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run", tasks=30, status="running")


@pytest.fixture
def server(run: Path) -> Iterator[ViewServer]:
    with ViewServer([run]) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server: ViewServer, path: str, host: str | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    headers = {"Host": host or f"127.0.0.1:{server.server_port}"}
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


def add(run: Path, number: int) -> None:
    with EpisodeStore(run) as store:
        store.add(
            UnitKey("qwen2.5-3b", "GSM8K", f"new-{number}"), number, make_tree(random.Random(5), number, 1, 1.0, 40)
        )


def rows(server: ViewServer) -> dict[str, Any]:
    return json.loads(ask(server, "/rows?run=0")[1])


def test_trees_are_read_by_their_place_in_the_trace(server: ViewServer, run: Path) -> None:
    stored = load_eval_run(run)
    for row, unit in zip(stored.rows, rows(server)["units"], strict=True):
        assert unit[5] == row.trace[0]
    status, body = ask(server, f"/tree?run=0&at={stored.rows[7].trace[0]}")
    assert status == 200
    assert json.loads(body)["spans"][0]["text"] == stored.tree(stored.rows[7]).spans[0].text


def test_what_is_added_while_it_runs_is_served(server: ViewServer, run: Path) -> None:
    assert len(rows(server)["units"]) == 30
    add(run, 30)
    units = rows(server)["units"]
    assert len(units) == 31
    assert ask(server, f"/tree?run=0&at={units[-1][5]}")[0] == 200
    facts = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**facts, "status": "finished"}))
    assert json.loads(ask(server, "/state")[1])["runs"][0]["facts"]["status"] == "finished"


@pytest.mark.parametrize("host", ["evil.example", "localhost:1"])
def test_requests_under_another_name_are_refused(server: ViewServer, host: str) -> None:
    assert ask(server, "/state", host)[0] == 403
    assert ask(server, "/state", f"localhost:{server.server_port}")[0] == 200


@pytest.mark.parametrize("path", ["/tree?run=0&at=1", "/tree?run=9&at=0", "/tree?run=-1&at=0", "/rows", "/../run.json"])
def test_nothing_else_is_served(server: ViewServer, path: str) -> None:
    assert ask(server, path)[0] == 404


def test_a_browser_follows_a_run(server: ViewServer, run: Path, browser: Browser) -> None:
    browser.size(1360, 950)
    browser.open(server.address)
    assert browser.value(COUNT) == "30 tasks listed"
    browser.value('document.querySelector(".grid-box").focus()')
    open_task(browser)
    assert browser.value('document.querySelectorAll("#detail .part").length') == 5
    browser.key("Escape")
    add(run, 30)
    browser.value(
        "[...document.querySelectorAll('#filters button')].find((one) => one.textContent === 'Reload').click()"
    )
    browser.wait(f'{COUNT} === "31 tasks listed"')
    assert browser.logs == []
    assert all(address.startswith(server.address) for address in browser.requests)
