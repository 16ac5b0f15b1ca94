"""Old module names: each is imported from its new place, with a `DeprecationWarning` that names it.

    moved_modules({"package.old": "package.room.new"})  # `import package.old` gives package.room.new
    __getattr__ = moved_members("arpo_env.cache", "arpo_env.cache.cache")  # for a package that was a module

The module behind the old name is the very same object, so that pickled objects of earlier versions load as well.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import InspectLoader, Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any, cast


class _MovedModule(Loader):
    """Loads a module by importing it from its new place."""

    def __init__(self, new: str) -> None:
        self._new = new
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._new)
        self._spec = module.__spec__
        return module

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the code of the new module, for `python -m OLD_NAME`."""
        spec = importlib.util.find_spec(self._new)
        loader = cast(InspectLoader, spec.loader if spec else None)
        return loader.get_code(self._new)

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has just replaced it by that of the old name


class _MovedModuleFinder(MetaPathFinder):
    def __init__(self) -> None:
        self.moved: dict[str, str] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        new = self.moved.get(fullname)
        if new is None:
            return None
        _warn(fullname, new)
        is_package = importlib.util.find_spec(new).submodule_search_locations is not None  # type: ignore[union-attr]
        return ModuleSpec(fullname, _MovedModule(new), is_package=is_package)


_finder = _MovedModuleFinder()


def moved_modules(moved: Mapping[str, str]) -> None:
    """Let old module names be imported for one more version.

    Args:
        moved: old full name of a module -> new full name.
    """
    _finder.moved.update(moved)
    if _finder not in sys.meta_path:
        sys.meta_path.append(_finder)  # last, so that it is asked only for names that no file has


def moved_members(package: str, *modules: str) -> Callable[[str], Any]:
    """Return a `__getattr__` for a package that used to be a module.

    Args:
        package: full name of the package.
        modules: full names of the modules that now hold the members of the old module.
    """

    def get_member(name: str) -> Any:
        if not (name.startswith("__") and name.endswith("__")):
            for module in modules:
                found = importlib.import_module(module)
                if name in vars(found):
                    _warn(f"{package}.{name}", f"{module}.{name}")
                    return getattr(found, name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get_member


def _warn(old: str, new: str) -> None:
    # 3 is right for an attribute; for an import the warning names the line as well as Python's machinery allows
    message = f"{old} has moved to {new}; the old name will be removed in the next version"
    warnings.warn(message, DeprecationWarning, stacklevel=3)
