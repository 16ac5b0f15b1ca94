r"""`ToolEnv`: a multi-turn text environment with tools that can be forked while an episode runs.

An observation is text for the policy's context: the question after `reset`, the rendered result after a tool call, and
"" at the end. An action is one turn of the policy: everything it generated up to and including the first stop string
(`info["stop"]`), or up to its end-of-sequence token. The reward is returned by the last step.

    import arpo_env, gymnasium as gym
    env = gym.make("arpo/Arithmetic-v0", level=1)
    question, info = env.reset(seed=0)
    result, *_ = env.step("<think>I compute it.</think><python>847 * 391</python>")
    twin = env.fork()                   # a copy of the episode, including the live interpreter
    env.step("<think>Done.</think><answer>\\boxed{331177}</answer>")

Each method has an asynchronous version (`areset`, `astep`, `afork`, `aclose`) for rollout engines. `step` raises if the
infrastructure behind a tool fails (`sandbox.SandboxError`, `ServiceError`) or if the answer could not be graded
(`GradingError`); such a failure is never turned into a reward of 0.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import operator
import pickle
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self, cast

import gymnasium
from gymnasium.error import ResetNeeded

from arpo_env.apply_turn import act
from arpo_env.episode import Budget, Episode, Turn
from arpo_env.event_loop import run
from arpo_env.grading import Grader, check_name, make_grader
from arpo_env.memory_folding import context_messages, fold_counts, make_folding, undo_fold
from arpo_env.protocols import make_protocol
from arpo_env.protocols.protocol import Language, Protocol, Style
from arpo_env.registration import EnvFactory
from arpo_env.rewards import Rewards, grade_episode
from arpo_env.services import Services
from arpo_env.tools import toolbox
from arpo_env.tools.tool import usable_tools
from envs_registry import EnvSpec, Task, TaskSource, get_spec, load_source
from envs_registry.generated import GENERATORS
from envs_registry.nearest_name import nearest_hint
from envs_registry.sources import UnknownOptionError
from envs_registry.task import check_setup
from sandbox import Sandbox, default_sandbox

_SAMPLE_LENGTH = 40


class UnicodeText(gymnasium.spaces.Text):
    """All strings of at most a million characters; Gymnasium's `Text` has an alphabet. Samples are short."""

    def __init__(self) -> None:
        super().__init__(1_000_000, min_length=0)

    def contains(self, x: Any) -> bool:
        """Return whether `x` is a string that is not too long."""
        return isinstance(x, str) and len(x) <= self.max_length

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Draw a short string of letters and digits, which exercises an environment but is useless as a policy."""
        return super().sample((int(self.np_random.integers(_SAMPLE_LENGTH + 1)), None))


def check_task(task: Task) -> None:
    """Raise if the setup of a task contains its answer (ValueError), or one of its files is missing."""
    if task.source not in GENERATORS:  # of our own generators the setup code is known to hold none
        check_setup(task)
    for file in task.files:
        if not Path(file).is_file():
            raise FileNotFoundError(
                f"task {task.id!r}: its file {file!r} does not exist on this machine; put it there, or load the tasks "
                "anew with data=... naming the folder that has the files now"
            )


def check_reset_options(options: Mapping[str, Any], tasks: TaskSource) -> None:
    """Raise ValueError if an option of `reset` is unknown or invalid, or there is no task of that number."""
    if unknown := options.keys() - {"task", "index"}:
        raise ValueError(f"reset takes the options 'task' and 'index', not {', '.join(sorted(unknown))}")
    if "task" in options and (not isinstance(options["task"], Task) or "index" in options):
        raise ValueError(f"reset takes either a Task as 'task' or an 'index', got {options!s:.200}")
    if options.get("index") is not None:
        try:
            index = operator.index(options["index"])  # numpy's numbers as well
        except TypeError as error:
            raise TypeError(f"the option 'index' of reset is a whole number, not {options['index']!r:.200}") from error
        if index < 0 or (tasks.size is not None and index >= tasks.size):
            last = f"; there are {tasks.size:,}, from 0 to {tasks.size - 1}" if tasks.size else ""
            raise ValueError(f"there is no task of index {index}{last}")


_SERVICES = frozenset(field.name for field in dataclasses.fields(Services) if field.init)


class _Remembers:
    """Remembers what an object is made with; a base of its own, so that the signature stays that of `__init__`."""

    _given: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *args: Any, **options: Any) -> Self:
        made = super().__new__(cls)
        made._given = args, options
        return made


class ToolEnv(_Remembers, gymnasium.Env[str, str]):
    """An environment for one `EnvSpec`. Arguments that are None take the value of the spec.

    Args:
        env_id: a registered id.
        split: split of the task source.
        data: a local file or folder to read instead of the hub.
        limit: maximum number of tasks.
        shuffle: shuffle the tasks with `seed` before the limit is applied (finite sources only).
        seed: seed of the shuffle, or of the generator if the tasks are generated.
        tools: names ("python", "search", "tool_search", "read_file", "browse", "mcp:SERVER"), typed functions, or
            factories of `Tool` objects. By default those of the environment, and "read_file" if tasks have files.
        protocol: the format of turns: "arpo-tags" ("arpo-tags-reference" uses the published code's white space), the
            model's own tool calls ("native", or by their form "hermes" and "llama3"), a name registered by
            `register_protocol`, or a `Protocol`. By default "arpo-tags", for which a rollout engine, which knows the
            model, may take another one (`arpo_trainer.rollout.model_protocol`).
        language: language of the instructions, "en" or "zh".
        prompt: "short", "paper" with a worked example, or the instructions themselves, as text of several words.
        reward: "paper", "tool-star", "deepagent", "reference", or weighted terms (`arpo_env.rewards.Rewards.of`).
        scorer: the grader of answers (`arpo_env.grading`), by name or as a `Grader`.
        max_turns: maximum number of model turns in an episode.
        max_tool_calls: maximum number of executed tool calls.
        tool_limits: maximum number of calls of single tools, as in {"search": 3}.
        max_tokens: maximum number of tokens after the prompt, of model and environment together; estimated from the
            text unless a rollout engine counts them.
        folds: how often the model may fold its history into memories in an episode (`memory_folding`); 0 means never.
            `max_tokens` then limits what follows the prompt since the last fold.
        tool_timeout: time limit of one call in seconds; searches and MCP calls have at least 60.
        sandbox: the sandbox that runs Python: settings, such as {"profile": "data"}, {"packages": ["networkx"]} or
            {"image": NAME}, of one that all environments of the process with the same settings share (see
            `sandbox.default_sandbox`); None is the default one; or a `Sandbox`. It is opened at the first call.
        render_mode: None or "ansi" (`render` returns the transcript).
        options: options of `arpo_env.services.Services` (search, cache, pages, browse, judge_model, ...), and of the
            task source, such as `level`.

    Attributes:
        protocol_given: whether somebody chose the protocol: an argument, the spec or `with_protocol`.

    Raises:
        UnknownEnvError: the id is not registered.
        ValueError: an option, split or limit is invalid, or the setup of a task contains its answer.
        FileNotFoundError: a file of a task does not exist.
    """

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012  (the form Gymnasium expects)

    def __init__(
        self,
        env_id: str,
        *,
        split: str | None = None,
        data: str | Path | None = None,
        limit: int | None = None,
        shuffle: bool = False,
        seed: int = 0,
        tools: Sequence[toolbox.ToolName] | None = None,
        protocol: str | Protocol | None = None,
        language: Language | None = None,
        prompt: Style | str = "short",
        reward: str | Rewards | Mapping[str, Any] | None = None,
        scorer: str | Grader | None = None,
        max_turns: int | None = None,
        max_tool_calls: int | None = None,
        tool_limits: Mapping[str, int] | None = None,
        max_tokens: int | None = None,
        folds: int = 0,
        tool_timeout: float | None = None,
        sandbox: Sandbox | Mapping[str, Any] | None = None,
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        self.env_spec: EnvSpec = get_spec(env_id)
        spec = self.env_spec
        self.render_mode = render_mode
        # What remains in `options` belongs to the task source, which rejects unknown names.
        self.services = Services(**{key: options.pop(key) for key in _SERVICES & options.keys()})
        self.language, self.prompt = language or spec.language, prompt
        given = protocol or spec.protocol
        self.protocol, self.protocol_given = make_protocol(given or "arpo-tags"), given is not None
        self.tasks = self._load(split=split, data=data, limit=limit, shuffle=shuffle, seed=seed, **options)
        # Each is made once, since some sources generate them. Those of an endless source are checked at each reset.
        with_files = False
        for number in range(self.tasks.size or 0):
            check_task(task := self.tasks.task(number))
            with_files = with_files or bool(task.files)
        tool_timeout = spec.tool_timeout if tool_timeout is None else tool_timeout
        if not isinstance(tool_timeout, int | float) or not 0 < tool_timeout < float("inf"):
            raise ValueError(f"tool_timeout must be a positive finite number, got {tool_timeout!r}")
        chosen = toolbox.chosen_tools(tools, spec, with_files, self.services)
        self._toolbox = toolbox.Toolbox(chosen, tool_timeout, sandbox, self.services, self.tasks)
        self.tools = self._toolbox.make()
        self.schemas = [tool.schema for tool in self.tools.values()]
        self.folding = make_folding(folds, self.schemas, self.services.chat("fold_model"))
        if self.folding:
            self.schemas.append(self.folding.schema)
        self.system_prompt = self._instructions()
        self.budget = Budget.of(spec, list(self.tools), max_turns, max_tool_calls, tool_limits, max_tokens, folds)
        self._scorer = scorer or spec.scorer
        if not isinstance(self._scorer, Grader):
            check_name(self._scorer)
        if self.services.judge_model and self._scorer != "judge":
            raise ValueError(f"judge_model is used by scorer='judge' only; the scorer is {self._scorer!r}")
        self.rewards = Rewards.of(spec.reward if reward is None else reward, spec.reward)
        self._check_reward()
        self.observation_space = UnicodeText()
        self.action_space = UnicodeText()
        self._episode: Episode | None = None

    # Gymnasium's API

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start an episode and return the question.

        Args:
            seed: seed of the environment's random generator, which chooses the task, and of tools with noise.
            options: `{"task": Task}` or `{"index": int}` selects the task directly.
        """
        return run(self.areset(seed=seed, options=options))

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Take one turn of the policy; the module docstring defines an action.

        Raises:
            ResetNeeded: `reset` was not called, or the episode has ended.
            TypeError: the action is not a string.
            sandbox.SandboxError: the sandbox failed; reset and go on.
            ServiceError: search or a model server failed; reset and go on.
            GradingError: the answer could not be graded.
        """
        return run(self.astep(action))

    def fork(self) -> ToolEnv:
        """Return an independent copy of the running episode, which behaves as this one; noise of tools is its own."""
        return run(self.afork(1))[0]

    def close(self) -> None:
        """End the episode and close its interpreter. May be called twice; `reset` starts a new episode.

        Afterwards the file of a recording is complete.
        """
        run(self.aclose())
        if self.services.record is not None:
            self.services.record.close()

    def render(self) -> str | None:
        """Return the question and the transcript so far in render mode "ansi", else None."""
        if self.render_mode is None or self._episode is None:
            return None
        return f"{self._episode.task.question}\n{self._episode.transcript}"

    # the asynchronous API

    async def areset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Asynchronous `reset`."""
        super().reset(seed=seed)
        chosen = options or {}
        check_reset_options(chosen, self.tasks)
        index = chosen.get("index")
        # an endless source has a task for every number, so that any range will do
        most = self.tasks.size or 2**31
        task: Task = chosen.get("task") or self.tasks.task(
            int(self.np_random.integers(most)) if index is None else int(index)
        )
        check_task(task)
        # There is no episode until every tool is reset: after a failure `step` raises instead of going on.
        self._episode = None
        toolbox.seed_tools(self.tools.values(), seed, lambda: int(self.np_random.integers(2**32)))
        await toolbox.reset_tools(self.tools.values(), task)
        self._episode = Episode(task)
        return task.question, {
            "task": task,
            "messages": self.messages(task),
            "stop": self.protocol.stop_strings(self.schemas),
            "tools": self.schemas,
        }

    async def astep(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Asynchronous `step`."""
        episode = self._running()
        if not isinstance(action, str):
            raise TypeError(f"an action is one turn of text (str), got {type(action).__name__}: {action!r:.80}")
        try:
            tools = usable_tools(self.tools)
            turn = await act(episode, action, self.protocol, tools, self.budget, self._toolbox.timeout, self.folding)
            if episode.outcome:
                return await self._end(episode)
        except BaseException:
            episode.outcome = "failed"  # a turn was interrupted, so the episode cannot be continued consistently
            raise
        return turn.result, 0.0, False, False, self._info(episode)

    async def afork(self, n: int = 1) -> list[ToolEnv]:
        """Return `n` independent copies of the running episode, including the interpreter.

        Raises:
            ResetNeeded: `reset` was not called.
            sandbox.ForkError: the interpreter could not be forked; this episode is not affected.
        """
        episode = self.episode
        copies = []
        for tools in await toolbox.fork_tools(self.tools, n):
            twin = self._twin()
            # With one generator for all, the tasks of one copy would depend on the resets of the others.
            twin._np_random = copy.deepcopy(self._np_random)
            twin.tools, twin._episode = tools, episode.copy()
            copies.append(twin)
        return copies

    async def aclose(self) -> None:
        """Asynchronous `close`."""
        self._episode = None
        await toolbox.close_tools(self.tools.values())

    # for rollout engines

    def spawn(self) -> ToolEnv:
        """Return a new environment with the same settings that shares the loaded tasks; call `reset` before use."""
        fresh = self._twin()
        # It gets a generator of its own at its first reset, and so does not depend on the resets of this one.
        fresh._np_random, fresh._np_random_seed, fresh._episode = None, None, None
        fresh.tools = self._toolbox.make()
        return fresh

    def with_protocol(self, name: str | Protocol) -> ToolEnv:
        """Return a new environment with the same settings but another protocol; call `reset` before use."""
        fresh = self.spawn()
        fresh.protocol, fresh.protocol_given = make_protocol(name), True
        args, options = self._given
        fresh._given = args, {**options, "protocol": name}
        fresh.system_prompt = fresh._instructions()
        fresh._check_reward()
        return fresh

    def _instructions(self) -> str:
        if not re.fullmatch(r"\w*", str(self.prompt), re.ASCII):  # a text, and not the name of a style
            return self.prompt
        return self.protocol.system_prompt(self.schemas, self.language, cast(Style, self.prompt))

    def _load(self, **options: Any) -> Any:
        try:
            return load_source(self.env_spec.source, **options)
        except UnknownOptionError as error:
            form, otherwise = "; did you mean {!r} of ToolEnv?", ", besides those of ToolEnv"
            raise ValueError(f"{error}{nearest_hint(error.option, _OPTIONS, form, otherwise)}") from error

    @property
    def reward_reads_tags(self) -> bool:
        """Whether the reward is the published one, which reads tags in the text."""
        return any(term.name == "reference" for term in self.rewards.terms)

    def _check_reward(self) -> None:
        if self.protocol.native and self.reward_reads_tags:
            raise ValueError(
                f"the published reward reads tags, which protocol {self.protocol.name!r} does not have; "
                "use reward='paper'"
            )

    def _twin(self) -> ToolEnv:
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        # Spaces hold random generators as well.
        twin.observation_space, twin.action_space = copy.deepcopy((self.observation_space, self.action_space))
        return twin

    # An environment is pickled and copied as its factory; one that plays an episode is copied by a fork.

    @property
    def factory(self) -> EnvFactory:
        """The picklable factory of environments with the same settings.

        Raises:
            TypeError: the environment's class is a subclass, which a factory would not make.
        """
        if type(self) is not ToolEnv:
            raise TypeError(f"EnvFactory makes a ToolEnv, and this is a {type(self).__name__}")
        args, options = self._given
        options = dict(options)
        return EnvFactory(*args or [options.pop("env_id")], **options)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        # A running episode holds a live interpreter, which cannot leave this process.
        if self._runs:
            raise pickle.PicklingError(
                "this ToolEnv plays an episode, which cannot be pickled; env.fork() copies it within this process. "
                "Pickle the environment before reset() or after the episode, or pickle env.factory"
            )
        return operator.call, (self.factory,)

    def __copy__(self) -> ToolEnv:
        return self.__deepcopy__({})  # two environments with one episode would disturb each other

    def __deepcopy__(self, memo: dict[int, Any]) -> ToolEnv:
        """Return a fork of a running episode, else a new environment with the same settings and random generator."""
        if self._runs:
            return self.fork()
        fresh = self.spawn()
        fresh._np_random, fresh._np_random_seed = copy.deepcopy(self._np_random), self._np_random_seed
        return fresh

    @property
    def _runs(self) -> bool:
        return self._episode is not None and not self._episode.outcome

    @property
    def episode(self) -> Episode:
        """The running or last episode; ResetNeeded is raised before the first."""
        if self._episode is None:
            raise ResetNeeded("call reset() first: there is no episode yet")
        return self._episode

    def _running(self) -> Episode:
        if self.episode.outcome:
            raise ResetNeeded(f"the episode has ended ({self.episode.outcome}); call reset() before the next step()")
        return self.episode

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox that runs the code of this environment's tools; its first container starts at the first use."""
        return default_sandbox(self._toolbox.sandbox)

    def check(self) -> None:
        """Raise early if search, page and file reading, or grading are not configured or not installed."""
        _ = self.grader
        self._toolbox.check()

    @functools.cached_property
    def grader(self) -> Grader:
        """The grader, created at the first answer, so that tasks can be listed without a configured judge."""
        if isinstance(self._scorer, Grader):
            return self._scorer
        judge = {"chat": self.services.chat("judge_model"), "cache": self.services.record}
        return make_grader(self._scorer, **(judge if self._scorer == "judge" else {}))

    async def atruncate(self, action: str = "") -> tuple[str, float, bool, bool, dict[str, Any]]:
        """End the running episode, whose context is full, after part of a turn; return the same values as `step`."""
        episode = self._running()
        # At least one turn, since the infos describe the last one.
        if action or not episode.turns:
            episode.turns.append(Turn(action))
        episode.outcome = "truncated"
        try:
            return await self._end(episode)
        except BaseException:
            episode.outcome = "failed"  # so that there is no second grading
            raise

    def withhold_result(self) -> list[str]:
        """Replace the last results, which do not fit into the context, by a short notice, and return the notices."""
        turn = self.episode.turns[-1]
        turn.results, turn.images = [undo_fold(turn) or self.budget.no_room(self.episode)] * len(turn.results), []
        turn.result = self.protocol.render_result(turn.results, self.schemas)
        return turn.results

    def messages(self, task: Task) -> list[dict[str, str]]:
        """Return the chat messages that open an episode: instructions and question."""
        asked = getattr(self.protocol, "user_message", lambda question, _: question)(task.question, self.schemas)
        return [{"role": "system", "content": self.system_prompt}, {"role": "user", "content": asked}]

    def context(self) -> list[dict[str, str]]:
        """Return the messages that the running episode goes on from: `messages`, and the memory of the last fold."""
        return context_messages(self.messages(self.episode.task), self.episode)

    async def _end(self, episode: Episode) -> tuple[str, float, bool, bool, dict[str, Any]]:
        # All turns count: a good last turn does not make up for a malformed one.
        well_formed = episode.malformed == 0 and self.protocol.well_formed([turn.text for turn in episode.turns])
        graded = await grade_episode(episode, well_formed, self.grader, self.rewards)
        parts = graded.components | (fold_counts(episode) if self.folding else {})
        info = {**self._info(episode), "answer": episode.answer, "reward_components": parts}
        if not well_formed:
            whole = f"thoughts, results or the answer are not as the protocol {self.protocol.name} has them"
            info["format_fault"] = episode.format_fault or whole
        truncated = episode.outcome == "truncated"
        return "", graded.reward, not truncated, truncated, info

    def _info(self, episode: Episode) -> dict[str, Any]:
        last = episode.turns[-1]
        # omitted rather than None or empty, since vector environments batch infos by key
        present = {name: value for name in ("tool", "images") if (value := getattr(last, name))}
        return {
            **present,
            "outcome": episode.outcome,
            "results": last.results,
            "tool_calls": len(episode.tools_used),
            **({"folds": episode.folds, "folded": last.memory is not None} if self.folding else {}),
            # the context that the next turn continues; the observation is the memory alone
            **({"messages": self.context()} if last.memory is not None else {}),
        }


_OPTIONS = frozenset(inspect.signature(ToolEnv).parameters) | _SERVICES
