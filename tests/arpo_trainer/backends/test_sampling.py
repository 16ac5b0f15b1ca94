"""Drawing tokens: the distribution is the model's, also at its edges; filters are those of transformers."""

import asyncio
import math
from typing import Any

import pytest
import torch
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from arpo_trainer import RolloutSettings
from arpo_trainer.algorithms.branching import ESTIMATORS, estimated_entropy
from arpo_trainer.backends import PaddedBackend, TransformersBackend, VLLMServerBackend
from arpo_trainer.backends.base import Request
from arpo_trainer.backends.sampling import Chances, Drawn, Sampler, TokenFilters, Truncation, filtered
from tests.arpo_trainer.backends.conformance import CONTEXTS, expected, rollout
from tests.arpo_trainer.backends.fake_vllm import FakeVLLM


def draw(logits: torch.Tensor, temperature: float, count: int, by: str = "seed") -> list[Drawn]:
    """Draw from the same logits with as many seeds, or at as many positions of one turn."""
    numbers = [range(count), [5] * count]
    chances = Chances.of([temperature] * count, *(numbers if by == "seed" else reversed(numbers)))
    return Sampler().draw(logits.expand(count, -1), chances)


@pytest.mark.parametrize("by", ["seed", "position"])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_tokens_are_drawn_as_often_as_they_are_likely(temperature: float, by: str) -> None:
    logits = torch.tensor([2.0, 0.0, 1.0, -1.0])
    counts = torch.bincount(torch.tensor([one.token for one in draw(logits, temperature, 4000, by)]), minlength=4)
    for count, share in zip(counts.tolist(), torch.softmax(logits / temperature, -1).tolist(), strict=True):
        assert count == pytest.approx(4000 * share, abs=4 * (4000 * share * (1 - share)) ** 0.5)


def test_random_numbers_are_exponential_and_independent() -> None:
    """Of neighbouring seeds, positions and tokens; also the smallest ones, which decide."""
    grid = [(seed, position) for seed in range(30) for position in range(30)]
    keys = Chances.of([1.0] * 900, *zip(*grid, strict=True)).keys
    assert keys is not None
    numbers = Sampler()._exponential(torch.empty(900, 3000), keys).double()
    for low in (1e-4, 1e-2, 0.1, 1.0, 3.0, 8.0):
        wanted = numbers.numel() * -torch.expm1(torch.tensor(-low, dtype=torch.double)).item()
        assert (numbers < low).sum().item() == pytest.approx(wanted, abs=4.5 * wanted**0.5)
    uniform = (12**0.5) * (torch.exp(-numbers) - 0.5)
    for table in (uniform, uniform[:, :900].T):  # correlations between rows, and between tokens
        found = table @ table.T / table.shape[1]
        assert found.fill_diagonal_(0).abs().max().item() < 6.5 / table.shape[1] ** 0.5


def test_a_token_that_cannot_be_is_never_drawn() -> None:
    drawn = draw(torch.tensor([-torch.inf, 0.0, 0.0, -torch.inf]), 1.0, 200)
    assert {one.token for one in drawn} == {1, 2}
    assert {round(one.entropy, 4) for one in drawn} == {0.6931}


def test_rounding_in_the_model_changes_hardly_any_token() -> None:
    logits = torch.randn(20_000, generator=torch.Generator().manual_seed(1))
    rounded = logits + 1e-3 * torch.randn(20_000, generator=torch.Generator().manual_seed(2))
    changed = [one.token != other.token for one, other in zip(draw(logits, 1, 400), draw(rounded, 1, 400), strict=True)]
    assert sum(changed) <= 3  # inverting the distribution function changes 20


@pytest.mark.parametrize("estimator", ESTIMATORS[1:])
def test_tokens_that_cannot_be_add_nothing_to_an_estimate(estimator: str) -> None:
    half = math.log(0.5)
    assert estimated_entropy([half, half, -math.inf], half, estimator) == pytest.approx(math.log(2))


PAPERS: dict[str, Any] = {"top_p": 0.95, "repetition_penalty": 1.1, "temperature": 0.6}
OPTIONS: list[dict[str, Any]] = [
    {"top_p": 0.3},
    {"top_k": 3},
    {"min_p": 0.2},
    {"repetition_penalty": 1.7},
    {"top_p": 0.8, "top_k": 9, "min_p": 0.05, "repetition_penalty": 0.8, "temperature": 0.6},
    {"top_p": 1e-9, "temperature": 1.5},
]


def by_transformers(request: Request, ids: list[int], logits: torch.Tensor) -> torch.Tensor:
    """Return the probabilities that `generate` of transformers would draw from."""
    steps = LogitsProcessorList([RepetitionPenaltyLogitsProcessor(request.repetition_penalty)])
    steps.append(TemperatureLogitsWarper(request.temperature))
    if request.top_k:
        steps.append(TopKLogitsWarper(request.top_k))
    steps += [TopPLogitsWarper(request.top_p), MinPLogitsWarper(request.min_p)]
    return torch.softmax(steps(torch.tensor([ids]), logits[None].clone())[0], -1)


def asked(seed: int, **options: Any) -> Request:
    context = torch.randint(0, 50, (12,), generator=torch.Generator().manual_seed(seed)).tolist()
    return Request(tuple(context), 8, seed=seed, **options)


def test_rows_of_a_batch_have_the_distributions_of_transformers() -> None:
    logits = 3 * torch.randn(6, 50, generator=torch.Generator().manual_seed(1))
    requests = [asked(seed, **options) for seed, options in enumerate(OPTIONS)]
    drawn = [[7, 49], [], [0], [3, 3, 4], [11], []]
    filters = [TokenFilters.of(request, ids) for request, ids in zip(requests, drawn, strict=True)]
    temperatures = torch.tensor([request.temperature for request in requests])
    for _ in range(2):  # the second time the mask of tokens that were seen is there already
        got = filtered(logits, temperatures, filters)
        assert got is not None
        for row, (request, ids) in enumerate(zip(requests, drawn, strict=True)):
            want = by_transformers(request, [*request.ids, *ids], logits[row])
            torch.testing.assert_close(torch.softmax(got[row], -1), want)
        for ids in drawn:
            ids.append(len(ids) + 20)


@pytest.mark.parametrize("sharpness", [0.1, 1.0, 5.0])
def test_the_short_way_to_the_nucleus_is_the_long_one(sharpness: float) -> None:
    """Flat distributions need all of the vocabulary, sharp ones its head."""
    scores = sharpness * torch.randn(40, 3000, generator=torch.Generator().manual_seed(4))
    for top_p in (0.05, 0.5, 0.95):
        got = Truncation(0, top_p, 0.0).apply(scores.clone())
        assert torch.equal(got, TopPLogitsWarper(top_p)(None, scores))


def test_a_row_with_filters_leaves_its_neighbours_as_they_are() -> None:
    logits, heat = torch.randn(3, 40, generator=torch.Generator().manual_seed(2)), torch.tensor([0.0, 1.0, 0.7])

    def draw(filters: list[TokenFilters | None]) -> list[Any]:
        return Sampler().draw(logits, Chances.of(heat.tolist(), range(3), [0] * 3), filters)

    # at temperature 0 only the penalty has an effect
    shaped = [TokenFilters.of(asked(0, temperature=0.0, top_k=1, top_p=0.1)), None, None]
    assert draw(shaped) == draw([]) == draw([None, None, None])


@pytest.mark.parametrize("kind", [TransformersBackend, PaddedBackend])
def test_backends_of_this_process_generate_as_transformers_would(kind: Any, llama: Any, tokenizer: Any) -> None:
    """Greedy with a penalty, or of one kept token; the numbers are of the whole distribution."""
    penalised = [Request(ids, 12, temperature=0.0, repetition_penalty=1.5) for ids in CONTEXTS]
    kept = [Request(ids, 9, seed=n, top_k=1) for n, ids in enumerate(CONTEXTS)]
    requests, backend = [*penalised, *kept], kind(llama, tokenizer, eos_token_ids={2})
    for request, one in zip(requests, asyncio.run(rollout(backend, requests)), strict=True):
        ids, penalty = torch.tensor([request.ids]), request.repetition_penalty
        options = {"max_new_tokens": request.max_tokens, "do_sample": False, "eos_token_id": 2}
        want = llama.generate(ids, attention_mask=torch.ones_like(ids), repetition_penalty=penalty, **options)
        assert one.ids == want[0, len(request.ids) :].tolist()
        logprobs, entropies = expected(llama, request, one)
        assert one.logprobs == pytest.approx(logprobs, abs=1e-4)
        assert one.entropies == pytest.approx(entropies, abs=1e-4)


def test_servers_are_sent_the_filters(llama: Any, tokenizer: Any) -> None:
    with FakeVLLM(llama, tokenizer) as server:
        backend = VLLMServerBackend([server.url], tokenizer=tokenizer)
        asyncio.run(rollout(backend, [Request(CONTEXTS[0], 2), Request(CONTEXTS[1], 2, top_k=20, **PAPERS)]))
    sent = {len(body["prompt"]): body for body in server.bodies if body["prompt"] != [0, 1]}
    names = ("top_p", "top_k", "min_p", "repetition_penalty")
    assert [sent[4][name] for name in names] == [1.0, 0, 0.0, 1.0]  # also what is off, or the server's defaults hold
    assert [sent[3][name] for name in names] == [0.95, 20, 0.0, 1.1]


@pytest.mark.parametrize("wrong", [{"top_p": 0.0}, {"top_p": 1.1}, {"top_k": -1}, {"min_p": 2.0}])
def test_values_without_a_meaning_are_refused(wrong: dict[str, Any], llama: Any, tokenizer: Any) -> None:
    with pytest.raises(ValueError, match="need 0 < top_p <= 1"):
        asyncio.run(TransformersBackend(llama, tokenizer).generate(Request((1, 2), 3, **wrong)))
    with pytest.raises(ValueError, match="need 0 < top_p <= 1"):
        RolloutSettings(**wrong)
