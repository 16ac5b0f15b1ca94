"""The libraries of each extra of the package, for errors that name the command to run, and for `arpo doctor`."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from collections.abc import Iterator

EXTRAS: dict[str, dict[str, str]] = {  # extra -> {name for pip: imported module}
    "train": {
        "torch": "torch",
        "transformers": "transformers",
        "trl": "trl",
        "accelerate": "accelerate",
        "datasets": "datasets",
        "psutil": "psutil",
        "tqdm": "tqdm",
        "rich": "rich",
        "httpx2": "httpx2",
    },
    "lora": {"peft": "peft"},
    "vllm": {"vllm": "vllm"},
    "ray": {"ray": "ray"},
    "demo": {"gguf": "gguf"},
    "data": {"datasets": "datasets"},
    "search": {
        "httpx2": "httpx2",
        "requests": "requests",
        "urllib3": "urllib3",
        "beautifulsoup4": "bs4",
        "tantivy": "tantivy",
        "lxml": "lxml",
        "trafilatura": "trafilatura",
        "lxml_html_clean": "lxml_html_clean",
        "pypdf": "pypdf",
        "protego": "protego",
    },
    "math": {"mpmath": "mpmath"},
    "mcp": {"mcp": "mcp"},
    "plot": {"matplotlib": "matplotlib"},
    "files": {
        "pypdf": "pypdf",
        "cryptography": "cryptography",
        "openpyxl": "openpyxl",
        "python-docx": "docx",
        "python-pptx": "pptx",
        "pillow": "PIL",
    },
}


def require(extra: str) -> None:
    """Check that the libraries of an extra are installed; nothing is imported.

    Raises:
        ModuleNotFoundError: some are missing; the error names them and the extra.
    """
    lacking = [module for module in EXTRAS[extra].values() if importlib.util.find_spec(module) is None]
    if lacking:
        raise ModuleNotFoundError(_message(lacking, extra), name=lacking[0])


@contextlib.contextmanager
def naming_extras() -> Iterator[None]:
    """Add the name of the extra to the error of a failed import.

    Raises:
        ModuleNotFoundError: the original error, with the command to run if an extra contains the library.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        # a submodule may be what failed; the extras name top-level modules
        module = (error.name or "").partition(".")[0]
        extra = next((extra for extra, libraries in EXTRAS.items() if module in libraries.values()), None)
        # errors of `require` name their extra already
        if extra is None or "pip install" in str(error):
            raise
        raise ModuleNotFoundError(_message([module], extra), name=error.name) from error


def _message(modules: list[str], extra: str) -> str:
    return f"not installed: {', '.join(modules)}. Run: pip install 'arpo-gym[{extra}]'"
