"""The interface of generation: token ids in; ids, log-probabilities, entropies and the reason of the end out.

A backend is asynchronous: many requests are under way at once, and each is answered when its own stop string, end token
or limit is reached. `begin` and `end` frame a rollout. Between them the weights do not change, so keys and values may
be kept, and an engine that sleeps otherwise is woken once per rollout instead of once per turn. The other modules of
`arpo_trainer.backends` implement it; one suite of tests runs on all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from arpo_env.protocols.protocol import Protocol as TurnFormat
from arpo_env.tools.tool import JsonSchema
from arpo_trainer.tree import Stopwatch

Finish = Literal["stop", "eos", "length"]
OnWindow = Callable[[Sequence[float]], None]
_INTERVAL = 32  # tokens; the cost of an output does not depend on how many it has


class GenerationError(RuntimeError):
    """Raised when the model fails. It ends the rollout, unlike a failure of an environment."""


class ServerSetupError(GenerationError):
    """Raised when a server has to be started differently; trying again is of no use."""


@dataclass(frozen=True)
class Request:
    """One turn to generate.

    Attributes:
        ids: the whole context, shape (n,), n >= 2.
        max_tokens: maximum number of new tokens.
        stop: the turn is over when one of these strings appears in the new text; they may span tokens.
        seed: random seed of the turn.
        temperature: tokens are drawn from softmax(logits / temperature); 0 takes the most likely token.
        window: number of entropies that `on_window` is told; 0 is none.
        group: requests with the same name share long prefixes; a backend with several caches sends them to one.
        messages: the conversation so far as chat messages, for endpoints that take nothing else; filled only for
            backends that want it. A content is a text, or a list of OpenAI's parts if it has pictures.
        tools: of these messages, the tools that can be called natively.
        protocol: of these messages, what the turn is read by; None if nothing but its text is of use.
        top_p: keeps the most likely tokens whose probabilities add up to this; 1 keeps all.
        top_k: keeps this many most likely tokens; 0 keeps all.
        min_p: keeps tokens with at least this share of the most likely token's probability; 0 keeps all.
        repetition_penalty: lowers the logits of tokens that occurred in the context or in the turn, as transformers
            and vLLM do; 1 lowers nothing.

    The last four are for evaluation. They are applied in the order of transformers: penalty, temperature, top-k, top-p,
    min-p. Training refuses them, since trees are sampled from the policy itself.
    """

    ids: tuple[int, ...]
    max_tokens: int
    stop: tuple[str, ...] = ()
    seed: int = 0
    temperature: float = 1.0
    window: int = 0
    group: str = ""
    messages: tuple[Mapping[str, Any], ...] = ()
    tools: tuple[JsonSchema, ...] = ()
    protocol: TurnFormat | None = None
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    @property
    def unfiltered(self) -> bool:
        """Whether tokens are drawn from softmax(logits / temperature) as it is."""
        return (self.top_p, self.top_k, self.min_p, self.repetition_penalty) == (1.0, 0, 0.0, 1.0)

    @property
    def interval(self) -> int:
        """Tokens between two outputs of an engine that first gives one token alone: the second fills the window."""
        return max(1, self.window - 1) if self.window else _INTERVAL


@dataclass
class Generation:
    """What was generated.

    Attributes:
        ids: the new ids, shape (m,), stop string or end token included.
        logprobs: log-probability of each at the request's temperature, shape (m,). Where the request has sampling
            filters (`top_p` and so on), it is that of the whole distribution before the filters on backends that
            decode in this process, and that of the filtered distribution on vLLM.
        entropies: entropy of the distribution of each, in nats, shape (m,), exact or estimated (see `entropy`), before
            or after the filters like `logprobs`.
        finish: "stop", "eos" or "length".
        queued: seconds of waiting before the model began with it.
        cached: number of context tokens that did not have to be computed again.
    """

    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    finish: Finish = "length"
    queued: float = 0.0
    cached: int = 0

    def add(self, token: int, logprob: float, entropy: float) -> None:
        """Add a token.

        Raises:
            GenerationError: its log-probability or entropy is NaN.
        """
        # checked here for all backends: NaN would pass every comparison later and end in the loss
        if math.isnan(logprob) or math.isnan(entropy):
            raise GenerationError(
                f"the model's log-probability of token {token} is NaN: its weights, or what it computes, hold NaN or "
                "infinity. Look at the loss and gradient norm of the last training steps; lower the learning rate, or "
                "use bfloat16 instead of float16"
            )
        self.ids.append(token)
        self.logprobs.append(logprob)
        self.entropies.append(entropy)


class EntropyWindow:
    """Tells the caller of a request the first `size` entropies once, even if the request is tried several times."""

    def __init__(self, size: int, on_window: OnWindow | None) -> None:
        self._size, self._on_window = size, on_window if size > 0 else None

    def tell(self, entropies: Sequence[float], last: bool = False) -> None:
        """Tell the first entropies if there are enough of them, or if these are the last."""
        if self._on_window and (last or len(entropies) >= self._size):
            # forgotten before the call, so that a request that is repeated does not tell its window again
            on_window, self._on_window = self._on_window, None
            on_window(entropies[: self._size])


class Backend(Protocol):
    """The interface of everything that generates.

    Attributes:
        time: runs while at least one request is being computed.
        trains: whether its ids and log-probabilities are those of the policy, so that it can be trained on them.
        wants_messages: whether requests need `messages`.
        max_context: maximum number of tokens of a context and its turn; None where that is not known before `begin`, or
            at all. A backend may lack it. A turn ends there, and a result of a tool that leaves no room is withheld.
    """

    time: Stopwatch
    trains: bool
    wants_messages: bool

    async def begin(self) -> None:
        """Begin a rollout; the weights may have changed since the last one."""

    async def generate(self, request: Request, on_window: OnWindow | None = None) -> Generation:
        """Generate one turn.

        Args:
            request: what to generate.
            on_window: called once, on the caller's event loop, with the entropies of the first `request.window` tokens
                as soon as they are there, or with fewer if the turn ends earlier; at the latest before this returns.

        Raises:
            ValueError: `check_request` refuses the request, or its context fills the model.
            GenerationError: the model failed.
        """

    async def end(self) -> None:
        """End the rollout; memory may be released. It is called also when the rollout failed."""


def check_request(request: Request) -> None:
    """Refuse a request that no backend can generate (ValueError)."""
    if len(request.ids) < 2 or request.max_tokens < 1:
        raise ValueError(
            f"need 2 or more context ids and max_tokens >= 1, got {len(request.ids)} and {request.max_tokens}"
        )
    if not 0 <= request.temperature < math.inf or "" in request.stop:
        raise ValueError(
            f"need a temperature of 0 or more and stop strings that are not empty, got {request.temperature} and "
            f"{list(request.stop)}"
        )
    check_filters(request.top_p, request.top_k, request.min_p, request.repetition_penalty)


def check_filters(top_p: float, top_k: int, min_p: float, repetition_penalty: float) -> None:
    """Refuse values of sampling filters that mean nothing (ValueError)."""
    if not (0 < top_p <= 1 and top_k >= 0 and 0 <= min_p <= 1 and 0 < repetition_penalty < math.inf):
        raise ValueError(
            "need 0 < top_p <= 1, top_k >= 0 (0: off), 0 <= min_p <= 1 and repetition_penalty > 0, got "
            f"top_p={top_p}, top_k={top_k}, min_p={min_p}, repetition_penalty={repetition_penalty}"
        )


# What backends of this process share: stop strings, the worker task that serves requests, the device of a thread.

_BROKEN = "\ufffd"  # what a part of a character is decoded as


class StopFinder:
    """Finds the end of the first stop string in new ids, for backends that decode themselves; it may span tokens.

    Only the end of the text is decoded: a token has at least one byte, so a stop string of n bytes that has just become
    complete lies within the last n tokens. And only after tokens that can complete one: those whose own text has the
    last character of a stop string, or a part of some character. Which ones can is found out once for each token.
    """

    def __init__(self, tokenizer: Any, stop: Sequence[str]) -> None:
        self._tokenizer, self._stop = tokenizer, tuple(stop)
        # one more, since some tokenizers drop the space of the first token
        self._reach = max((len(text.encode()) for text in stop), default=0) + 1
        self._last = {text[-1] for text in stop} | {_BROKEN}
        # spaces are the one thing that a token can add to or take from the text before it
        spaces = " " in self._last or getattr(tokenizer, "clean_up_tokenization_spaces", False)
        self._ends: dict[int, bool] | None = None if spaces else {}

    def end(self, ids: Sequence[int], checked: int = 0) -> int | None:
        """Return how many of `ids` it takes until a stop string is complete, or None if none is.

        Args:
            ids: the new tokens so far, shape (n,).
            checked: number of first tokens that are known to hold no stop string.
        """
        if not self._stop:
            return None
        for end in range(checked + 1, len(ids) + 1):
            if not self._can_end(ids[end - 1]):
                continue
            start = max(0, end - self._reach)
            # not in the midst of a character: some decoders (bytes of SentencePiece) break all bytes beside it, too
            while start and _BROKEN in self._tokenizer.decode([ids[start]]):
                start -= 1
            tail = self._tokenizer.decode(ids[start:end])
            if any(text in tail for text in self._stop):
                return end
        return None

    def _can_end(self, token: int) -> bool:
        if self._ends is None:
            return True
        known = self._ends.get(token)
        if known is None:
            known = self._ends[token] = not self._last.isdisjoint(self._tokenizer.decode([token]))
        return known


Worker = asyncio.Task[None] | None


def at_work(worker: Worker) -> bool:
    """Return whether a worker is running on this event loop; GenerationError if it is running on another one.

    It serves one event loop at a time. A worker whose loop was closed is gone, and its requests with it.
    """
    # a task whose loop was closed in its midst never becomes done
    if worker is None or worker.done() or worker.get_loop().is_closed():
        return False
    if worker.get_loop() is not asyncio.get_running_loop():
        raise GenerationError(
            "this backend is generating on another event loop: await its requests there, and end that rollout first"
        )
    return True


@contextlib.contextmanager
def telling(waiting: Callable[[], Iterable[asyncio.Future[Generation]]]) -> Iterator[None]:
    """Give an error of a worker to all who are waiting, also when it is cancelled: they would wait for ever."""
    try:
        yield
    except GeneratorExit:
        raise  # its loop was closed, and it is collected now: whoever waits belongs to another worker
    except BaseException as error:
        said = str(error) if isinstance(error, GenerationError) else f"generation failed: {error!r}"
        for future in waiting():
            if not future.done():
                failed = GenerationError(said)
                failed.__cause__ = error
                future.set_exception(failed)
        if not isinstance(error, Exception):
            raise


async def finished(worker: Worker) -> None:
    """Wait until a worker has nothing left to do; cancelling this wait does not stop the worker."""
    if worker is not None and at_work(worker):
        # awaiting the worker itself would pass a cancellation on to it, and raise its error here, too
        await asyncio.wait([worker])


def device_of(accelerator: Any) -> contextlib.AbstractContextManager[object]:
    """Return a context in which the GPU of a process is the current one; for code on the thread of the event loop."""
    import torch

    device = accelerator.device
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


def same_device() -> tuple[Callable[..., object], tuple[Any, ...]] | tuple[()]:
    """Return the initializer and its arguments that start the threads of a pool on the GPU of this thread.

    CUDA gives every new thread the first one, whichever its process uses.
    """
    import torch

    # asking for the current device would initialise CUDA, also for a model that runs on the CPU
    used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return (torch.cuda.set_device, (torch.cuda.current_device(),)) if used else ()
