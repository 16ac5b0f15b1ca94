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
    tree = make_tree(random.Random(5), number, 1, 1.0, 40)
    with EpisodeStore(run) as store:
        store.add(UnitKey("qwen2.5-3b", "GSM8K", f"new-{number}"), number, tree)


def rows(server: ViewServer) -> dict[str, Any]:
    return json.loads(ask(server, "/rows?run=0")[1])


def test_rows_and_trees_are_served_also_those_added_while_it_runs(server: ViewServer, run: Path) -> None:
    assert len(rows(server)["units"]) == 30
    add(run, 30)
    stored = load_eval_run(run)
    units = rows(server)["units"]
    assert [unit[5] for unit in units] == [row.trace[0] for row in stored.rows]
    for number in (7, 30):
        status, body = ask(server, f"/tree?run=0&at={units[number][5]}")
        assert status == 200
        assert json.loads(body)["spans"][0]["text"] == stored.tree(stored.rows[number]).spans[0].text
    facts = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**facts, "status": "finished"}))
    assert json.loads(ask(server, "/state")[1])["runs"][0]["facts"]["status"] == "finished"


@pytest.mark.parametrize(
    ("path", "host", "status"),
    [
        ("/state", "localhost:PORT", 200),
        ("/state", "evil.example", 403),
        ("/state", "localhost:1", 403),
        ("/tree?run=0&at=1", None, 404),
        ("/tree?run=9&at=0", None, 404),
        ("/tree?run=-1&at=0", None, 404),
        ("/rows", None, 404),
        ("/../run.json", None, 404),
    ],
)
def test_other_names_are_refused_and_nothing_else_is_served(
    path: str, host: str | None, status: int, server: ViewServer
) -> None:
    assert ask(server, path, host and host.replace("PORT", str(server.server_port)))[0] == status


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
