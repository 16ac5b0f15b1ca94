"""`open_client`: an httpx2 client that takes proxies and certificates, and nothing else, from the environment."""

from __future__ import annotations

import functools
import http.cookiejar
import importlib.util
import os
import ssl
from typing import TYPE_CHECKING

from arpo_env.net.redaction import redact_logs
from envs_registry.install_line import install_line

if TYPE_CHECKING:
    import httpx2

_CA_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR")  # the first that is set


class CannotConnect(Exception):
    """Raised when the environment names a proxy or certificates that cannot be used; the text is the reason."""


def open_client() -> httpx2.AsyncClient:
    """Return a client with one connection, and without time limits, cookies and redirects.

    Raises:
        ModuleNotFoundError: httpx2 is not installed.
        CannotConnect: a proxy or certificates of the environment cannot be used.
    """
    try:
        import httpx2
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"httpx2 is not installed: {install_line('search')}", name="httpx2") from error
    redact_logs()
    # An idle connection is kept until the server closes it: httpx2 looks at the socket before it uses one again.
    limits = httpx2.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=None)
    cookies = http.cookiejar.CookieJar(http.cookiejar.DefaultCookiePolicy(allowed_domains=()))
    variable = next((name for name in _CA_VARIABLES if os.environ.get(name)), "")
    context = _tls_context(variable, os.environ.get(variable, ""))
    try:
        return httpx2.AsyncClient(timeout=None, limits=limits, cookies=cookies, verify=context)
    except (ImportError, ValueError, httpx2.InvalidURL):  # `from None`: the text may hold the proxy's password
        raise CannotConnect("the proxy of HTTP_PROXY, HTTPS_PROXY or ALL_PROXY cannot be used") from None


@functools.lru_cache(8)  # reading the certificates takes some 20 ms
def _tls_context(variable: str, bundle: str) -> ssl.SSLContext:
    """Return the certificates to trust: those of a variable, else the system's, else those of certifi."""
    import httpx2

    try:
        if os.path.isdir(bundle):
            return ssl.create_default_context(capath=bundle)
        if bundle:
            return ssl.create_default_context(cafile=bundle)
    except OSError as error:
        raise CannotConnect(f"the certificates at {bundle}, which {variable} names, cannot be read") from error
    context = httpx2.create_ssl_context()
    if not context.get_ca_certs() and importlib.util.find_spec("certifi") is not None:
        import certifi

        context.load_verify_locations(certifi.where())
    return context
