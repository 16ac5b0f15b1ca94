"""Environments from an id and options, as every command makes them; the training stack is not imported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arpo_env import ToolEnv


def known_id(env_id: str) -> str:
    """Return an id as Gymnasium knows it; the module that the id names is imported.

    Raises:
        UnknownEnvError: the environment is unknown; the error lists the nearest ids.
        ModuleNotFoundError: the id names a module that does not exist.
    """
    import gymnasium

    import arpo_env  # noqa: F401  (registers the environments)
    from envs_registry import get_spec, resolve_id

    known = resolve_id(env_id)
    # an environment may be registered with Gymnasium alone; for unknown ids `get_spec` raises the error
    return known if known in gymnasium.registry else get_spec(env_id).id


def make_env(env_id: str, options: dict[str, Any]) -> ToolEnv:
    """Return an environment. Search, judge and page reader are not checked: call `check` for that.

    Raises:
        UnknownEnvError: the environment is unknown; the error lists the nearest ids.
        ModuleNotFoundError: the id names a module that does not exist.
        ValueError: the environment is not a `ToolEnv`, or Gymnasium wraps it in more than its checks.
    """
    import gymnasium

    import arpo_env
    from arpo_env.registration import without_checks

    made = gymnasium.make(known_id(env_id), **options)
    env = made.unwrapped
    if not isinstance(env, arpo_env.ToolEnv):
        raise ValueError(f"{env_id} is a {type(env).__name__}, not a ToolEnv with text turns; `arpo envs` lists them")
    without_checks(made)
    return env
