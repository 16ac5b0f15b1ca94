"""The interface of generation: token ids in; ids, log-probabilities, entropies and the reason of the end out.

A backend is asynchronous: many requests are under way at once, and each is answered when its own stop string, end token
or limit is reached. `begin` and `end` frame a rollout: between them the weights stay what they are, so that keys and
values may be kept, and an engine that sleeps in between is woken once, not once a turn. What implements it is in
`arpo_trainer.backends`; one suite of tests runs on all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from arpo_trainer.stopwatch import Stopwatch

Finish = Literal["stop", "eos", "length"]
OnWindow = Callable[[Sequence[float]], None]


class GenerationError(RuntimeError):
    """Raised when the model itself fails; that ends the rollout, unlike an environment's failure."""


@dataclass(frozen=True)
class Request:
    """One turn to generate.

    Attributes:
        ids: the whole context, shape (n,), n >= 2.
        max_tokens: at most so many new ones.
        stop: the turn is over when one of these strings appears in the new text; they may span tokens.
        seed: of the sampling.
        temperature: the distribution is softmax(logits / temperature); 0 takes the most likely token.
        window: how many entropies `on_window` is told; 0 is none.
        group: requests with the same name share long prefixes: whoever has several caches sends them to one.
        messages: the conversation so far as chat messages, for endpoints that take nothing else; filled only for
            backends that want it.
    """

    ids: tuple[int, ...]
    max_tokens: int
    stop: tuple[str, ...] = ()
    seed: int = 0
    temperature: float = 1.0
    window: int = 0
    group: str = ""
    messages: tuple[Mapping[str, str], ...] = ()


@dataclass
class Generation:
    """What was generated.

    Attributes:
        ids: the new ids, shape (m,), stop string or end token included.
        logprobs: log-probability of each at the request's temperature, shape (m,).
        entropies: entropy of each one's distribution in nats, shape (m,), exact or estimated (`entropy`).
        finish: "stop", "eos" or "length".
        queued: seconds it waited before the model began with it.
        cached: tokens of the context that did not have to be computed again.
    """

    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    finish: Finish = "length"
    queued: float = 0.0
    cached: int = 0

    def add(self, token: int, logprob: float, entropy: float) -> None:
        """Add a token and its numbers.

        Raises:
            GenerationError: the numbers are none.
        """
        if math.isnan(logprob) or math.isnan(entropy):
            raise GenerationError(
                f"the model's log-probability of token {token} is NaN: its weights, or what it computes, hold NaN or "
                "infinity. Look at the last training steps' loss and gradient norm; lower the learning rate, or take "
                "bfloat16 instead of float16"
            )
        self.ids.append(token)
        self.logprobs.append(logprob)
        self.entropies.append(entropy)


class Backend(Protocol):
    """Anything that can generate.

    Attributes:
        time: runs while at least one request is being computed.
        trains: its ids and log-probabilities are those of the policy, token by token: they may be learned from.
        wants_messages: requests need `messages`.
    """

    time: Stopwatch
    trains: bool
    wants_messages: bool

    async def begin(self) -> None:
        """A rollout begins: the weights may have changed since the last one."""

    async def generate(self, request: Request, on_window: OnWindow | None = None) -> Generation:
        """Generate one turn.

        Args:
            request: what to generate.
            on_window: called once, on the caller's event loop, with the entropies of the first `request.window` tokens
                as soon as they are there; with fewer, if the turn ends before; at the latest just before this returns.

        Raises:
            ValueError: what `check_request` refuses, or a context that fills the model.
            GenerationError: the model failed.
        """

    async def end(self) -> None:
        """The rollout is over; memory may be given back. Called also when it failed."""


def check_request(request: Request) -> None:
    """Refuse what no backend can generate.

    Raises:
        ValueError: fewer than two ids of context, no room for a token, an empty stop string, or a temperature that is
            negative or no finite number.
    """
    if len(request.ids) < 2 or request.max_tokens < 1:
        raise ValueError(
            f"need 2 or more context ids and max_tokens >= 1, got {len(request.ids)} and {request.max_tokens}"
        )
    if not 0 <= request.temperature < math.inf or "" in request.stop:
        raise ValueError(
            f"need a temperature of 0 or more and stop strings that are not empty, got {request.temperature} and "
            f"{list(request.stop)}"
        )
