"""Makes an image from the Python that runs this program, without a base and without a registry.

It holds the standard library, the profile's packages, the shared libraries that these need, a shell, and nothing
else: no distribution, no pip, no compiler, and none of this machine's own packages, environment or configuration.
"""

from __future__ import annotations

import logging
import os
import platform
import shutil
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from sandbox.cache_directory import announce
from sandbox.errors import SandboxError
from sandbox.images import profiles
from sandbox.images.image_store import PRELOAD_LABEL, PROFILE_LABEL, REPOSITORY, exists, tag_of
from sandbox.images.shared_libraries import closure

_LEFT_OUT = {
    *("__pycache__", "config", "dist-packages", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "site-packages"),
    *("test", "tests", "tkinter", "turtledemo"),
}
_FILES = {
    "etc/passwd": "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/work:/bin/sh\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
_EMPTY = ("proc", "sys", "dev", "root", "usr/bin", "usr/local/bin", "bin", "etc")
_SESSION_DIRECTORY = "/proc/self/fd/200"
_log = logging.getLogger(__name__)


def host_tag(profile: str, plain_tmp: bool) -> str:
    """Return the tag of the image for a profile; it changes with anything that the image is made from."""
    sources = [Path(__file__).with_name(name).read_text() for name in ("from_host.py", "shared_libraries.py")]
    python = (sys.base_prefix, profiles.packages_digest(profile), ",".join(profiles.preload(profile)))
    return tag_of(*sources, *python, profile, str(plain_tmp))


def import_host(client: Any, tag: str, profile: str, plain_tmp: bool) -> None:
    """Make the image of this machine's Python and import it into the engine.

    Raises:
        SandboxError: this is not Linux, the packages cannot be installed, or the engine refuses the image.
    """
    if not sys.platform.startswith("linux"):
        raise SandboxError(
            "an image can be made from this machine's own Python on Linux only; set ARPO_SANDBOX_BASE_IMAGE to an "
            "image with Python, such as python:3.12-slim"
        )
    _same_machine(client)
    started = time.monotonic()
    python = platform.python_version()
    announce(_log, "making the sandbox image %s from Python %s (%s; once, up to a minute)", tag, python, profile)
    packages = profiles.packages_directory(profile)
    with tempfile.TemporaryFile() as file, tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        _fill(root, packages, plain_tmp)
        with tarfile.open(fileobj=file, mode="w") as tar:
            tar.add(root, ".", filter=_plain)
            if packages is not None:
                tar.add(packages, f".{profiles.SITE_PACKAGES}", filter=_plain)
        announce(_log, "importing the image into the Docker engine (%.0f MB)", file.tell() / 1e6)
        file.seek(0)
        chunks = iter(
            lambda: file.read(1 << 20), b""
        )  # an iterator, since a file object would be sent with a wrong length
        client.api.import_image_from_stream(
            chunks, repository=REPOSITORY, tag=tag.partition(":")[2], changes=_settings(profile)
        )
    if not exists(client, tag):
        raise SandboxError("the engine has not imported the image; see its log")
    announce(_log, "made the sandbox image %s in %.1f s", tag, time.monotonic() - started)


def _same_machine(client: Any) -> None:
    theirs = client.version().get("Arch", "")
    ours = platform.machine()
    if theirs and theirs != {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}.get(ours, ours):
        raise SandboxError(
            f"the engine runs on {theirs}, this Python on {ours}: no image can be made of it; set "
            "ARPO_SANDBOX_BASE_IMAGE to an image with Python, such as python:3.12-slim"
        )


def _settings(profile: str) -> list[str]:
    modules = ",".join(profiles.preload(profile))
    return [
        "ENV PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8",
        f'LABEL {PROFILE_LABEL}="{profiles.profile_label(profile)}" {PRELOAD_LABEL}="{modules}"',
        'CMD ["python3"]',
    ]


def _fill(root: Path, packages: Path | None, plain_tmp: bool) -> None:
    """Lay out the root file system without the packages, which are not copied."""
    for name in _EMPTY:
        (root / name).mkdir(parents=True)
    for name, text in _FILES.items():
        (root / name).write_text(text)
    (root / "work").symlink_to(_SESSION_DIRECTORY)
    if plain_tmp:
        (root / "tmp").mkdir()
    else:
        (root / "tmp").symlink_to("/work")
    programs = [*_copy_python(root), *_copy_shell(root)]
    for place, path in closure(programs, packages).items():
        _copy(Path(path), root / place.lstrip("/"))


def _copy_python(root: Path) -> list[Path]:
    """Copy the interpreter and the standard library with its bytecode; returns files that may need libraries."""
    python = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    _copy(python, root / "usr/local/bin" / version)
    for name in ("python", "python3"):
        (root / "usr/local/bin" / name).symlink_to(version)
    source, library = Path(sysconfig.get_path("stdlib")), root / "usr/local/lib" / version
    shutil.copytree(source, library, ignore=_useless)
    profiles.compile_directory(library, f"/usr/local/lib/{version}")
    (library / "dist-packages").symlink_to("site-packages")  # where Debian's Python looks
    if sys.platlibdir != "lib":
        (root / "usr/local" / sys.platlibdir).symlink_to("lib")  # where Fedora's looks
    return [python, *(source / "lib-dynload" / path.name for path in library.glob("lib-dynload/*.so"))]


def _copy_shell(root: Path) -> list[Path]:
    shell = Path("/bin/sh").resolve()
    _copy(shell, root / "bin/sh")
    return [shell]


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)


def _useless(directory: str, names: list[str]) -> Collection[str]:
    """Return the names that are left out, among them links to sources, which are hooks of a distribution."""
    return [
        name
        for name in names
        if name in _LEFT_OUT
        or name.startswith(("config-", "_tkinter.", "_test"))
        or (name.endswith(".py") and os.path.islink(os.path.join(directory, name)))
    ]


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Remove the owners that the files have on this machine."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mode |= 0o444 | (0o111 if entry.isdir() else 0)
    entry.mode = 0o1777 if entry.name == "./tmp" and entry.isdir() else entry.mode & 0o755
    return entry
