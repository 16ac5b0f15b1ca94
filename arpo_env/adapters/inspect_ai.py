"""Inspect (inspect_ai 0.3): an environment as a task, so that evaluations run there and are seen in its viewer.

    from inspect_ai import eval
    from arpo_env.adapters.inspect_ai import inspect_task
    eval(inspect_task("arpo/GSM8K-v0", split="test"), model="openai/gpt-5-mini", limit=100)

The solver plays an episode; two scorers give its reward and its accuracy. If the infrastructure fails
(`arpo_env.adapters.FAULTS`), the sample ends with an error and has no score; Inspect's `fail_on_error` and
`retry_on_error` decide what follows.
"""

from __future__ import annotations

from typing import Any

from arpo_env.adapters import load_peer
from arpo_env.adapters.chat_episode import ChatEpisode, close_tag
from arpo_env.chat_messages import Message
from arpo_env.errors import ServiceError
from arpo_env.registration import EnvFactory

load_peer("inspect_ai")

from inspect_ai import Task  # noqa: E402
from inspect_ai.dataset import MemoryDataset, Sample  # noqa: E402
from inspect_ai.model import (  # noqa: E402
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    ContentReasoning,
    GenerateConfig,
    get_model,
)
from inspect_ai.scorer import Metric, Score, Scorer, grouped, mean, scorer, stderr  # noqa: E402
from inspect_ai.solver import Solver, TaskState, solver  # noqa: E402
from inspect_ai.tool import ToolInfo, ToolParams  # noqa: E402

__all__ = ["accuracy", "inspect_task", "play", "reward"]

# The episodes in play, by the uuid of their sample: a limit of Inspect can end a solver anywhere, and the scorers then
# need the episode. `close` ends it after the scorers, whatever has happened.
_episodes: dict[str, ChatEpisode] = {}


def inspect_task(env: str | EnvFactory, **options: Any) -> Task:
    """Return an environment as a task of Inspect, with a sample for each of its tasks.

    Args:
        env: id of the environment, as `gym.make` takes it, or its factory.
        options: options of the environment, such as split or limit. The protocol is "hermes" if none is given: the
            model calls tools by its native calls, as its provider offers them. "arpo-tags" is for models that were
            trained with tags, or have no calls.

    Raises:
        UnknownEnvError: the id is not registered.
        ValueError: an option is invalid, or the environment has endless tasks and no limit is given.
    """
    factory = EnvFactory(env, **options)
    factory.options.setdefault("protocol", "hermes")
    made = factory()
    size = made.tasks.size
    if size is None:
        raise ValueError(
            f"the tasks of {factory.id} are endless: say how many to evaluate, as in limit=100 (-T limit=100)"
        )
    samples = [_sample(made, number) for number in range(size)]
    levels = {sample.metadata["level"] for sample in samples}
    return Task(
        dataset=MemoryDataset(samples, name=factory.id),
        solver=play(factory.id, factory.options),
        scorer=[reward(), accuracy()],
        metrics=_metrics(len(levels) > 1),
        cleanup=_close,
        metadata={"environment": repr(made.factory)},
    )


def _sample(env: Any, number: int) -> Sample:
    task = env.tasks.task(number)
    about = {"number": number, "level": task.level, "kind": task.kind, "source": task.source}
    messages = [_message(each) for each in env.messages(task)]
    return Sample(id=task.id, input=messages, target=list(task.answers), metadata=about)


@solver  # type: ignore[untyped-decorator]  # inspect_ai is not checked
def play(env: str, options: dict[str, Any]) -> Solver:
    """Plays a sample as an episode of an environment.

    Args:
        env: id of the environment.
        options: its options.
    """
    factory = EnvFactory(env, **options)

    async def solve(state: TaskState, generate: Any) -> TaskState:
        await _close(state)  # of an earlier attempt
        episode = _episodes[state.uuid] = ChatEpisode(factory())
        await episode.start(index=state.metadata["number"])
        tools = [_tool(schema["function"]) for schema in episode.tools]
        config = GenerateConfig(stop_seqs=episode.stop or None)
        while not episode.done:
            state.output = await get_model().generate(state.messages, tools=tools, config=config)
            message = state.output.message
            if state.output.stop_reason == "unknown" and not (message.text or message.tool_calls):
                raise ServiceError(str(state.output.model), "broke its reply off before the first word")
            if isinstance(message.content, str):
                message.content = close_tag(message.content, episode.stop)  # servers leave stop strings out
            state.messages.append(message)
            if state.output.stop_reason == "model_length":
                await episode.truncate(message.text)  # the model's context is full
            else:
                state.messages += [_message(each, message) for each in await episode.reply(_as_dict(message))]
        return state

    return solve


@scorer(metrics=[mean(), stderr()])  # type: ignore[untyped-decorator]
def reward() -> Scorer:
    """The reward of the episode."""

    async def score(state: TaskState, target: Any) -> Score:
        episode = await _finished(state)
        return Score(value=episode.reward, answer=episode.info["answer"], metadata=episode.info["reward_components"])

    return score


@scorer(metrics=[mean(), stderr()])  # type: ignore[untyped-decorator]
def accuracy() -> Scorer:
    """Whether the answer of the episode is right, as the environment's grader says."""

    async def score(state: TaskState, target: Any) -> Score:
        episode = await _finished(state)
        return Score(value=episode.info["reward_components"]["accuracy"], answer=episode.info["answer"])

    return score


async def _finished(state: TaskState) -> ChatEpisode:
    episode = _episodes.get(state.uuid)
    if episode is None:
        raise RuntimeError("this sample was not played: the scorers of arpo_gym need the solver of inspect_task")
    if episode.env.episode.outcome == "failed":
        raise RuntimeError("this episode was interrupted within a turn, so it has no reward")
    await episode.truncate()  # one of Inspect's limits ended the solver
    return episode


async def _close(state: TaskState) -> None:
    episode = _episodes.pop(state.uuid, None)
    if episode is not None:
        await episode.close()


def _metrics(by_level: bool) -> list[Metric | dict[str, list[Metric]]]:
    levels = [grouped(mean(), "level", all=False, name_template="level {group_name}")] if by_level else []
    return [mean(), stderr(), *levels]


def _tool(function: dict[str, Any]) -> ToolInfo:
    parameters = ToolParams.model_validate(function["parameters"])
    return ToolInfo(name=function["name"], description=function["description"], parameters=parameters)


def _as_dict(message: ChatMessageAssistant) -> Message:
    """Return a message in OpenAI's form; arguments that Inspect could not read stay unreadable."""
    calls = [
        {"id": call.id, "function": {"name": call.function, "arguments": call.parse_error or call.arguments}}
        for call in message.tool_calls or ()
    ]
    parts = message.content if isinstance(message.content, list) else []
    thoughts = "".join(part.reasoning for part in parts if isinstance(part, ContentReasoning))
    return {"content": message.text, "reasoning": thoughts, "tool_calls": calls}


def _message(message: Message, call_of: ChatMessageAssistant | None = None) -> ChatMessage:
    if message["role"] == "tool":
        names = {call.id: call.function for call in (call_of and call_of.tool_calls) or ()}
        identity = message["tool_call_id"]
        return ChatMessageTool(content=message["content"], tool_call_id=identity, function=names.get(identity))
    kind = ChatMessageSystem if message["role"] == "system" else ChatMessageUser
    return kind(content=message["content"])
