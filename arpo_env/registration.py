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
import io
import os
import pickle
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Set
from pathlib import Path
from typing import Any, Self, cast

import gymnasium
from gymnasium.envs.registration import parse_env_id

from envs_registry import register_source
from envs_registry.datasets.loading import Tasks, own_loader, own_splits
from envs_registry.nearest_name import nearest_hint
from envs_registry.sources import has_source
from envs_registry.spec import EnvSpec, get_spec, has_spec, import_module, on_register
from envs_registry.spec import register as add_specs

# `EnvFactory`: an environment as a value that travels between processes: picklable, hashable, callable.
#
#     factory = EnvFactory("arpo/Arithmetic-v0", level=2)
#     env = factory()          # as gym.make("arpo/Arithmetic-v0", level=2), but tasks are loaded once per process
#
# Environments pickle as their factory, so frameworks that ship environments to workers (Ray actors, processes started
# by "spawn") get a new one with the same settings. A running episode does not travel: its interpreter lives in the
# sandbox of this process.

_CURES = {
    "sandbox": 'give its settings, such as sandbox={"profile": "data"}, and each process opens its own',
    "cache": "give the file's path",
    "search": "give the text that opens it, such as the folder of an index or a provider's name",
}
_CURE = "use a value that pickles, such as text or a function of an importable module"

# One environment per factory and process, from which others are spawned; the spec shows whether it is still current.
# The ones that were used last are kept, since each holds its tasks.
_roots: OrderedDict[EnvFactory, tuple[EnvSpec, Any]] = OrderedDict()
_MOST_ROOTS = 64
_lock = threading.RLock()  # loading the tasks of one environment may call the factory of another
_homes: dict[str, str] = {}  # id -> the module that registered it


class EnvFactory:
    """The id and the options of an environment, as `gym.make` takes them.

    Two factories are equal if their ids and options are. Calling one returns a new `ToolEnv`, which is not started.

    Attributes:
        id: id of the environment, as in "arpo/GSM8K-v0" or "my_envs:mine/Task-v0".
        options: options of `ToolEnv`. The path of an existing data file is made absolute, for other working folders.

    Raises:
        UnknownEnvError: the id is not registered.
        ModuleNotFoundError: the module that the id names was not found.
    """

    def __init__(self, id: str, **options: Any) -> None:
        get_spec(id)
        data = options.get("data")
        if isinstance(data, str | Path) and os.path.exists(data):
            options["data"] = type(data)(os.path.abspath(data))
        self.id, self.options = id, options

    def __call__(self) -> Any:
        """Return a new `ToolEnv`.

        Raises:
            ValueError: an option is invalid.
        """
        spec = get_spec(self.id)
        root: Any
        with _lock:
            made, root = _roots.get(self, (None, None))
            if root is None or made is not spec:
                import gymnasium

                root = without_checks(gymnasium.make(self.id, **self.options))
                _roots[self] = (spec, root)
                if len(_roots) > _MOST_ROOTS:
                    _roots.popitem(last=False)
            _roots.move_to_end(self)
            return root.spawn()

    def __repr__(self) -> str:
        return f"gym.make({', '.join([repr(self.id), *(f'{key}={value!r}' for key, value in self.options.items())])})"

    def __eq__(self, other: object) -> bool:
        try:
            return isinstance(other, EnvFactory) and self.id == other.id and bool(self.options == other.options)
        except Exception:  # options may be anything: arrays, for one, do not compare to a truth value
            return False

    def __hash__(self) -> int:
        return hash((self.id, _hashable(self.options)))

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the factory itself, since it is a value; its options need not be copyable."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        home = "" if ":" in self.id else _homes.get(self.id, "")
        return _restore, (self.id, home, _pack(self.options))


def without_checks(env: Any) -> Any:
    """Return the environment inside Gymnasium's wrappers that only check calls.

    Raises:
        ValueError: another wrapper is around it, whose effect would be lost.
    """
    from gymnasium import Wrapper
    from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker

    layer = env
    while isinstance(layer, Wrapper):
        if not isinstance(layer, OrderEnforcing | PassiveEnvChecker):
            raise ValueError(
                f"{type(layer).__name__} around {layer.unwrapped} would be lost, since the environment itself is "
                "played, and copied: leave it out, and options of gym.make that wrap, such as max_episode_steps "
                "(ToolEnv has max_turns)"
            )
        layer = layer.env
    return layer


class PicklesAsFactory:
    """Lets an environment be pickled and copied: as its factory, or as a fork if it plays an episode."""

    _made_with: tuple[tuple[Any, ...], dict[str, Any]]
    _changed_options: Mapping[str, Any] = {}
    _episode: Any

    def __new__(cls, *args: Any, **options: Any) -> Self:
        """Remember the arguments, which are those of a subclass if it has its own."""
        env = super().__new__(cls)
        env._made_with = args, options
        return env

    @property
    def factory(self) -> EnvFactory:
        """The picklable factory of environments with the same settings.

        Raises:
            TypeError: the environment's class is a subclass of `ToolEnv`.
        """
        if PicklesAsFactory not in type(self).__bases__:
            raise TypeError(
                f"EnvFactory makes a ToolEnv, and this is a {type(self).__name__}, which has no factory; it can be "
                "pickled itself before reset() or after the episode"
            )
        args, options = self._made_with
        options = {**options, **self._changed_options}
        return EnvFactory(*args, **options) if args else EnvFactory(options.pop("env_id"), **options)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        # A running episode holds a live interpreter, which cannot leave this process.
        if self._runs:
            raise pickle.PicklingError(
                f"this {type(self).__name__} plays an episode, which cannot be pickled; env.fork() copies it within "
                "this process. Pickle the environment before reset() or after the episode, or pickle env.factory"
            )
        if PicklesAsFactory not in type(self).__bases__:
            args, options = self._made_with
            return _make_subclass, (type(self), args, _pack(options), self._changed_options.get("protocol"))
        return _call, (self.factory,)

    def __copy__(self) -> Any:
        return self.__deepcopy__({})  # two environments with one episode would disturb each other

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Return a fork of a running episode, else a new environment with the same settings and random generator."""
        env: Any = self
        if self._runs:
            return env.fork()
        fresh = env.spawn()
        fresh._np_random, fresh._np_random_seed = copy.deepcopy(env._np_random), env._np_random_seed
        return fresh

    @property
    def _runs(self) -> bool:
        return self._episode is not None and not self._episode.outcome

    def _shallow_copy(self) -> Self:
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin

    def _changed_option(self, name: str, value: Any) -> None:
        self._changed_options = {**self._changed_options, name: value}


def _call(factory: EnvFactory) -> Any:
    return factory()


def _make_subclass(
    cls: Any, args: tuple[Any, ...], options: Mapping[str, tuple[str, Any]], protocol: str | None
) -> Any:
    env = cls(*args, **_unpack(options))
    return env.with_protocol(protocol) if protocol else env


def _restore(env_id: str, home: str, options: Mapping[str, tuple[str, Any]]) -> EnvFactory:
    if home and not has_spec(env_id):
        import_module(home)
    return EnvFactory(env_id, **_unpack(options))


def _pack(options: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    return {key: _packed(key, value) for key, value in options.items()}


def _unpack(options: Mapping[str, tuple[str, Any]]) -> dict[str, Any]:
    return {key: pickle.loads(value) if form == "cloudpickle" else value for key, (form, value) in options.items()}


def _packed(key: str, value: Any) -> tuple[str, Any]:
    """Return the value, or its pickle by cloudpickle where pickle itself cannot do it.

    Those are lambdas, local functions, and functions of a script or notebook (pickle only names their `__main__`).

    Raises:
        pickle.PicklingError: the value cannot be pickled; the message names the option.
    """
    fault: Exception | None = None
    try:
        if b"__main__" not in pickle.dumps(value):
            return "value", value
    except Exception as error:  # objects raise what they like
        fault = error
    try:
        import cloudpickle

        buffer = io.BytesIO()
        cloudpickle.dump(value, buffer)
        return "cloudpickle", buffer.getvalue()
    except ImportError:
        hint = " (or install cloudpickle, which can pickle functions that were not imported)" if callable(value) else ""
    except Exception:
        hint = ""
    if fault is None:
        return "value", value  # found by processes that import the same script, as those of multiprocessing do
    cure = _CURES.get(key, _CURE)
    raise pickle.PicklingError(
        f"the option {key}= cannot be sent to another process ({type(value).__name__}: {fault}): {cure}{hint}"
    ) from fault


def _hashable(value: Any) -> Hashable:
    if isinstance(value, Mapping):
        return frozenset((key, _hashable(each)) for key, each in value.items())
    if isinstance(value, list | tuple):
        return tuple(_hashable(each) for each in value)
    if isinstance(value, Set):
        return frozenset(value)  # a set equals a frozenset
    try:
        hash(value)
    except TypeError:
        return None  # equal values need equal hashes, which this satisfies
    return cast("Hashable", value)


def _after_fork() -> None:
    # Another thread of the parent may have held the lock.
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


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
        ValueError: another module has registered the id, a field is unknown, or the tasks have none of these forms.
        gymnasium.error.Error: Gymnasium does not accept the id.
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
    if module != "__main__":  # so that another process can import it
        _homes[made.id] = module
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
    module, colon, name = env_id.rpartition(":")
    if colon:
        raise ValueError(
            f"the module is not part of the id: register {name!r}, and use {env_id!r} where module {module!r} is "
            "not imported yet"
        )
    parse_env_id(env_id)  # Gymnasium refuses an id of another form
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


def _next_version(env_id: str) -> str:
    namespace, name, version = parse_env_id(env_id)
    return f"{namespace + '/' if namespace else ''}{name}-v{0 if version is None else version + 1}"
