"""The plugin `arpo-gym` of verifiers, which finds a plugin by importing the top-level module of that name.

    vf-eval arpo-gym --env.taskset.env-id arpo/GSM8K-v0 -n 20 --no-push

It holds names only; see `arpo_env.adapters.verifiers`.
"""

from arpo_env.adapters.verifiers import ArpoEnv, ArpoHarness, ArpoTaskset

# verifiers takes the one subclass of its `Taskset`, of its `Env` and of its `Harness` that it finds here
__all__ = ["ArpoEnv", "ArpoHarness", "ArpoTaskset"]
