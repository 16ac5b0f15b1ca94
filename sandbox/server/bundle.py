"""Bundles the server's source into the script that is sent to `python3 -c` in the sandbox.

The server consists of the modules below, listed in the order in which they import each other. Their text is sent over
standard input, so that the versions of library and server always agree, nothing is mounted, and remote Docker engines
work. They are registered under their own names, so that imports mean the same in the sandbox as here.
"""

from __future__ import annotations

import importlib.resources
import json
from functools import cache
from typing import Any

_MODULES = (
    "wire",
    *("confine", "processes", "fork", "cells", "session"),
    *("channels", "sessions", "creation", "limits", "requests", "supervisor"),
)

BOOTSTRAP = """
import os
def take(n):
    data = b""
    while len(data) < n:
        part = os.read(0, n - len(data))
        if not part:
            os._exit(3)
        data += part
    return data
script = take(int(take(16)))
exec(compile(script, "<sandbox>", "exec"))
"""
"""What `python3 -c` runs: reads a script, preceded by its length, and runs it."""

_SCRIPT = """
import json, sys, types
if "" in sys.path:
    sys.path.remove("")
config = json.loads(take(int(take(16))))
server = "sandbox.server"
for name in ("sandbox", server):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = []
for name, source in MODULES.items():
    if config["role"] == "supervisor" or name not in SUPERVISOR_ONLY:
        module = sys.modules["sandbox.server." + name] = types.ModuleType("sandbox.server." + name)
        setattr(sys.modules[server], name, module)
        exec(compile(source, "<sandbox.server." + name + ">", "exec"), module.__dict__)
MODULES.clear()
if config.pop("role") == "supervisor":
    sys.modules["sandbox.server.supervisor"].serve_client(config, script)
else:
    del script
    sys.modules["sandbox.server.session"].serve_zygote(config)
"""

# a zygote does not load these: its sessions inherit everything that is in its memory
_SUPERVISOR_ONLY = _MODULES[_MODULES.index("channels") :]


@cache
def script() -> bytes:
    """Return the server as one script."""
    here = importlib.resources.files("sandbox.server")
    modules = {name: (here / f"{name}.py").read_text() for name in _MODULES}
    return f"MODULES = {modules!r}\nSUPERVISOR_ONLY = {_SUPERVISOR_ONLY!r}\n{_SCRIPT}".encode()


def greeting(config: dict[str, Any]) -> bytes:
    """Return the bytes to send first: the script and its configuration."""
    text = script()
    known = json.dumps({**config, "role": "supervisor", "bootstrap": BOOTSTRAP}).encode()
    # lengths are decimal numbers of fixed width, since BOOTSTRAP knows no frames yet
    return b"%016d" % len(text) + text + b"%016d" % len(known) + known
