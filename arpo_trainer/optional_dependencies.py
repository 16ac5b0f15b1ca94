"""The libraries of each extra of the package, for errors that name the command to run, and for `arpo doctor`."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import importlib.util
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from envs_registry.install_line import install_line

if TYPE_CHECKING:
    from packaging.requirements import Requirement

logger = logging.getLogger(__name__)
# name for pip -> imported module, where they differ
_MODULES = {"beautifulsoup4": "bs4", "python-docx": "docx", "python-pptx": "pptx", "pillow": "PIL"}
_LIBRARIES = {
    "train": "torch transformers trl accelerate datasets psutil tqdm rich httpx2",
    "lora": "peft",
    "vllm": "vllm",
    "ray": "ray",
    "demo": "gguf",
    "data": "datasets",
    "search": "httpx2 beautifulsoup4 lxml trafilatura lxml_html_clean pypdf protego",
    "math": "mpmath",
    "mcp": "mcp",
    "plot": "matplotlib",
    "serve": "uvicorn starlette",
    "files": "pypdf cryptography openpyxl python-docx python-pptx pillow",
}
EXTRAS = {extra: {name: _MODULES.get(name, name) for name in names.split()} for extra, names in _LIBRARIES.items()}
"""Extra -> {name for pip: imported module}."""


def require(extra: str) -> None:
    """Check that the libraries of an extra are installed, in versions that it takes; nothing is imported.

    Raises:
        ModuleNotFoundError: some are missing; the error names them and the extra.
        ImportError: some have another version.
    """
    lacking = [module for module in EXTRAS[extra].values() if importlib.util.find_spec(module) is None]
    if lacking:
        raise ModuleNotFoundError(_message(lacking, extra), name=lacking[0])
    if wrong := other_versions(extra):
        raise ImportError(_message(wrong, extra))


def other_versions(extra: str) -> list[str]:
    """Return which installed libraries have a version that an extra does not take, each with what it takes.

    Empty where this package runs from a checkout without being installed.
    """
    found = []
    for wanted in _requirements("arpo-gym", extra):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            version = importlib.metadata.version(wanted.name)
            if wanted.name in EXTRAS[extra] and not wanted.specifier.contains(version, prereleases=True):
                found.append(f"{wanted.name}{wanted.specifier} ({version} is installed)")
    return found


def warn_of_vllm() -> None:
    """Warn of a vLLM outside of the range that TRL states, which it has not been tried with; it may work."""
    for text in other_versions("vllm"):
        trl = importlib.metadata.version("trl")
        logger.warning("TRL %s supports %s. If vLLM fails, run: %s", trl, text, install_line("vllm"))


def _requirements(package: str, extra: str) -> Iterator[Requirement]:
    """Yield what an extra of an installed package needs, and what the extras that it names need in their turn."""
    try:
        from packaging.requirements import Requirement

        texts = importlib.metadata.requires(package) or []
    except (ImportError, importlib.metadata.PackageNotFoundError):
        return
    for wanted in map(Requirement, texts):
        if wanted.marker is not None and wanted.marker.evaluate({"extra": extra}):
            yield wanted
            for name in wanted.extras:
                yield from _requirements(wanted.name, name)


@contextlib.contextmanager
def naming_extras() -> Iterator[None]:
    """Add the name of the extra to the error of a failed import.

    Raises:
        ModuleNotFoundError: the original error, with the command to run if an extra contains the library.
        ImportError: a library has another version, in which something is missing; names the command too.
    """
    try:
        yield
    except ImportError as error:
        # a submodule may be what failed; the extras name top-level modules
        module = (error.name or "").partition(".")[0]
        extra = next((extra for extra, libraries in EXTRAS.items() if module in libraries.values()), None)
        # errors of `require` name their extra already
        if extra is None or "pip install" in str(error):
            raise
        if isinstance(error, ModuleNotFoundError) and importlib.util.find_spec(module) is None:
            raise ModuleNotFoundError(_message([module], extra), name=error.name) from error
        if wrong := other_versions(extra):
            raise ImportError(f"{error}. {_message(wrong, extra)}", name=error.name) from error
        raise


def _message(modules: list[str], extra: str) -> str:
    return f"not installed: {', '.join(modules)}. Run: {install_line(extra)}"
