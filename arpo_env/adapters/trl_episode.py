"""`TRLEpisode`, in which TRL plays a trajectory, and `environment_reward`, which grades it; `trl_spec` makes both.

TRL holds the conversation and calls methods for tools. What the model wrote besides its calls comes only with the
reward function, so the environment takes the calls while they happen, and all else at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, cast

from arpo_env.adapters.chat_episode import ChatEpisode
from arpo_env.adapters.peer import FAULTS
from arpo_env.adapters.task_rows import find_task, unwritable
from arpo_env.chat_messages import Message, text_of
from arpo_env.env import ToolEnv
from arpo_env.env_factory import EnvFactory
from arpo_env.event_loop import background_loop, run
from arpo_env.protocols.protocol import Answer, Malformed, NativeProtocol, Nothing
from arpo_env.tools.toolbox import usable_schemas

logger = logging.getLogger(__name__)


class TRLEpisode:
    """The environment of one trajectory at a time; TRL uses it again for other ones.

    Attributes:
        episode: the running or last episode, for reward functions of your own.
        fault: the failure of the infrastructure that ended it, or None.
    """

    def __init__(self, factory: EnvFactory, env: ToolEnv) -> None:
        self._factory, self._schemas = factory, env.schemas
        self._objects = {name: factory.options[name] for name in unwritable(factory.options)}
        self.fault: Exception | None = None
        # The finalizer must not refer to `self`; the sandbox itself ends with the process.
        self._held = [ChatEpisode(env)]
        weakref.finalize(self, _close_soon, self._held).atexit = False

    @property
    def episode(self) -> ChatEpisode:
        """The running or last episode."""
        return self._held[0]

    def reset(self, **row: Any) -> None:
        """Start the task that a row names.

        Raises:
            ValueError: the row names no task, another one than when it was written, or an environment with other tools.
        """
        factory, task = find_task(row, **self._objects)
        self.fault = None
        try:
            run(self._start(factory, task))
        except FAULTS as fault:
            self._remember(fault)

    async def _start(self, factory: EnvFactory, task: Any) -> None:
        await self._close()
        if factory != self._factory:
            env: ToolEnv = factory()
            if env.schemas != self._schemas or not env.protocol.native:
                raise ValueError(f"a row is for {factory}, whose tools are not those of {self._factory}")
            self._factory, self._held[0] = factory, ChatEpisode(env)
        await self.episode.start(task=task)

    def _call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Execute a call of the model; whatever this raises, TRL shows to the model."""
        if self.fault is None:
            try:
                return run(self.episode.call(name, arguments))
            except Exception as fault:  # a policy's own mistakes do not raise
                self._remember(fault)
        raise RuntimeError("the tools are not available")

    def _remember(self, fault: Exception) -> None:
        self.fault = fault
        logger.warning("a trajectory has no reward, since the infrastructure failed: %r", fault)

    async def _grade(self, completion: Sequence[Message]) -> float | None:
        """Return the reward of a finished trajectory, None if it cannot be known, and close the interpreter."""
        try:
            if self.fault is None:
                await self._finish(completion)
        except Exception as fault:  # graders and reward terms of the user raise what they like
            self._remember(fault)
        finally:
            await self._close()
        return None if self.fault is not None else self.episode.reward

    async def _close(self) -> None:
        # A session that cannot be closed makes neither the last reward nor the next episode void.
        with contextlib.suppress(Exception):
            await self.episode.close()

    async def _finish(self, completion: Sequence[Message]) -> None:
        env, episode = self.episode.env, self.episode
        if episode.done:
            return
        said = [message for message in completion if message["role"] == "assistant"]
        texts = [_as_text(env, message) for message in said]
        actions = [env.protocol.parse(text, usable_schemas(env.tools)) for text in texts]
        # TRL answers unknown tools and wrong arguments itself, and the calls do not come with the model's thoughts.
        env.episode.malformed += sum(isinstance(action, Malformed) for action in actions)
        env.episode.malformed += not env.protocol.well_formed(texts)
        if said and said[-1] is completion[-1] and isinstance(actions[-1], Answer | Nothing):
            await episode.reply(texts[-1])
        else:
            await episode.truncate()


def environment_reward(
    completions: Sequence[Any], environments: Sequence[Any] | None = None, **rest: Any
) -> list[float | None]:
    """Return the rewards of the environments, as a reward function of TRL.

    None marks a trajectory whose infrastructure failed: TRL leaves it out of its group's mean, and its advantage is 0.
    The metric `void` is the share of these.

    Args:
        completions: the messages of each trajectory after its prompt.
        environments: the object of each trajectory.
        rest: what else TRL passes.

    Raises:
        ValueError: TRL did not pass the environments.
    """
    if environments is None:
        raise ValueError(
            "TRL did not pass the environments: give GRPOTrainer the environment_factory too, as in **spec.kwargs "
            "(AsyncGRPOTrainer never passes them)"
        )
    rewards = run(_grade_all(completions, environments))
    void = [each.fault is not None for each in environments if isinstance(each, TRLEpisode)]
    if void and "log_metric" in rest:
        rest["log_metric"]("void", sum(void) / len(void))
    return rewards


async def _grade_all(completions: Sequence[Any], environments: Sequence[Any]) -> list[float | None]:
    return list(await asyncio.gather(*map(_grade, environments, completions)))


async def _grade(environment: Any, completion: Sequence[Message]) -> float | None:
    # other environments of the same run have rewards of their own
    return await environment._grade(completion) if isinstance(environment, TRLEpisode) else None


def _as_text(env: ToolEnv, message: Message) -> str:
    """Return a message that TRL has parsed as the environment's protocol writes it."""
    thought = message.get("reasoning_content") or message.get("thinking")
    text = f"<think>{thought}</think>{text_of(message.get('content'))}" if thought else text_of(message.get("content"))
    functions = [call.get("function") or {} for call in message.get("tool_calls") or ()]
    protocol = cast("NativeProtocol", env.protocol)
    calls = [(each.get("name"), each.get("arguments")) for each in functions]
    return protocol.write_calls(text, calls) if calls else text


def _close_soon(held: Sequence[ChatEpisode]) -> None:
    for episode in held:
        # Garbage may be collected on the thread of the loop, so this does not wait.
        asyncio.run_coroutine_threadsafe(episode.close(), background_loop())
