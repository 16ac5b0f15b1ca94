r"""Environments as folders that others install: a package for verifiers and prime-rl, a Space for OpenEnv.

    arpo data package arpo/GSM8K-v0 --format verifiers --output arpo-gsm8k --env-set split=test

The folder depends on arpo-gym and on the framework; its code is the environment's id and options, and its README has
what a script earns. The templates are in `package_files`. They are filled by `str.format`.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import pprint
import re
import shutil
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from arpo_env.adapters import PEERS
from arpo_env.adapters.chat_episode import check_one_conversation
from arpo_env.adapters.hosted_episodes import TOKEN_VARIABLE
from arpo_env.adapters.task_rows import unwritable
from arpo_env.env import ToolEnv
from arpo_env.registration import EnvFactory
from arpo_env.search import backend_names
from envs_registry import Task, get_spec
from envs_registry.nearest_name import nearest_hint

# The files of a format; what options name is copied beside the last one, the module that reads them.
FORMATS = {
    "verifiers": ("README.md", "pyproject.toml", "{module}/__init__.py"),
    "openenv": (
        *("README.md", "pyproject.toml", "openenv.yaml", "Dockerfile", "client.py"),
        *("__init__.py", "server/__init__.py", "server/app.py"),
    ),
}
_TEMPLATES = resources.files("arpo_env.adapters").joinpath("package_files")
_FILES = ("data", "search", "tool_documents", "cache")  # options that may name a file or folder
_SECRET = re.compile(r"://\S*[@?]")  # a login or query in an address
_LOGIN = re.compile(r"://(?!git@)[^/]*@")  # behind the host an @ names a commit
_EXTRAS = "[data,math,search]"
_PLAYED = 20
_NO_ANSWER = "none of these"
_PAPER = "accuracy of the answer, 0 to 1; 0.1 more if search and Python both worked; -1 for a bad format (ARPO, eq. 8)"


class _Copied(str):
    """The path of a copied file in the folder of the module; in code it is an expression."""

    def __repr__(self) -> str:
        return f"str(HERE / {str(self)!r})"


def write_package(folder: Path, factory: EnvFactory, format: str, requirement: str = "") -> list[Path]:
    """Write an environment as a folder that users of another framework install; return its files.

    A file or folder that an option names (the tasks, a corpus of one's own) is copied, without hidden files. The
    environment is made from the copies, checked, and played by a script; after an error nothing is left of the folder.

    Args:
        folder: where to write; it must not exist, or be empty.
        factory: the environment.
        format: a key of `FORMATS`.
        requirement: what the package requires as arpo-gym, such as "arpo-gym @ git+https://HOST/OWNER/NAME@COMMIT"; ""
            is this version, which has to be installed before.

    Raises:
        FileExistsError: the folder is not empty.
        ValueError: the format is unknown, or an option is wrong, may hold a password or cannot be written down.
    """
    if format not in FORMATS:
        raise ValueError(f"no format {format!r}{nearest_hint(format, FORMATS)}; the formats are {', '.join(FORMATS)}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} is not empty; name a new folder")
    required = _requirement(requirement)
    files = {key: path for key in _FILES if (path := _named(key, factory.options.get(key)))}
    options = {**factory.options, **{key: _Copied(f"{key}/{path.name}") for key, path in files.items()}}
    for key in unwritable(options):
        kind = type(options[key]).__name__
        raise ValueError(f"the option {key}= cannot be written into a file ({kind}); give plain values")
    for key, value in options.items():
        if key != "prompt" and _SECRET.search(json.dumps(value)):
            raise ValueError(
                f"the option {key}= has an address with a login or a query, which all who get the package would read: "
                "leave it out, and let them give their own (in ARPO_SEARCH, OPENAI_BASE_URL, or as option of a run)"
            )
    for key, path in files.items():
        if folder.resolve().is_relative_to(path.resolve()):
            raise ValueError(f"{folder} is in {key}={path}, which is copied into it; name a folder elsewhere")
    names = _names(get_spec(factory.id).id)
    home = (folder / FORMATS[format][-1].format_map(names)).parent
    copies, there = {key: home / options[key] for key in files}, folder.exists()
    try:
        for key, path in files.items():
            copies[key].parent.mkdir(parents=True)
            if path.is_dir():
                shutil.copytree(path, copies[key], ignore=shutil.ignore_patterns(".*"))
            else:
                shutil.copy(path, copies[key])
        played = EnvFactory(factory, **{key: str(path) for key, path in copies.items()})
        values = names | _values(played, options, format, required)
        for name in FORMATS[format]:
            template = _TEMPLATES.joinpath(format, f"{Path(name).name}.txt").read_text(encoding="utf-8")
            file = folder / name.format_map(names)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(template.format_map(values), encoding="utf-8")
    except BaseException:
        for path in [*folder.iterdir()] if there else [folder]:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        raise
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _named(key: str, value: Any) -> Path | None:
    """Return the file or folder that an option names, if it does, under its own name also where that is a link."""
    if key == "search" and isinstance(value, str):
        backend, _, rest = value.partition(":")
        if backend in backend_names():  # has precedence over a file of that name, as in `open_search`
            value = rest if backend == "local" else None
    if not value or not isinstance(value, str | Path):
        return None
    path = Path(os.path.abspath(os.path.expanduser(value)))
    return path if path.exists() else None


def _requirement(given: str) -> str:
    """Return a requirement of arpo-gym with the extras that environments use; "" is this version."""
    found = re.fullmatch(r"arpo-gym(\[[\w, -]+\])?(\s*[@<>=~!].*)", given or f"arpo-gym~={_version()}")
    if not found:
        raise ValueError(f"the requirement {given!r} is not of arpo-gym: write 'arpo-gym @ git+ADDRESS'")
    if _LOGIN.search(given):
        raise ValueError("the requirement has an address with a login, which all who get the package would read")
    return f"arpo-gym{found[1] or _EXTRAS}{found[2]}"


def _version() -> str:
    return importlib.metadata.version("arpo-gym")


def _names(env_id: str) -> dict[str, str]:
    name = re.sub(r"[^a-z0-9]+", "-", env_id.lower()).strip("-")
    if not name[:1].isalpha():
        raise ValueError(
            f"a package takes its name from the id, and {env_id!r} does not begin with a letter from a to z"
        )
    return {"name": name, "module": name.replace("-", "_")}


def _values(factory: EnvFactory, options: Mapping[str, Any], format: str, required: str) -> dict[str, str]:
    """Return what the templates name."""
    env: ToolEnv = factory()
    env.check()
    check_one_conversation(env)
    spec, peer = env.env_spec, PEERS[format]
    requirements = [required, f"{peer.package}~={peer.tested}.0"]
    by_address = " @ " in required
    description = spec.description.rstrip(".") or spec.id
    return {
        "id": factory.id,
        "description": description[:1].upper() + description[1:],
        "summary": json.dumps(description, ensure_ascii=False),
        "options": pprint.pformat(dict(options), width=100),
        "version": _version(),
        "variable": TOKEN_VARIABLE,
        "requirements": " ".join(f"'{each}'" for each in requirements),
        "dependencies": ", ".join(map(json.dumps, requirements)),
        "arpo_gym": f"pip gets `{required}`." if by_address else "arpo-gym is on no index: CLONE is a clone of it.",
        "install": "pip install ." if by_address else "pip install CLONE .",
        "facts": _facts(env, factory.id, options),
    }


def _facts(env: ToolEnv, env_id: str, options: Mapping[str, Any]) -> str:
    """Return the table of a README: what is played, and what a script earns on the first tasks."""
    count = min(_PLAYED, env.tasks.size or _PLAYED)
    right = _earned(env, count, lambda task: task.answers[0] if task.answers else "")
    wrong = _earned(env, count, lambda task: _NO_ANSWER)
    weights = " + ".join(f"{weight:g} x {term}" for term, weight in env.rewards.weights.items())
    module = env_id.rpartition(":")[0]
    split, others = options.get("split") or next(iter(env.env_spec.splits), ""), ", ".join(env.env_spec.splits)
    rows = {
        "environment": f"`{env_id}`" + (f"; its module `{module}` has to be installed as well" if module else ""),
        "options": f"`{json.dumps(options, ensure_ascii=False)}`",
        "tasks": (f"{env.tasks.size:,}" if env.tasks.size else "generated without end")
        + (f", of the split `{split}` unless the option `split` says another ({others})" if split else ""),
        "licence of the tasks": ("" if "data" in options else env.env_spec.licence) or "not stated",
        "tools": ", ".join(f"`{tool}`" for tool in env.tools) or "none",
        "limits": f"{env.budget.turns} turns, {env.budget.calls} tool calls",
        "reward": weights or _PAPER,
        f"a script, {count} tasks": f"{right:.2f} on average for the accepted answer, given at once; "
        f'{wrong:.2f} for the answer "{_NO_ANSWER}"',
    }
    return "\n".join(["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in rows.items())])


def _earned(env: ToolEnv, count: int, answer: Callable[[Task], str]) -> float:
    """Return the mean reward of episodes that answer at once; all protocols that we know read this form."""
    rewards = []
    for index in range(count):
        _, info = env.reset(options={"index": index})
        text = f"<think>The script answers.</think><answer>\\boxed{{{answer(info['task'])}}}</answer>"
        rewards.append(env.step(text)[1])
    env.close()
    return sum(rewards) / count
