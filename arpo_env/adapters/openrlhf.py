"""Environments in OpenRLHF: `AgentExecutor`, the class that `--train.agent_func_path` looks for.

    # my_agent.py, for --train.agent_func_path my_agent.py
    from arpo_env.adapters.openrlhf import AgentExecutor

The label of a row names environment and task: `arpo data export --format openrlhf` writes such rows. An episode whose
infrastructure failed is played again from its beginning; after `retries` the failure is raised, which ends OpenRLHF's
step. Interface: OpenRLHF 0.11.
"""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Mapping
from typing import Any

import numpy

from arpo_env.adapters import FAULTS, load_peer
from arpo_env.adapters.task_rows import find_task
from arpo_env.env import ToolEnv
from envs_registry import Task

agent: Any = load_peer("openrlhf.utils.agent")
_log = logging.getLogger(__name__)


class AgentInstance(agent.AgentInstanceBase):  # type: ignore[misc]  # openrlhf is not checked
    """One episode."""

    def __init__(self, env: ToolEnv, task: Task) -> None:
        self.env, self.task = env, task
        self.done = False

    async def reset(self, states: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Start the episode; the prompt stays as OpenRLHF has rendered it."""
        await self.env.areset(options={"task": self.task})
        return {"observation": states["observation"]}

    async def step(self, state_dict: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Take one turn of the policy."""
        return self._taken(await self.env.astep(state_dict["action_text"]))

    async def truncate(self) -> dict[str, Any]:
        """End an episode whose context is full."""
        return self._taken(await self.env.atruncate())

    def _taken(self, step: tuple[str, float, bool, bool, dict[str, Any]]) -> dict[str, Any]:
        feedback, reward, terminated, truncated, info = step
        self.done = terminated or truncated
        accuracy = (info.get("reward_components") or {}).get("accuracy", 0.0)
        logs = {"tool_calls": float(info["tool_calls"]), "accuracy": accuracy, "truncated": float(truncated)}
        return {
            "rewards": numpy.float64(reward),  # OpenRLHF calls item(), which tensors have as well
            "scores": accuracy,
            "environment_feedback": feedback,
            "done": self.done,
            "extra_logs": logs,
        }


class AgentExecutor(agent.MultiTurnAgentExecutor):  # type: ignore[misc]
    """Plays one episode for each prompt."""

    retries = 2
    options: Mapping[str, Any] = {}

    def __init__(self) -> None:
        super().__init__(AgentInstance)

    async def execute(
        self,
        prompt: str,
        label: str,
        sampling_params: Any,
        max_length: int,
        hf_tokenizer: Any,
        llm_engine: Any,
        images: Any = None,
    ) -> dict[str, Any]:
        """Play an episode and return OpenRLHF's response: token ids, ranges of the model's turns, reward."""
        factory, task = find_task(_reference(label), **self.options)
        env: ToolEnv = factory()
        if env.protocol.native:
            raise ValueError(f"OpenRLHF joins turns and results as text: use 'arpo-tags' and not {env.protocol.name!r}")
        params = copy.deepcopy(sampling_params)  # OpenRLHF gives all samples of a prompt the same object
        params.stop, params.include_stop_str_in_output = env.protocol.stop_strings(env.schemas), True
        for left in reversed(range(self.retries + 1)):
            try:
                again = copy.deepcopy(params)
                return await self._play(
                    env.spawn(), task, prompt, label, again, max_length, _Tokenizer(hf_tokenizer), llm_engine, images
                )
            except FAULTS as error:
                if not left:
                    raise
                _log.warning("task %s is played again: %s", task.id, error)
        raise AssertionError("unreachable")

    async def _play(self, env: ToolEnv, task: Task, *arguments: Any) -> dict[str, Any]:
        instance = AgentInstance(env, task)
        # The base class makes the instance; in a copy of its own it gets this one, which can be closed afterwards.
        one: Any = copy.copy(self)
        one.agent_instance_cls = lambda: instance
        try:
            response: dict[str, Any] = await super(AgentExecutor, one).execute(*arguments)
            if not instance.done:  # there was no room for another turn
                step = await instance.truncate()
                response |= {"reward": step["rewards"].item(), "scores": step["scores"], "truncated": True}
                response["extra_logs"] = step["extra_logs"]
            return response
        finally:
            await env.aclose()


def _reference(label: str) -> dict[str, Any]:
    try:
        reference = json.loads(label)
    except ValueError:
        reference = None
    if not isinstance(reference, dict):
        raise ValueError(
            f"the label {label!r:.80} names no task: write the rows by `arpo data export --format openrlhf`, and train "
            "with --data.label_key label"
        )
    return reference


class _Tokenizer:
    """The tokenizer, which finds control tokens in the prompt but not in the results of tools."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer, self._results = tokenizer, False

    def __call__(self, **arguments: Any) -> Any:
        options = {"split_special_tokens": True} if self._results else {}
        self._results = True
        return self._tokenizer(**arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


def agent_executor(retries: int = 2, **options: Any) -> type[Any]:
    """Return an `AgentExecutor` with other settings.

    Args:
        retries: how often an episode is played again after a failure of the infrastructure.
        options: options of `ToolEnv` that the labels do not have, such as a sandbox.
    """
    return type("AgentExecutor", (AgentExecutor,), {"__module__": __name__, "retries": retries, "options": options})
