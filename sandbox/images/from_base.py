"""Builds an image on a base with sandbox/images/Dockerfile and wheels that were downloaded before.

The wheels are downloaded on this machine, with its pip and its configuration. The build itself has no network and
gets no secret: no address of an index, no certificate, no proxy.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.cache_directory import announce
from sandbox.errors import SandboxError
from sandbox.images import profiles
from sandbox.images.image_store import STAGE_LABEL, exists, require_image, tag_of

_RECIPE = ("Dockerfile", "prepare_root_filesystem.py")
_OLDEST = (3, 9)
_OLDEST_FOR_PACKAGES = (3, 11)
_PROBE = (
    "import importlib.util, json, platform, sys; "
    "print(json.dumps([list(sys.version_info[:2]), platform.machine(), list(platform.libc_ver()), "
    "importlib.util.find_spec('pip') is not None]))"
)
# manylinux_2_5, the same as manylinux1, is the oldest tag of PEP 600
_MANYLINUX_SINCE = 5
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Python:
    """The Python of a base: version, machine ("x86_64"), C library ("glibc", "2.36"), and whether it has pip."""

    version: tuple[int, int]
    machine: str
    libc: tuple[str, str]
    pip: bool

    def platforms(self) -> list[str]:
        """Return the platform tags of the wheels that it can use."""
        name, number = self.libc
        if name != "glibc":
            return [f"musllinux_1_{minor}_{self.machine}" for minor in (1, 2)]
        # wheels for an older glibc work with a newer one
        minors = range(_MANYLINUX_SINCE, int(number.split(".")[1]) + 1)
        return [f"manylinux2014_{self.machine}", *(f"manylinux_2_{minor}_{self.machine}" for minor in minors)]


def base_tag(client: Any, base: str, profile: str, plain_tmp: bool) -> str:
    """Return the tag of the image on a base; pulls the base if the engine does not have it.

    Raises:
        SandboxError: the base cannot be pulled, or cannot be used.
    """
    _pull(client, base)
    require_image(client, base)
    recipe = [(profiles.IMAGES / name).read_text() for name in _RECIPE]
    pins = (profile, profiles.requirements(profile), ",".join(profiles.preload(profile)))
    # the id of the base and not its name, which may come to mean a newer image
    return tag_of(*recipe, client.api.inspect_image(base)["Id"], *pins, str(plain_tmp))


def build_on_base(client: Any, tag: str, base: str, profile: str, plain_tmp: bool) -> None:
    """Build the image on a base that the engine has.

    Raises:
        SandboxError: the base has no suitable Python, the wheels cannot be downloaded, or the build fails.
    """
    started = time.monotonic()
    announce(_log, "building the sandbox image %s from %s (%s; once, up to a minute)", tag, base, profile)
    python = _look_into(client, base)
    with tempfile.TemporaryDirectory() as scratch:
        # a folder of its own: the engine is sent all that is in it
        context = Path(scratch)
        for name in _RECIPE:
            shutil.copy(profiles.IMAGES / name, context)
        (context / f"{profiles.profile_label(profile)}.txt").write_text(profiles.requirements(profile))
        if not profiles.is_empty(profile):
            _require_wheels(base, python, profile)
            profiles.download_wheels(profile, context, python.version, python.platforms(), not python.pip)
        _build(client, context, tag, _arguments(base, profile, plain_tmp))
    announce(_log, "built the sandbox image %s in %.1f s", tag, time.monotonic() - started)


def _require_wheels(base: str, python: _Python, profile: str) -> None:
    if python.version < _OLDEST_FOR_PACKAGES:
        raise SandboxError(
            f"the profile {profile!r} needs Python {_OLDEST_FOR_PACKAGES[0]}.{_OLDEST_FOR_PACKAGES[1]} or newer, the "
            f"base image {base!r} has {python.version[0]}.{python.version[1]}; use a newer base, or "
            'profile="minimal"'
        )


def _arguments(base: str, profile: str, plain_tmp: bool) -> dict[str, str]:
    return {
        "BASE_IMAGE": base,
        "PROFILE": profiles.profile_label(profile),
        "PRELOAD": ",".join(profiles.preload(profile)),
        "PIP_ARGS": "--no-index --find-links=/context",
        "PLAIN_TMP": "1" if plain_tmp else "",
    }


def _build(client: Any, context: Path, tag: str, arguments: dict[str, str]) -> None:
    import docker.errors

    # what earlier builds have left; not younger stages, which another program may be using
    client.images.prune(filters={"dangling": True, "label": STAGE_LABEL, "until": "1h"})
    try:
        client.images.build(
            path=str(context),
            buildargs=arguments,
            tag=tag,
            rm=True,
            forcerm=True,
            network_mode="none",
            use_config_proxy=False,
        )
    except docker.errors.BuildError as error:
        log = "".join(line.get("stream", "") for line in error.build_log if isinstance(line, dict))
        raise SandboxError(
            f"the sandbox image cannot be built on {arguments['BASE_IMAGE']!r}: {error.msg}\n{log.strip()[-1000:]}"
        ) from error


def _pull(client: Any, base: str) -> None:
    import docker.errors

    # no second pull: it works without a registry, and the same name keeps its meaning
    if exists(client, base):
        return
    announce(_log, "pulling the base image %s", base)
    name = base if re.search(r"@|:[^/]*$", base) else f"{base}:latest"
    try:
        client.images.pull(name)
    except (docker.errors.DockerException, OSError) as error:
        raise SandboxError(
            f"the base image {base!r} is not on the engine and cannot be pulled ({error}). To fix it: docker load it "
            "there, name another, or leave base=None to use this machine's Python"
        ) from error


def _look_into(client: Any, base: str) -> _Python:
    code, words = _run_once(client, base)
    with contextlib.suppress(ValueError):
        # only the last line, since the image's Python may print something of its own before
        version, machine, libc, pip = json.loads(words.strip().rpartition("\n")[2])
        if tuple(version) >= _OLDEST:
            return _Python((version[0], version[1]), machine, (libc[0], libc[1]), pip)
        words = f"its Python is {version[0]}.{version[1]}"
    raise SandboxError(
        f"the base image {base!r} has no python3 of version {_OLDEST[0]}.{_OLDEST[1]} or newer "
        f"({words.strip()[-300:] or f'exit code {code}'}); use one that has, such as python:3.12-slim"
    )


def _run_once(client: Any, base: str) -> tuple[int, str]:
    """Run the probe in a container of a base; returns exit code and output."""
    import docker.errors

    host_config = client.api.create_host_config(network_mode="none", cap_drop=["ALL"])
    container = client.api.create_container(
        base,
        ["python3", "-I", "-c", _PROBE],
        user="0:0",
        entrypoint="",
        host_config=host_config,
        use_config_proxy=False,
    )["Id"]
    try:
        client.api.start(container)
        code = client.api.wait(container)["StatusCode"]
        return code, client.api.logs(container).decode("utf-8", "replace")
    except docker.errors.APIError as error:
        # as a shell reports a program that is missing: usually there is no python3
        return 127, str(error.explanation or error)
    finally:
        client.api.remove_container(container, force=True)
