"""Environments for plain TRL: the dataset, `environment_factory` and reward function of a `GRPOTrainer`.

    spec = trl_spec("arpo/GSM8K-v0")
    args = GRPOConfig("out", max_tool_calling_iterations=spec.max_tool_calling_iterations)
    GRPOTrainer("Qwen/Qwen3-4B", args=args, **spec.kwargs).train()

`AsyncGRPOTrainer` shows the environment only the calls, so there the answer is a call, too: `answer_tool=True`.

TRL holds the conversation, parses the calls and executes them one after another, one trajectory at a time. There are no
forks here, and no trees: `arpo_trainer.ARPOTrainer` has them.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import json
import logging
import operator
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from arpo_env.adapters import FAULTS, load_peer
from arpo_env.adapters.chat_episode import ANSWER, ChatEpisode
from arpo_env.adapters.task_rows import FORMATS, find_task, task_rows, unwritable
from arpo_env.chat_messages import Message, turn_text
from arpo_env.env import ToolEnv
from arpo_env.event_loop import background_loop, run
from arpo_env.protocols.protocol import Answer, Malformed, Nothing
from arpo_env.registration import EnvFactory
from arpo_env.tools.tool import JsonSchema, usable_schemas

# TRL holds the conversation and calls methods for tools. What the model wrote besides its calls comes only with the
# reward function, so the environment takes the calls while they happen, and all else at the end.

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
            if self.episode.done:
                return "The episode has ended: no more calls are possible."
            try:
                return run(self._execute(name, arguments))
            except Exception as fault:  # a policy's own mistakes do not raise
                self._remember(fault)
        raise RuntimeError("the tools are not available")

    async def _execute(self, name: str, arguments: Mapping[str, Any]) -> str:
        return await self.episode.call(name, arguments)

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
        texts = [turn_text(message, env.protocol) for message in said]
        actions = [env.protocol.parse(text, usable_schemas(env.tools)) for text in texts]
        # TRL answers unknown tools and wrong arguments itself, and the calls do not come with the model's thoughts.
        env.episode.malformed += sum(isinstance(action, Malformed) for action in actions)
        env.episode.malformed += not env.protocol.well_formed(texts)
        if said and said[-1] is completion[-1] and isinstance(actions[-1], Answer | Nothing):
            await episode.reply(texts[-1])
        else:
            await episode.truncate()


class AnsweringEpisode(TRLEpisode):
    """A `TRLEpisode` with a reward of its own, since the tool `answer` takes the answer.

    What the model writes outside its calls is neither seen nor graded.
    """

    def get_reward(self) -> float | None:
        """Return the reward, without an answer that of a truncated episode; None if the infrastructure failed."""
        return run(self._grade(()))

    async def _execute(self, name: str, arguments: Mapping[str, Any]) -> str:
        if name == _ANSWER:
            return await self.episode.answer(arguments)
        return await super()._execute(name, arguments)


_ANSWER: str = ANSWER["function"]["name"]


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
            "TRL did not pass the environments: give GRPOTrainer the environment_factory too, as in **spec.kwargs; "
            "AsyncGRPOTrainer never passes them and needs trl_spec(..., answer_tool=True)"
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


def _close_soon(held: Sequence[ChatEpisode]) -> None:
    for episode in held:
        # Garbage may be collected on the thread of the loop, so this does not wait.
        asyncio.run_coroutine_threadsafe(episode.close(), background_loop())


T = TypeVar("T")
_HINTS: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "object": dict,
    "array": list,
    "null": type(None),
}
_SECTIONS = re.compile(r"(Args|Returns|Raises):")  # where `get_json_schema` ends a description
_PLAIN = {"type", "enum", "items", "description", "title"}  # keys that a hint and a docstring convey, or nobody needs


def method_class(base: type[T], schemas: Sequence[JsonSchema], reserved: Sequence[str] = ()) -> type[T]:
    """Return a subclass with a method for each tool, which calls `self._call(name, arguments)`.

    Signature, type hints and Google docstring describe the schema so that `get_json_schema` of transformers reads it
    again. The same schemas give the same class.

    Raises:
        ValueError: the name of a tool or of a parameter cannot be used, or is `reserved`.
    """
    kind: Any = base  # a type is hashable, which its checker does not know
    made: type[T] = _made(kind, json.dumps(schemas), tuple(reserved))
    return made


@functools.cache
def _made(base: type, schemas: str, reserved: tuple[str, ...]) -> Any:
    tools = [schema["function"] for schema in json.loads(schemas)]
    for tool in tools:
        name = tool["name"]
        if name in reserved or name.startswith("_"):
            raise ValueError(f"a tool cannot be named {name!r} here, rename it; taken: {', '.join(reserved)}, _...")
    methods = {tool["name"]: _method(tool, base) for tool in tools}
    return type(base.__name__, (base,), {"__module__": base.__module__, "__doc__": base.__doc__, **methods})


def _method(tool: Mapping[str, Any], base: type) -> Callable[..., str]:
    name, schema = tool["name"], tool.get("parameters") or {}
    properties: dict[str, Any] = schema.get("properties") or {}

    def method(self: Any, /, **arguments: Any) -> str:
        result: str = self._call(name, arguments)
        return result

    method.__name__, method.__qualname__ = name, f"{base.__qualname__}.{name}"
    method.__module__, method.__doc__ = base.__module__, _docstring(tool, properties)
    hints = {key: _hint(value) for key, value in properties.items()}
    # no hint for the result, which would become part of the schema
    method.__annotations__ = hints
    try:
        # Arguments that the model leaves out are not passed on, so that their defaults are the tool's own.
        parameters = [
            inspect.Parameter(
                key,
                inspect.Parameter.KEYWORD_ONLY,
                annotation=hints[key],
                default=inspect.Parameter.empty if key in schema.get("required", ()) else None,
            )
            for key in properties
        ]
        receiver = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        vars(method)["__signature__"] = inspect.Signature([receiver, *parameters])
    except ValueError as error:
        raise ValueError(f"the tool {name!r} cannot be a method: {error}") from error
    return method


def _docstring(tool: Mapping[str, Any], properties: Mapping[str, Any]) -> str:
    def plain(text: str) -> str:  # without the words that `get_json_schema` gives a meaning
        return _SECTIONS.sub(r"\1 :", " ".join(text.split()))

    lines = []
    for key, schema in properties.items():  # a docstring without a description of each parameter is refused
        rest = {name: value for name, value in schema.items() if name != "description"}
        more = "" if _conveyed(schema) else f" JSON schema: {json.dumps(rest, ensure_ascii=False)}"
        lines.append(f"    {key}: {plain(str(schema.get('description') or key))}{more}")
    said = plain(str(tool.get("description") or tool["name"]))
    return "\n".join([said, "", "Args:", *lines]) if lines else said


def _conveyed(schema: Mapping[str, Any]) -> bool:
    """Return whether a type hint says everything that the schema says."""
    kinds = schema.get("type")
    known = set(kinds if isinstance(kinds, list) else [kinds]) <= set(_HINTS)
    enum_known = "enum" not in schema or _has_literals(schema)
    return known and enum_known and set(schema) <= _PLAIN and ("items" not in schema or _conveyed(schema["items"]))


def _has_literals(schema: Mapping[str, Any]) -> bool:
    return bool(schema.get("enum")) and all(isinstance(value, str | int | None) for value in schema["enum"])


def _hint(schema: Mapping[str, Any]) -> Any:
    if _has_literals(schema):
        return Literal[tuple(schema["enum"])]
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return functools.reduce(operator.or_, (_hint({**schema, "type": kind}) for kind in kinds))
    if kinds == "array" and schema.get("items"):
        return list[_hint(schema["items"])]  # type: ignore[misc]
    return _HINTS.get(str(kinds), Any)


# what TRL calls itself (other public methods are tools), and the attributes of `TRLEpisode`
RESERVED = ("reset", "get_reward", "episode", "fault")


def trl_spec(env: str | EnvFactory | Mapping[str, EnvFactory], *, answer_tool: bool = False, **options: Any) -> TRLSpec:
    """Return what a `GRPOTrainer` needs to play an environment, or with `answer_tool` an `AsyncGRPOTrainer`.

    Args:
        env: id of the environment, its factory, or several of these by a name of yours. TRL then shows each row the
            tools of its own environment.
        answer_tool: whether the model hands in its answer by a tool `answer` instead of its last message. The
            environments then have `get_reward`, and no reward function is needed.
        options: options of the environments, besides those of a factory. Tasks without end need `limit`. The protocol
            has to be native, and is "hermes" by default; it does not depend on the model, since TRL reads and writes
            its format.

    Raises:
        ModuleNotFoundError: TRL is not installed.
        ValueError: an option is invalid, the protocol is not native, or a tool has a name that cannot be a method.
    """
    load_peer("trl")
    given = env if isinstance(env, Mapping) else {"": env}
    return TRLSpec({name: EnvFactory(each, **options) for name, each in given.items()}, answer_tool)


class TRLSpec:
    """What a `GRPOTrainer` needs to play environments: `GRPOTrainer(model, args=args, **spec.kwargs)`.

    Args:
        factories: the environments by name; a single one may be named "".
        answer_tool: as of `trl_spec`.
    """

    def __init__(self, factories: Mapping[str, EnvFactory], answer_tool: bool = False) -> None:
        self._answer_tool = answer_tool
        self._factories = {
            name: EpisodeFactory(EnvFactory(each.id, **{**FORMATS["trl"].defaults, **each.options}), answer_tool)
            for name, each in factories.items()
        }
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
        """The reward of the environment, none where it has `get_reward`; add functions of your own behind it."""
        return [] if self._answer_tool else [environment_reward]

    @property
    def kwargs(self) -> dict[str, Any]:
        """All three, as arguments of a `GRPOTrainer`."""
        names = ("train_dataset", "environment_factory", "reward_funcs")
        return {name: getattr(self, name) for name in names}

    @property
    def max_tool_calling_iterations(self) -> int:
        """The value of this setting of `GRPOConfig` that gives the model as many turns as the environment would."""
        return max(each.turns for each in self._factories.values()) - (not self._answer_tool)

    @property
    def _several(self) -> bool:
        return list(self._factories) != [""]


@dataclass(frozen=True)
class EpisodeFactory:
    """Makes the objects in which TRL plays trajectories; two are equal if their environments are.

    Args:
        factory: the environment.
        answer_tool: as of `trl_spec`.
    """

    factory: EnvFactory
    answer_tool: bool = False

    def __call__(self) -> TRLEpisode:
        """Return a new object; its class has the environment's tools as methods."""
        env: ToolEnv = self.factory()
        if not env.protocol.native:
            raise ValueError(
                f"TRL parses tool calls by the model's chat template: {self.factory} needs a native protocol, "
                "protocol='hermes'"
            )
        if not self.answer_tool:
            return method_class(TRLEpisode, env.schemas, RESERVED)(self.factory, env)
        if _ANSWER in env.tools:
            raise ValueError(f"answer_tool adds a tool {_ANSWER!r}: rename that of the environment")
        return method_class(AnsweringEpisode, [*env.schemas, ANSWER], RESERVED)(self.factory, env)

    @property
    def turns(self) -> int:
        """The most turns of an episode."""
        env: ToolEnv = self.factory()
        unbounded = env.budget.turns == FORMATS["trl"].defaults["max_turns"]
        return env.env_spec.max_turns if unbounded else env.budget.turns
