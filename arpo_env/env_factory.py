"""`EnvFactory`: an environment as a value that travels between processes: picklable, hashable, callable.

    factory = EnvFactory("arpo/Arithmetic-v0", level=2)
    env = factory()          # as gym.make("arpo/Arithmetic-v0", level=2), but tasks are loaded once per process

Environments pickle as their factory, so frameworks that ship environments to workers (Ray actors, processes started
by "spawn") get a new one with the same settings. A running episode does not travel: its interpreter lives in the
sandbox of this process.
"""

from __future__ import annotations

import copy
import io
import pickle
import threading
from collections.abc import Hashable, Mapping
from typing import Any, Self, cast

from envs_registry.module_ids import import_module
from envs_registry.spec import EnvSpec, get_spec, has_spec

_CURES = {
    "sandbox": "leave it out, and each process opens its own (ARPO_SANDBOX chooses the backend)",
    "cache": "give the file's path",
    "search": "give the text that opens it, such as the folder of an index or a provider's name",
}
_CURE = "use a value that pickles, such as text or a function of an importable module"

# One environment per factory and process, from which others are spawned; the spec shows whether it is still current.
_roots: dict[EnvFactory, tuple[EnvSpec, Any]] = {}
_lock = threading.Lock()
_homes: dict[str, str] = {}  # id -> the module that registered it


class EnvFactory:
    """The id and the options of an environment, as `gym.make` takes them.

    Two factories are equal if their ids and options are. Calling one returns a new `ToolEnv`, which is not started.

    Attributes:
        id: id of the environment, as in "arpo/GSM8K-v0" or "my_envs:mine/Task-v0".
        options: options of `ToolEnv`.

    Raises:
        UnknownEnvError: the id is not registered.
        ModuleNotFoundError: the module that the id names was not found.
    """

    def __init__(self, id: str, **options: Any) -> None:
        get_spec(id)
        self.id, self.options = id, options

    def __call__(self) -> Any:
        """Return a new `ToolEnv`.

        Raises:
            ValueError: an option is invalid.
        """
        spec = get_spec(self.id)
        with _lock:
            made, root = _roots.get(self, (None, None))
            if root is None or made is not spec:
                import gymnasium

                made_env: Any = gymnasium.make(self.id, **self.options)
                root = made_env.unwrapped
                _roots[self] = (spec, root)
            return root.spawn()

    def __repr__(self) -> str:
        return f"gym.make({', '.join([repr(self.id), *(f'{key}={value!r}' for key, value in self.options.items())])})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EnvFactory) and (self.id, self.options) == (other.id, other.options)

    def __hash__(self) -> int:
        return hash((self.id, _hashable(self.options)))

    def __reduce__(self) -> tuple[Any, ...]:
        home = "" if ":" in self.id else _homes.get(self.id, "")
        return _restore, (self.id, home, {key: _packed(key, value) for key, value in self.options.items()})


class PicklesAsFactory:
    """Lets an environment be pickled and copied: as its factory, or as a fork if it plays an episode."""

    _made_with: tuple[str, dict[str, Any]]
    _episode: Any

    def __new__(cls, *args: Any, **options: Any) -> Self:
        """Remember the arguments."""
        env = super().__new__(cls)
        if args or options:  # objects that are copied are made without arguments
            env_id = args[0] if args else options["env_id"]
            env._made_with = env_id, {key: value for key, value in options.items() if key != "env_id"}
        return env

    @property
    def factory(self) -> EnvFactory:
        """The picklable factory of environments with the same settings."""
        env_id, options = self._made_with
        return EnvFactory(env_id, **options)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        # A running episode holds a live interpreter, which cannot leave this process.
        if self._runs:
            raise pickle.PicklingError(
                f"this {self.factory.id} plays an episode, which cannot be pickled; env.fork() copies it within this "
                "process. Pickle the environment before reset() or after the episode, or pickle env.factory"
            )
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
        env_id, options = self._made_with
        self._made_with = env_id, {**options, name: value}


def _call(factory: EnvFactory) -> Any:
    return factory()


def remember_home(env_id: str, module: str) -> None:
    """Remember the module that registers an id, so that another process can import it."""
    if module != "__main__":
        _homes[env_id] = module


def _restore(env_id: str, home: str, options: Mapping[str, tuple[str, Any]]) -> EnvFactory:
    if home and not has_spec(env_id):
        import_module(home)
    return EnvFactory(env_id, **{key: _unpacked(*packed) for key, packed in options.items()})


def _packed(key: str, value: Any) -> tuple[str, Any]:
    """Return the value, or its pickle by cloudpickle where pickle itself cannot do it (lambdas, local functions).

    Raises:
        pickle.PicklingError: the value cannot be pickled; the message names the option.
    """
    try:
        pickle.dumps(value)
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
    cure = _CURES.get(key, _CURE)
    raise pickle.PicklingError(
        f"the option {key}= cannot be sent to another process ({type(value).__name__}: {fault}): {cure}{hint}"
    ) from fault


def _unpacked(form: str, value: Any) -> Any:
    return pickle.loads(value) if form == "cloudpickle" else value


def _hashable(value: Any) -> Hashable:
    if isinstance(value, Mapping):
        return frozenset((key, _hashable(each)) for key, each in value.items())
    if isinstance(value, list | tuple):
        return tuple(_hashable(each) for each in value)
    try:
        hash(value)
    except TypeError:
        return None  # equal values need equal hashes, which this satisfies
    return cast("Hashable", value)
