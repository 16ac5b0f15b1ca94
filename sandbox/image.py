"""The image that the docker backend runs; made here, needs no registry.

Without a base the image is a copy of the Python that runs this program: its standard library, the shared
libraries it and the usual wheels need, a shell, and nothing else (about 80 MB, a few seconds). With a base,
such as "python:3.12-slim", the base gets two symbolic links. In both, /work is each session's own directory,
under the same name in every fork of it, and /tmp is the same place.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import platform
import sys
import sysconfig
import tarfile
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from sandbox.docker_check import check_docker, connect
from sandbox.errors import SandboxError, SandboxUnavailable
from sandbox.shared_libraries import closure

BASE_VARIABLE = "ARPO_SANDBOX_BASE_IMAGE"
_REPOSITORY = "arpo-sandbox"
_DOCKERFILE = """\
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
USER 0:0
RUN ["python3", "-c", "\\
import os, shutil; \\
[shutil.rmtree(path) for path in ('/work', '/tmp') if os.path.isdir(path) and not os.path.islink(path)]; \\
[os.unlink(path) for path in ('/work', '/tmp') if os.path.lexists(path)]; \\
os.symlink('/proc/self/fd/200', '/work'); \\
os.symlink('/work', '/tmp')"]
"""
_ENVIRONMENT = "ENV PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8"
_LEFT_OUT = {
    "__pycache__", "config", "dist-packages", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "site-packages",
    "test", "tests", "tkinter", "turtledemo",
}  # fmt: skip
_FILES = {
    "etc/passwd": "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/work:/bin/sh\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
_LINKS = {"work": "/proc/self/fd/200", "tmp": "/work"}
_EMPTY = ("proc", "sys", "dev", "root", "usr/local/lib", "usr/bin")
_log = logging.getLogger(__name__)
_lock = threading.Lock()


def build_image(base: str | None = None) -> str:
    """Return the tag of the image, making it if it is not there.

    Args:
        base: an image with python3 and a shell; None takes the one that the environment variable
            ARPO_SANDBOX_BASE_IMAGE names, and without it the Python that runs this program.

    Raises:
        SandboxUnavailable: there is no Docker.
        SandboxError: the image can not be made.
    """
    import docker.errors

    diagnosis = check_docker()
    if diagnosis.state != "ok":
        raise SandboxUnavailable(str(diagnosis))
    base = base or os.environ.get(BASE_VARIABLE) or None
    client = connect(timeout=600)
    try:
        with _lock:
            return _import_host(client) if base is None else _extend(client, base)
    except (docker.errors.DockerException, OSError) as error:
        raise SandboxError(f"the sandbox image can not be made: {error}") from error
    finally:
        client.close()


def _tag(*recipe: str) -> str:
    return f"{_REPOSITORY}:{hashlib.sha256(chr(0).join(recipe).encode()).hexdigest()[:12]}"


def _exists(client: Any, tag: str) -> bool:
    import docker.errors

    try:
        client.api.inspect_image(tag)
    except docker.errors.ImageNotFound:
        return False
    return True


def _extend(client: Any, base: str) -> str:
    if not _exists(client, base):
        _log.info("pulling the base image %s", base)
        client.images.pull(base if ":" in base else f"{base}:latest")
    tag = _tag(_DOCKERFILE, client.api.inspect_image(base)["Id"])
    if not _exists(client, tag):
        _log.info("building the sandbox image %s from %s", tag, base)
        client.images.build(
            fileobj=io.BytesIO(_DOCKERFILE.encode()),
            buildargs={"BASE_IMAGE": base},
            tag=tag,
            rm=True,
            forcerm=True,
            network_mode="none",
        )
    return tag


def _import_host(client: Any) -> str:
    if not sys.platform.startswith("linux"):
        raise SandboxError(
            f"an image can be made from this machine's own Python on Linux only; set {BASE_VARIABLE} to an image "
            "with Python, such as python:3.12-slim"
        )
    source = Path(__file__).read_text() + Path(__file__).with_name("shared_libraries.py").read_text()
    tag = _tag(source, sys.version, sys.base_prefix, platform.machine(), *platform.libc_ver())
    if _exists(client, tag):
        return tag
    started = time.monotonic()
    _log.info("making the sandbox image %s from Python %s", tag, platform.python_version())
    with tempfile.TemporaryFile() as file:
        _write_root(file)
        file.seek(0)
        chunks = iter(lambda: file.read(1 << 20), b"")  # a file object would be sent with a length it must not have
        client.api.import_image_from_stream(
            chunks, repository=_REPOSITORY, tag=tag.partition(":")[2], changes=[_ENVIRONMENT]
        )
    if not _exists(client, tag):
        raise SandboxError("the engine has not taken the image; see its log")
    _log.info("made the sandbox image %s in %.1f s", tag, time.monotonic() - started)
    return tag


def _write_root(file: Any) -> None:
    """Write the root file system as a tar."""
    python = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    library = Path(sysconfig.get_path("stdlib"))
    extensions = [path for path in library.glob("lib-dynload/*.so") if not path.name.startswith(("_tkinter", "_test"))]
    shell = Path("/bin/sh").resolve()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name in _EMPTY:
            _add(tar, name, kind=tarfile.DIRTYPE)
        for name, text in _FILES.items():
            _add(tar, name, content=text.encode())
        for name, target in _LINKS.items():
            _add(tar, name, kind=tarfile.SYMTYPE, target=target)
        tar.add(python, f"usr/local/bin/{version}", filter=_plain)
        for name in ("python", "python3"):
            _add(tar, f"usr/local/bin/{name}", kind=tarfile.SYMTYPE, target=version)
        tar.add(shell, "bin/sh", filter=_plain)
        tar.add(library, f"usr/local/lib/{version}", filter=_plain)
        for place, path in closure([python, shell, *extensions]).items():
            tar.add(path, place.lstrip("/"), filter=_plain)


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out what a sandbox has no use for, and whose files they are here."""
    name = os.path.basename(entry.name)
    if name in _LEFT_OUT or name.startswith("config-") or (entry.issym() and name.endswith(".py")):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mode |= 0o444 | (0o111 if entry.isdir() else 0)
    entry.mode &= 0o755
    return entry


def _add(
    tar: tarfile.TarFile, name: str, kind: bytes = tarfile.REGTYPE, content: bytes = b"", target: str = ""
) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.size = kind, target, len(content)
    entry.mode = 0o644 if kind == tarfile.REGTYPE else 0o755
    tar.addfile(entry, io.BytesIO(content))
