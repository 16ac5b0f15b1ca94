"""Registers environments with Gymnasium: the built-in ones when `arpo_env` is imported, your own through `register`.

    arpo_env.register("mine/Capital-v0", tasks, tools=[lookup], scorer="qa")
    gym.make("mine/Capital-v0")
    gym.make("my_envs:mine/Capital-v0")             # in another process: MODULE:ID imports the module first

Everything that accepts an id (the `arpo` command, settings files, `ToolEnv`) accepts this form, so that each process of
a run can find the environment by name.
"""

from __future__ import annotations

import copy
import functools
import os
import pickle
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import gymnasium
from gymnasium.envs.registration import parse_env_id

from envs_registry import register_source
from envs_registry.datasets.loading import Tasks, own_loader, own_splits
from envs_registry.sources import has_source
from envs_registry.spec import EnvSpec, get_spec, has_spec, import_module, on_register
from envs_registry.spec import register as add_specs

_lock = threading.RLock()  # loading the tasks of one environment may call the factory of another
_homes: dict[str, str] = {}  # id -> the module that registered it, so that another process can import it
_origins: dict[str, str] = {}  # id -> file of that module, or its name


class EnvFactory:
    """An environment as a value that travels between processes: the id and the options that `gym.make` takes.

    factory = EnvFactory("arpo/Arithmetic-v0", level=2)
    env = factory()          # as gym.make("arpo/Arithmetic-v0", level=2), but tasks are loaded once per process

    Environments pickle as their factory, so frameworks that ship environments to workers (Ray actors, processes started
    by "spawn") get a new one with the same settings. Two factories are equal if their ids and options are.

    Attributes:
        id: id of the environment, as in "arpo/GSM8K-v0" or "my_envs:mine/Task-v0"; or another factory, for one that has
            further options.
        options: options of `ToolEnv`. The path of an existing data file is made absolute, for other working folders.

    Raises:
        UnknownEnvError: the id is not registered.
        ModuleNotFoundError: the module that the id names was not found.
    """

    def __init__(self, id: str | EnvFactory, **options: Any) -> None:
        if isinstance(id, EnvFactory):
            options = {**id.options, **options}
            id = id.id
        get_spec(id)
        data = options.get("data")
        if isinstance(data, str | Path) and os.path.exists(data):
            options["data"] = type(data)(os.path.abspath(data))
        self.id: str = id
        self.options: dict[str, Any] = options

    def __call__(self) -> Any:
        """Return a new `ToolEnv`, which is not started."""
        with _lock:
            return _root(self).spawn()

    def __repr__(self) -> str:
        return f"gym.make({', '.join([repr(self.id), *(f'{key}={value!r}' for key, value in self.options.items())])})"

    def __eq__(self, other: object) -> bool:
        try:
            return isinstance(other, EnvFactory) and self.id == other.id and bool(self.options == other.options)
        except Exception:  # options may be anything: arrays, for one, do not compare to a truth value
            return False

    def __hash__(self) -> int:
        return hash(self.id)  # options need not be hashable

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the factory itself, since it is a value; its options need not be copyable."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        home = "" if ":" in self.id else _homes.get(self.id, "")
        return _restore, (self.id, home, {name: _packed(name, value) for name, value in self.options.items()})


@functools.lru_cache(maxsize=64)  # those that were used last are kept, since each holds its tasks
def _root(factory: EnvFactory) -> Any:
    """Return the environment of a factory from which others are spawned."""
    return without_checks(gymnasium.make(factory.id, **factory.options))


def _restore(env_id: str, home: str, options: Mapping[str, bytes]) -> EnvFactory:
    if home and not has_spec(env_id):
        import_module(home)
    return EnvFactory(env_id, **{name: pickle.loads(value) for name, value in options.items()})


def _packed(name: str, value: Any) -> bytes:
    """Return the pickle of an option, by cloudpickle where pickle itself cannot do it.

    Those are lambdas, local functions, and functions of a script or notebook (pickle only names their `__main__`).
    """
    plain = None
    try:
        plain = pickle.dumps(value)
        if b"__main__" not in plain:
            return plain
    except Exception:  # objects raise what they like
        pass
    try:
        import cloudpickle

        packed: bytes = cloudpickle.dumps(value)
        return packed
    except Exception as error:
        if plain is not None:  # found by processes that import the same script, as those of multiprocessing do
            return plain
        raise pickle.PicklingError(
            f"the option {name}= cannot be sent to another process ({type(value).__name__}: {error}): give what makes "
            'it there, such as settings (sandbox={"profile": "data"}), the text that opens a search or a cache, or a '
            "function of an importable module; with cloudpickle installed other functions travel as well"
        ) from error


def without_checks(env: Any) -> Any:
    """Return the environment inside Gymnasium's wrappers that only check calls."""
    from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker

    layer = env
    while isinstance(layer, gymnasium.Wrapper):
        if not isinstance(layer, OrderEnforcing | PassiveEnvChecker):
            raise ValueError(
                f"{type(layer).__name__} around {layer.unwrapped} would be lost, since the environment itself is "
                "played, and copied: leave it out, and options of gym.make that wrap, such as max_episode_steps "
                "(ToolEnv has max_turns)"
            )
        layer = layer.env
    return layer


def _after_fork() -> None:
    # Another thread of the parent may have held the lock.
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


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
        ValueError: another module has registered the id, or the tasks have none of these forms.
        TypeError: a field is unknown.
        gymnasium.error.Error: Gymnasium does not accept the id.
    """
    made = _spec(spec, tasks, parts)
    caller = sys._getframe(1).f_globals
    module = caller.get("__name__", "__main__")
    # by file, since a script is `__main__` and, where another process imports it, a module
    origin = caller.get("__file__") or module
    if made.id in gymnasium.registry and not overwrite and _origins.get(made.id) != origin:
        raise ValueError(
            f"{made.id!r} is already registered, and not by this module: register under another id, or give "
            "overwrite=True to replace it"
        )
    # Before anything is changed: if the tasks have a wrong form, the old environment stays.
    loader = None if tasks is None else own_loader(made, tasks)
    # The listener behind `add_specs` adds only ids that Gymnasium does not know.
    gymnasium.registry.pop(made.id, None)
    add_specs([made])
    if loader is not None:
        register_source(made.source, loader)
    _root.cache_clear()
    _origins[made.id] = origin
    if module != "__main__":
        _homes[made.id] = module
    return made


def _spec(given: str | EnvSpec, tasks: Tasks | None, parts: Mapping[str, Any]) -> EnvSpec:
    env_id = given.id if isinstance(given, EnvSpec) else given
    module, colon, name = env_id.rpartition(":")
    if colon:
        raise ValueError(
            f"the module is not part of the id: register {name!r}, and use {env_id!r} where module {module!r} is "
            "not imported yet"
        )
    parse_env_id(env_id)  # Gymnasium refuses an id of another form
    own = vars(given) if isinstance(given, EnvSpec) else {"description": ""}
    values: dict[str, Any] = {**own, **parts, "id": env_id}
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
    return EnvSpec(**values)


def register_all() -> None:
    """Register every environment of the table with Gymnasium, including those that are added later.

    Gymnasium's wrappers show no attribute of what they wrap, so they are given `fork` here.
    """
    on_register(_add_to_gymnasium)
    gymnasium.Wrapper.fork = property(_fork_of)  # type: ignore[attr-defined]


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


def _fork_of(wrapper: gymnasium.Wrapper[Any, Any, Any, Any]) -> Callable[[], Any]:
    """Return the method `fork` of a wrapper: a copy of the running episode in copies of its wrappers, with their state.

    An AttributeError says that what is in the wrapper cannot be forked.
    """
    inner: Any = wrapper.unwrapped
    fork_inner = inner.fork

    def fork() -> Any:
        # what a wrapper knows of the environment becomes the copy; specs are shared, as in the environment itself
        memo: dict[int, Any] = {id(inner): fork_inner()}
        layer: Any = wrapper
        while layer is not inner:
            memo[id(layer._cached_spec)], layer = layer._cached_spec, layer.env
        try:
            return copy.deepcopy(wrapper, memo)
        except Exception:  # whatever the attributes of somebody's wrapper raise
            memo[id(inner)].close()
            raise

    return fork
