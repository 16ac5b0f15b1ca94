"""`EnvSpec`, which describes an environment id as a row of data, and the table of registered specs.

A spec has no behaviour: `arpo_env` builds environments from it.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from envs_registry.nearest_name import nearest_hint

# Names with a module: ids in the form of Gymnasium ("my_envs:mine/Task-v0" imports it), and objects (MODULE:NAME).


def resolve_id(env_id: str) -> str:
    """Import the module that an id names, if any, and return the id without it.

    The module is searched for on Python's path, and then in the current folder, which is not on the path of a console
    script such as `arpo`.
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
    """Return the object that MODULE:NAME names, such as "my_graders:lenient".

    A ValueError names the setting `where` the text stands: it has another form, or there is no such module or name.
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


class UnknownEnvError(KeyError):
    """Raised when an environment id is not registered; the message names the nearest ones."""

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True)
class EnvSpec:
    """One environment.

    Attributes:
        id: Gymnasium id, `arpo/Name-vN`, or `namespace/Name-vN` for user-defined environments.
        source: name of the task source in `envs_registry.sources`.
        description: one line for tables.
        tools: the tools of the policy: names, typed functions, or factories of a `Tool`.
        protocol: the format of turns: a name such as "arpo-tags", or a `Protocol`; None leaves it to who plays.
        reward: "paper" or "tool-star" (format, answer, multi-tool bonus; ARPO eq. 8), "deepagent" (success and right
            calls), "reference" (published code), or weighted terms.
        scorer: the grader of the answer: "auto" (by the task's kind), "math", "qa", "em" (exact match), "mcq",
            "gaia" or "judge"; or a `Grader`.
        max_turns: model turns in an episode; the episode is truncated after them.
        max_tool_calls: executed calls in an episode; later calls get a request to answer instead of a result.
        tool_limits: maximum number of calls of single tools, as in (("python", 5), ("search", 10)).
        tool_timeout: time limit of one call in seconds.
        max_tokens: tokens per episode in the papers, without the prompt; None if the papers do not state it.
        language: of the system prompt: "en" or "zh".
        splits: splits of the source; the first is the default. Empty if the source has no splits.
        levels: values that the source's option `level` accepts.
        size: number of tasks per split, for tables ("endless", "train 7,473 / test 1,319").
        licence: licence of the data.
        gated: URL of the page where the terms of a gated data set are accepted, or "".
    """

    id: str
    source: str
    description: str
    tools: tuple[str | Callable[..., Any], ...] = ("python",)
    protocol: str | Any = None
    reward: str | Mapping[str, Any] | Any = "paper"
    scorer: str | Any = "auto"
    max_turns: int = 6
    max_tool_calls: int = 4
    tool_limits: tuple[tuple[str, int], ...] = ()
    tool_timeout: float = 10.0
    max_tokens: int | None = None
    language: Literal["en", "zh"] = "en"
    splits: tuple[str, ...] = ("train", "test")
    levels: tuple[str, ...] = ()
    size: str = ""
    licence: str = ""
    gated: str = ""

    @property
    def tool_names(self) -> tuple[str, ...]:
        """Names of the tools, for tables."""
        return tuple(map(_tool_name, self.tools))


def _tool_name(tool: Any) -> str:
    """Return the name that the model sees: that of the decorator, of a tool's class, or the function's own."""
    decorated = getattr(tool, "__arpo_tool__", {}).get("name")  # by `arpo_env.tool`
    names = (tool, decorated, getattr(tool, "name", None), getattr(tool, "__name__", None))
    return next((name for name in names if name and isinstance(name, str)), repr(tool))


_SPECS: dict[str, EnvSpec] = {}
_LISTENERS: list[Callable[[EnvSpec], None]] = []


def register(specs: Iterable[EnvSpec]) -> None:
    """Add specs to the table; a spec with an existing id replaces the old one.

    This is the low-level function: `arpo_env.register` validates its arguments and accepts tasks and tools as well.
    """
    for spec in specs:
        # Listeners first: if one rejects the spec by raising, it does not enter the table.
        for listener in _LISTENERS:
            listener(spec)
        _SPECS[spec.id] = spec


def on_register(listener: Callable[[EnvSpec], None]) -> None:
    """Call `listener` with every registered spec, and with every spec that is registered later."""
    for spec in all_specs():
        listener(spec)
    _LISTENERS.append(listener)


def all_specs() -> list[EnvSpec]:
    """Return every registered spec, sorted by id."""
    return [_SPECS[key] for key in sorted(_SPECS)]


def has_spec(env_id: str) -> bool:
    """Return whether this id is registered."""
    return env_id in _SPECS


def get_spec(env_id: str) -> EnvSpec:
    """Return the spec of an id, which may begin with the module that registers it, as in "my_envs:mine/Task-v0".

    The UnknownEnvError of an id that is not registered names the nearest ids.
    """
    known = resolve_id(env_id)
    if known in _SPECS:
        return _SPECS[known]
    wanted = known.lower()
    folded = {key.lower(): key for key in _SPECS}
    short = {key.split("/")[-1].rsplit("-v", 1)[0]: key for key in folded}
    # The whole id finds misspellings; the bare name also finds other namespaces and versions.
    near = [folded[key] for key in difflib.get_close_matches(wanted, folded, n=3, cutoff=0.5)]
    near += [folded[short[key]] for key in difflib.get_close_matches(wanted.split("/")[-1].rsplit("-v", 1)[0], short)]
    names = list(dict.fromkeys(near)) or sorted(_SPECS)
    module = env_id.removesuffix(known).removesuffix(":")
    cure = (
        f"The module {module!r} has to register it: arpo_env.register({known!r}, ...)"
        if module
        else "`arpo envs` lists all of them; name your own environment with its module, as in my_envs:mine/Task-v0"
    )
    raise UnknownEnvError(f"no environment {known!r}. Did you mean: {', '.join(names)}? {cure}.")
