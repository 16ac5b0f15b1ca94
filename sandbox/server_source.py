"""Puts the server together: the source that is sent to `python3 -c` in the sandbox.

The server consists of the modules below. Their text travels to the sandbox over standard input, so that the
library and the image can not disagree, nothing is mounted, and remote Docker engines work. They are
registered there under their own names, so that their imports of each other mean the same there as here.
"""

from __future__ import annotations

import importlib.resources
import json
from functools import cache
from typing import Any

_MODULES = (
    "wire",
    "inside.linux",
    "inside.landlock",
    "inside.seccomp",
    "inside.confine",
    "inside.processes",
    "inside.removal",
    "inside.random_state",
    "inside.channel",
    "inside.pictures",
    "inside.cell",
    "inside.setup",
    "inside.files",
    "inside.descriptors",
    "inside.mappings",
    "inside.transfer",
    "inside.listing",
    "inside.fork",
    "inside.session",
    "inside.zygote",
    "inside.timers",
    "inside.capture",
    "inside.control",
    "inside.handle",
    "inside.janitor",
    "inside.slots",
    "inside.spawner",
    "inside.births",
    "inside.forks",
    "inside.cells",
    "inside.pieces",
    "inside.requests",
    "inside.account",
    "inside.holdings",
    "inside.locks",
    "inside.watchdog",
    "inside.shares",
    "inside.supervisor",
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
"""What `python3 -c` runs: reads a script of announced length and runs it."""

_SCRIPT = """
import json, sys, types
if "" in sys.path:
    sys.path.remove("")
config = json.loads(take(int(take(16))))
for name in ("sandbox", "sandbox.inside"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = []
for name, source in MODULES.items():
    if config["role"] == "supervisor" or name not in SUPERVISOR_ONLY:
        module = sys.modules["sandbox." + name] = types.ModuleType("sandbox." + name)
        exec(compile(source, "<sandbox." + name + ">", "exec"), module.__dict__)
MODULES.clear()
if config.pop("role") == "supervisor":
    sys.modules["sandbox.inside.supervisor"].serve_client(config, script)
else:
    del script
    sys.modules["sandbox.inside.zygote"].serve_zygote(config)
"""

_SUPERVISOR_ONLY = _MODULES[_MODULES.index("inside.timers") :]


@cache
def script() -> bytes:
    """Return the server as one script."""
    here = importlib.resources.files("sandbox")
    modules = {name: (here / f"{name.replace('.', '/')}.py").read_text() for name in _MODULES}
    return f"MODULES = {modules!r}\nSUPERVISOR_ONLY = {_SUPERVISOR_ONLY!r}\n{_SCRIPT}".encode()


def greeting(config: dict[str, Any]) -> bytes:
    """Return the bytes to send first: the script, and what it is to know."""
    text = script()
    known = json.dumps({**config, "role": "supervisor", "bootstrap": BOOTSTRAP}).encode()
    return b"%016d" % len(text) + text + b"%016d" % len(known) + known
