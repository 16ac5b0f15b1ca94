"""Requests to services: they end on time whatever the other side does, and keys stay where they belong."""

import asyncio
import gzip
import logging
import socket
import time
import traceback
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from arpo_env.event_loop import run
from arpo_env.net import Http, Reply, ServiceError, strip_credentials
from tests.arpo_env.forks import holds_in_a_child
from tests.arpo_env.local_server import Call, LocalServer

KEY = "sk-very secret/1234"


def ask(http: Http, url: str, **arguments: Any) -> Reply:
    return run(http.request("GET", url, **arguments))


def failure(http: Http, url: str, **arguments: Any) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        ask(http, url, **arguments)
    return caught.value


def quick(**options: Any) -> Http:
    return Http("quick", **{"timeout": 0.8, "retries": 0, "pause": 0.01, **options})


def test_event_loops_share_the_connections() -> None:
    async def some() -> None:
        await asyncio.gather(*(http.request("GET", server.address) for _ in range(10)))

    with LocalServer(lambda call: call.reply({})) as server, ThreadPoolExecutor(4) as threads:
        http = Http("x", connections=2)
        list(threads.map(lambda _: asyncio.run(some()), range(4)))
        assert len(server.seen) == 40
        assert len(server.connections) <= 2


def test_it_works_after_a_fork() -> None:
    with LocalServer(lambda call: call.reply({})) as server:
        http = quick(timeout=5)
        ask(http, server.address)
        assert holds_in_a_child(lambda: ask(http, server.address).status == 200)


def test_retry_after_is_obeyed() -> None:
    def answer(call: Call) -> None:
        call.reply({"at": 2}, 200 if len(server.seen) > 1 else 429, Retry_After="0.3")

    with LocalServer(answer) as server:
        started = time.monotonic()
        assert ask(quick(timeout=2, retries=1), server.address).json() == {"at": 2}
        assert time.monotonic() - started >= 0.3


@pytest.mark.parametrize(("status", "tries", "said"), [(500, 3, "(3 tries)"), (401, 1, "Set X_API_KEY.")])
def test_a_server_that_always_fails_is_given_up_and_a_refusal_at_once(status: int, tries: int, said: str) -> None:
    with LocalServer(lambda call: call.reply(b"out of order", status)) as server:
        error = failure(quick(retries=2, cures={401: "Set X_API_KEY."}), server.address)
        assert len(server.seen) == tries
    assert error.status == status
    assert "out of order" in str(error)
    assert said in str(error)


def drip_body(call: Call) -> None:
    call.head(Content_Length="1000000")
    call.drip()


def drip_headers(call: Call) -> None:
    call.write(b"HTTP/1.1 200 OK\r\n")
    call.drip(b"X-More: 1\r\n")


def silence(call: Call) -> None:
    call.gone.wait()


@pytest.mark.parametrize("answer", [drip_body, drip_headers, silence], ids=lambda answer: answer.__name__)
def test_a_slow_answer_ends_on_time(answer: Callable[[Call], None]) -> None:
    with LocalServer(answer) as server:
        started = time.monotonic()
        error = failure(quick(), server.address)
        assert time.monotonic() - started < 4
    assert "within 0.8 s" in str(error)


@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"])
def test_certificates_are_checked_and_come_from_the_usual_variables(
    variable: str, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    with LocalServer(lambda call: call.reply({}), certificate=str(certificate)) as server:
        assert "certificate" in str(failure(quick(), server.address))  # nobody signed it
        assert not server.seen
        monkeypatch.setenv(variable, str(certificate))
        assert ask(quick(timeout=5), server.address).status == 200
        monkeypatch.setenv(variable, "/nonexistent/bundle.pem")
        assert variable in str(failure(quick(timeout=5), server.address))


@pytest.mark.parametrize("proxy", ["socks5://me:hunter2@127.0.0.1:9", "gopher://me:hunter2@127.0.0.1:9"])
def test_a_proxy_that_cannot_be_used_is_named_without_its_password(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    error = failure(quick(), "http://service.test/")
    assert "ALL_PROXY" in str(error)
    assert "hunter2" not in shown(error)


@pytest.mark.parametrize("layers", [1, 2])
def test_a_gzip_bomb_is_not_unpacked(layers: int) -> None:
    bomb = gzip.compress(bytes(100_000_000), 9)
    bomb = gzip.compress(bomb, 9) if layers == 2 else bomb
    encoding = ", ".join(["gzip"] * layers)
    with LocalServer(lambda call: call.reply(bomb, Content_Encoding=encoding)) as server:
        tracemalloc.start()
        error = failure(quick(timeout=10, max_bytes=1_000_000), server.address)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert "more than 1,000,000 bytes" in str(error)
    assert peak < 10_000_000


def cut_off(content: bytes, **headers: str) -> Callable[[Call], None]:
    """Write so much, and break off."""

    def answer(call: Call) -> None:
        if headers:
            call.head(**headers)
        call.write(content)
        call.handler.connection.shutdown(socket.SHUT_RDWR)

    return answer


BROKEN = {
    "garbage": cut_off(bytes(range(256)) * 10),
    "truncated": cut_off(b'{"a":', Content_Length="1000"),
    "bad gzip": lambda call: call.reply(b"this is not packed", Content_Encoding="gzip"),
}


@pytest.mark.parametrize("answer", BROKEN.values(), ids=BROKEN)
def test_a_broken_answer_is_a_service_error(answer: Callable[[Call], None]) -> None:
    with LocalServer(answer) as server:
        error = failure(quick(retries=1, timeout=2), server.address)
        assert len(server.seen) == 2
    assert error.status is None
    assert "(2 tries)" in str(error)


@pytest.mark.parametrize("url", ["nonsense", "http://", "http://[::1", "ftp://x/", "http://a b/", "http://x:99999/"])
def test_an_unusable_address_is_a_service_error(url: str) -> None:
    failure(quick(), url)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("http://me:hunter2@host/a@b?key=1#top", "http://host/a@b"),
        ("elasticsearch:http://me:hunter2@host/wiki", "elasticsearch:http://host/wiki"),
        ("me:hunter2@host", "host"),
        ("http://[::1", "http://[::1"),
        *(("http://me:hun/ter2@host:80", "http://host:80"), ("http://me:hun?ter2@host", "http://host")),
        ("//me:hunter2@host", "//host"),
    ],
)
def test_an_address_is_shown_without_what_may_be_secret(address: str, shown: str) -> None:
    assert strip_credentials(address) == shown


def test_a_redirect_is_not_followed() -> None:
    with LocalServer(lambda call: call.reply({})) as elsewhere:
        target = f"{elsewhere.address}/there?api_key=123"
        with LocalServer(lambda call: call.reply(b"", 307, Location=target)) as server:
            error = failure(quick(retries=3), server.address, headers={"X-API-KEY": KEY})
            assert len(server.seen) == 1
        assert not elsewhere.seen
    assert f"redirects to {elsewhere.address}/there;" in str(error)
    assert "123" not in str(error)


def shown(error: BaseException) -> str:
    return "".join([*traceback.format_exception(error), repr(error), str(vars(error))])


@pytest.mark.parametrize(
    "answer",
    [
        lambda call: call.reply(f"bad key {KEY} {call.handler.path}".encode(), 401),
        lambda call: call.handler.connection.shutdown(socket.SHUT_RDWR),
        lambda call: call.reply(b"", 302, Location=call.handler.path),
        drip_body,
    ],
)
def test_no_message_and_no_log_holds_a_key(answer: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with LocalServer(answer) as server:
        http = quick(secrets=(KEY,))
        error = failure(http, server.address, params={"api_key": KEY}, headers={"X-Key": KEY})
        assert server.seen[0].params["api_key"] == KEY
    everything = shown(error) + repr(http) + caplog.text
    assert "secret" not in everything
    assert "1234" not in everything


def test_a_key_that_cannot_be_sent_is_explained_without_it() -> None:
    error = failure(quick(), "http://127.0.0.1:9/", headers={"X-Key": "se\ncret"})
    assert "line breaks" in str(error)
    assert "cret" not in shown(error)


def test_a_netrc_entry_does_not_replace_the_key_and_no_cookie_is_kept(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "netrc").write_text("machine localhost login a password b\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with LocalServer(lambda call: call.reply({}, Set_Cookie="session=1; Path=/")) as server:
        http = quick()
        for _ in range(2):
            ask(http, server.address, headers={"Authorization": "Bearer mine"})
        assert server.seen[0].headers["authorization"] == "Bearer mine"
        assert "cookie" not in server.seen[1].headers
