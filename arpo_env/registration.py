"""Registers environments with Gymnasium: the built-in ones when `arpo_env` is imported, your own through `register`.

    arpo_env.register("mine/Capital-v0", tasks, tools=[lookup], scorer="qa")
    gym.make("mine/Capital-v0")
    gym.make("my_envs:mine/Capital-v0")             # in another process: MODULE:ID imports the module first

Everything that accepts an id (the `arpo` command, settings files, `ToolEnv`) accepts this form, so that each process of
a run can find the environment by name.
"""

from __future__ import annotations

import copy
import dataclasses
import sys
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
from gymnasium.envs.registration import parse_env_id

from arpo_env.env_factory import remember_home
from envs_registry import EnvSpec, register_source
from envs_registry.nearest_name import nearest_hint
from envs_registry.sources import has_source
from envs_registry.spec import on_register
from envs_registry.spec import register as add_specs
from envs_registry.user_tasks import Tasks, own_loader, own_splits

_PARTS = tuple(field.name for field in dataclasses.fields(EnvSpec) if field.name != "id")
_origins: dict[str, str] = {}  # registered id -> file of the module that registered it, or the module's name


def register(spec: str | EnvSpec, tasks: Tasks | None = None, *, overwrite: bool = False, **parts: Any) -> EnvSpec:
    """Register an environment; `gymnasium.make`, `make_vec` and the `arpo` command then know its id.

    A module may register its own ids again, as a reload or a notebook cell that is run again does: the last one counts.

    Args:
        spec: an id, such as "mine/Task-v0", or a whole `EnvSpec`.
        tasks: a list of `envs_registry.Task`; an object with `size` and `task(index)`; a function that returns one of
            these and whose parameters become options of the environment (a parameter `seed` marks generated tasks); a
            data file, or a folder with one file per split; or a mapping from split to one of these, the default split
            first. None uses the tasks of `source`, the source of another environment.
        overwrite: replace an environment that another module has registered, such as a built-in one.
        parts: fields of `EnvSpec`: description, tools, protocol, reward, scorer, max_turns, max_tool_calls,
            tool_limits, tool_timeout, ...

    Returns:
        The registered spec.

    Raises:
        ValueError: Gymnasium does not accept the id, another module has registered the id, a field is unknown, or
            the tasks have none of these forms.
    """
    made = _spec(spec, tasks, parts)
    caller = sys._getframe(1).f_globals
    module = caller.get("__name__", "__main__")
    # by file, since a script is `__main__` and, where another process imports it, a module
    origin = caller.get("__file__") or module
    if made.id in gymnasium.registry and not overwrite and _origins.get(made.id) != origin:
        raise ValueError(
            f"{made.id!r} is already registered, and not by this module: register under another id, such as "
            f"{_next_version(made.id)!r}, or give overwrite=True to replace it"
        )
    # Before anything is changed: if the tasks have a wrong form, the old environment stays.
    loader = None if tasks is None else own_loader(made, tasks)
    # The listener behind `add_specs` adds only ids that Gymnasium does not know.
    gymnasium.registry.pop(made.id, None)
    add_specs([made])
    if loader is not None:
        register_source(made.source, loader)
    _origins[made.id] = origin
    remember_home(made.id, module)
    return made


def register_all() -> None:
    """Register every environment of the table with Gymnasium, including those that are added later.

    Gymnasium's wrappers show no attribute of what they wrap, so they are given `fork` here.
    """
    on_register(_add_to_gymnasium)
    gymnasium.Wrapper.fork = property(_fork_of)  # type: ignore[attr-defined]


def _fork_of(wrapper: gymnasium.Wrapper[Any, Any, Any, Any]) -> Callable[[], Any]:
    """Return the method `fork` of a wrapper; an AttributeError if what is in it has none."""
    inner: Any = wrapper.unwrapped
    fork_inner = inner.fork

    def fork() -> Any:
        """Return an independent copy of the running episode in copies of its wrappers, with their state.

        Raises:
            TypeError: a wrapper holds something that cannot be copied.
        """
        # what a wrapper knows of the environment becomes the copy; specs are shared, as in the environment itself
        memo: dict[int, Any] = {id(inner): fork_inner()}
        layer: Any = wrapper
        while layer is not inner:
            memo[id(layer._cached_spec)], layer = layer._cached_spec, layer.env
        try:
            return copy.deepcopy(wrapper, memo)
        except Exception as error:  # whatever the attributes of somebody's wrapper raise
            memo[id(inner)].close()
            raise TypeError(
                f"{wrapper} cannot be forked, since a wrapper holds what cannot be copied ({error}): give that wrapper "
                "a __deepcopy__, or fork env.unwrapped, which has no wrappers"
            ) from error

    return fork


def _add_to_gymnasium(spec: EnvSpec) -> None:
    """Register a spec with Gymnasium, unless its id is already registered.

    Gymnasium's wrappers are disabled: `ToolEnv` checks the order of calls and the turn limit itself, and a wrapper
    hides its asynchronous methods.
    """
    if spec.id not in gymnasium.registry:
        gymnasium.register(
            spec.id,
            entry_point="arpo_env.env:ToolEnv",
            vector_entry_point="arpo_env.vector:ToolVectorEnv",
            kwargs={"env_id": spec.id},
            order_enforce=False,
            disable_env_checker=True,
        )


def _spec(given: str | EnvSpec, tasks: Tasks | None, parts: Mapping[str, Any]) -> EnvSpec:
    for name in parts:
        if name not in _PARTS:
            every = f"there are: {', '.join(_PARTS)}"
            hint = nearest_hint(name, (*_PARTS, "tasks", "overwrite"), "did you mean {!r}?", every)
            raise ValueError(f"an environment has no field {name!r}; {hint}")
    env_id = given.id if isinstance(given, EnvSpec) else given
    _check_id(env_id)
    values: dict[str, Any] = {"description": ""}
    if isinstance(given, EnvSpec):
        values = {name: getattr(given, name) for name in _PARTS}
    values |= parts
    # A spec is immutable, so that its fields are tuples.
    if isinstance(values.get("tools"), list):
        values["tools"] = tuple(values["tools"])
    if isinstance(values.get("tool_limits"), Mapping):
        values["tool_limits"] = tuple(values["tool_limits"].items())
    if tasks is not None:
        # The splits of a copied spec belong to its own tasks and not to these.
        values["source"] = env_id
        values["splits"] = parts.get("splits", own_splits(tasks))
    elif not has_source(values.get("source", "")):
        raise ValueError(
            f"{env_id} has no tasks: give tasks=[Task(...), ...], a function or a data file, or source=... of another "
            "environment"
        )
    return EnvSpec(id=env_id, **values)


def _check_id(env_id: str) -> None:
    if not isinstance(env_id, str):
        raise ValueError(f"an id is a string such as 'mine/Task-v0', or an EnvSpec; got {env_id!r:.80}")
    module, colon, name = env_id.rpartition(":")
    if colon:
        raise ValueError(
            f"the module is not part of the id: register {name!r}, and use {env_id!r} where module {module!r} is "
            "not imported yet"
        )
    try:
        parse_env_id(env_id)
    except gymnasium.error.Error as error:
        raise ValueError(
            f"Gymnasium does not accept the id {env_id!r}; write NAMESPACE/Name-v0, as in 'mine/Task-v0'"
        ) from error


def _next_version(env_id: str) -> str:
    namespace, name, version = parse_env_id(env_id)
    return f"{namespace + '/' if namespace else ''}{name}-v{0 if version is None else version + 1}"
