"""Finds a pip to run where the environment has none, such as one made by uv, without installing it there."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox.errors import SandboxError

_WHERE = "import os, pip; print(os.path.dirname(os.path.dirname(pip.__file__)))"


@contextmanager
def pip_environment() -> Iterator[dict[str, str]]:
    """Yield environment variables with which `sys.executable -P -m pip` works.

    Uses the first that exists: pip of this environment, the wheel of pip that `ensurepip` has, pip of the Python that
    this environment was made from, or pip as uv downloads it, into a temporary folder.

    Raises:
        SandboxError: none of them exists.
    """
    if importlib.util.find_spec("pip"):
        yield dict(os.environ)
    elif path := _bundled_wheel() or _pip_of_base():
        yield _with_path(path)
    elif uv := _uv():
        with tempfile.TemporaryDirectory(prefix="arpo-pip-") as folder:
            _fetch(uv, folder)
            yield _with_path(folder)
    else:
        raise SandboxError(
            f"there is no pip for {sys.executable}: not in its environment, not in the Python that it was made from "
            "(ensurepip), and there is no uv. To fix it: uv pip install pip, or install python3-pip with the package "
            "manager of the system"
        )


def _with_path(path: str) -> dict[str, str]:
    others = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{path}{os.pathsep}{others}" if others else path}


def _bundled_wheel() -> str | None:
    """Return the wheel from which `ensurepip` installs pip; some distributions keep it in another folder."""
    spec = importlib.util.find_spec("ensurepip")
    folders = [Path(spec.origin).parent / "_bundled"] if spec and spec.origin else []
    if kept := sysconfig.get_config_var("WHEEL_PKG_DIR"):
        folders.append(Path(kept))
    return next((str(wheel) for folder in folders for wheel in sorted(folder.glob("pip-*.whl"))), None)


def _pip_of_base() -> str | None:
    """Return the folder with pip of the Python that this environment was made from."""
    python = getattr(sys, "_base_executable", sys.executable)
    # without a virtual environment, the base is this Python, which has no pip
    if sys.prefix == sys.base_prefix or not os.path.exists(python):
        return None
    # isolated, so that neither PYTHONPATH nor the working directory can answer for that Python
    found = subprocess.run([python, "-I", "-c", _WHERE], capture_output=True, text=True, check=False)
    return found.stdout.strip() or None


def _uv() -> str | None:
    beside = Path(sys.executable).with_name("uv")
    # uv sets this variable for the programs that it runs
    return os.environ.get("UV") or shutil.which("uv") or (str(beside) if beside.exists() else None)


def _fetch(uv: str, folder: str) -> None:
    command = [uv, "pip", "install", "--quiet", "--python", sys.executable, "--target", folder, "pip"]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if result.returncode:
        raise SandboxError(
            f"there is no pip for {sys.executable}, and uv cannot fetch it ({result.stderr.strip()[-600:]}). "
            "To fix it: make sure that uv reaches an index (UV_DEFAULT_INDEX)"
        )
