"""OpenEnv: an environment as an OpenEnv server, with a session per client and the task API.

    app = make_app("arpo/GSM8K-v0", max_sessions=64, split="test")      # or: arpo serve openenv arpo/GSM8K-v0

    async with GenericEnvClient(base_url="http://127.0.0.1:8000") as client:
        result = await client.reset(index=3)
        while not result.done:
            result = await client.step({"text": my_model(result.observation)})

A failure of the infrastructure is an error frame, which clients raise as an exception; it never has a reward.
"""

from __future__ import annotations

import functools
from typing import Any

from gymnasium.error import ResetNeeded

from arpo_env.adapters import load_peer
from arpo_env.adapters.hosted_episodes import IDLE_SECONDS, EpisodeVoid, ServedEpisode, TokenGuard
from arpo_env.env import check_reset_options
from arpo_env.event_loop import run
from arpo_env.registration import EnvFactory
from envs_registry import Task, TaskSource, get_spec
from envs_registry.nearest_name import nearest_hint

MAX_SESSIONS = 64
_ENDLESS = 2**31  # number of tasks of a generated source
_PREVIEW = 1000  # most tasks of one answer
# what requests over plain HTTP get; over a WebSocket there are error frames
_STATUS: dict[type[Exception], int] = {EpisodeVoid: 503, ResetNeeded: 409, ValueError: 400, TypeError: 400}


def make_app(
    env: str | EnvFactory,
    *,
    max_sessions: int = MAX_SESSIONS,
    idle_seconds: float = IDLE_SECONDS,
    token: str = "",
    **options: Any,
) -> TokenGuard:
    """Return the server as an ASGI application; `.app` is OpenEnv's own.

    Args:
        env: id of the environment, or its factory.
        max_sessions: maximum number of clients at the same time.
        idle_seconds: after this time without a call the tools of a session are closed.
        token: what clients have to send; see `TokenGuard`.
        options: options of the environment, besides those of a factory.

    Raises:
        ModuleNotFoundError: OpenEnv is not installed.
        ValueError: an option is invalid.
    """
    server = load_peer("openenv.core.env_server.http_server")
    types = load_peer("openenv.core.env_server.types")
    factory = EnvFactory(env, **options)
    factory().check()
    limits = types.ConcurrencyConfig(max_concurrent_envs=max_sessions, session_timeout=idle_seconds)
    action, observation, environment = classes()
    make = functools.partial(environment, factory, idle_seconds)
    app = server.create_fastapi_app(
        make, action, observation, concurrency_config=limits, env_name=factory.id.rpartition("/")[2]
    )
    for error in _STATUS:
        app.add_exception_handler(error, _answer_error)
    return TokenGuard(app, token)


@functools.cache
def classes() -> tuple[type, type, type]:
    """Return the classes of actions, observations and environments."""
    import pydantic

    types = load_peer("openenv.core.env_server.types")
    interfaces = load_peer("openenv.core.env_server.interfaces")

    class ArpoAction(types.Action):  # type: ignore[name-defined, misc]
        """One turn of the policy: its text, and calls in OpenAI's form if the environment's protocol is native."""

        text: str = ""
        tool_calls: list[dict[str, Any]] = pydantic.Field(default_factory=list)

    class ArpoObservation(types.Observation):  # type: ignore[name-defined, misc]
        """New messages of the conversation; `text` is the content of the last one."""

        text: str = ""
        messages: list[dict[str, Any]] = pydantic.Field(default_factory=list)
        stop: list[str] = pydantic.Field(default_factory=list)
        tools: list[dict[str, Any]] = pydantic.Field(default_factory=list)
        outcome: str = ""

    class ArpoEnvironment(interfaces.Environment):  # type: ignore[name-defined, misc]
        """The session of one client, with the task API: questions without answers.

        The first split is that of the environment, and the only one of an environment that is made for one.
        """

        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self, factory: EnvFactory, idle_seconds: float) -> None:
            super().__init__()
            self._factory, self._spec = factory, get_spec(factory.id)
            given = factory.options.get("split")
            self._splits: tuple[str, ...] = (given,) if given else self._spec.splits or ("train",)
            if "data" in factory.options:  # a file of the user's own has one split
                self._splits = self._splits[:1]
            self.served = ServedEpisode(factory(), idle_seconds)
            self._state = types.State()

        async def reset_async(
            self,
            seed: int | None = None,
            episode_id: str | None = None,
            split: str | None = None,
            index: int | None = None,
            **unknown: Any,
        ) -> Any:
            if unknown:
                raise ValueError(f"reset takes seed, episode_id, split and index, not {', '.join(unknown)}")
            if split is not None and index is None:
                raise ValueError("reset takes split and index together")
            task = None if index is None else self._task(index, split or self._splits[0])
            messages = await self.served.start(seed=seed, task=task)
            self._state = types.State(episode_id=episode_id, step_count=0)
            return self._observation(messages)

        async def step_async(self, action: Any, timeout_s: float | None = None, **_: Any) -> Any:
            protocol = self.served.episode.env.protocol
            if action.tool_calls and not protocol.native:
                raise ValueError(f"calls of {protocol.name!r} are text; serve with protocol='hermes' for tool_calls")
            message = {"role": "assistant", "content": action.text, "tool_calls": action.tool_calls}
            messages = await self.served.use(lambda episode: episode.reply(message))
            self._state.step_count += 1
            return self._observation(messages)

        def _observation(self, messages: list[dict[str, Any]]) -> Any:
            episode = self.served.episode
            return ArpoObservation(
                text=messages[-1]["content"] if messages else "",
                messages=messages,
                stop=episode.stop,
                tools=episode.tools,
                outcome=episode.info.get("outcome", ""),
                done=episode.done,
                reward=episode.reward,
            )

        def reset(self, *arguments: Any, **options: Any) -> Any:
            return run(self.reset_async(*arguments, **options))

        def step(self, action: Any, timeout_s: float | None = None, **options: Any) -> Any:
            return run(self.step_async(action, timeout_s, **options))

        @property
        def state(self) -> Any:
            return self._state

        def get_metadata(self) -> Any:
            return types.EnvironmentMetadata(name=self._spec.id, description=self._spec.description)

        def list_splits(self) -> list[str]:
            return list(self._splits)

        def num_tasks(self, split: str) -> int:
            return self._source(split).size or _ENDLESS

        def get_task(self, split: str, index: int) -> dict[str, Any]:
            task = self._task(index, split)
            return {"id": task.id, "index": index, "split": split, "question": task.question}

        def list_tasks(self, split: str) -> list[dict[str, Any]]:
            return self.get_task_range(split, 0, _PREVIEW)

        def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
            numbers = range(self.num_tasks(split))[start:stop]
            if len(numbers) > _PREVIEW:
                raise ValueError(f"ask for at most {_PREVIEW} tasks at a time, not {len(numbers)}")
            return [self.get_task(split, index) for index in numbers]

        def _task(self, index: int, split: str) -> Task:
            source = self._source(split)
            check_reset_options({"index": index}, source)
            return source.task(index)

        def _source(self, split: str) -> TaskSource:
            if split not in self._splits:
                hint = nearest_hint(split, self._splits, " Did you mean {!r}?")
                raise ValueError(f"there is no split {split!r}; the splits are {', '.join(self._splits)}.{hint}")
            # the sources of an environment without splits do not take the option
            options = {"split": split} if split != self._splits[0] and self._spec.splits else {}
            source: TaskSource = EnvFactory(self._factory, **options)().tasks
            return source

        def close(self) -> None:
            run(self.served.close())

    return ArpoAction, ArpoObservation, ArpoEnvironment


async def _answer_error(request: Any, error: Exception) -> Any:
    from starlette.responses import JSONResponse

    status = next(_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS)
    return JSONResponse({"detail": str(error)}, status)
