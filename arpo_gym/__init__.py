"""Plugins of frameworks that look for them under the name of the distribution, `arpo-gym`.

    vf-eval arpo-gym --env.taskset.env-id arpo/GSM8K-v0 -n 20 --no-push        # verifiers imports this module
    inspect eval arpo_gym/arpo -T env=arpo/GSM8K-v0 --model openai/gpt-5-mini  # Inspect imports inspect_tasks

It holds names only; the code is in `arpo_env.adapters`.
"""

from typing import Any

# verifiers takes the one subclass of its `Taskset`, of its `Env` and of its `Harness` that it finds among these.
__all__ = ["ArpoEnv", "ArpoHarness", "ArpoTaskset"]


def __getattr__(name: str) -> Any:
    # Inspect imports this package too, and does not need verifiers.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from arpo_env.adapters import verifiers

    return getattr(verifiers, name)
