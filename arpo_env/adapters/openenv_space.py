"""Writes the folder of an OpenEnv environment, ready for `openenv push` to a Hugging Face Space or for `docker build`.

    write_space(Path("arithmetic"), EnvFactory("arpo/Arithmetic-v0", level=2), max_sessions=16)

A Space has no Docker engine, and user namespaces are usually forbidden in it. The policy's Python therefore runs with
the backend "unsafe_local": nothing but the Space's own container separates it from the server. The README says so.
"""

from __future__ import annotations

import importlib.metadata
import pprint
import re
from pathlib import Path

from arpo_env.adapters.asgi_server import TOKEN_VARIABLE
from arpo_env.adapters.peer import PEERS
from arpo_env.env_factory import EnvFactory
from envs_registry import get_spec

_APP = '''\
"""The server of this Space: {id} for OpenEnv clients."""

import os

import uvicorn
from arpo_env.adapters.openenv import make_app

OPTIONS = {options}
app = make_app({id!r}, max_sessions={sessions}, token=os.environ.get("{variable}", ""), **OPTIONS)


def main() -> None:
    """Serve."""
    uvicorn.run(app, host="0.0.0.0", port=8000)


if __name__ == "__main__":
    main()
'''
_CLIENT = '''\
"""The client of this Space."""

from openenv import GenericEnvClient


class ArpoEnv(GenericEnvClient):
    """Plays {id}: actions are {{"text": one turn of the policy}}."""
'''
_DOCKERFILE = """\
FROM python:3.12-slim
RUN useradd --create-home --uid 1000 user
WORKDIR /app
COPY --chown=user . /app
# arpo-gym is on no index: `pip wheel --no-deps -w wheels CLONE` in this folder builds it from a clone
RUN pip install --no-cache-dir --find-links wheels {requirements}
USER user
# Where user namespaces are allowed, install bubblewrap and write bubblewrap here: it separates sessions. See README.md.
ENV ARPO_SANDBOX=unsafe_local PYTHONPATH=/app HOME=/home/user
EXPOSE 8000
HEALTHCHECK CMD python -c "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/health')"
CMD ["uvicorn", "server.app:app", "--host", "0.0.0.0", "--port", "8000"]
"""
_YAML = """\
spec_version: 1
name: {name}
version: {version}
type: space
runtime: fastapi
app: server.app:app
port: 8000
validation:
  reward:
    range: [-1.0, 1.1]
    oracle_tolerance: 0.1
    floor_margin: 0.1
  resources:
    cpu: 1.0
    memory_mb: 2048
    disk_mb: 1024
    episode_timeout_s: 300.0
  capabilities:
    task_api: true
    verifier:
      kind: reward_channel
  types:
    tags: [reasoning, tool-use]
"""
_PYPROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "openenv-{name}"
version = "{version}"
requires-python = ">=3.11"
dependencies = [{dependencies}]

[project.scripts]
server = "server.app:main"

[tool.setuptools]
packages = ["server"]
"""
_README = """\
---
title: {id}
emoji: 🐍
colorFrom: blue
colorTo: green
sdk: docker
app_port: 8000
base_path: /docs
tags:
  - openenv
---

# {id} for OpenEnv

{description}. Served by arpo-gym.

```python
from openenv import GenericEnvClient

async with GenericEnvClient(base_url="https://OWNER-SPACE.hf.space") as env:
    result = await env.reset(index=0)
    result = await env.step({{"text": "<think>I compute.</think><python>1 + 1</python>"}})
```

Publish: `openenv push --no-interface`. Elsewhere: `docker build -t {name} . && docker run -p 8000:8000 {name}`.

## What separates the policy's code from the rest

There is no Docker engine in a Space, so Python runs with the sandbox backend `unsafe_local`: as processes of the
server's user, in the Space's container. Only the container separates the code from anything. The code can read every
file and variable of the Space, secrets included, use its network, and disturb other sessions. Keep nothing here that
others may not read. To choose who may run code, make the Space private, or set the secret `{variable}`, which clients
then send as `Authorization: Bearer TOKEN`.
"""


def write_space(folder: Path, factory: EnvFactory, max_sessions: int) -> list[Path]:
    """Write the files, and return their paths.

    Args:
        folder: where to write; it must not exist, or be empty.
        factory: the environment; its options are written into the code.
        max_sessions: most clients at the same time.

    Raises:
        FileExistsError: the folder is not empty.
        ValueError: an option cannot be written down.
    """
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty; name a new folder")
    written = {folder / name: text for name, text in _files(factory, max_sessions).items()}
    for path, text in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(written)


def _files(factory: EnvFactory, max_sessions: int) -> dict[str, str]:
    for key, value in factory.options.items():
        if not _is_plain(value):
            raise ValueError(
                f"the option {key}= cannot be written into a file ({type(value).__name__}); give plain values"
            )
    requirements = [f"arpo-gym[data,math,search]=={_version()}", PEERS["openenv"].needs.strip("'")]
    values = {
        "id": factory.id,
        "name": re.sub(r"[^a-z0-9]+", "-", factory.id.rpartition("/")[2].lower()).strip("-"),
        "description": get_spec(factory.id).description.rstrip("."),
        "options": pprint.pformat(factory.options, width=100),
        "sessions": str(max_sessions),
        "version": _version(),
        "variable": TOKEN_VARIABLE,
        "requirements": " ".join(f"'{each}'" for each in requirements),
        "dependencies": ", ".join(f'"{each}"' for each in requirements),
    }
    templates = {
        "README.md": _README,
        "openenv.yaml": _YAML,
        "Dockerfile": _DOCKERFILE,
        "pyproject.toml": _PYPROJECT,
        "__init__.py": '"""An OpenEnv environment."""\n',
        "client.py": _CLIENT,
        "server/__init__.py": '"""The server of this Space."""\n',
        "server/app.py": _APP,
    }
    return {name: _filled(text, values) for name, text in templates.items()}


def _filled(text: str, values: dict[str, str]) -> str:
    return text.format_map(values)


def _is_plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(_is_plain(each) for pair in value.items() for each in pair)
    if isinstance(value, list | tuple):
        return all(_is_plain(each) for each in value)
    return value is None or isinstance(value, bool | int | float | str)


def _version() -> str:
    try:
        return importlib.metadata.version("arpo-gym")
    except importlib.metadata.PackageNotFoundError:
        return "0.1.0"
