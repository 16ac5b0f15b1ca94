"""`install_line`: the command that adds an extra to this installation. Every error that lacks a library names it."""

from __future__ import annotations

import importlib.metadata
import json
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

SOURCE = "."
"""What the documentation's `pip install` names before the extra: `.`, a clone, for no index has the package yet.

Once one has it, write `arpo-gym`; `tests/test_install.py` then names each line of the documentation to change.
"""


def install_line(extra: str) -> str:
    """Return the command that adds an extra (or several: "data,search"), from where the package itself was installed.

    That is the folder of a clone, a repository, a file, or, if pip noted none of these, an index.
    """
    origin = _origin()
    place = unquote(urlsplit(url).path) if (url := origin.get("url", "")).startswith("file://") else ""
    if "dir_info" in origin:
        editable = "-e " if origin["dir_info"].get("editable") else ""
        return f"pip install {editable}{shlex.quote(f'{place}[{extra}]')}"
    if "vcs_info" in origin:
        vcs = origin["vcs_info"]
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    return "pip install " + shlex.quote(f"arpo-gym[{extra}] @ {url}" if url else f"arpo-gym[{extra}]")


def _origin() -> dict[str, Any]:
    """Return what pip noted of where the package came from; {} is an index, or a folder of wheels."""
    try:
        noted = importlib.metadata.distribution("arpo-gym").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:  # used from a folder on the path
        return {"url": Path(__file__).resolve().parents[1].as_uri(), "dir_info": {}}
    return json.loads(noted) if noted else {}
