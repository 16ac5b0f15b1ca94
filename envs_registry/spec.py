"""`EnvSpec`: what an environment id stands for, as a row of data. `register` and `get_spec` keep the table.

It has no behaviour: `arpo_env` reads a spec and plays it. An id may name the module that registers it, in Gymnasium's
own form: `get_spec("my_envs:mine/Task-v0")` imports `my_envs` first.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal


class UnknownEnvError(KeyError):
    """Raised when an environment id is not registered; the message names the nearest ones."""

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True)
class EnvSpec:
    """One environment.

    Attributes:
        id: Gymnasium id, `arpo/Name-vN`, or `namespace/Name-vN` for an environment of your own.
        source: name of the task source in `envs_registry.sources`.
        description: one line for tables.
        tools: the tools that the policy has: names, typed functions, or what makes a `Tool`.
        protocol: how turns are written: a name such as "arpo-tags", or a `Protocol`.
        reward: "paper" (format, answer, multi-tool bonus; ARPO eq. 8), "reference" (the published code's), or weighted
            terms.
        scorer: what grades the answer: "auto" (by the task's kind), "math", "qa", "em" (words, right or wrong), "mcq",
            "gaia" or "judge"; or a `Grader`.
        max_turns: model turns in an episode; one more truncates it.
        max_tool_calls: calls that are executed; later ones are answered with a request to answer now.
        tool_limits: the most calls of single tools, as in (("python", 5), ("search", 10)).
        tool_timeout: seconds one call may take.
        max_tokens: tokens that the papers give an episode of this kind, prompt aside; None if they say nothing.
        language: of the system prompt: "en" or "zh".
        splits: of the source; the first is the default. Empty where it has none.
        levels: what the source's option `level` accepts.
        size: tasks by split, for tables ("endless", "train 7,473 / test 1,319").
        licence: of the data.
        gated: page where the terms of the data are accepted before it can be loaded, or "".
    """

    id: str
    source: str
    description: str
    tools: tuple[str | Callable[..., Any], ...] = ("python",)
    protocol: str | Any = "arpo-tags"
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
        """The tools as a table shows them: a function by its name."""
        return tuple(tool if isinstance(tool, str) else getattr(tool, "__name__", repr(tool)) for tool in self.tools)


_SPECS: dict[str, EnvSpec] = {}
_LISTENERS: list[Callable[[EnvSpec], None]] = []


def register(specs: Iterable[EnvSpec]) -> None:
    """Add specs to the table; an id that is there already is replaced.

    This is the low level: `arpo_env.register` checks what it is given, and takes tasks and tools as well.
    """
    for spec in specs:
        for listener in _LISTENERS:
            listener(spec)
        _SPECS[spec.id] = spec


def on_register(listener: Callable[[EnvSpec], None]) -> None:
    """Call `listener` with each spec in the table now, and with each that is registered later."""
    for spec in all_specs():
        listener(spec)
    _LISTENERS.append(listener)


def all_specs() -> list[EnvSpec]:
    """Return every registered spec, sorted by id."""
    return [_SPECS[key] for key in sorted(_SPECS)]


def has_spec(env_id: str) -> bool:
    """Say whether this id is registered."""
    return env_id in _SPECS


def get_spec(env_id: str) -> EnvSpec:
    """Return the spec of an id, which may begin with the module that registers it, as in "my_envs:mine/Task-v0".

    Raises:
        UnknownEnvError: no such id; the message names the nearest ones.
        ModuleNotFoundError: no such module; says where it was looked for.
    """
    known = resolve_id(env_id)
    if known in _SPECS:
        return _SPECS[known]
    folded = {key.lower(): key for key in _SPECS}
    short = {key.split("/")[-1].rsplit("-v", 1)[0].lower(): key for key in _SPECS}
    wanted = known.lower()
    near = [folded[key] for key in difflib.get_close_matches(wanted, folded, n=3, cutoff=0.5)]
    near += [short[key] for key in difflib.get_close_matches(wanted.split("/")[-1].rsplit("-v", 1)[0], short, n=3)]
    names = list(dict.fromkeys(near)) or sorted(_SPECS)
    module = env_id.removesuffix(known).removesuffix(":")
    cure = (
        f"The module {module!r} has to register it: arpo_env.register({known!r}, ...)"
        if module
        else "`arpo envs` lists them all; one of your own is named with its module, as in my_envs:mine/Task-v0"
    )
    raise UnknownEnvError(f"no environment {known!r}. Did you mean: {', '.join(names)}? {cure}.")


def resolve_id(env_id: str) -> str:
    """Return an id without its module, which is imported first; an id without one is returned as it is.

    The module is looked for where Python looks, and then in the current folder, which is not among those places when a
    console script such as `arpo` runs.

    Raises:
        ModuleNotFoundError: no such module; says where it was looked for.
    """
    module, colon, known = env_id.partition(":")
    if colon:
        import_module(module)
    return known if colon else env_id


def import_module(module: str) -> None:
    """Import a module that registers environments; see `resolve_id`."""
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)  # last: a file here replaces no installed module
    if not all(part.isidentifier() for part in module.split(".")):
        raise _no_module(module, here)
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise  # the module is there, and lacks another one
        raise _no_module(module, here) from error


def _no_module(module: str, here: str) -> ModuleNotFoundError:
    wanted = module.removesuffix(".py").replace("/", ".").strip(".")
    hint = f" Write {wanted}:NAME, the name that Python imports." if wanted != module else ""
    return ModuleNotFoundError(
        f"no module {module!r} that registers environments (looked on Python's path and in {here}).{hint} Run the "
        "command in the folder that holds it, install it, or put its folder into PYTHONPATH",
        name=module,
    )
