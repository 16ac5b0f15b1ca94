r"""`ToolEnv`: one task played as a multi-turn text environment, with tools, that can be forked while it runs.

An observation is text for the policy's context: at `reset` the question, after a tool call the rendered result, ""
at the end. An action is one turn of the policy: everything it wrote up to and including the first stop string
(`info["stop"]`), or up to the point where it stopped by itself. The reward comes with the last step.

    import arpo_env, gymnasium as gym
    env = gym.make("arpo/Arithmetic-v0", level=1)
    question, info = env.reset(seed=0)
    result, *_ = env.step("<think>I compute it.</think><python>847 * 391</python>")
    twin = env.fork()                   # interpreter and all
    env.step("<think>Done.</think><answer>\\boxed{331177}</answer>")

Each method has an asynchronous twin (`areset`, `astep`, `afork`, `aclose`) for rollout engines. If the machinery
behind a tool fails, `step` raises (`sandbox.SandboxError`, `ServiceError`), and so it does if the answer could not be
graded (`GradingError`): that is never a reward of 0.
"""

from __future__ import annotations

import copy
import dataclasses
import difflib
import functools
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import gymnasium
from gymnasium.error import ResetNeeded

from arpo_env.budget import NO_ROOM, Budget
from arpo_env.episode import Episode, Turn
from arpo_env.event_loop import run
from arpo_env.grading import Grader, make_grader
from arpo_env.grading.grader_registry import check_name
from arpo_env.protocols import make_protocol
from arpo_env.protocols.protocol import Language, Protocol, Style
from arpo_env.rewards import Rewards, grade_episode
from arpo_env.services import Services
from arpo_env.text_space import UnicodeText
from arpo_env.tools.toolbox import Toolbox, ToolName, close_tools, fork_tools
from arpo_env.turn import act
from envs_registry import EnvSpec, Task, get_spec, load_source
from envs_registry.setup_check import check_setup
from envs_registry.sources import UnknownOptionError
from sandbox import Sandbox

_SERVICES = frozenset(field.name for field in dataclasses.fields(Services) if field.init)


class ToolEnv(gymnasium.Env[str, str]):
    """An environment for one `EnvSpec`. What is None here is as the spec says.

    Args:
        env_id: a registered id.
        split: of the task source.
        data: a local file or folder instead of the hub.
        limit: only so many tasks.
        shuffle: in an order drawn with `seed`, before the limit is taken (finite sources).
        seed: of the shuffle; of a generated source, the seed of its supply.
        tools: names ("python", "search", "mcp:SERVER"), typed functions, or what makes a `Tool`, or several.
        protocol: how turns are written: "arpo-tags" ("arpo-tags-reference" with the published code's white space), the
            model's own tool calls ("hermes" (Qwen), "llama3"), one that was registered by `register_protocol`, or a
            `Protocol`.
        language: of the instructions, "en" or "zh".
        prompt: "short", or "paper" with a worked pattern.
        reward: "paper", "reference", or weighted terms (`arpo_env.rewards`).
        scorer: how answers are compared (`arpo_env.grading`), by name or as a `Grader`.
        max_turns: model turns in an episode.
        max_tool_calls: calls that are executed.
        tool_limits: the same for single tools, as in {"search": 3}.
        max_tokens: of model and environment after the prompt; estimated, unless a rollout engine counts them.
        tool_timeout: seconds one call may take, of any tool; a search and an MCP call have 60 at least.
        sandbox: where Python runs; None is the process-wide one, opened at the first call.
        render_mode: None or "ansi" (`render` returns the transcript).
        options: those of `arpo_env.services.Services` (search, search_results, result_characters, cache, cache_mode,
            pages, page_reader, page_model, judge_model, model_url), and those of the task source, such as `level`.

    Raises:
        UnknownEnvError: no such id.
        ValueError: an option, split or limit that cannot work, or a task whose setup holds its answer.
    """

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012  (Gymnasium's own form)

    def __init__(
        self,
        env_id: str,
        *,
        split: str | None = None,
        data: str | Path | None = None,
        limit: int | None = None,
        shuffle: bool = False,
        seed: int = 0,
        tools: Sequence[ToolName] | None = None,
        protocol: str | Protocol | None = None,
        language: Language | None = None,
        prompt: Style = "short",
        reward: str | Rewards | Mapping[str, Any] | None = None,
        scorer: str | Grader | None = None,
        max_turns: int | None = None,
        max_tool_calls: int | None = None,
        tool_limits: Mapping[str, int] | None = None,
        max_tokens: int | None = None,
        tool_timeout: float | None = None,
        sandbox: Sandbox | None = None,
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        self.env_spec: EnvSpec = get_spec(env_id)
        spec = self.env_spec
        _check_choice("render_mode", render_mode, (None, "ansi"))
        _check_choice("language", language, (None, *get_args(Language)))
        _check_choice("prompt", prompt, get_args(Style))
        self.render_mode = render_mode
        self.services = Services(**{key: options.pop(key) for key in _SERVICES & options.keys()})
        self.language, self.prompt = language or spec.language, prompt
        self.protocol = make_protocol(protocol or spec.protocol)
        self.tasks = self._load(split=split, data=data, limit=limit, shuffle=shuffle, seed=seed, **options)
        for index in range(self.tasks.size or 0):
            check_setup(self.tasks.task(index))
        self._toolbox = Toolbox(
            spec.tools if tools is None else tools,
            _positive("tool_timeout", tool_timeout, spec.tool_timeout),
            sandbox,
            self.services,
            self.tasks,
        )
        self.tools = self._toolbox.make()
        if self.services.search is not None and "search" not in self.tools:
            names = ", ".join(self.tools) or "none"
            raise ValueError(f"search= is given, and no tool searches (tools: {names}); add tools=['search', ...]")
        self.schemas = [tool.schema for tool in self.tools.values()]
        self.system_prompt = self.protocol.system_prompt(self.schemas, self.language, self.prompt)
        self.budget = Budget.of(spec, list(self.tools), max_turns, max_tool_calls, tool_limits, max_tokens)
        self._scorer = scorer or spec.scorer
        if not isinstance(self._scorer, Grader):
            check_name(self._scorer)
        if self.services.judge_model and self._scorer != "judge":
            raise ValueError(f"judge_model is asked by scorer='judge' only; the scorer is {self._scorer!r}")
        self.rewards = Rewards.of(spec.reward if reward is None else reward)
        self._check_reward()
        self.observation_space = UnicodeText()
        self.action_space = UnicodeText()
        self._episode: Episode | None = None

    # Gymnasium's face

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start an episode and return the question.

        Args:
            seed: chooses the task, and seeds what follows.
            options: `{"task": Task}` or `{"index": int}` chooses the task instead.

        Raises:
            ValueError: an unknown option, or a task whose setup holds its answer.
        """
        return run(self.areset(seed=seed, options=options))

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Take one turn of the policy; see the module's text for what an action is.

        Raises:
            ResetNeeded: before `reset`, or after the episode ended.
            TypeError: the action is no string.
            sandbox.SandboxError: the machinery failed; reset and go on.
            ServiceError: the same, of search or a model server.
            GradingError: the answer could not be graded.
        """
        return run(self.astep(action))

    def fork(self) -> ToolEnv:
        """Return an independent copy of the running episode: stepping it equals stepping this one."""
        return run(self.afork(1))[0]

    def close(self) -> None:
        """End the episode and give back the interpreter; may be called twice, and `reset` starts anew.

        A recording is complete in its file afterwards.
        """
        run(self.aclose())
        if self.services.record is not None:
            self.services.record.close()

    def render(self) -> str | None:
        """Return question and transcript so far, in render mode "ansi"."""
        if self.render_mode is None or self._episode is None:
            return None
        return f"{self._episode.task.question}\n{self._episode.transcript}"

    # the asynchronous face

    async def areset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Asynchronous `reset`."""
        super().reset(seed=seed)
        task = self._choose(options or {})
        check_setup(task)
        self._episode = None
        for tool in self.tools.values():
            await tool.reset(task.setup)
        self._episode = Episode(task)
        return task.question, {
            "task": task,
            "messages": self.messages(task),
            "stop": self.protocol.stop_strings(self.schemas),
            "tools": self.schemas,
        }

    async def astep(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Asynchronous `step`."""
        episode = self.episode
        if episode.outcome:
            raise ResetNeeded(f"the episode has ended ({episode.outcome}); call reset() before the next step()")
        if not isinstance(action, str):
            raise TypeError(f"an action is one turn of text (str), got {type(action).__name__}: {action!r:.80}")
        try:
            turn = await act(episode, action, self.protocol, self.tools, self.budget, self._toolbox.timeout)
            if episode.outcome:
                return await self._end(episode)
        except BaseException:
            episode.outcome = "failed"  # half a turn has happened: what would follow is no episode of the task
            raise
        return turn.result, 0.0, False, False, self._info(episode)

    async def afork(self, n: int = 1) -> list[ToolEnv]:
        """Return `n` independent copies of the running episode, interpreters included.

        Raises:
            ResetNeeded: before `reset`.
            sandbox.ForkError: the interpreter could not be forked; this episode goes on unharmed.
        """
        episode = self.episode
        copies = []
        for tools in await fork_tools(self.tools, n):
            twin = self._twin()
            twin._np_random = copy.deepcopy(self._np_random)
            twin.tools, twin._episode = tools, episode.copy()
            copies.append(twin)
        return copies

    async def aclose(self) -> None:
        """Asynchronous `close`."""
        self._episode = None
        await close_tools(self.tools.values())

    # what a rollout engine needs

    def spawn(self) -> ToolEnv:
        """Return a fresh environment of the same kind that shares the loaded tasks; reset it before use."""
        fresh = self._twin()
        fresh._np_random, fresh._np_random_seed, fresh._episode = None, None, None
        fresh.tools = self._toolbox.make()
        return fresh

    def with_protocol(self, name: str) -> ToolEnv:
        """Return a fresh environment of the same kind whose turns are written in another protocol; reset it before use.

        Raises:
            ValueError: no such protocol, or one that does not go with the tools or the reward.
        """
        fresh = self.spawn()
        fresh.protocol = make_protocol(name)
        fresh.system_prompt = fresh.protocol.system_prompt(fresh.schemas, fresh.language, fresh.prompt)
        fresh._check_reward()
        return fresh

    def _check_reward(self) -> None:
        if self.protocol.native and any(term.name == "reference" for term in self.rewards.terms):
            raise ValueError(
                f"the published reward reads tags, protocol {self.protocol.name!r} has none: reward='paper'"
            )

    def _twin(self) -> ToolEnv:
        twin = copy.copy(self)
        twin.observation_space, twin.action_space = copy.deepcopy((self.observation_space, self.action_space))
        return twin

    @property
    def episode(self) -> Episode:
        """The running or last episode.

        Raises:
            ResetNeeded: there is none yet.
        """
        if self._episode is None:
            raise ResetNeeded("call reset() first: there is no episode yet")
        return self._episode

    def check(self) -> None:
        """Raise now what would fail at the first search or the first grading: what is not configured, or missing.

        Raises:
            ValueError: no judge model.
            RuntimeError: no search.
            ModuleNotFoundError: what reads pages is not installed.
        """
        _ = self.grader
        if "search" in self.tools:
            self.services.backend(self._toolbox.source)
            self.services.check_reader()

    @functools.cached_property
    def grader(self) -> Grader:
        """What compares answers; made at the first answer, so that tasks can be looked at where no judge is set up."""
        if isinstance(self._scorer, Grader):
            return self._scorer
        judge = {"chat": self.services.judge_chat, "cache": self.services.record}
        return make_grader(self._scorer, **(judge if self._scorer == "judge" else {}))

    async def atruncate(self, action: str = "") -> tuple[str, float, bool, bool, dict[str, Any]]:
        """End the running episode from outside, because the context is full; returns what `step` would.

        Args:
            action: the part of a turn that was cut off, if one was.
        """
        if action or not self.episode.turns:
            self.episode.turns.append(Turn(action))
        self.episode.outcome = "truncated"
        return await self._end(self.episode)

    def withhold_result(self) -> list[str]:
        """Put a word in the place of the last results, for which the context has no room; return them."""
        turn = self.episode.turns[-1]
        turn.results = [NO_ROOM] * len(turn.results)
        turn.result = self.protocol.render_result(turn.results, self.schemas)
        return turn.results

    def messages(self, task: Task) -> list[dict[str, str]]:
        """Return the chat messages that open an episode: instructions and question."""
        return [{"role": "system", "content": self.system_prompt}, {"role": "user", "content": task.question}]

    def _load(self, **options: Any) -> Any:
        spec = self.env_spec
        try:
            return load_source(spec.source, **options)
        except UnknownOptionError as error:
            near = difflib.get_close_matches(error.option, _OPTIONS, n=1)
            hint = f"; did you mean {near[0]!r} of the environment?" if near else ", beside those of the environment"
            raise ValueError(f"{error}{hint}") from error

    def _choose(self, options: dict[str, Any]) -> Task:
        check_reset_options(options)
        if "task" in options:
            given: Task = options["task"]
            return given
        size = self.tasks.size
        index = options.get("index")
        task: Task = self.tasks.task(int(self.np_random.integers(size or 2**31)) if index is None else int(index))
        return task

    async def _end(self, episode: Episode) -> tuple[str, float, bool, bool, dict[str, Any]]:
        texts = [turn.text for turn in episode.turns]
        well_formed = episode.malformed == 0 and self.protocol.well_formed(texts)
        graded = await grade_episode(episode, well_formed, self.grader, self.rewards)
        info = {**self._info(episode), "answer": episode.answer, "reward_components": graded.components}
        truncated = episode.outcome == "truncated"
        return "", graded.reward, not truncated, truncated, info

    def _info(self, episode: Episode) -> dict[str, Any]:
        last = episode.turns[-1]
        tool = {} if last.tool is None else {"tool": last.tool}  # absent rather than None: infos are batched by key
        return {
            **tool,
            "outcome": episode.outcome,
            "results": last.results,
            "tool_calls": len(episode.tools_used),
        }


_OPTIONS = frozenset(inspect.signature(ToolEnv).parameters) | _SERVICES


def check_reset_options(options: Mapping[str, Any]) -> None:
    """Refuse options that `reset` does not take.

    Raises:
        ValueError: says what it takes.
    """
    unknown = set(options) - {"task", "index"}
    if unknown:
        raise ValueError(f"reset takes the options 'task' and 'index', not {', '.join(sorted(unknown))}")
    if "task" in options and (not isinstance(options["task"], Task) or "index" in options):
        raise ValueError(f"reset takes either a Task as 'task' or an 'index', got {options!s:.200}")


def _check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be {' or '.join(map(repr, choices))}, not {value!r}")


def _positive(name: str, value: float | None, default: float) -> float:
    if value is None:
        return default
    if not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ValueError(f"{name} must be a number above 0, got {value!r}")
    return value
