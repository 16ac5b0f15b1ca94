"""Names with a module: ids in the form of Gymnasium ("my_envs:mine/Task-v0" imports it), and objects (MODULE:NAME)."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from envs_registry.nearest_name import nearest_hint


def resolve_id(env_id: str) -> str:
    """Import the module that an id names, if any, and return the id without it.

    The module is searched for on Python's path, and then in the current folder, which is not on the path of a console
    script such as `arpo`.

    Raises:
        ModuleNotFoundError: the module was not found; the message says where it was searched for.
    """
    module, colon, known = env_id.partition(":")
    if colon:
        import_module(module)
    return known if colon else env_id


def import_module(module: str) -> None:
    """Import a module that registers environments or algorithms; see `resolve_id`."""
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)  # at the end, so that a local file never shadows an installed module
    # Importing a path such as envs/mine.py would fail with a message that does not help.
    if not all(part.isidentifier() for part in module.split(".")):
        raise _no_module(module, here)
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise  # the module exists, but an import inside it failed
        raise _no_module(module, here) from error


def load_object(text: str, where: str) -> Any:
    """Return the object that MODULE:NAME names.

    Args:
        text: such as "my_graders:lenient".
        where: the setting that holds it, for messages.

    Raises:
        ValueError: the form is another one, or there is no such module or name.
    """
    module, _, name = text.partition(":")
    if not module or not name:
        raise ValueError(f"{where} {text!r}: write MODULE:NAME, such as my_graders:lenient")
    try:
        import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise ValueError(f"{where} {text!r}: no module {module!r} here or on Python's path") from error
    there = sys.modules[module]
    if not hasattr(there, name):
        hint = nearest_hint(name, [each for each in vars(there) if not each.startswith("_")])
        raise ValueError(f"{where} {text!r}: {module} has no {name!r}{hint}")
    return getattr(there, name)


def _no_module(module: str, here: str) -> ModuleNotFoundError:
    wanted = module.removesuffix(".py").replace("/", ".").strip(".")
    hint = f" Write {wanted}:NAME, the name that Python imports." if wanted != module else ""
    return ModuleNotFoundError(
        f"no module {module!r} (searched Python's path and {here}).{hint} Run the "
        "command in the folder that holds it, install it, or put its folder into PYTHONPATH",
        name=module,
    )
