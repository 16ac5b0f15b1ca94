"""`VerlBackend`: generates with the servers of a verl run, so that the rollout engine plays inside verl's agent loop.

    backend = VerlBackend(server_manager, tokenizer, sampling_params, "vllm")
    generation = await backend.generate(Request(ids=(1, 2, 3), max_tokens=64, stop=("</python>",)))

verl's servers take and return token ids. They return the log-probability of the sampled token alone, so entropies are
its negative ("nll" of `estimated_entropy`: right on average). They answer when a turn has ended, and so the entropies
of its first tokens are told at its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from arpo_trainer.algorithms.branching import estimated_entropy
from arpo_trainer.backends.base import (
    EntropyWindow,
    Generation,
    GenerationError,
    OnWindow,
    Request,
    StopFinder,
    check_request,
)
from arpo_trainer.tree import Stopwatch

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
        self.sampling_params, self.max_context, self.own_ids = dict(sampling_params), max_length, own_ids
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
        if self.max_context is not None:
            limit = min(limit, self.max_context - len(request.ids))
        if limit < 1:
            raise ValueError(
                f"a context of {len(request.ids)} ids leaves no room for a token: raise rollout.max_model_len "
                f"({self.max_context})"
            )
        with self.time.running():
            output = await self.client.generate(
                request_id=f"{request.group}/{request.seed}" if self.own_ids else request.group,
                prompt_ids=list(request.ids),
                sampling_params=self._parameters(request, limit),
            )
        generation = self._generation(output, request.stop, limit)
        EntropyWindow(request.window, on_window).tell(generation.entropies, last=True)
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
        fields = output.extra_fields or {}
        steps = (fields.get(name) for name in ("min_global_steps", "max_global_steps", "global_steps"))
        self.steps.update(int(step) for step in steps if step is not None)
        # decoding prefix by prefix is slow, so it is done only where there is something to find
        text = self.tokenizer.decode(ids) if stop else ""
        end = StopFinder(self.tokenizer, stop).end(ids) if any(each in text for each in stop) else None
        # the servers call all ends "completed"
        cut_off = len(ids) >= limit and ids[-1] != self.tokenizer.eos_token_id
        made = Generation(finish="stop" if end is not None else "length" if cut_off else "eos")
        for number, logprob in zip(ids[:end], logprobs, strict=False):
            made.add(number, logprob, estimated_entropy((), logprob, "nll"))
        return made


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
