"""Imports a package's public names when they are first used, which keeps `import` of the package cheap."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any


def lazy_names(
    package: str,
    homes: Mapping[str, str],
    importing: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
) -> Callable[[str], Any]:
    """Return a `__getattr__` for a package (PEP 562).

    Args:
        package: full name of the package.
        homes: public name -> module of the package that defines it, relative to the package.
        importing: a context manager around the import, which may explain why it failed.
    """

    def get_name(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with importing():
            return getattr(importlib.import_module(f"{package}.{homes[name]}"), name)

    return get_name
