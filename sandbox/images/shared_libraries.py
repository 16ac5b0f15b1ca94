"""Finds the shared libraries that programs of this machine need, for an image made without a distribution."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

from sandbox.errors import SandboxError

_WHEELS_NEED = (
    "libstdc++.so.6",
    "libgcc_s.so.1",
    "libpthread.so.0",
    "libdl.so.2",
    "librt.so.1",
    "libutil.so.1",
    "libm.so.6",
)
"""Libraries that binary wheels (manylinux) expect on every system."""
_STANDARD = re.compile(r"/(usr/)?lib(64|32)?(/[^/]+-linux-[^/]+)?")
_LINE = re.compile(r"^\s*(?:\S+ => )?(/\S+) \(0x[0-9a-f]+\)$", re.MULTILINE)


def closure(programs: Iterable[Path], packages: Path | None = None) -> dict[str, str]:
    """Return the libraries that programs and extension modules need, directly or not.

    Args:
        programs: on this machine.
        packages: a directory with installed wheels. Libraries of their extension modules are returned as well, except
            those that the wheels contain.

    Returns:
        The file on this machine for each place in the image. Libraries from places where the loader does not search
        are put beside libc.

    Raises:
        SandboxError: this machine has no ldd.
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
        raise SandboxError(
            f"ldd does not run ({error}); set ARPO_SANDBOX_BASE_IMAGE to an image with Python instead"
        ) from error
    return set(_LINE.findall(listing))


def _find(name: str, beside: str) -> str:
    candidates = (os.path.join(directory, name) for directory in (beside, f"/usr{beside}", "/usr/lib64", "/usr/lib"))
    return next((path for path in candidates if os.path.exists(path)), "")
