"""Environments in SkyRL: `ArpoTextEnv`, a `BaseTextEnv` of SkyRL-gym that finds its task in the row of the data.

    # in SkyRL's entry point, where its examples call skyrl_gym.register
    from arpo_env.adapters import skyrl_gym
    skyrl_gym.register("arpo")  # the env_class of rows that `arpo data export --format skyrl` writes

An exception is the only way for a `BaseTextEnv` to say that there is no reward, so a failure of the infrastructure is
raised, and ends SkyRL's generation step. Interface: SkyRL-gym 0.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arpo_env.adapters import load_peer
from arpo_env.adapters.task_rows import find_task
from arpo_env.env import ToolEnv
from arpo_env.event_loop import run

registration: Any = load_peer("skyrl_gym.envs.registration")
text_env: Any = load_peer("skyrl_gym.envs.base_text_env")
Message = dict[str, str]


def register(id: str = "arpo", **options: Any) -> None:
    """Register the environment of all exported rows with SkyRL-gym; to register it again changes the options.

    Args:
        id: the name in the column `env_class`.
        options: options of `ToolEnv` that the rows do not have, such as a sandbox.
    """
    registration.registry.pop(id, None)  # Ray tasks that share a process register once each
    registration.register(id=id, entry_point=f"{__name__}:ArpoTextEnv", kwargs={"options": _AsItIs(options)})


class _AsItIs(dict[str, Any]):
    """Options that SkyRL-gym, which copies what was registered, does not copy: a sandbox cannot be."""

    def __deepcopy__(self, memo: Any) -> _AsItIs:
        return self


class ArpoTextEnv(text_env.BaseTextEnv):  # type: ignore[misc]  # skyrl_gym is not checked
    """An episode of SkyRL-gym; see the module."""

    def __init__(
        self, env_config: Any = None, extras: Mapping[str, Any] | None = None, options: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__()
        factory, self.task = find_task((extras or {}).get("extra_info") or {}, **(options or {}))
        self.env: ToolEnv = factory()
        self.max_turns = self.env.budget.turns
        self.turns = 0
        self._metrics: dict[str, float] = {}

    def init(self, prompt: Any) -> tuple[list[Message], dict[str, Any]]:
        """Start the episode and return the messages that open it, in place of those of the row."""
        _, info = self._voiding(self.env.areset(options={"task": self.task}))
        return [dict(message) for message in info["messages"]], {"task": self.task.id}

    def step(self, action: str) -> dict[str, Any]:
        """Take one turn and return SkyRL-gym's `BaseTextEnvStepOutput`."""
        self.turns += 1
        result, reward, terminated, truncated, info = self._voiding(self.env.astep(action))
        done = terminated or truncated
        if done:
            ends = {"answered": float(info["outcome"] == "answered"), "truncated": float(truncated)}
            terms = info.get("reward_components") or {}
            self._metrics = ends | {f"reward/{name}": float(value) for name, value in terms.items()}
        observations = [] if done else self._observations(result)
        metadata = {"outcome": info["outcome"], "tool_calls": info["tool_calls"]}
        return {"observations": observations, "reward": reward, "done": done, "metadata": metadata}

    def get_metrics(self) -> dict[str, float]:
        """Return numbers about the episode; one that SkyRL broke off, since its context was full, is truncated."""
        unfinished = {"answered": 0.0, "truncated": 1.0}
        calls = len(self.env.episode.tools_used) if self.env._episode else 0
        return {"turns": float(self.turns), "tool_calls": float(calls), **(self._metrics or unfinished)}

    def close(self) -> None:
        """Close the environment."""
        run(self.env.aclose())

    def _voiding(self, step: Any) -> Any:
        try:
            return run(step)
        except BaseException:
            self.close()  # SkyRL closes only episodes that end
            raise

    def _observations(self, result: str) -> list[Message]:
        if not self.env.protocol.native:
            return [{"role": "user", "content": result}]  # as it is, for generators without user turns
        texts = self.env.episode.turns[-1].results
        return [{"role": "tool", "content": self.env.protocol.defuse(text)} for text in texts]
