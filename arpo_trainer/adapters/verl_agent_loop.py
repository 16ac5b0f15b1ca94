"""`ArpoAgentLoop`: episodes of an environment, or ARPO's trees of them, as an agent loop of verl.

The rows come from `arpo data export --format verl` (`agent_name` is "arpo_agent"), and verl finds the loop in the file
that `actor_rollout_ref.rollout.agent.agent_loop_config_path` names:

    - name: arpo_agent
      _target_: arpo_trainer.adapters.verl_agent_loop.ArpoAgentLoop
      rollout: {algorithm: arpo, initial_rollouts: 8}

Token ids go to verl's servers and come back from them; the text of the environment is tokenised once and appended, by
the same rollout engine that `ARPOTrainer` uses. The n rollouts of a prompt are one tree. `docs/adapters/verl.md` says
what becomes of failures.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import statistics
import weakref
import zlib
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from arpo_env.adapters.peer import load_peer
from arpo_env.adapters.task_rows import find_task
from arpo_trainer.algorithms.entropy import estimated_entropy
from arpo_trainer.backends.base import Finish, Generation, GenerationError, OnWindow, Request, check_request
from arpo_trainer.backends.request_queue import StopFinder
from arpo_trainer.rollout.engine import Engine
from arpo_trainer.rollout.live_trajectory import DEFAULT_TRAJECTORIES, ConcurrencyLimits
from arpo_trainer.rollout.rendering import check_tokenizer
from arpo_trainer.rollout.settings import RolloutSettings
from arpo_trainer.tree import RolloutTree, Stopwatch, Trajectory
from arpo_trainer.validation import check_name

# `VerlBackend`: generates with the servers of a verl run, so that the rollout engine plays inside verl's agent loop.
#
#     backend = VerlBackend(server_manager, tokenizer, sampling_params, "vllm")
#     generation = await backend.generate(Request(ids=(1, 2, 3), max_tokens=64, stop=("</python>",)))
#
# verl's servers take and return token ids. They return the log-probability of the sampled token alone, so entropies are
# its negative ("nll" of `estimated_entropy`: right on average). They answer when a turn has ended, and so the entropies
# of its first tokens are told at its end.

# what makes a server of verl keep the stop string among the ids
KEEP_STOP: dict[str, dict[str, Any]] = {
    "vllm": {"include_stop_str_in_output": True},
    "sglang": {"no_stop_trim": True},
}


class VerlBackend:
    """Generates with verl's `LLMServerClient`, which an agent loop has as its `server_manager`.

    Args:
        client: the client.
        tokenizer: of the model; it finds stop strings and knows the end token.
        sampling_params: as verl gives them to an agent loop; all turns are sampled with them.
        engine: `rollout.name`: "vllm" or "sglang".
        max_length: most tokens of context and turn together (`rollout.max_model_len`); None is no limit.
        own_ids: give each request an id of its own, as `rollout.full_determinism` needs it. Otherwise the requests of
            a group have one, by which verl sends them to the same server, where they share their prefixes.

    Attributes:
        steps: the training steps whose weights have generated, as far as the servers tell.
    """

    def __init__(
        self,
        client: Any,
        tokenizer: Any,
        sampling_params: Mapping[str, Any],
        engine: str,
        max_length: int | None = None,
        own_ids: bool = False,
    ) -> None:
        self.client, self.tokenizer, self.engine = client, tokenizer, engine
        self.sampling_params, self.max_length, self.own_ids = dict(sampling_params), max_length, own_ids
        self.time = Stopwatch()
        self.trains, self.wants_messages = True, False
        self.steps: set[int] = set()

    async def begin(self) -> None:
        """Do nothing: verl updates the weights between its batches."""

    async def end(self) -> None:
        """Do nothing: verl owns the servers."""

    async def generate(self, request: Request, on_window: OnWindow | None = None) -> Generation:
        """Generate one turn; see `Backend.generate`. The window is told at the end.

        Raises:
            ValueError: also if there are stop strings and the engine is not known to heed them.
            GenerationError: the server failed, was interrupted, or returned no log-probabilities.
        """
        check_request(request)
        limit = request.max_tokens
        if self.max_length is not None:
            limit = min(limit, self.max_length - len(request.ids))
        if limit < 1:
            raise ValueError(
                f"a context of {len(request.ids)} ids leaves no room for a token: raise rollout.max_model_len "
                f"({self.max_length})"
            )
        with self.time.running():
            output = await self.client.generate(
                request_id=f"{request.group}/{request.seed}" if self.own_ids else request.group,
                prompt_ids=list(request.ids),
                sampling_params=self._parameters(request, limit),
            )
        generation = self._generation(output, request.stop, limit)
        if on_window and request.window:
            on_window(generation.entropies[: request.window])
        return generation

    def _parameters(self, request: Request, limit: int) -> dict[str, Any]:
        # no seed: verl decides whether its servers sample deterministically
        parameters = {**self.sampling_params, "logprobs": True, "max_tokens": limit}
        if request.stop:
            if self.engine not in KEEP_STOP:
                raise ValueError(
                    f"rollout.name={self.engine!r} is not known to heed stop strings, which the protocol of this "
                    f"environment needs; use {' or '.join(KEEP_STOP)}, or the option protocol='hermes'"
                )
            parameters |= {"stop": list(request.stop), "skip_special_tokens": False, **KEEP_STOP[self.engine]}
        return parameters

    def _generation(self, output: Any, stop: Sequence[str], limit: int) -> Generation:
        ids, logprobs = [int(number) for number in output.token_ids], list(output.log_probs or ())
        if output.stop_reason in ("abort", "aborted") or not ids:
            raise GenerationError(f"verl's server ended a request itself: {output.stop_reason or 'no token'}")
        if len(logprobs) != len(ids):
            raise GenerationError(f"verl's server returned {len(ids)} tokens and {len(logprobs)} log-probabilities")
        self._note_steps(output.extra_fields or {})
        end = self._stop_end(ids, stop)
        made = Generation(finish=self._finish(ids, end, limit))
        for number, logprob in zip(ids[:end], logprobs, strict=False):
            made.add(number, logprob, estimated_entropy((), logprob, "nll"))
        return made

    def _stop_end(self, ids: Sequence[int], stop: Sequence[str]) -> int | None:
        """Return how many ids it takes until a stop string is complete, or None if none is."""
        text = self.tokenizer.decode(ids) if stop else ""
        # decoding prefix by prefix is slow, so it is done only where there is something to find
        return StopFinder(self.tokenizer, stop).end(ids) if any(each in text for each in stop) else None

    def _finish(self, ids: Sequence[int], end: int | None, limit: int) -> Finish:
        # the servers call all ends "completed"
        if end is not None:
            return "stop"
        return "length" if len(ids) >= limit and ids[-1] != self.tokenizer.eos_token_id else "eos"

    def _note_steps(self, fields: Mapping[str, Any]) -> None:
        steps = (fields.get(name) for name in ("min_global_steps", "max_global_steps", "global_steps"))
        self.steps.update(int(step) for step in steps if step is not None)


# `together`: lets coroutines that were started at the same time, and that belong together, share one piece of work.
#
# verl starts the rollouts of a prompt as independent coroutines. A tree needs all of them at once.

T = TypeVar("T")


@dataclass
class _Party:
    size: int = 0
    waiting: int = 0
    work: asyncio.Task[Any] | None = None


_gathering: dict[tuple[asyncio.AbstractEventLoop, Hashable], _Party] = {}


async def together(key: Hashable, work: Callable[[int], Awaitable[T]]) -> tuple[int, T]:
    """Do `work(number of callers)` once for all callers with this key, and return this caller's number and the result.

    The work is cancelled when all callers are.

    Callers belong together if they have the same key and are waiting when the event loop comes to the work: tasks that
    were created one after the other, without an `await` in between. One that comes later begins a new party.

    Args:
        key: names the party.
        work: the function of the first caller is called.

    Raises:
        Exception: what the work raises, in every caller.
    """
    place = (asyncio.get_running_loop(), key)
    party = _gathering.setdefault(place, _Party())
    number, party.size = party.size, party.size + 1
    party.waiting += 1
    if party.work is None:
        # a task runs after all that are ready now, so the other callers have joined when it begins
        party.work = asyncio.create_task(_begin(place, work))
    try:
        # one cancelled caller must not end the work of the others
        return number, await asyncio.shield(party.work)
    finally:
        party.waiting -= 1
        if not party.waiting and not party.work.done():  # all were cancelled
            if _gathering.get(place) is party:
                del _gathering[place]
            party.work.cancel()


async def _begin(place: tuple[asyncio.AbstractEventLoop, Hashable], work: Callable[[int], Awaitable[T]]) -> T:
    return await work(_gathering.pop(place).size)


verl: Any = load_peer("verl.experimental.agent_loop.agent_loop")

OnFault = Literal["raise", "mask"]
# what verl decides, or what has no meaning here
_SAMPLING = {"temperature", "top_p", "top_k", "min_p", "repetition_penalty"}
_OF_VERL = {"num_generations", "max_completion_length", "max_invalid", "seed", *_SAMPLING}
SETTINGS = tuple(each.name for each in dataclasses.fields(RolloutSettings) if each.name not in _OF_VERL)
# of rewards; verl wants the same keys from every sample, and none may be "acc": verl's validation counts a sample that
# was left out as one with an acc of 0
COMPONENTS = ("accuracy", "format", "multi_tool")
# one per event loop and size: all prompts of a worker share them
_limits: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[int, ConcurrencyLimits]] = (
    weakref.WeakKeyDictionary()
)


class EpisodeFailed(RuntimeError):
    """Raised when the sandbox, a service or the grader failed, so that the sample has no reward."""


@verl.register("arpo_agent")
class ArpoAgentLoop(verl.AgentLoopBase):  # type: ignore[misc]
    """Plays the task of a row.

    Args:
        *args: of verl.
        rollout: settings of `RolloutSettings` by name. The default algorithm is "grpo", which has no branches.
            `num_generations` is the number of rollouts that verl asks for; temperature and length are verl's.
        on_fault: what a failure of the sandbox, a service or the grader becomes. "raise": an error, for which verl's
            trainer leaves out the sample (`trainer.use_v1=True`, the default). "mask": a sample without a gradient,
            whose reward is the mean of its group, for trainers that an error would end.
        max_trajectories: most episodes at once in one worker of verl.
        **kwargs: of verl.

    Raises:
        ValueError: a setting is unknown or invalid.
    """

    def __init__(
        self,
        *args: Any,
        rollout: Mapping[str, Any] | None = None,
        on_fault: OnFault = "raise",
        max_trajectories: int = DEFAULT_TRAJECTORIES,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        check_name("on_fault", on_fault, ("raise", "mask"))
        self.settings, self.on_fault, self.max_trajectories = dict(rollout or {}), on_fault, max_trajectories
        for name in self.settings:
            check_name("a setting of `rollout`", name, SETTINGS)

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        """Play one rollout of a prompt and return an `AgentLoopOutput`.

        Args:
            sampling_params: of verl.
            **kwargs: the columns of the row; `extra_info` names the task, `uid` the prompt.

        Raises:
            ValueError: the row does not name its task, or the prompt is longer than `rollout.prompt_length`.
            GenerationError: a server failed.
            EpisodeFailed: the episode failed, and `on_fault` is "raise" or all episodes of the prompt failed.
        """
        # rollouts of one prompt with different sampling (REMAX has a greedy one) are different trees
        key = (str(kwargs.get("uid") or id(kwargs)), json.dumps(sampling_params, sort_keys=True, default=str))

        async def play(count: int) -> tuple[RolloutTree, set[int]]:
            return await self._play(count, sampling_params, kwargs.get("extra_info") or {}, key[0])

        number, (tree, steps) = await together(key, play)
        return self._output(tree, number, steps, bool(sampling_params.get("logprobs")))

    async def _play(
        self, count: int, sampling_params: Mapping[str, Any], reference: Mapping[str, Any], uid: str
    ) -> tuple[RolloutTree, set[int]]:
        factory, task = find_task(reference)
        config = self.rollout_config
        backend = VerlBackend(
            self.server_manager,
            self.tokenizer,
            sampling_params,
            config.name,
            config.get("max_model_len"),
            bool(config.get("full_determinism")),
        )
        settings = self._settings(count, sampling_params.get("temperature", 1.0), uid)
        template = dict(self.apply_chat_template_kwargs or {})
        engine = Engine(backend, self.tokenizer, factory(), settings, template, limits={"trajectory": count})
        self._check(engine, len(engine.prompt_ids(task)))
        # a group takes its places at once: groups that each hold some sandboxes would wait for one another
        async with self._places(count).acquire("trajectory", count=count):
            [tree] = await engine.play([task])
        return tree, backend.steps

    def _settings(self, count: int, temperature: float, uid: str) -> RolloutSettings:
        given = {"algorithm": "grpo", "max_turn_length": None, "branch_quota": None, **self.settings}
        # a validation, and a group that verl splits over workers, have fewer rollouts than a training group
        roots = min(count, given.pop("initial_rollouts", max(1, count // 2)))
        return RolloutSettings(
            num_generations=count,
            initial_rollouts=roots,
            temperature=float(temperature),
            max_completion_length=int(self.rollout_config.response_length),
            seed=zlib.crc32(uid.encode()),
            **given,
        )

    def _check(self, engine: Engine, length: int) -> None:
        check_tokenizer(self.tokenizer)
        config = self.rollout_config
        if length > config.prompt_length:
            raise ValueError(
                f"a prompt of {length} tokens is longer than rollout.prompt_length={config.prompt_length}: raise "
                "data.max_prompt_length. (verl would cut off its beginning, which holds the instructions)"
            )
        stops = engine.env.protocol.stop_strings(engine.env.schemas)
        if stops and config.name == "sglang" and config.get("skip_tokenizer_init"):
            raise ValueError(
                "the protocol of this environment needs stop strings, and SGLang finds none without a tokenizer: set "
                "actor_rollout_ref.rollout.skip_tokenizer_init=False, or export the rows with --env-set protocol=hermes"
            )

    def _places(self, count: int) -> ConcurrencyLimits:
        most = self.max_trajectories
        if count > most:
            raise ValueError(f"a prompt has {count} rollouts, but max_trajectories is {most}; raise it")
        return _limits.setdefault(asyncio.get_running_loop(), {}).setdefault(
            most, ConcurrencyLimits({"trajectory": most})
        )

    def _output(self, tree: RolloutTree, number: int, steps: set[int], with_logprobs: bool) -> Any:
        trajectory, row = tree.trajectories[number], tree.row(number)
        reward, mask = trajectory.reward, row.mask
        if reward is None:
            reward, mask = self._reward_of_failed(tree, trajectory), [0] * len(row.mask)
        return verl.AgentLoopOutput(
            prompt_ids=tree.prompt_ids,
            response_ids=row.ids,
            response_mask=mask,
            response_logprobs=row.logprobs if with_logprobs else None,
            reward_score=reward,
            num_turns=len(tree.path(number)) + 1,
            metrics=_loop_metrics(tree, number),
            extra_fields=_extra_fields(trajectory, steps),
        )

    def _reward_of_failed(self, tree: RolloutTree, trajectory: Trajectory) -> float:
        rewards = [reward for reward in tree.rewards if reward is not None]
        if self.on_fault == "raise" or not rewards:
            raise EpisodeFailed(f"an episode of {tree.task['id']} failed and has no reward: {trajectory.error}")
        # the mean leaves the baseline of the group as it is without this sample
        return statistics.fmean(rewards)


def _loop_metrics(tree: RolloutTree, number: int) -> Any:
    seconds = {"generate": 0.0, "tool": 0.0}
    for event in tree.timeline:
        if event.trajectory == number and event.kind in seconds:
            seconds[event.kind] += event.end - event.start
    return verl.AgentLoopMetrics(generate_sequences=seconds["generate"], tool_calls=seconds["tool"])


def _extra_fields(trajectory: Trajectory, steps: set[int]) -> dict[str, Any]:
    return {
        "reward_extra_info": {name: float(trajectory.components.get(name, math.nan)) for name in COMPONENTS},
        "turn_scores": [],
        "tool_rewards": [],
        "min_global_steps": min(steps, default=None),
        "max_global_steps": max(steps, default=None),
        "arpo": {
            "outcome": trajectory.outcome,
            "error": trajectory.error,
            "answer": trajectory.answer,
            "tool_calls": trajectory.tool_calls,
            "origin": trajectory.origin,
            "parent": trajectory.parent,
            "fork_span": trajectory.fork_span,
        },
    }
