"""The task `arpo_gym/arpo` of Inspect: `inspect eval arpo_gym/arpo -T env=arpo/GSM8K-v0 -T split=test --model NAME`.

Inspect finds it through the entry point `arpo_gym`. In Python, `arpo_env.adapters.inspect_ai.inspect_task` does it.
"""

from typing import Any

from inspect_ai import Task, task

from arpo_env.adapters.inspect_ai import inspect_task

__all__ = ["arpo"]


@task  # type: ignore[untyped-decorator]  # inspect_ai is not checked
def arpo(env: str = "arpo/GSM8K-v0", **options: Any) -> Task:
    """An environment as a task of Inspect.

    Args:
        env: id of the environment.
        options: options of `inspect_task` (protocol) and of the environment, such as limit or level.
    """
    return inspect_task(env, **options)
