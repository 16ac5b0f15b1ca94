"""Starts the backend "http": asks a sandbox server what it is, and compares that with what was asked for."""

from __future__ import annotations

import shlex
import warnings
from dataclasses import asdict
from typing import Any

from sandbox.backends.http_calls import HttpCalls
from sandbox.backends.http_stream import HttpStream
from sandbox.config.limits import Limits
from sandbox.config.options import PROFILES, ServerOptions
from sandbox.errors import SandboxUnavailable

_FIELDS = {"server", "isolation", "slots", "profile", "packages", "limits"}


def start_http(options: ServerOptions) -> HttpStream:
    """Return a stream to a sandbox server.

    Raises:
        ValueError: an option is not for this backend.
        SandboxUnavailable: there is no sandbox server at the address, it refuses the token, or has no working sandbox
            or not the profile or the packages.
    """
    for option in ("image", "runtime", "loopback"):
        if getattr(options, option):
            raise ValueError(f"{option}={getattr(options, option)!r} cannot be chosen by a client of a sandbox server")
    calls = HttpCalls(options.host or "", options.token)
    try:
        hello = _hello(calls, options)
    except BaseException:
        calls.close()
        raise
    return HttpStream(calls, hello, _unenforced(calls.url, options.limits, hello), options.wait)


def _hello(calls: HttpCalls, options: ServerOptions) -> dict[str, Any]:
    """Return what the server says about itself."""
    status, hello = calls.call("/v1/hello", {}, ())
    if status != 200:
        raise SandboxUnavailable(f"the sandbox server {calls.url} has no working sandbox: {hello.get('message')}")
    if not set(hello) >= _FIELDS or hello["profile"] not in PROFILES:
        raise SandboxUnavailable(
            f"{calls.url} does not answer as a sandbox server; check the address, and that `arpo sandbox serve` of "
            "this version runs there"
        )
    if PROFILES.index(hello["profile"]) < PROFILES.index(options.profile):
        raise SandboxUnavailable(
            f"the sandbox server {calls.url} has the profile {hello['profile']!r}, with fewer packages than "
            f"{options.profile!r}; ask for profile={hello['profile']!r}, or start it with --profile {options.profile}"
        )
    if missing := [name for name in options.packages if name not in hello["packages"]]:
        raise SandboxUnavailable(
            f"the sandbox server {calls.url} has not the packages {', '.join(missing)}; start it with --packages "
            f"{shlex.join(options.packages)}"
        )
    return hello


def _unenforced(url: str, limits: Limits, hello: dict[str, Any]) -> tuple[str, ...]:
    """Warn of limits that were asked for and that the server does not have; return their names."""
    if hello["isolation"] == "none":
        warnings.warn(f"the sandbox server {url} isolates nothing (unsafe_local)", RuntimeWarning, stacklevel=2)
    asked, default = asdict(limits), asdict(Limits())
    # a timeout is sent with each cell
    own = [
        name for name in asked if name != "timeout" and asked[name] not in (default[name], hello["limits"].get(name))
    ]
    for name in own:
        warnings.warn(
            f"Limits.{name}={asked[name]!r} is not enforced: the sandbox server {url} has "
            f"{hello['limits'].get(name)!r}; start it with --set {name}={asked[name]}",
            RuntimeWarning,
            stacklevel=2,
        )
    return tuple(own)
