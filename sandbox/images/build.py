"""Builds the image that the docker backend runs; needs no registry.

Without a base, the image is a copy of the Python that runs this program (`import_host`). With a base, such as
"python:3.12-slim", it is built from sandbox/images/Dockerfile (`build_on_base`). In both, /work is each session's own
directory, under the same name in every fork, and /tmp is the same place.

The tag is a hash of everything that the image is made from. After an upgrade of this library, of Python or of the
pinned packages, the tag is another one, and a new image is built.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from sandbox.docker_engine import check_docker, connect
from sandbox.errors import SandboxError, SandboxUnavailable
from sandbox.images import profiles
from sandbox.images.profiles import announce, locked, requirements
from sandbox.options import package_names

REPOSITORY = "arpo-sandbox"
PROFILE_LABEL = "arpo.sandbox.profile"
PRELOAD_LABEL = "arpo.sandbox.preload"
STAGE_LABEL = "arpo.sandbox.stage"
BASE_VARIABLE = "ARPO_SANDBOX_BASE_IMAGE"
_USE_A_BASE = f"set {BASE_VARIABLE} to an image with Python, such as python:3.12-slim"


def tag_of(*recipe: str) -> str:
    """Return the tag of an image that is made from this recipe."""
    # the zeros keep two parts from being taken for other two with the same text
    return f"{REPOSITORY}:{hashlib.sha256(chr(0).join(recipe).encode()).hexdigest()[:12]}"


def exists(client: Any, image: str) -> bool:
    """Whether the engine has an image."""
    import docker.errors

    try:
        client.api.inspect_image(image)
    except docker.errors.ImageNotFound:
        return False
    return True


def checked_preload(client: Any, image: str) -> list[str]:
    """Return the modules that a server in an image imports first; none if the image has no such label.

    Problems that only appear when the image runs are not found.

    Raises:
        SandboxError: it does not exist, or declares volumes (they would be mounted writable, without
            a limit on their size).
    """
    import docker.errors

    try:
        found = client.api.inspect_image(image)["Config"]
    except docker.errors.ImageNotFound as error:
        raise SandboxError(
            f"the engine has no image {image!r}; to fix it: docker pull {image}, or leave image=None"
        ) from error
    except (docker.errors.DockerException, ValueError, OSError) as error:
        raise SandboxError(f"the engine cannot inspect the image {image!r}: {error}") from error
    if volumes := found.get("Volumes"):
        raise SandboxError(
            f"the image {image!r} declares the volumes {', '.join(sorted(volumes))}, which would be writable and "
            "without a size limit; use an image without VOLUME"
        )
    return [name for name in (found.get("Labels") or {}).get(PRELOAD_LABEL, "").split(",") if name]


# On a base: with sandbox/images/Dockerfile, and wheels that were downloaded on this machine with its pip and its
# configuration. The build itself has no network and gets no secret: no address of an index, no certificate, no proxy.

_RECIPE = ("Dockerfile", "prepare_root_filesystem.py")
_PROBE = """
import importlib.util, platform, sys
pip = "pip" if importlib.util.find_spec("pip") else ""
print("%d.%d" % sys.version_info[:2], platform.machine(), platform.libc_ver()[0] or "musl", pip)
"""
_log = logging.getLogger(__name__)


def base_tag(client: Any, base: str, profile: str, plain_tmp: bool) -> str:
    """Return the tag of the image on a base; pulls the base if the engine does not have it.

    Raises:
        SandboxError: the base cannot be used.
        docker.errors.DockerException: it cannot be pulled.
    """
    if not exists(client, base):  # no second pull: it works without a registry, and the same name keeps its meaning
        announce(_log, "pulling the base image %s", base)
        client.images.pull(base)
    checked_preload(client, base)
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
    with tempfile.TemporaryDirectory() as scratch:
        # a folder of its own: the engine is sent all that is in it
        context = Path(scratch)
        for name in _RECIPE:
            shutil.copy(profiles.IMAGES / name, context)
        (context / f"{profiles.profile_label(profile)}.txt").write_text(profiles.requirements(profile))
        if not profiles.is_empty(profile):
            profiles.download_wheels(profile, context, *_look_into(client, base))
        arguments = {
            "BASE_IMAGE": base,
            "PROFILE": profiles.profile_label(profile),
            "PRELOAD": ",".join(profiles.preload(profile)),
            "PIP_ARGS": "--no-index --find-links=/context",
            "PLAIN_TMP": "1" if plain_tmp else "",
        }
        _build(client, context, tag, arguments)
    announce(_log, "built the sandbox image %s in %.1f s", tag, time.monotonic() - started)


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


def _look_into(client: Any, base: str) -> list[str]:
    """Return the version, the machine and the C library of the Python in a base, and "pip" if it has that."""
    import docker.errors

    options = {"entrypoint": "", "user": "0:0", "network_mode": "none", "cap_drop": ["ALL"], "use_config_proxy": False}
    container = client.containers.create(base, ["python3", "-I", "-c", _PROBE], **options)
    try:  # `containers.run` leaves behind what cannot be started
        container.start()
        code = container.wait()["StatusCode"]
        words: str = container.logs().decode("utf-8", "replace").strip()
    except docker.errors.APIError as error:  # usually there is no such program
        code, words = 127, str(error.explanation or error)
    finally:
        container.remove(force=True)
    if code:
        raise SandboxError(
            f"the base image {base!r} has no python3 that runs ({words[-300:]}); use one that has, such as "
            "python:3.12-slim"
        )
    # only the last line, since the image's Python may print something of its own before
    return words.rpartition("\n")[2].split()


# what binary wheels (manylinux) expect on every system
_WHEELS_NEED = (
    *("libstdc++.so.6", "libgcc_s.so.1", "libpthread.so.0", "libdl.so.2", "librt.so.1"),
    *("libutil.so.1", "libm.so.6"),
)
_STANDARD = re.compile(r"/(usr/)?lib(64|32)?(/[^/]+-linux-[^/]+)?")
_LINE = re.compile(r"^\s*(?:\S+ => )?(/\S+) \(0x[0-9a-f]+\)$", re.MULTILINE)


def closure(programs: Iterable[Path], packages: Path | None = None) -> dict[str, str]:
    """Return the shared libraries that programs need, directly or not: the file for each place in the image.

    Those of extension modules in `packages`, a directory with installed wheels, are among them, except what the wheels
    contain. Libraries from places where the loader does not search are put beside libc.
    """
    extensions = packages.rglob("*.so*") if packages else ()
    found = {
        path
        for path in _needed([str(path) for path in (*programs, *extensions)])
        if not (packages and Path(path).resolve().is_relative_to(packages.resolve()))
    }
    libc = next((path for path in found if os.path.basename(path).startswith("libc.so")), "/lib/libc.so.6")
    beside = os.path.dirname(libc)
    extras = [path for name in _WHEELS_NEED if (path := _find(name, beside))]
    found |= set(extras) | _needed(extras)
    places: dict[str, str] = {}
    for path in sorted(found):
        directory, name = os.path.split(path)
        place = path if _STANDARD.fullmatch(directory) else os.path.join(beside, name)
        places[place] = os.path.realpath(path)
    return places


def _needed(paths: list[str]) -> set[str]:
    if not paths:
        return set()
    try:
        listing = subprocess.run(["ldd", *paths], capture_output=True, text=True, check=False).stdout
    except OSError as error:
        raise SandboxError(f"ldd does not run ({error}); {_USE_A_BASE}") from error
    return set(_LINE.findall(listing))


def _find(name: str, beside: str) -> str:
    candidates = (os.path.join(directory, name) for directory in (beside, f"/usr{beside}", "/usr/lib64", "/usr/lib"))
    return next((path for path in candidates if os.path.exists(path)), "")


# Without a base: the standard library, the profile's packages, the shared libraries that these need, a shell, and
# nothing else: no distribution, no pip, no compiler, and none of this machine's own packages, environment or
# configuration.

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


def host_tag(profile: str, plain_tmp: bool) -> str:
    """Return the tag of the image for a profile; it changes with anything that the image is made from."""
    source = Path(__file__).read_text()
    python = (sys.base_prefix, profiles.packages_digest(profile), ",".join(profiles.preload(profile)))
    return tag_of(source, *python, profile, str(plain_tmp))


def import_host(client: Any, tag: str, profile: str, plain_tmp: bool) -> None:
    """Make the image of this machine's Python and import it into the engine.

    Raises:
        SandboxError: this is not Linux, the packages cannot be installed, or the engine refuses the image.
    """
    if not sys.platform.startswith("linux"):
        raise SandboxError(f"an image can be made from this machine's own Python on Linux only; {_USE_A_BASE}")
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
        labels = f'{PROFILE_LABEL}="{profiles.profile_label(profile)}" '
        labels += f'{PRELOAD_LABEL}="{",".join(profiles.preload(profile))}"'
        settings = ["ENV PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8", f"LABEL {labels}", 'CMD ["python3"]']
        # an iterator, since a file object would be sent with a wrong length
        chunks = iter(lambda: file.read(1 << 20), b"")
        client.api.import_image_from_stream(chunks, repository=REPOSITORY, tag=tag.partition(":")[2], changes=settings)
    if not exists(client, tag):
        raise SandboxError("the engine has not imported the image; see its log")
    announce(_log, "made the sandbox image %s in %.1f s", tag, time.monotonic() - started)


def _same_machine(client: Any) -> None:
    theirs = client.version().get("Arch", "")
    ours = platform.machine()
    if theirs and theirs != {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}.get(ours, ours):
        raise SandboxError(f"the engine runs on {theirs}, this Python on {ours}: no image can be made; {_USE_A_BASE}")


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
    shell = Path("/bin/sh").resolve()
    _copy(shell, root / "bin/sh")
    programs = [*_copy_python(root), shell]
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


def build_image(
    base: str | None = None,
    profile: str = "math",
    host: str | None = None,
    plain_tmp: bool = False,
    packages: Sequence[str] = (),
) -> str:
    """Return the tag of the image; builds it if it does not exist.

    Args:
        base: an image with python3 (3.11 or newer; for "minimal" 3.9) and a shell. None uses the one that the
            environment variable ARPO_SANDBOX_BASE_IMAGE names, or without it the Python that runs this program.
        profile: "minimal", "math" or "data"; see `sandbox.images.profiles`.
        host: the engine, as in DOCKER_HOST; None uses the one of the environment.
        plain_tmp: keep /tmp a directory instead of a link to /work; gVisor needs that.
        packages: further packages, as pip takes them ("networkx", "rich==13.9.4"), with what they need.

    Raises:
        ValueError: there is no such profile, or `packages` is not a list of packages.
        SandboxUnavailable: Docker cannot be used.
        SandboxError: the image cannot be built.
    """
    import docker.errors

    profile = " ".join((profile, *package_names(packages)))
    # refuses an unknown profile before anything is asked of Docker
    requirements(profile)
    diagnosis = check_docker(host)
    if diagnosis.state != "ok":
        raise SandboxUnavailable(str(diagnosis))
    base = base or os.environ.get(BASE_VARIABLE) or None
    # an import or a build may take minutes before the engine answers
    client = connect(host, timeout=600)
    try:
        tag = host_tag(profile, plain_tmp) if base is None else base_tag(client, base, profile, plain_tmp)
        if exists(client, tag):
            return tag
        with locked("image"):
            if not exists(client, tag):  # another process may have built it meanwhile
                if base is None:
                    import_host(client, tag, profile, plain_tmp)
                else:
                    build_on_base(client, tag, base, profile, plain_tmp)
        return tag
    except (docker.errors.DockerException, OSError) as error:
        raise SandboxError(f"the sandbox image cannot be built: {error}") from error
    finally:
        client.close()
