"""A `requests` session whose connections go to the very address that was checked, and end on time.

A name is looked up once, all its addresses are checked, and the socket is connected to one of them. A name server that
answers differently the next time is never asked again. Host header and certificate stay those of the name.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from arpo_env.pages.deadline import TooSlow, deadline, watch
from arpo_env.pages.url_safety import resolve
from envs_registry.install_line import install_line

if TYPE_CHECKING:
    import requests

_MOST_TRIED = 4


@contextlib.contextmanager
def pinned_session(seconds: float, allow_private: bool, proxy: str | None) -> Iterator[requests.Session]:
    """Give a session for pages: no proxy of the environment, no netrc, only public addresses.

    Args:
        seconds: from now until its sockets are shut.
        allow_private: connect also to addresses that are not public.
        proxy: address of a proxy that the user trusts to refuse private addresses; it looks names up.

    Raises:
        AddressRefused: a host leads to an address that is not public.
        TooSlow: the time was up before the block was done.
        ModuleNotFoundError: `requests` is not installed.
    """
    try:
        import requests
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"requests is not installed: {install_line('search')}") from error

    with deadline(seconds), requests.Session() as session:
        # A netrc would send passwords to sites that were found on the web.
        session.trust_env = False
        if proxy is not None:
            session.proxies = {"http": proxy, "https": proxy}
        adapter = _adapter(time.monotonic() + seconds, allow_private)
        session.mount("http://", adapter)
        session.mount("https://", adapter)
        yield session


def _adapter(end: float, allow_private: bool) -> Any:
    """Return an adapter whose connections are looked up, checked and watched."""
    from requests.adapters import HTTPAdapter
    from urllib3.connection import HTTPConnection, HTTPSConnection
    from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

    def checked(connection: HTTPConnection) -> socket.socket:
        # The user trusts the proxy, which may be private; it looks the names up itself.
        if connection.proxy is not None:
            opened = HTTPConnection._new_conn(connection)
        else:
            opened = _connect(connection.host, connection.port, end, allow_private)
        watch(opened)
        return opened

    class Plain(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            return checked(self)

    class Secure(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return checked(self)

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

    class Adapter(HTTPAdapter):
        def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
            super().init_poolmanager(*arguments, **options)
            # The pools open the connections, so the checked ones have to be named there.
            self.poolmanager.pool_classes_by_scheme = {"http": PlainPool, "https": SecurePool}

        def proxy_manager_for(self, *arguments: Any, **options: Any) -> Any:
            manager = super().proxy_manager_for(*arguments, **options)
            manager.pool_classes_by_scheme = {"http": PlainPool, "https": SecurePool}
            return manager

    return Adapter()


def _connect(host: str, port: int, end: float, allow_private: bool) -> socket.socket:
    """Connect to the first address of a host that answers; each has an equal part of the time that is left."""
    # Only these addresses are used, since a second look-up could give others than the ones that were checked.
    found = resolve(host.strip("[]"), port, end - time.monotonic(), allow_private)[:_MOST_TRIED]
    fault: OSError = OSError("no address")
    for place, (family, where) in enumerate(found):
        left = end - time.monotonic()
        if left <= 0:
            raise TooSlow
        opened = socket.socket(family, socket.SOCK_STREAM)
        try:
            opened.settimeout(left / (len(found) - place))
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opened.connect(where)
            opened.settimeout(left)
            return opened
        except OSError as error:
            fault = error
            opened.close()
    raise fault
