"""Profiles: the packages that the code in a sandbox can import.

"minimal" has the standard library, "math" numpy, scipy, sympy and mpmath, "data" also pandas and matplotlib. The
versions are pinned in sandbox/images/*.txt. Further packages may follow the name, as in "math networkx==3.5": pip
chooses what they need, and what they leave open, beside the pins. All are installed with pip (`find_pip`) once for
each such text and each Python, into the user's cache; the image, bubblewrap and unsafe_local all use that directory.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import logging
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sandbox.errors import SandboxError
from sandbox.options import PROFILES

_log = logging.getLogger(__name__)
IMAGES = Path(__file__).parent
SITE_PACKAGES = f"/usr/local/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
"""Where the packages are in the image; their bytecode names this place."""
_PREPARE = IMAGES / "prepare_root_filesystem.py"
_PRELOAD: dict[str, tuple[str, ...]] = {
    "minimal": (),
    "math": ("numpy", "sympy"),
    "data": ("numpy", "sympy", "pandas"),
}


@contextmanager
def pip_environment() -> Iterator[dict[str, str]]:
    """Yield environment variables with which `sys.executable -P -m pip` works.

    In an environment without pip, such as one of uv, that is the wheel of pip that `ensurepip` has.

    Raises:
        SandboxError: there is neither.
    """
    if importlib.util.find_spec("pip"):
        yield dict(os.environ)
    elif wheel := _bundled_wheel():
        others = os.environ.get("PYTHONPATH")
        yield {**os.environ, "PYTHONPATH": f"{wheel}{os.pathsep}{others}" if others else wheel}
    else:
        raise SandboxError(
            f"there is no pip for {sys.executable}, and no ensurepip. To fix it: uv pip install pip, or install "
            "python3-pip or python3-venv with the package manager of the system"
        )


def _bundled_wheel() -> str | None:
    """Return the wheel from which `ensurepip` installs pip; some distributions keep it in another folder."""
    spec = importlib.util.find_spec("ensurepip")
    folders = [Path(spec.origin).parent / "_bundled"] if spec and spec.origin else []
    if kept := sysconfig.get_config_var("WHEEL_PKG_DIR"):
        folders.append(Path(kept))
    return next((str(wheel) for folder in folders for wheel in sorted(folder.glob("pip-*.whl"))), None)


def cache_directory() -> Path:
    """Return the folder: `ARPO_CACHE`, else `$XDG_CACHE_HOME/arpo`, else `~/.cache/arpo`. It need not exist."""
    if override := os.environ.get("ARPO_CACHE"):
        return Path(override)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "arpo"


def announce(log: logging.Logger, text: str, *values: object) -> None:
    """Log at INFO; in a program that has not configured logging as WARNING, which Python then writes to stderr.

    `logging.getLogger("sandbox").setLevel(logging.ERROR)` silences it in such a program.
    """
    log.log(logging.INFO if log.hasHandlers() else logging.WARNING, text, *values)


@contextmanager
def locked(name: str, folder: str = "sandbox-packages", work: str = "prepares the sandbox") -> Iterator[Path]:
    """Hold a lock against all threads and processes of this user; yields a folder in the cache.

    `work` is what is done under the lock, which is shown to whoever has to wait.
    """
    path = cache_directory() / folder
    try:
        path.mkdir(parents=True, exist_ok=True)
        # an open file of its own for each call: such locks hold between threads too, and end with the process
        file = open(path / f".{name}.lock", "w")  # noqa: SIM115
    except OSError as error:
        raise SandboxError(f"{error}; set ARPO_CACHE to a writable folder") from error
    with file:
        try:
            # tried without waiting first, so that a wait can be announced
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            announce(_log, "waiting for another process that %s", work)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield path


def requirements(profile: str) -> str:
    """Return the requirements for pip, one per line, with comments: the pins, and the packages added to them."""
    name, *packages = profile.split(" ")
    if name not in PROFILES:
        raise ValueError(f"there is no profile {name!r}; choose one of {', '.join(PROFILES)}")
    return "".join(((IMAGES / f"{name}.txt").read_text(), *(f"{package}\n" for package in packages)))


def profile_label(profile: str) -> str:
    """Return a short name without spaces: of a profile with packages, its name and a hash of these."""
    name, _, packages = profile.partition(" ")
    return f"{name}-{hashlib.sha256(packages.encode()).hexdigest()[:8]}" if packages else name


def preload(profile: str) -> tuple[str, ...]:
    """Return the modules that a server imports before its first session.

    Each import makes every fork slower, since page tables are copied; so scipy is not among them.
    """
    return _PRELOAD[profile.partition(" ")[0]]


def is_empty(profile: str) -> bool:
    """Whether a profile has no packages."""
    return not any(line.strip() and not line.startswith("#") for line in requirements(profile).splitlines())


def packages_digest(profile: str) -> str:
    """Return a hash of what determines `packages_directory`: the pins, how they are installed, and the Python."""
    # a change of any of these can change what pip installs
    recipe = (requirements(profile), _PREPARE.read_text(), sys.version, platform.machine(), *platform.libc_ver())
    return hashlib.sha256("\0".join(recipe).encode()).hexdigest()[:16]


def packages_directory(profile: str) -> Path | None:
    """Return the directory with a profile's packages, for this Python; None if the profile has none.

    It is made on first use, which takes 10 s to 60 s; many processes may ask at once. After that it never changes, so
    that it can be mounted read-only, or put on `sys.path`.

    Raises:
        ValueError: there is no such profile.
        SandboxError: pip cannot install them; the message says what to do.
    """
    if is_empty(profile):
        return None
    digest = packages_digest(profile)
    # under the lock, since another process may be installing the same packages
    with locked(digest) as cache:
        made = cache / digest
        if not made.is_dir():
            started = time.monotonic()
            announce(_log, "installing the packages of the sandbox's profile %s (once, up to a minute)", profile)
            part = cache / f".{digest}.part"
            # of an installation that was interrupted
            shutil.rmtree(part, ignore_errors=True)
            _install(profile, part)
            # in one step, so that a directory of this name is always complete
            part.rename(made)
            announce(_log, "installed the packages in %.1f s", time.monotonic() - started)
    return made


def _install(profile: str, target: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        wanted = Path(scratch, "requirements.txt")
        wanted.write_text(requirements(profile))
        arguments = ["install", str(wanted), str(target), SITE_PACKAGES]
        _run_pip(profile, [sys.executable, "-P", str(_PREPARE), *arguments])


def download_wheels(profile: str, target: Path, version: str, machine: str, libc: str, pip: str = "") -> None:
    """Download the wheels of a profile for another Python, with this machine's pip and its configuration.

    Args:
        profile: one with packages.
        target: an existing directory, which has the requirements in `profile_label(profile)`.txt.
        version: of that Python, such as "3.12".
        machine: such as "x86_64".
        libc: "glibc", of 2.28 or newer, or another, which is taken for musl.
        pip: whether it has pip; otherwise the wheel of pip is downloaded, too.

    Raises:
        SandboxError: pip cannot download them, or there are none for that Python.
    """
    command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    # no package's own code runs, as a source build would
    command += ["--only-binary", ":all:", "--dest", str(target)]
    command += ["--python-version", version]
    # a wheel for an older glibc works with a newer one, and pip takes only the tags that are named
    glibc = [f"manylinux_2_{minor}" for minor in range(17, 29)]
    tags = glibc if libc == "glibc" else ["musllinux_1_1", "musllinux_1_2"]
    command += [argument for tag in tags for argument in ("--platform", f"{tag}_{machine}")]
    _run_pip(profile, [*command, *([] if pip else ["pip"]), "-r", str(target / f"{profile_label(profile)}.txt")])


def _run_pip(profile: str, command: list[str]) -> None:
    name, _, packages = profile.partition(" ")
    cure = (
        'or do without packages: profile="minimal", `arpo sandbox build --profile minimal`; '
        "or use an image that has them: image=..."
    )
    if packages:
        cure = (
            f"check the names and versions of packages=, which have to go with those of the profile {name!r} "
            f'(sandbox/images/{name}.txt; with profile="minimal" there are none); {cure}'
        )
    try:
        with pip_environment() as environment:
            # other users read the packages, whatever the caller's umask is
            options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "umask": 0o022, "cwd": "/", "env": environment}
            result = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    except SandboxError as error:
        raise SandboxError(
            f"the packages of the sandbox's profile {profile!r} cannot be installed: {error}; {cure}"
        ) from error
    if result.returncode:
        words = result.stderr.strip() or result.stdout.strip()
        raise SandboxError(
            f"the packages of the sandbox's profile {profile!r} cannot be installed ({words[-600:]}). "
            f"To fix it: make sure that pip works here (an index, or PIP_FIND_LINKS with the wheels); {cure}"
        )


def compile_directory(directory: Path, place: str) -> None:
    """Write bytecode beside the sources of a directory that will be used at another place.

    Raises:
        SandboxError: the Python that compiles does not run.
    """
    python = getattr(sys, "_base_executable", sys.executable)
    command = [os.path.realpath(python), "-I", str(_PREPARE), "compile", str(directory), place]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise SandboxError(f"the bytecode of the image cannot be written: {result.stderr.strip()[-600:]}")
