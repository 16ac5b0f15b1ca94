"""Addresses: what is refused, in all its spellings, before a connection and after a redirect."""

import ipaddress
import socket
import time
from typing import Any

import pytest

from arpo_env.pages import PageError
from arpo_env.pages import fetch as addresses
from arpo_env.pages.fetch import parse_address, public
from tests.arpo_env.pages.conftest import ARTICLE, Site, answer, read, reason

PRIVATE = [
    *("127.0.0.1", "127.8.9.10", "0.0.0.0", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1"),
    *("169.254.169.254", "100.64.0.1", "100.127.255.255", "100.100.100.200", "192.0.0.192", "192.0.2.1", "198.18.0.1"),
    *("198.51.100.7", "203.0.113.9", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255", "168.63.129.16"),
    *("::1", "::", "fe80::1", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1", "3fff::1", "100::1"),
    *("5f00::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe"),
    *("64:ff9b:1::1", "2002:7f00:1::", "2002:c0a8:101::1", "2001:0:5ef5:79fb:0:0:80ff:fffe"),
]
PUBLIC = ["1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8"]


@pytest.mark.parametrize("address", PRIVATE + PUBLIC)
def test_public(address: str) -> None:
    assert public(ipaddress.ip_address(address)) is (address in PUBLIC)


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "0x7f000001", "2130706433", "127.1", "0177.0.0.1", "0x7f.1", "0", "localhost", "LOCALHOST."),
        *("localhost.", "127.0.0.1.", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:0:0:1]"),
        *("１２７.０.０.１", "127。0。0。1", "ⓛocalhost", "169.254.169.254", "2852039166"),
    ],
)
def test_spellings_of_this_machine_are_refused(site: Site, host: str) -> None:
    site.pages["/"] = ARTICLE.encode()
    why = reason(f"http://{host}:{site.port}/", allow_private=False)
    assert "private or reserved" in why or "no valid address" in why
    assert site.requests == []


@pytest.mark.parametrize(
    ("url", "why"),
    [
        *(("ftp://example.com/", "http"), ("file:///etc/passwd", "http"), ("example.com/page", "http")),
        *(("http://user:secret@example.com/", "user name"), ("http://example.com\\@127.0.0.1/", "backslashes")),
        *(("http://example.com:22/", "port 22"), ("http://example.com:99999/", "valid"), ("http://[::1", "valid")),
        *(("http://exa mple.com/", "valid name"), ("http://[fe80::1%25eth0]/", "IPv6")),
        *(("http://exam\nple.com/", "control"), ("http://example.com/" + "a" * 5000, "longer")),
    ],
)
def test_refused_forms(url: str, why: str) -> None:
    with pytest.raises(PageError, match=why):
        parse_address(url)


def test_read_as() -> None:
    for url, read_as in {
        "HTTP://Example.COM:80": "http://example.com/",
        "https://example.com.:8443/a?b=c#d": "https://example.com:8443/a?b=c",
        "https://bücher.example/ß": "https://xn--bcher-kva.example/ß",
        "http://例え.テスト/": "http://xn--r8jz45g.xn--zckzah/",
    }.items():
        assert parse_address(url).url == read_as


def test_a_redirect_to_a_private_address_is_refused(site: Site, second_site: Site, monkeypatch: Any) -> None:
    _only_second_is_private(monkeypatch)
    site.pages["/"] = lambda handler: answer(handler, b"", status=302, Location=f"{second_site.url}/secret")
    second_site.pages["/secret"] = b"secret"
    why = reason(f"{site.url}/", allow_private=False)
    assert why.startswith("it redirects to ")
    assert "private or reserved" in why
    assert second_site.requests == []


def test_what_was_checked_is_what_is_connected(site: Site, second_site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is public when it is looked up first, and private ever after."""
    _only_second_is_private(monkeypatch)
    asked = _name_server(monkeypatch, [["127.0.0.1"], ["127.0.0.2"], ["127.0.0.2"]])
    site.pages["/"] = b"public"
    page = read(f"http://rebind.test:{site.port}/", allow_private=False, robots=False)
    assert page.text.startswith("public")
    assert asked == ["rebind.test"]
    assert site.requests[0][1]["Host"] == f"rebind.test:{site.port}"
    assert second_site.requests == []


def test_a_name_is_looked_up_as_it_was_checked(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's own encoding makes "fass.de" of "faß.de", which is another site."""
    asked = _name_server(monkeypatch, [["127.0.0.1"]])
    site.pages["/"] = ARTICLE.encode()
    assert read(f"http://faß.de:{site.port}/", robots=False).text
    assert asked == ["xn--fa-hia.de"]
    assert site.requests[0][1]["Host"] == f"xn--fa-hia.de:{site.port}"


def test_each_request_is_checked_anew(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same name, private from the second look-up on: robots.txt is read, the page is not."""
    _only_second_is_private(monkeypatch)
    _name_server(monkeypatch, [["127.0.0.1"], ["127.0.0.2"]])
    assert "private or reserved" in reason(f"http://rebind.test:{site.port}/", allow_private=False)
    assert [path for path, _, _ in site.requests] == ["/robots.txt"]


def test_of_several_addresses_one_private_refuses_the_name_and_all_are_tried(site: Site, monkeypatch: Any) -> None:
    _name_server(monkeypatch, [["127.0.0.3", "127.0.0.1"]])
    site.pages["/"] = ARTICLE.encode()
    assert read(f"http://two.test:{site.port}/", robots=False).text.startswith("The river")
    _only_second_is_private(monkeypatch)
    _name_server(monkeypatch, [["127.0.0.1", "127.0.0.2"]])
    assert "private or reserved" in reason(f"http://both.test:{site.port}/", allow_private=False, robots=False)
    assert len(site.requests) == 1


def test_an_unknown_name_and_a_slow_name_server_are_told_on_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "not found" in reason("http://no-such-host.invalid/", robots=False)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: time.sleep(8))
    started = time.monotonic()
    assert "no complete answer" in reason("http://slow.test/", timeout=0.3, robots=False)
    assert time.monotonic() - started < 6


def test_only_a_proxy_that_the_user_names_is_used(site: Site, second_site: Site, monkeypatch: Any) -> None:
    monkeypatch.setenv("http_proxy", second_site.url)
    site.pages["/"] = site.pages["http://example.test/page"] = ARTICLE.encode()
    assert read(f"{site.url}/").text
    assert read("http://example.test/page", proxy=site.url, robots=False, allow_private=False).text
    assert second_site.requests == []


def _only_second_is_private(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take 127.0.0.1 for a public address, so that a server of this machine can play one."""
    monkeypatch.setattr(addresses, "public", lambda address: str(address) == "127.0.0.1")


def _name_server(monkeypatch: pytest.MonkeyPatch, answers: list[list[str]]) -> list[str]:
    asked: list[str] = []

    def look_up(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        asked.append(host)
        found = answers[min(len(asked), len(answers)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in found]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return asked
