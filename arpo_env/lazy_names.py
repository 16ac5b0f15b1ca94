"""Imports a package's public names when they are first used, which keeps `import` of the package cheap."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any


def lazy_names(
    package: str, importing: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
) -> Callable[[str], Any]:
    """Return a `__getattr__` for a package (PEP 562): it imports what the package itself imports for type checkers.

    Args:
        package: full name of the package.
        importing: a context manager around the import, which may explain why it failed.
    """

    @functools.cache
    def homes() -> dict[str, str]:
        spec: Any = sys.modules[package].__spec__
        found = (
            node for node in ast.walk(ast.parse(spec.loader.get_source(package))) if isinstance(node, ast.ImportFrom)
        )
        return {name.name: node.module or "" for node in found for name in node.names}

    def get_name(name: str) -> Any:
        if name not in homes():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with importing():
            return getattr(importlib.import_module(homes()[name]), name)

    return get_name
