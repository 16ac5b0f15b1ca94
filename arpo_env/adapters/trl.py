"""Environments for plain TRL: the dataset, `environment_factory` and reward function of a `GRPOTrainer`.

    spec = trl_spec("arpo/GSM8K-v0")
    args = GRPOConfig("out", max_tool_calling_iterations=spec.max_tool_calling_iterations)
    GRPOTrainer("Qwen/Qwen3-4B", args=args, **spec.kwargs).train()

TRL holds the conversation, parses the calls and executes them one after another, one trajectory at a time. There are no
forks here, and no trees: `arpo_trainer.ARPOTrainer` has them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from arpo_env.adapters.json_schema_methods import method_class
from arpo_env.adapters.peer import load_peer
from arpo_env.adapters.task_rows import FORMATS, task_rows, unwritable
from arpo_env.adapters.trl_episode import TRLEpisode, environment_reward
from arpo_env.env import ToolEnv
from arpo_env.env_factory import EnvFactory

# what TRL calls itself (other public methods are tools), and the attributes of `TRLEpisode`
RESERVED = ("reset", "get_reward", "episode", "fault")


def trl_spec(env: str | EnvFactory | Mapping[str, EnvFactory], **options: Any) -> TRLSpec:
    """Return what a `GRPOTrainer` needs to play an environment.

    Args:
        env: id of the environment, its factory, or several factories by a name of yours. TRL then shows each row the
            tools of its own environment.
        options: options of the environment, if `env` is an id. Tasks without end need `limit`. The protocol has to be
            native, and is "hermes" by default; it does not depend on the model, since TRL reads and writes its format.

    Raises:
        ModuleNotFoundError: TRL is not installed.
        ValueError: an option is invalid, the protocol is not native, or a tool has a name that cannot be a method.
    """
    load_peer("trl")
    if isinstance(env, str):
        env = EnvFactory(env, **options)
    elif options:
        raise ValueError(f"give the options ({', '.join(options)}) to the EnvFactory")
    return TRLSpec(env if isinstance(env, Mapping) else {"": env})


class TRLSpec:
    """What a `GRPOTrainer` needs to play environments: `GRPOTrainer(model, args=args, **spec.kwargs)`.

    Args:
        factories: the environments by name; a single one may be named "".
    """

    def __init__(self, factories: Mapping[str, EnvFactory]) -> None:
        self._factories = {name: EpisodeFactory(factory) for name, factory in factories.items()}
        for each in self._factories.values():
            each()

    @functools.cached_property
    def train_dataset(self) -> Any:
        """A `datasets.Dataset` with a row for each task: its prompt, and the columns that name it."""
        import datasets

        rows = []
        for name, each in self._factories.items():
            factory = each.factory
            column = {"environment": name} if self._several else {}
            for row in task_rows(factory, "trl", leave_out=unwritable(factory.options)):
                rows.append({**row, **column})
        return datasets.Dataset.from_list(rows)

    @property
    def environment_factory(self) -> EpisodeFactory | dict[str, EpisodeFactory]:
        """What makes the environments of trajectories; pickles."""
        return dict(self._factories) if self._several else next(iter(self._factories.values()))

    @property
    def reward_funcs(self) -> list[Any]:
        """The reward of the environment; add functions of your own behind it."""
        return [environment_reward]

    @property
    def kwargs(self) -> dict[str, Any]:
        """All three, as arguments of a `GRPOTrainer`."""
        names = ("train_dataset", "environment_factory", "reward_funcs")
        return {name: getattr(self, name) for name in names}

    @property
    def max_tool_calling_iterations(self) -> int:
        """The value of this setting of `GRPOConfig` that gives the model as many turns as the environment would."""
        return max(each.turns for each in self._factories.values()) - 1

    @property
    def _several(self) -> bool:
        return list(self._factories) != [""]


class EpisodeFactory:
    """Makes the objects in which TRL plays trajectories; two are equal if their environments are.

    Args:
        factory: the environment.
    """

    def __init__(self, factory: EnvFactory) -> None:
        self.factory = EnvFactory(factory.id, **{**FORMATS["trl"].defaults, **factory.options})

    def __call__(self) -> TRLEpisode:
        """Return a new object; its class has the environment's tools as methods."""
        env: ToolEnv = self.factory()
        if not env.protocol.native:
            raise ValueError(
                f"TRL parses tool calls by the model's chat template: {self.factory} needs a native protocol, "
                "protocol='hermes'"
            )
        made: TRLEpisode = method_class(TRLEpisode, env.schemas, RESERVED)(self.factory, env)
        return made

    @property
    def turns(self) -> int:
        """The most turns of an episode."""
        env: ToolEnv = self.factory()
        unbounded = env.budget.turns == FORMATS["trl"].defaults["max_turns"]
        return env.env_spec.max_turns if unbounded else env.budget.turns

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EpisodeFactory) and self.factory == other.factory

    def __hash__(self) -> int:
        return hash(self.factory)
