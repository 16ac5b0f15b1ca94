"""verifiers 0.4 (its `v1` API): the taskset `arpo-gym`, for `vf-eval`, prime-rl and others that run such tasksets.

    vf-eval arpo-gym --env.taskset.env-id arpo/GSM8K-v0 -n 20 --no-push

verifiers finds the parts in the package `arpo_gym`. `ArpoTaskset` lists the tasks, `ArpoEnv` plays an episode, and
`ArpoHarness` calls the model: in this process, once per turn, with the tools and the stop strings of the environment.

If the infrastructure fails (`arpo_env.adapters.FAULTS`), trace and episode end with an error and without a reward.
verifiers leaves such traces out of its mean reward, and can repeat them (`--env.retries.max-retries`).
"""

from __future__ import annotations

import functools
import itertools
import ssl
from collections.abc import Iterator
from typing import Any

from arpo_env.adapters import load_peer
from arpo_env.adapters.chat_episode import ChatEpisode
from arpo_env.registration import EnvFactory

load_peer("verifiers.v1")

import openai  # noqa: E402  (verifiers needs it, so it is there)
import verifiers.v1 as vf  # noqa: E402
from pydantic import JsonValue, field_validator  # noqa: E402
from verifiers.v1.dialects.chat import message_to_wire  # noqa: E402

__all__ = ["ArpoConfig", "ArpoData", "ArpoEnv", "ArpoEnvConfig", "ArpoHarness", "ArpoTask", "ArpoTaskset"]


class ArpoConfig(vf.TasksetConfig):  # type: ignore[misc]  # verifiers is untyped here
    """Which environment is played (`[env.taskset]`)."""

    env_id: str = "arpo/Arithmetic-v0"
    """Id of the environment, as `gym.make` takes it."""
    options: dict[str, JsonValue] = {}  # noqa: RUF012  (a pydantic field)
    """Options of the environment: JSON values, since they are sent to workers and written into traces."""

    @field_validator("options")
    @classmethod
    def _added(cls, given: dict[str, JsonValue]) -> dict[str, JsonValue]:
        return {**cls.model_fields["options"].default, **given}  # a package has options of its own


class ArpoData(vf.TaskData):  # type: ignore[misc]
    """One task, as verifiers sends and records it; `idx` is its number in the environment."""

    env_id: str
    options: dict[str, JsonValue]
    level: str = ""


class ArpoTask(vf.Task[ArpoData, vf.State, vf.TaskConfig]):  # type: ignore[misc]
    """One task. It has no reward functions, since the environment gives the reward."""


class ArpoTaskset(vf.Taskset[ArpoTask, ArpoConfig]):  # type: ignore[misc]
    """The tasks of an environment.

    Raises:
        UnknownEnvError: the environment's id is not registered.
        ValueError: an option is invalid.
    """

    def __init__(self, config: ArpoConfig) -> None:
        super().__init__(config)
        self._env = EnvFactory(config.env_id, **config.options)()
        if self._env.tasks.size is None:
            self.__class__ = _EndlessTaskset  # prime-rl asks the class whether its tasks end

    def load(self) -> Iterator[ArpoTask]:
        """Yield the tasks in their order."""
        env, config = self._env, self.config
        for number in itertools.count() if env.tasks.size is None else range(env.tasks.size):
            task = env.tasks.task(number)
            system, user = (message["content"] for message in env.messages(task))
            about = {"idx": number, "id": task.id, "name": task.id, "level": task.level}
            played = {"env_id": config.env_id, "options": config.options}
            yield ArpoTask(ArpoData(prompt=user, system_prompt=system, **about, **played), config.task)


class _EndlessTaskset(ArpoTaskset):
    INFINITE = True


class ArpoHarness(vf.Harness[vf.HarnessConfig]):  # type: ignore[misc]
    """One call of the model per turn, through verifiers' interception server."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, mcp_urls: Any, data: ArpoData
    ) -> Any:
        """Let the model continue the conversation in `data`, and return an empty result; the trace has the message."""
        system, prompt = self.resolve_prompt(data)
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else map(message_to_wire, prompt)
        instructions = [{"role": "system", "content": system}] if system else []
        form = ChatEpisode(_make(data))
        options = {key: value for key, value in {"tools": form.tools, "stop": form.stop}.items() if value}
        http = openai.DefaultAsyncHttpxClient(verify=_certificates())
        async with openai.AsyncOpenAI(base_url=endpoint, api_key=secret, http_client=http, timeout=None) as client:
            await client.chat.completions.create(model=ctx.model, messages=[*instructions, *messages], **options)
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")


class ArpoEnvConfig(vf.EnvConfig):  # type: ignore[misc]
    """The one agent of an episode (`[env.agent]`); nothing of it runs outside this process."""

    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())


class ArpoEnv(vf.Env[ArpoEnvConfig]):  # type: ignore[misc]
    """Plays an episode: the model's messages are the turns of the environment, whose results answer them."""

    async def run(self, task: ArpoTask, agents: Any) -> None:
        """Play one episode and record its reward, and the reward's parts as metrics.

        Raises:
            Exception: the infrastructure failed (`arpo_env.adapters.FAULTS`); there is no reward.
        """
        episode = ChatEpisode(_make(task.data))
        try:
            async with agents.agent.interaction(task) as interaction:
                await episode.start(index=task.data.idx)
                segment = await interaction.turn()
                while not segment.terminated:
                    answer = await episode.reply(message_to_wire(segment.messages[-1]))
                    if episode.done:
                        break
                    segment = await interaction.turn(answer)
                trace = interaction.trace
                if trace.errors:
                    return  # the model's server failed
                await episode.truncate()  # a limit of verifiers, such as its max_turns, ended the episode
                trace.record_reward("reward", episode.reward)
                trace.record_metrics(episode.info["reward_components"])
                trace.record_metrics({"tool_calls": episode.info["tool_calls"], "truncated": episode.truncated})
        finally:
            await episode.close()


def _make(data: ArpoData) -> Any:
    return EnvFactory(data.env_id, **data.options)()


@functools.cache
def _certificates() -> ssl.SSLContext:
    return ssl.create_default_context()  # takes a tenth of a second, too long for each call of the model
