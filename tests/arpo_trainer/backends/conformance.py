"""What every generation backend must do: one suite, which the tests of each backend subclass.

A subclass gives the fixtures `backend` (a `Backend`) and `reference` (a transformers model in float32 with the same
weights), and says in class attributes what its backend promises. It builds the backend so that `eos_id` ends a turn.
What a backend does beyond the interface is tested beside its subclass, not here.
"""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, TypeVar

import pytest
import torch

from arpo_trainer.algorithms.branching import estimated_entropy
from arpo_trainer.backends.base import Backend, Generation, GenerationError, OnWindow, Request

CONTEXTS = [(5, 6, 7, 8), (5, 6, 9), (5, 6, 7, 8, 9, 10, 11), (30, 31)]
T = TypeVar("T")


async def rollout(
    backend: Backend, requests: Sequence[Request], pauses: Sequence[float] = (), on_window: OnWindow | None = None
) -> list[Generation]:
    """Generate all requests at once, each after its own pause, between one `begin` and one `end`."""

    async def one(number: int, request: Request) -> Generation:
        await asyncio.sleep(pauses[number] if pauses else 0)
        return await backend.generate(request, on_window)

    await backend.begin()
    try:
        return list(await asyncio.gather(*(one(number, request) for number, request in enumerate(requests))))
    finally:
        await backend.end()


async def under_way(backend: Backend, request: Request) -> asyncio.Task[Generation]:
    """Return a request with a window when its first tokens are there."""
    begun = asyncio.Event()
    task = asyncio.create_task(backend.generate(request, lambda _: begun.set()))
    await begun.wait()
    return task


def expected(
    model: Any, request: Request, got: Generation, estimator: str = "exact", topk: int = 20
) -> tuple[list[float], list[float]]:
    """Return log-probabilities and entropies of what was generated, from one pass over the whole sequence."""
    with torch.no_grad():
        ids = torch.tensor([[*request.ids, *got.ids]], device=model.device)
        logits = model(input_ids=ids).logits[0, len(request.ids) - 1 : -1].float().cpu()
    every = torch.log_softmax(logits / (request.temperature or 1.0), -1)
    chosen = every.gather(-1, torch.tensor(got.ids)[:, None])[:, 0].tolist()
    if estimator == "exact":
        return chosen, (-(every.exp() * every).sum(-1)).tolist()
    top = every.topk(topk).values.tolist()
    return chosen, [estimated_entropy(first, own, estimator) for first, own in zip(top, chosen, strict=True)]


def spanning(tokenizer: Any, ids: Sequence[int]) -> tuple[str, int]:
    """Return a stop string that begins in one token and ends in the next, and how many ids it takes to complete it."""
    for end in range(2, len(ids)):
        left, right = tokenizer.decode([ids[end - 2]]), tokenizer.decode([ids[end - 1]])
        stop = left[-2:] + right[:2]
        plain = min(len(left), len(right)) >= 2 and stop.isascii() and stop.strip() == stop
        if plain and stop not in tokenizer.decode(ids[: end - 1]) and stop in tokenizer.decode(ids[:end]):
            return stop, end
    raise AssertionError(f"no two neighbouring tokens of plain text in {tokenizer.decode(ids)!r}")


class BackendConformance:
    """The suite. Attributes say what differs between backends.

    Attributes:
        bound: how far a log-probability may be from the reference's, in nats.
        entropy_bound: the same for an entropy; it also covers a tie between tokens at the end of the `topk`.
        estimator: of the backend's entropies; what it gives is compared with the same estimate from the reference.
        topk: how many log-probabilities the estimator looks at.
        caches: the context's beginning is not computed again.
    """

    bound = 1e-4
    entropy_bound = 1e-4
    estimator = "exact"
    topk = 20
    caches = True

    # What a subclass may have to do its own way.

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run on an event loop; a backend that lives on one loop overrides this."""
        return asyncio.run(asyncio.wait_for(coroutine, 120))

    def load(self, backend: Backend, reference: Any) -> None:
        """Give the backend the reference's weights as they are now; nothing to do where it is the same model."""

    def breaking(self, backend: Backend) -> contextlib.AbstractContextManager[None]:
        """Make the model fail inside the block."""
        if isinstance(model := getattr(backend, "model", None), torch.nn.Module):
            return broken(model)
        pytest.skip("there is no way to make this backend's model fail")

    @pytest.fixture
    def eos_id(self, reference: Any) -> int:
        """The end token: the third that the reference takes greedily after the first context."""
        return self.greedily(reference, CONTEXTS[0], 3)[-1]

    # The model's numbers.

    def greedily(self, reference: Any, context: Sequence[int], tokens: int, eos: int | None = None) -> list[int]:
        ids = torch.tensor([context], device=reference.device)
        made = reference.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, do_sample=False, eos_token_id=eos
        )
        return list(map(int, made[0, len(context) :]))

    def test_greedy_tokens_are_those_of_transformers(self, backend: Backend, reference: Any, eos_id: int) -> None:
        requests = [Request(ids, 12, temperature=0.0) for ids in CONTEXTS]
        for request, got in zip(requests, self.run(rollout(backend, requests)), strict=True):
            want = self.greedily(reference, request.ids, 12, eos_id)
            if got.ids != want:  # only where the two best tokens are as good as equal
                n = next(i for i, (a, b) in enumerate(zip(got.ids, want, strict=False)) if a != b)
                with torch.no_grad():
                    ids = torch.tensor([[*request.ids, *want[:n]]], device=reference.device)
                    logits = reference(input_ids=ids).logits[0, -1]
                assert (logits[want[n]] - logits[got.ids[n]]).item() <= self.bound

    @pytest.mark.parametrize("temperature", [1.0, 0.7])
    def test_logprobs_and_entropies_are_the_models(self, backend: Backend, reference: Any, temperature: float) -> None:
        requests = [Request(ids, 9, seed=n, temperature=temperature) for n, ids in enumerate(CONTEXTS)]
        for request, got in zip(requests, self.run(rollout(backend, requests)), strict=True):
            logprobs, entropies = expected(reference, request, got, self.estimator, self.topk)
            assert got.logprobs == pytest.approx(logprobs, abs=self.bound)
            assert got.entropies == pytest.approx(entropies, abs=self.entropy_bound)

    def test_new_weights_are_used_after_begin(self, backend: Backend, reference: Any) -> None:
        request = Request(CONTEXTS[2], 9, seed=1)
        old = self.run(rollout(backend, [request]))[0]
        try:
            with changed(reference):
                self.load(backend, reference)
                got = self.run(rollout(backend, [request]))[0]
                want = expected(reference, request, got)[0]
        finally:
            self.load(backend, reference)
        assert got.logprobs == pytest.approx(want, abs=self.bound)
        assert got.logprobs != pytest.approx(old.logprobs, abs=0.1)

    def test_a_later_turn_has_the_same_numbers(self, backend: Backend, reference: Any) -> None:
        async def two_turns() -> tuple[Request, Generation]:
            await backend.begin()
            first = await backend.generate(Request(CONTEXTS[2] * 40, 8, seed=1, group="g"))
            longer = (*CONTEXTS[2] * 40, *first.ids[:5], 40, 41)  # agrees with what is known, then goes another way
            request = Request(longer, 8, seed=2, group="g")
            try:
                return request, await backend.generate(request)
            finally:
                await backend.end()

        request, got = self.run(two_turns())
        assert got.logprobs == pytest.approx(expected(reference, request, got)[0], abs=self.bound)
        assert bool(got.cached) == self.caches

    # What comes back, and why it ended.

    def test_the_limit_is_each_requests_own_and_each_new_id_has_its_numbers(self, backend: Backend) -> None:
        before, requests = backend.time.seconds, [Request(ids, 1 + 4 * n, seed=n) for n, ids in enumerate(CONTEXTS)]
        for request, got in zip(requests, self.run(rollout(backend, requests)), strict=True):
            assert len(got.ids) == len(got.logprobs) == len(got.entropies) == request.max_tokens
            assert got.finish == "length"
            assert got.queued >= 0
        assert backend.time.seconds > before

    def test_the_end_token_ends_the_turn_and_is_kept(self, backend: Backend, eos_id: int) -> None:
        got = self.run(rollout(backend, [Request(CONTEXTS[0], 12, temperature=0.0)]))[0]
        assert got.finish == "eos"
        assert got.ids[-1] == eos_id
        assert eos_id not in got.ids[:-1]
        assert len(got.ids) == len(got.logprobs) == len(got.entropies) <= 3

    def test_a_stop_string_that_spans_tokens_ends_the_turn(self, backend: Backend, tokenizer: Any) -> None:
        [free] = self.run(rollout(backend, [Request(CONTEXTS[2], 40, temperature=0.0)]))
        stop, end = spanning(tokenizer, free.ids)
        [got] = self.run(rollout(backend, [Request(CONTEXTS[2], 40, ("never to be seen", stop), temperature=0.0)]))
        assert got.finish == "stop"
        assert got.ids == free.ids[:end]
        assert len(got.logprobs) == len(got.entropies) == end

    def test_a_stop_string_in_the_context_does_not_stop(self, backend: Backend, tokenizer: Any) -> None:
        context = tuple(tokenizer.encode("Stop here: </python> and then </python>", add_special_tokens=False))
        got = self.run(rollout(backend, [Request(context, 6, ("</python>",), seed=1)]))[0]
        assert (len(got.ids), got.finish) == (6, "length")

    def test_bad_requests_are_refused(self, backend: Backend) -> None:
        bad = [(Request((1,), 5), "2 or more context ids"), (Request((1, 2), 0), "2 or more context ids")]
        bad += [(Request((1, 2), 5, temperature=heat), "temperature of 0 or more") for heat in (-0.5, float("nan"))]
        bad += [(Request((1, 2), 5, ("",)), "stop strings that are not empty")]
        for request, words in bad:
            with pytest.raises(ValueError, match=words):
                self.run(rollout(backend, [request]))

    # Many at once.

    def test_tokens_follow_the_requests_own_seed_and_nobody_elses(self, backend: Backend) -> None:
        one, same, other = self.run(rollout(backend, [Request(CONTEXTS[0], 9, seed=seed) for seed in (1, 1, 2)]))
        assert one.ids == same.ids
        assert one.ids != other.ids
        requests = [Request(ids, 4 + 5 * n, seed=n, temperature=1 - n / 5) for n, ids in enumerate(CONTEXTS)]
        together = self.run(rollout(backend, requests))
        for request, shared in zip(requests, together, strict=True):
            assert self.run(rollout(backend, [request]))[0].ids == shared.ids

    def test_requests_that_arrive_one_after_the_other_are_all_answered(self, backend: Backend) -> None:
        requests = [Request((*CONTEXTS[n % 4], n), 1 + n % 7, seed=n) for n in range(40)]
        got = self.run(rollout(backend, requests, [(n * 37 % 40) / 200 for n in range(40)]))
        pairs = zip(requests, got, strict=True)
        assert all(len(one.ids) == request.max_tokens for request, one in pairs if one.finish == "length")
        assert sum(one.finish == "eos" for one in got) <= 4  # rare: that token is one of 49152

    def test_a_cancelled_request_leaves_the_others(self, backend: Backend) -> None:
        short = Request(CONTEXTS[1], 30, temperature=0.0)

        async def main() -> list[int]:
            await backend.begin()
            other = asyncio.create_task(backend.generate(short))
            long = await under_way(backend, Request(CONTEXTS[0], 900, seed=1, window=1))
            long.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await long
            assert long.cancelled()
            try:
                return (await other).ids
            finally:
                await backend.end()

        assert self.run(main()) == self.run(rollout(backend, [short]))[0].ids

    # The window of the first entropies.

    @pytest.mark.parametrize(("tokens", "window"), [(9, 4), (3, 20), (3, 0)])
    def test_the_window_is_told_once_and_is_the_beginning(self, backend: Backend, tokens: int, window: int) -> None:
        """Of a short turn it is the whole, and a window of nothing is not told."""
        told: list[list[float]] = []
        request = Request(CONTEXTS[1], tokens, seed=1, window=window)
        got = self.run(rollout(backend, [request], on_window=lambda first: told.append(list(first))))[0]
        assert told == ([got.entropies[:window]] if window else [])

    def test_the_window_is_told_on_the_loop_while_the_turn_goes_on(self, backend: Backend) -> None:
        async def main() -> bool:
            told: asyncio.Future[tuple[asyncio.AbstractEventLoop, int]] = asyncio.get_running_loop().create_future()

            def on_window(_: Sequence[float]) -> None:
                told.set_result((asyncio.get_running_loop(), threading.get_ident()))

            await backend.begin()
            task = asyncio.create_task(backend.generate(Request(CONTEXTS[1], 100, seed=1, window=2), on_window))
            assert await told == (asyncio.get_running_loop(), threading.get_ident())
            early = not task.done()
            await task
            await backend.end()
            return early

        assert self.run(main())

    # Rollouts follow each other, also after a failure.

    def test_a_rollout_may_begin_and_end_twice(self, backend: Backend) -> None:
        async def main() -> list[int]:
            for change in (backend.begin, backend.begin, backend.end, backend.end):
                await change()
            return (await rollout(backend, [Request(CONTEXTS[0], 2, seed=1)]))[0].ids

        assert len(self.run(main())) == 2

    def test_a_failing_model_fails_all_who_wait_and_may_recover(self, backend: Backend) -> None:
        async def failures() -> list[Generation | BaseException]:
            requests = [Request(ids, 5, seed=1) for ids in CONTEXTS]
            return await asyncio.gather(*(backend.generate(request) for request in requests), return_exceptions=True)

        with self.breaking(backend):
            assert [type(failed) for failed in self.run(failures())] == [GenerationError] * len(CONTEXTS)
        assert len(self.run(rollout(backend, [Request(CONTEXTS[0], 2, seed=1)]))[0].ids) == 2


@contextlib.contextmanager
def changed(model: Any) -> Iterator[None]:
    """Let all matrices of a torch model be larger by a tenth inside the block."""
    before = [(weight, weight.detach().clone()) for weight in model.parameters() if weight.dim() == 2]
    try:
        with torch.no_grad():
            for weight, _ in before:
                weight.mul_(1.1)
        yield
    finally:
        with torch.no_grad():
            for weight, old in before:
                weight.copy_(old)


@contextlib.contextmanager
def broken(model: Any) -> Iterator[None]:
    """Let every forward pass of a torch model fail inside the block."""

    def fail(*_: object) -> None:
        raise RuntimeError("broken for a test")

    handle = model.register_forward_pre_hook(fail)
    try:
        yield
    finally:
        handle.remove()
