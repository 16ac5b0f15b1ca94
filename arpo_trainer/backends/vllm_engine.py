"""`VLLMEngineBackend`: drives a vLLM engine of this process, request by request.

A request joins the engine's batch at the next step and is answered when its own turn ends; vLLM's prefix cache makes
later turns and branches of a trajectory cheap. A separate thread drives the engine, so that the event loop never waits
for it. `LLM.generate` and TRL's `VLLMGeneration.generate` are not used: they answer when the last request of a list is
done, with one limit for all.

Log-probabilities are those of the engine (at temperature 0 those of temperature 1), of the distribution that it samples
from: with `top_p` and the like, the filtered one. Entropies are estimated from its `topk` most likely tokens. New
weights are pushed by `training.policy_backend`.

The engine's Python runs in this process, between two steps of the GPU. By itself it would make an object of each of the
`topk` tokens and decode it for every token generated, which takes longer than a step of a small model: `_keep_arrays`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from arpo_trainer.algorithms.branching import estimated_entropy
from arpo_trainer.backends.base import (
    EntropyWindow,
    Finish,
    Generation,
    GenerationError,
    OnWindow,
    Request,
    Worker,
    at_work,
    check_request,
    finished,
    same_device,
    telling,
)
from arpo_trainer.tree import Stopwatch

T = TypeVar("T")
logger = logging.getLogger(__name__)
IDLE = 0.002  # seconds between two exchanges with the other processes while none has anything to generate


# Processes that step a tensor-parallel engine together.
#
# Each process has an engine of its own that must get the same requests in the same order, since a step is collective.
# But each process plays its own trajectories at its own speed. So before each step they exchange new and cancelled
# requests and apply them in the order of their ranks. A process without requests steps for the others.


class Tick(NamedTuple):
    """What one process sends before a step."""

    new: list[tuple[str, Request]]  # by name; names are unique in the group
    gone: list[str]  # names of cancelled requests
    over: bool  # it has no requests and will have none in this rollout


class Lockstep:
    """A group of processes that step together, or a single process.

    Args:
        group: a torch.distributed group for objects on the CPU (gloo); None for a single process.
    """

    def __init__(self, group: Any = None) -> None:
        self.group, self.rank, self.size = group, 0, 1
        if group is not None:
            import torch.distributed as dist

            self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)

    def exchange(self, mine: Tick) -> list[Tick]:
        """Return what all processes sent, in the order of their ranks; waits for all of them."""
        if self.group is None:
            return [mine]
        import torch.distributed as dist

        # this is also the barrier: no process steps before all have said what they add
        every: list[Any] = [None] * self.size
        dist.all_gather_object(every, mine, group=self.group)
        return every


@dataclass
class _EngineRequest:
    name: str
    request: Request
    future: asyncio.Future[Generation]
    window: EntropyWindow
    at: float = field(default_factory=time.perf_counter)
    out: Generation = field(default_factory=Generation)


class VLLMEngineBackend:
    """Generates with a vLLM engine, many requests at once.

    Args:
        llm: a `vllm.LLM` made with `logprobs_mode="processed_logprobs"`, as TRL makes it.
        topk: number of most likely tokens to estimate entropies from; the engine gives up to its `max_logprobs`.
        estimator: of the entropies, see `estimated_entropy`.
        eos_token_ids: ids that end a turn; by default those that the engine reads from the generation config.
        lockstep: the processes of a tensor-parallel group, which step together; by default this process alone.

    Raises:
        ValueError: the engine's log-probabilities are not those it samples from, `topk` is above its limit, or the
            estimator needs more than top log-probabilities.
    """

    def __init__(
        self,
        llm: Any,
        *,
        topk: int = 20,
        estimator: str = "renormalised",
        eos_token_ids: set[int] | None = None,
        lockstep: Lockstep | None = None,
    ) -> None:
        estimated_entropy([-1.0] * topk, -1.0, estimator)  # refuses what cannot be estimated
        if (mode := llm.llm_engine.model_config.logprobs_mode) != "processed_logprobs":
            raise ValueError(
                f"the engine's log-probabilities are {mode!r}, not of the distribution it samples from: make it with "
                "LLM(..., logprobs_mode='processed_logprobs')"
            )
        limit = llm.llm_engine.model_config.max_logprobs
        if estimator != "nll" and 0 <= limit < topk:
            raise ValueError(
                f"topk={topk} is more than the engine's max_logprobs ({limit}): lower it (entropy_topk), or make the "
                f"engine with LLM(..., max_logprobs={topk})"
            )
        self.llm, self.estimator, self.eos = llm, estimator, eos_token_ids
        self.topk = 0 if estimator == "nll" else topk
        self.max_context: int = llm.llm_engine.model_config.max_model_len
        self.time = Stopwatch()
        self.trains, self.wants_messages = True, False
        self._lockstep = lockstep or Lockstep()
        self._thread = ThreadPoolExecutor(1, "arpo-vllm", *same_device())
        self._numbers = itertools.count()
        self._new: list[_EngineRequest] = []
        self._running: dict[str, _EngineRequest] = {}
        # requests in the engine, also of other processes; used by the engine's thread only
        self._inside: set[str] = set()
        self._over = True
        self._arrays = True
        self._worker: Worker = None

    async def begin(self) -> None:
        """Forget all kept keys and values: the weights may have changed.

        In a tensor-parallel group every process begins and ends the same rollouts.

        Raises:
            GenerationError: requests are still under way.
        """
        if not at_work(self._worker):  # requests that are left belong to a loop that was closed
            self._new, self._running = [], {}
            await self._in_thread(self._abort_all)
        if not await self._in_thread(self.llm.reset_prefix_cache):
            raise GenerationError(
                "vLLM still holds keys and values of requests that are under way, which would be stale: begin a "
                "rollout only after the `end` of the last one"
            )
        self._over = False
        if self._lockstep.size > 1:
            self._start()

    async def end(self) -> None:
        """Wait until nothing is under way, on any process of the group."""
        self._over = True
        await finished(self._worker)

    async def generate(self, request: Request, on_window: OnWindow | None = None) -> Generation:
        """Generate one turn; see `Backend.generate`.

        Raises:
            ValueError: no room for a token in the engine's `max_model_len`, too.
        """
        check_request(request)
        if len(request.ids) >= self.max_context:
            raise ValueError(
                f"a context of {len(request.ids)} ids leaves no room for a token: vLLM was started for "
                f"{self.max_context}. Raise max_model_len (TRL: vllm_max_model_length), or lower max_completion_length"
            )
        if self._over and self._lockstep.size > 1:
            raise GenerationError("a tensor-parallel engine generates only between `begin` and `end`")
        name = f"arpo-{self._lockstep.rank}-{next(self._numbers)}"
        asked = _EngineRequest(
            name, request, asyncio.get_running_loop().create_future(), EntropyWindow(request.window, on_window)
        )
        self._new.append(asked)
        self._start()
        return await asked.future

    def _start(self) -> None:
        if not at_work(self._worker):
            self._worker = asyncio.create_task(self._work())

    async def _work(self) -> None:
        def given_up() -> list[asyncio.Future[Generation]]:
            waiting = [asked.future for asked in (*self._new, *self._running.values())]
            self._thread.submit(self._abort_all)
            self._over = True  # no requests before the next `begin`: the processes would get out of step
            self._new, self._running = [], {}
            return waiting

        with telling(given_up):
            while True:
                await asyncio.sleep(0)  # let all callers that are ready add their requests first
                tick = self._tick()
                with self.time.running() if self._running else contextlib.nullcontext():
                    over, began, outputs = await self._in_thread(self._step, tick)
                for output in outputs:
                    self._take(output, began)
                if over and not self._new and not self._running:
                    return

    async def _in_thread(self, function: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)

    def _tick(self) -> Tick:
        """Collect what this process exchanges: new requests, cancelled requests, and whether it has nothing left."""
        new, self._new = [asked for asked in self._new if not asked.future.done()], []
        gone = [name for name, asked in self._running.items() if asked.future.done()]
        for name in gone:
            del self._running[name]
        self._running.update({asked.name: asked for asked in new})
        alone = self._lockstep.size == 1
        return Tick([(asked.name, asked.request) for asked in new], gone, not self._running and (alone or self._over))

    def _step(self, mine: Tick) -> tuple[bool, float, list[Any]]:
        """Let the engine do one step with the requests of all processes.

        Returns:
            Whether the rollout is over for all processes, when the step began, and the outputs of the step.
        """
        engine, ticks = self.llm.llm_engine, self._lockstep.exchange(mine)
        for tick in ticks:
            if tick.gone:
                engine.abort_request(tick.gone)
                self._inside.difference_update(tick.gone)
            for name, request in tick.new:
                # with its type, as vLLM's renderer returns it: a prompt without one is deprecated
                prompt = {"type": "token", "prompt_token_ids": list(request.ids)}
                inside = engine.add_request(name, prompt, self._sampling(request))
                self._inside.add(name)
                if self._arrays and not _keep_arrays(engine, inside, request.interval):
                    self._arrays = False
                    logger.warning(
                        "this version of vLLM is made in another way than those known (0.22 to 0.32): its "
                        "log-probabilities are right, but take several times as much CPU time"
                    )
        over, began = all(tick.over for tick in ticks), time.perf_counter()
        outputs = engine.step() if engine.has_unfinished_requests() else []
        self._inside.difference_update(output.request_id for output in outputs if output.finished)
        if not self._inside and not over:
            # requests of a process may be waiting for its tools; an exchange without a pause would keep a core busy
            time.sleep(IDLE)
        return over, began, outputs

    def _abort_all(self) -> None:
        if self._inside:
            self.llm.llm_engine.abort_request(sorted(self._inside))
            self._inside.clear()

    def _sampling(self, request: Request) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(
            max_tokens=request.max_tokens,
            temperature=request.temperature,
            top_p=request.top_p,
            top_k=request.top_k,
            min_p=request.min_p,
            repetition_penalty=request.repetition_penalty,
            seed=request.seed & (2**63 - 1),
            stop=list(request.stop),
            include_stop_str_in_output=True,
            stop_token_ids=sorted(self.eos or ()),
            # end tokens that are given replace those of the generation config
            ignore_eos=self.eos is not None,
            logprobs=self.topk,
            # text is needed to find stop strings, and for nothing else
            detokenize=bool(request.stop),
            skip_special_tokens=False,
            # only the new tokens of each step, which `_take` adds; otherwise each output would repeat all
            output_kind=RequestOutputKind.DELTA,
        )

    def _take(self, output: Any, began: float) -> None:
        """Add the tokens of a step to their request, if it is one of this process."""
        asked = self._running.get(output.request_id)
        if asked is None or asked.future.done():
            return
        made, out = output.outputs[0], asked.out
        if not out.ids:
            out.queued, out.cached = max(0.0, began - asked.at), output.num_cached_tokens or 0
        rows = made.logprobs if made.token_ids else ()  # of no tokens vLLM hands out all rows that it has
        for token, row in zip(made.token_ids, rows, strict=True):
            sampled, top = self._logprobs(token, row)
            try:
                out.add(token, sampled, estimated_entropy(top, sampled, self.estimator))
            except GenerationError as error:  # fails this request only: processes in lockstep have to go on
                asked.future.set_exception(error)
                return
        asked.window.tell(asked.out.entropies, last=output.finished)
        if output.finished:
            del self._running[asked.name]
            if asked.future.done():  # its caller has left when it was told the window
                return
            if made.finish_reason not in ("stop", "length"):
                asked.future.set_exception(GenerationError(f"vLLM ended the request itself: {made.finish_reason}"))
                return
            stopped: Finish = "stop" if isinstance(made.stop_reason, str) else "eos"
            out.finish = "length" if made.finish_reason == "length" else stopped
            asked.future.set_result(out)

    def _logprobs(self, token: int, row: Any) -> tuple[float, list[float]]:
        """Return the log-probability of a token, and those of the most likely ones in descending order."""
        if isinstance(row, dict):  # vLLM's own form; by id, since it sorts by rank
            return row[token].logprob, sorted((entry.logprob for entry in row.values()), reverse=True)[: self.topk]
        sampled, *top = row.tolist()
        return sampled, top[: self.topk]


def _keep_arrays(engine: Any, name: str, interval: int) -> bool:
    """Let vLLM hand out the log-probabilities of a request as it gets them from the model, every `interval` tokens.

    The entries of its `logprobs` are then arrays instead of dictionaries: the log-probability of the sampled token and
    those of the most likely ones, in descending order, shape (1 + k,), k >= `topk`. Returns whether this version of
    vLLM is made as this needs it. If not, nothing was changed.
    """
    try:
        from vllm.v1.outputs import LogprobsLists

        state = engine.output_processor.request_states[name]
        processor, interval = state.logprobs_processor, max(interval, state.stream_interval)
        rows, known = processor.logprobs, callable(processor.update_from_output)
    except (ImportError, AttributeError, KeyError):
        return False
    if not (known and isinstance(rows, list) and "logprobs" in LogprobsLists._fields):
        return False

    def update(output: Any) -> None:
        if output.new_logprobs is not None:
            del rows[:-interval]  # all but those that may not have been handed out
            rows.extend(output.new_logprobs.logprobs)

    processor.update_from_output, state.stream_interval = update, interval
    return True
