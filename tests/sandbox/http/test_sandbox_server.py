"""Sessions over HTTP: whose they are, what happens to them, and what a client is told when something is wrong.

That sessions behave as elsewhere, the tests of sessions show with the backend "http".
"""

import asyncio
import contextlib
import http.client
import re
import socket
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from sandbox_under_test import LIMITS, fastest, open_or_skip, served, servers, wait_for

from sandbox import Limits, Sandbox, SandboxFull, SandboxUnavailable, SessionLost
from sandbox.backends import http_backend
from sandbox.http import session_api
from sandbox.http.sandbox_server import make_server, serve
from sandbox.http.session_api import Client, HostedSessions, SessionApi, clients_of

CLIENTS = (Client("ann", "ann-token"), Client("bob", "bob-token", sessions=1))


@pytest.fixture(scope="module")
def inner() -> Iterator[Sandbox]:
    with open_or_skip(fastest(), containers=1) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def url(inner: Sandbox) -> Iterator[str]:
    with served(inner, clients=CLIENTS) as address:
        yield address


def post(url: str, where: str, /, token: str = "ann-token", **fields: Any) -> requests.Response:
    return requests.post(url + where, json=fields, headers={"Authorization": f"Bearer {token}"}, timeout=60)


def opened(url: str, **fields: Any) -> str:
    answer = post(url, "/v1/sessions", **fields)
    assert answer.status_code == 201
    return f"/v1/sessions/{answer.json()['session']}"


@pytest.mark.parametrize("action", ["run", "fork", "put", "get", "ls", "interrupt", "close"])
def test_another_clients_session_cannot_be_told_from_one_that_does_not_exist(url: str, action: str) -> None:
    path = opened(url)
    others = post(url, f"{path}/{action}", "bob-token", code="1", path="a")
    unknown = post(url, f"/v1/sessions/{'x' * 32}/{action}", "bob-token", code="1", path="a")
    assert (others.status_code, others.json()) == (unknown.status_code, unknown.json())
    assert others.status_code == 410
    assert post(url, f"{path}/run", code="6 * 7").json()["value"] == "42"
    post(url, f"{path}/close")


def test_no_path_answers_without_a_token(url: str) -> None:
    for path in (*requests.get(f"{url}/v1/openapi.json", timeout=60).json()["paths"], "/run_code"):
        for token in ("", "wrong", "ann-toke", "bob-token2"):
            assert post(url, path, token).status_code == 401


def test_a_lease_of_another_client_is_neither_kept_nor_closed(url: str, inner: Sandbox) -> None:
    path = opened(url, lease="mine")
    assert post(url, "/v1/keep", "bob-token", lease="mine").json()["sessions"] == 0
    assert post(url, "/v1/close", "bob-token", lease="mine").json()["closed"] == 0
    assert post(url, f"{path}/run", code="1").status_code == 200
    assert post(url, "/v1/close", lease="mine").json()["closed"] == 1
    assert post(url, f"{path}/run", code="1").status_code == 410


def test_a_request_that_is_sent_again_is_not_run_again(url: str, inner: Sandbox) -> None:
    before = inner.stats()["opened"]
    path, *again = [opened(url, key="the same") for _ in range(3)]
    assert (again, inner.stats()["opened"]) == ([path] * 2, before + 1)
    post(url, f"{path}/run", code="n = 0", number=1)
    answers = [post(url, f"{path}/run", code="n += 1; n", number=2).json()["value"] for _ in range(3)]
    assert answers == ["1", "1", "1"]
    copies = [post(url, f"{path}/fork", n=2, number=3).json()["sessions"] for _ in range(2)]
    assert copies[0] == copies[1]
    assert post(url, f"{path}/run", code="n", number=1).status_code == 409
    post(url, f"{path}/close")


def test_a_cell_that_takes_longer_than_an_answer_is_run_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_api, "LONGEST_WAIT", 0.05)
    with Sandbox(url, LIMITS, token="ann-token") as sandbox, sandbox.interpreter_sync("n = 0") as python:
        assert python.run("import time; time.sleep(0.4); n += 1; n").value == "1"


def test_an_answer_that_was_lost_is_asked_for_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    send, failures = http_backend.HttpCalls._send, iter([True, False, True, False])

    def losing(self: Any, path: str, *rest: Any) -> Any:
        answer = send(self, path, *rest)
        if path.endswith("/run") and next(failures, False):
            raise ConnectionResetError("the answer is lost")
        return answer

    with Sandbox(url, LIMITS, token="ann-token") as sandbox, sandbox.interpreter_sync("n = 0") as python:
        monkeypatch.setattr(http_backend.HttpCalls, "_send", losing)
        assert [python.run("n += 1; n").value for _ in range(3)] == ["1", "2", "3"]


def test_the_quota_of_a_client_counts_sessions_and_not_forks_until_its_sandbox_closes(url: str, inner: Sandbox) -> None:
    before = inner.stats()["sessions"]
    with Sandbox(url, LIMITS, token="bob-token", wait=0.2) as sandbox:
        python = sandbox.interpreter_sync()
        copies = python.fork(3)
        with pytest.raises(SandboxFull, match="'bob' has 1"):
            sandbox.interpreter_sync()
        assert post(url, "/run_code", "bob-token", code="1").status_code == 504
        assert inner.stats()["sessions"] == before + 1 + len(copies)
    wait_for(lambda: inner.stats()["sessions"] == before)
    assert post(url, "/run_code", "bob-token", code="1").json()["message"] == ""


def test_who_waits_for_a_full_server_gives_up_in_time_and_takes_nothing() -> None:
    with open_or_skip(fastest(), LIMITS, containers=1, sessions=1) as full, served(full) as url:
        held = full.interpreter_sync()
        with Sandbox(url, LIMITS, wait=0.1) as sandbox:
            with pytest.raises(SandboxFull, match="no session of the server became free in time"):
                sandbox.interpreter_sync()
            held.close()
            wait_for(lambda: full.stats()["free"] == 1)
            assert full.stats()["sessions"] == 0
            sandbox.interpreter_sync().close()


def test_idle_sessions_are_closed_unless_their_program_lives_or_a_request_runs(inner: Sandbox) -> None:
    async def main() -> None:
        sessions = HostedSessions(inner, 0.2)
        client = Client("ann")
        leases = ("dead", "busy", "alive")
        left, busy, kept = [(await sessions.create(client, "", lease))["session"] for lease in leases]
        deadline = time.monotonic() + 0.3
        with sessions.find(client, busy).in_use():
            while time.monotonic() < deadline:
                sessions.keep(client, "alive")
                sessions.close_idle()
                await asyncio.sleep(0.02)
        with pytest.raises(SessionLost, match="idle"):
            sessions.find(client, left)
        for identity in (busy, kept):
            sessions.close(sessions.find(client, identity))

    before = inner.stats()["sessions"]
    asyncio.run(main())
    wait_for(lambda: inner.stats()["sessions"] == before)


def test_sessions_of_a_server_that_was_restarted_are_lost_and_new_ones_open(inner: Sandbox) -> None:
    with served(inner) as url, Sandbox(url, LIMITS) as sandbox:
        python = sandbox.interpreter_sync("n = 0")
        runs = inner.stats()["runs"]
        api: Any = servers[url].api
        api.__init__(inner, api.clients, 60)  # without any session
        with pytest.raises(SessionLost, match="restarted"):
            python.run("n += 1")
        assert inner.stats()["runs"] == runs
        with sandbox.interpreter_sync() as other:  # on the server that took its place
            assert other.run("'n' in globals()").value == "False"


def test_a_server_that_goes_away_loses_its_sessions(inner: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_backend, "PAUSES", (0.0, 0.05))
    with served(inner) as url:
        sandbox = Sandbox(url, LIMITS)
        python = sandbox.interpreter_sync()

        def refused(*_: object) -> None:
            raise ConnectionRefusedError("nobody listens")

        monkeypatch.setattr(http_backend.HttpCalls, "_send", refused)
        with pytest.raises(SessionLost, match="arpo sandbox serve"):
            python.run("1")
        sandbox.close_sync()


ANN = {"token": "ann-token"}
WRONG: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    ("http://127.0.0.1:1", {}, SandboxUnavailable, "no sandbox server answers there .* `arpo sandbox serve`"),
    ("http://no-such-host.invalid:8080", {}, SandboxUnavailable, "there is no such host"),
    ("{url}", {"token": "wrong"}, SandboxUnavailable, "refuses the token .*ARPO_SANDBOX_TOKEN"),
    ("{url}/elsewhere", ANN, SandboxUnavailable, "there is no path"),
    ("https://{host}", ANN, SandboxUnavailable, "`arpo sandbox serve` itself speaks http:// only"),
    # what the server decides
    ("{url}", {**ANN, "image": "python:3.12"}, ValueError, "image='python:3.12' cannot be chosen by a client"),
    ("{url}", {**ANN, "profile": "data"}, SandboxUnavailable, "start it with --profile data"),
    ("{url}", {**ANN, "packages": ["rich"]}, SandboxUnavailable, "start it with --packages rich"),
    # before it is asked
    ("http://box:80,box2:80", {}, ValueError, "is not the address"),
    ("http://box/?a=1", {}, ValueError, "is not the address"),
    ("http://u:one@box,http://u:two@box2", {}, ValueError, "different tokens"),
    ("http://box", {"token": "two words"}, ValueError, "visible ASCII"),
    ("http://box", {"hosts": ["unix:///x"]}, ValueError, "for the docker backend"),
    ("docker", {"token": "x"}, ValueError, "token= is for the address"),
]


@pytest.mark.parametrize(("address", "options", "kind", "message"), WRONG)
def test_what_is_wrong_is_said(url: str, address: str, options: Any, kind: type[Exception], message: str) -> None:
    before = threading.active_count()
    with pytest.raises(kind, match=message):
        Sandbox.open_sync(address.format(url=url, host=url.removeprefix("http://")), **options).close_sync()
    assert threading.active_count() <= before + 1  # of the sandbox only the monitor, until it is collected


@pytest.mark.parametrize(("status", "message"), [(302, "answers with HTTP 302, and not as a"), (200, "and not as a")])
def test_another_server_is_found_out(url: str, status: int, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def other(*_: object) -> Any:
        return status, {"ok": True}

    monkeypatch.setattr(servers[url].api, "post", other)
    with pytest.raises(SandboxUnavailable, match=f"{message} sandbox server; check the address"):
        Sandbox.open_sync(url, token="ann-token").close_sync()


def test_a_server_without_a_working_sandbox_says_why() -> None:
    with (
        Sandbox("docker", hosts=["unix:///nowhere/docker.sock"]) as broken,
        served(broken) as url,
        pytest.raises(SandboxUnavailable, match=r"has no working sandbox: .*nowhere"),
    ):
        Sandbox.open_sync(url)


def test_limits_that_the_server_does_not_have_are_named_and_no_token_is_shown(url: str) -> None:
    with pytest.warns(RuntimeWarning, match="--set disk=1000000"):
        sandbox = Sandbox.open_sync(url.replace("//", "//any:ann-token@"), Limits(disk=1_000_000, timeout=3))
    with sandbox:
        assert sandbox.isolation.endswith("+no(disk)")
        assert sandbox.backend == url
        assert "ann-token" not in repr(sandbox._pool.options)


@pytest.mark.parametrize(
    "address", ["http://any:sec/ret@box:80", "http://a:sec?ret@box", "http://a:secret@[::1", "htp://a:secret@box"]
)
def test_no_message_has_a_token_even_of_a_malformed_address(address: str) -> None:
    with pytest.raises(ValueError, match=r"box|::1") as caught:
        Sandbox.open_sync(address, token="other" if address.startswith("http") else None)
    shown = "".join(traceback.format_exception(caught.value)).partition("ValueError")[2]
    assert not re.search(r"sec|et@|se,cr", shown)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no client"),
        ("ann", "line 1: write"),
        ("ann a\n# bob\nbob b many", "line 3: write"),
        ("ann a\nann b", "the same name twice"),
        ("ann a\nbob a", "the same token twice"),
    ],
)
def test_a_file_of_clients_that_is_malformed_or_open_to_others_is_refused(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "clients"
    file.touch(0o600)
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        clients_of(file=file)
    file.chmod(0o644)
    with pytest.raises(ValueError, match="chmod 600"):
        serve(clients_file=file)


def test_malformed_fields_are_refused_and_the_session_goes_on(url: str) -> None:
    path = opened(url)
    malformed: list[tuple[str, dict[str, Any]]] = [
        ("run", {"code": "1", "timeout": -1}),
        ("run", {"code": "1", "number": "x"}),
        ("fork", {"n": 0}),
        ("put", {"path": "../a", "data": ""}),
        ("put", {"path": "a", "data": "?"}),
    ]
    for action, fields in malformed:
        answer = post(url, f"{path}/{action}", **fields)
        assert (answer.status_code, bool(answer.json()["message"])) == (400, True)
        assert post(url, f"{path}/run", code="1 + 1").json()["value"] == "2"
    post(url, f"{path}/close")


def test_the_openapi_document_has_every_path_and_no_other(url: str) -> None:
    document = requests.get(f"{url}/v1/openapi.json", timeout=60).json()
    api = SessionApi(HostedSessions(None, 1.0))  # type: ignore[arg-type]
    actions = {path.rpartition("/")[2] for path in document["paths"] if "{session}" in path}
    assert actions == {*api._actions, "interrupt", "close"}
    assert {path for path in document["paths"] if "{session}" not in path} == set(api._others)


def test_an_address_that_cannot_be_listened_on_is_named(url: str) -> None:
    taken = int(url.rpartition(":")[2])
    for port in (taken, 70_000):
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1, port {port}: "):
            make_server(None, port=port)  # type: ignore[arg-type]


def test_an_address_of_ipv6_is_served(inner: Sandbox) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(str(error))
    with served(inner, host="::1") as url, Sandbox(url, LIMITS) as sandbox:
        assert sandbox.run_sync("6 * 7").value == "42"


@pytest.mark.parametrize(
    ("head", "body", "answers"),
    [
        ("POST /v1/hello", "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}", ["411"]),
        ("POST /v1/hello", "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", ["400"]),
        ("POST /v1/hello", "Content-Length: +2\r\n\r\n{}", ["400"]),
        ("POST /v1/hello", "Content-Length: 99999999999\r\n\r\n", ["413"]),
        ("GET /health", "Content-Length: 22\r\n\r\nGET /none HTTP/1.1\r\n\r\n", ["200"]),
        ("POST /v1/hello", "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n", ["100"]),
        ("POST /v1/hello", "Content-Length: 4\r\n\r\n{}", []),
        ("POST /v1/hello", "X: y\rContent-Length: 2\r\n\r\n{}", ["400"]),
        ("POST /v1/hello", "Content-Length: 2\rX: y\r\n\r\n{}", ["400"]),
    ],
)
def test_no_body_is_taken_for_a_request(url: str, head: str, body: str, answers: list[str]) -> None:
    """Otherwise a client could answer for another one behind a proxy that keeps its connections."""
    fields = f"{head} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ann-token\r\nContent-Type: application/json\r\n"
    received = b""
    with (
        socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), 1) as raw,
        contextlib.suppress(TimeoutError),
    ):
        raw.sendall((fields + body).encode())
        if not answers:
            raw.shutdown(socket.SHUT_WR)
        while more := raw.recv(1 << 16):
            received += more
    assert re.findall(r"HTTP/1.1 (\d+)", received.decode()) == answers


def test_connections_without_a_request_keep_nobody_out(inner: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than the server has descriptors for would stop it. Those in use stay open, that of a proxy, too."""
    monkeypatch.setattr("sandbox.http.json_server._MOST_STRANGERS", 8)
    with served(inner) as url, contextlib.ExitStack() as stack, Sandbox(url) as sandbox:
        place = ("127.0.0.1", int(url.rpartition(":")[2]))
        proxy = http.client.HTTPConnection(*place, timeout=30)
        stack.callback(proxy.close)
        for _ in range(2):
            silent = [stack.enter_context(socket.create_connection(place, 5)) for _ in range(20)]
            assert silent[0].recv(1) == b""
            assert sandbox.run_sync("6 * 7").value == "42"
            header = {"Content-Type": "application/json", "X-Forwarded-For": "203.0.113.9"}
            proxy.request("POST", "/v1/hello", "{}", header)
            assert proxy.getresponse().read()


def test_connections_that_were_closed_for_idleness_cost_a_call_one_repetition(inner: Sandbox) -> None:
    """A server closes them during an update that takes long, as many as there were cells at once before."""
    with served(inner) as url:
        calls = http_backend.HttpCalls(url, "")
        stale = [calls._connection() for _ in range(12)]
        for one in stale:
            one.sock, other = socket.socketpair()
            other.close()
        calls._free = stale
        began = time.monotonic()
        assert calls.call("/v1/hello", {})[0] == 200
        assert time.monotonic() - began < sum(http_backend.PAUSES) / 2
        calls.close()
    assert all(one.sock is None for one in stale)


def test_a_program_that_ends_before_its_session_begins_to_open_stops_nothing() -> None:
    ann = Client("ann")

    async def attack() -> None:
        sessions = HostedSessions(None, 60.0)  # type: ignore[arg-type]
        api = SessionApi(sessions)
        opened, _ = await asyncio.gather(
            api.answer(ann, "/v1/sessions", b'{"key": "k", "lease": "l"}'),
            api.answer(ann, "/v1/close", b'{"lease": "l"}'),
        )
        assert opened is not None
        assert opened[0] == 410
        assert sessions.close_idle() == 0

    asyncio.run(attack())


def test_a_fault_of_the_server_is_an_answer() -> None:
    api = SessionApi(HostedSessions(None, 1.0))  # type: ignore[arg-type]
    status, answer = asyncio.run(api.answer(Client("ann"), "/v1/hello", b"{}")) or (0, {})
    assert (status, answer["failure"]) == (500, "SandboxError")
    assert "AttributeError" in answer["message"]


def test_the_code_of_the_documentation_runs(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[3] / "docs/how-to/remote-sandboxes.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(code.replace("http://box:8080", url).replace('token="..."', 'token="ann-token"'), {})
    value, isolation = capsys.readouterr().out.split()
    assert (value, isolation.split("+")[0]) == ("42", "http")
