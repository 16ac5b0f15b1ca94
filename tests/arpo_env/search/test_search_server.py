"""Search over HTTP as a client of Search-R1's server sees it, and the `arpo search` command."""

import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from arpo_env.net import ServiceError
from arpo_env.search import Hit, LocalSearch, SearchBackend, build_index
from arpo_env.search.search_server import make_server
from arpo_trainer.cli.arpo_command import main

ROWS = [
    {"id": f"e{number}", "title": name, "text": f"{name} is element {number}."}
    for number, name in ((1, "Hydrogen"), (2, "Helium"), (88, "Radium"), (84, "Polonium"), (26, "Iron"))
]


class Failing(SearchBackend):
    name = "failing"

    async def search(self, query: str, k: int) -> list[Hit]:
        raise ServiceError("failing", "out of order")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("corpus") / "elements.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def serving(backend: SearchBackend) -> Iterator[str]:
    server = make_server(backend, port=0)
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    yield server.url
    server.stop()
    thread.join()


@pytest.fixture(scope="module")
def url(corpus: Path) -> Iterator[str]:
    build_index(corpus, corpus.parent / "index")
    yield from serving(LocalSearch(corpus.parent / "index"))


def test_the_reply_has_the_form_of_search_r1(url: str) -> None:
    request = {"queries": ["radium", "iron"], "topk": 1}
    scored, bare = (
        requests.post(f"{url}/retrieve", json={**request, **more}, timeout=20).json()["result"]
        for more in ({"return_scores": True}, {})
    )
    radium = {"id": "e88", "contents": '"Radium"\nRadium is element 88.'}
    iron = {"id": "e26", "contents": '"Iron"\nIron is element 26.'}
    assert bare == [[radium], [iron]]
    assert [[hit["document"] for hit in row] for row in scored] == bare
    assert all(hit["score"] > 0 for [hit] in scored)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        *(("{", "Expecting"), ("[" * 50_000, "recursion"), ("{}", "'queries'"), ('{"queries": [1]}', "'queries'")),
        *(('{"queries": ["x"], "topk": -1}', "'topk'"), ('{"queries": ["x"], "topk": 1000000}', "'topk'")),
        (json.dumps({"queries": ["x"] * 4097}), "4097 queries"),
    ],
)
def test_a_bad_request_is_told_why(url: str, body: str, said: str) -> None:
    answer = requests.post(f"{url}/retrieve", data=body, headers={"Content-Type": "application/json"}, timeout=20)
    assert answer.status_code == 400
    assert said in answer.json()["error"]


def test_other_paths_lengths_and_a_backend_that_fails_have_their_status(url: str) -> None:
    assert requests.post(f"{url}/search", json={}, timeout=20).status_code == 404
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=20)
    connection.putrequest("POST", "/retrieve")
    connection.putheader("Content-Length", "999999999")
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()
    for broken in serving(Failing()):
        answer = requests.post(f"{broken}/retrieve", json={"queries": ["x"]}, timeout=20)
        assert (answer.status_code, answer.json()) == (502, {"error": "failing: out of order"})


def test_the_command_indexes_and_queries(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["search", "index", str(corpus), str(tmp_path / "index")]) == 0
    assert "5 passages" in capsys.readouterr().out
    assert main(["search", "query", str(tmp_path / "index"), "which element is radium", "-k", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[2:4] == ["Radium", "e88"]
    assert lines[2].startswith("1 results from ")
