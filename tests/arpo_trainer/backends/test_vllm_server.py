"""vLLM servers: the suite of all backends on a server in this process, and what happens when servers fail."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from arpo_trainer.backends import VLLMServerBackend
from arpo_trainer.backends.base import Backend, Generation, GenerationError, Request
from tests.arpo_trainer.backends.conformance import CONTEXTS, BackendConformance, broken, rollout
from tests.arpo_trainer.backends.fake_vllm import FakeVLLM, refused


@pytest.fixture
def server(llama: Any, tokenizer: Any) -> Iterator[FakeVLLM]:
    with FakeVLLM(llama, tokenizer) as serving:
        yield serving


@pytest.fixture
def other(llama: Any, tokenizer: Any) -> Iterator[FakeVLLM]:
    with FakeVLLM(llama, tokenizer) as serving:
        yield serving


@pytest.fixture
def both(server: FakeVLLM, other: FakeVLLM, tokenizer: Any) -> VLLMServerBackend:
    return VLLMServerBackend([server.url, other.url], tokenizer=tokenizer, patience=5)


@pytest.fixture
def one(server: FakeVLLM, tokenizer: Any) -> VLLMServerBackend:
    return VLLMServerBackend([server.url], tokenizer=tokenizer, patience=5)


class TestVLLMServerBackend(BackendConformance):
    estimator = "renormalised"

    @pytest.fixture
    def reference(self, llama: Any) -> Any:
        return llama

    @pytest.fixture
    def backend(self, server: FakeVLLM, tokenizer: Any, reference: Any, eos_id: int) -> VLLMServerBackend:
        self.model = reference
        return VLLMServerBackend([server.url], tokenizer=tokenizer, eos_token_ids={eos_id}, patience=0.1)

    @contextlib.contextmanager
    def breaking(self, backend: Backend) -> Iterator[None]:
        asyncio.run(rollout(backend, [Request((5, 6), 1)]))
        with broken(self.model):
            yield


def ask(backend: Backend, *requests: Request) -> list[Generation]:
    return asyncio.run(asyncio.wait_for(rollout(backend, requests), 60))


def asked(server: FakeVLLM) -> list[dict[str, Any]]:
    """What was asked besides the look at the server when it was met."""
    return [body for body in server.bodies if body["prompt"] != [0, 1]]


def in_group(group: str, seed: int = 1, tokens: int = 5) -> Request:
    return Request(CONTEXTS[0], tokens, seed=seed, group=group)


# Which server.


def test_new_groups_go_round_and_stay(both: VLLMServerBackend, server: FakeVLLM, other: FakeVLLM) -> None:
    ask(both, *(in_group(f"g{n % 4}", seed=n) for n in range(12)))
    by_server = [{body["seed"] % 4 for body in asked(one)} for one in (server, other)]
    assert sorted(map(sorted, by_server)) == [[0, 2], [1, 3]]
    assert len(asked(server)) == len(asked(other)) == 6


# Servers that fail.


def test_a_server_that_dies_in_the_middle_is_replaced(
    both: VLLMServerBackend, server: FakeVLLM, other: FakeVLLM, tokenizer: Any
) -> None:
    request = Request(CONTEXTS[0], 30, seed=1, group="g", window=4)
    want = asyncio.run(rollout(VLLMServerBackend([other.url], tokenizer=tokenizer), [request]))[0]
    other.bodies.clear()
    server.die_after = 20
    told: list[list[float]] = []
    got = asyncio.run(rollout(both, [request], on_window=lambda first: told.append(list(first))))[0]
    assert (got.ids, got.finish) == (want.ids, "length")
    assert (len(asked(server)), len(asked(other))) == (1, 1)
    assert told == [got.entropies[:4]]


def test_a_server_that_stays_away_is_named(server: FakeVLLM, tokenizer: Any) -> None:
    backend = VLLMServerBackend([server.url], tokenizer=tokenizer, patience=0.3)
    ask(backend, in_group("g"))
    server.kill()
    with pytest.raises(GenerationError, match=rf"{server.url} could not be reached .* patience=0.3 s.*Is it running"):
        ask(backend, in_group("g"))


def test_silence_has_a_limit(server: FakeVLLM, tokenizer: Any) -> None:
    async def silence() -> Any:
        await asyncio.sleep(5)
        yield b""

    backend = VLLMServerBackend([server.url], tokenizer=tokenizer, timeout=0.3, patience=0.1)
    ask(backend, in_group("g"))
    server.wrong = [StreamingResponse(silence(), media_type="text/event-stream")]
    with pytest.raises(GenerationError, match=r"sent nothing for 0\.3 s"):
        ask(backend, in_group("g"))


def test_what_a_server_asks_to_wait_is_waited(one: VLLMServerBackend, server: FakeVLLM) -> None:
    ask(one, in_group("g"))
    server.wrong = [refused(429, "too many requests", Retry_After="1")]
    start = time.monotonic()
    assert len(ask(one, in_group("g"))[0].ids) == 5
    assert time.monotonic() - start >= 1
    server.wrong = [refused(503, "loading", Retry_After="3600")]
    with pytest.raises(GenerationError, match=r"status 503: loading \(asks to wait 3600 s\)"):
        ask(one, in_group("g"))


STREAM = "text/event-stream"


def unlikely(value: str) -> Response:
    """Answer with this as the log-probability of a token."""
    choice = f'{{"logprobs": {{"tokens": ["token_id:7"], "top_logprobs": [{{"token_id:7": {value}}}]}}}}'
    return PlainTextResponse(f'data: {{"choices": [{choice}]}}\n\n', media_type=STREAM)


USELESS = [
    (PlainTextResponse("<html>welcome</html>"), "answered with no stream of events"),
    (PlainTextResponse('data: {"hello": 1}\n\n', media_type=STREAM), "an event that cannot be read"),
    (PlainTextResponse('data: {"error": {"message": "bad seed", "code": 400}}\n\n', media_type=STREAM), "bad seed"),
    (unlikely("null"), "token 7 is NaN"),
    (
        Response(status_code=307, headers={"Location": "https://user:hunter2@elsewhere/v1?key=1"}),
        "redirects to https://elsewhere/v1; give that address",
    ),
]


@pytest.mark.parametrize(("answer", "said"), USELESS)
def test_a_useless_answer_is_quoted_and_not_asked_for_again(
    one: VLLMServerBackend, server: FakeVLLM, answer: Response, said: str
) -> None:
    ask(one, in_group("g"))
    server.bodies.clear()
    server.wrong = [answer]
    with pytest.raises(GenerationError, match=said):
        ask(one, in_group("g"))
    assert len(server.bodies) == 1


def test_an_answer_that_breaks_off_is_asked_for_again(one: VLLMServerBackend, server: FakeVLLM) -> None:
    want = ask(one, in_group("g"))[0].ids
    server.wrong = [
        PlainTextResponse("data: [DONE]\n\n", media_type=STREAM),
        PlainTextResponse('data: {"error": {"message": "EngineDeadError", "code": 500}}\n\n', media_type=STREAM),
    ]
    assert ask(one, in_group("g"))[0].ids == want


# Errors of setting up, which name the cure.


def test_a_context_that_is_too_long(one: VLLMServerBackend) -> None:
    for length in (1024, 1100):
        with pytest.raises(GenerationError, match="larger --max-model-len"):
            ask(one, Request((7,) * length, 5))
    got = ask(one, Request((7,) * 1020, 50, seed=1))[0]  # a turn ends where the context does
    assert (len(got.ids), got.finish) == (4, "length")
    assert one.max_context == 1024


def test_a_model_that_is_not_served(server: FakeVLLM, tokenizer: Any) -> None:
    backend = VLLMServerBackend([server.url], tokenizer=tokenizer, model="huge")
    with pytest.raises(GenerationError, match=r"serves \['tiny'\], not 'huge'"):
        ask(backend, in_group("g"))


def test_logprobs_at_another_temperature_are_refused(llama: Any, tokenizer: Any) -> None:
    with FakeVLLM(llama, tokenizer, processed=False) as raw:
        address = raw.url.replace("//", "//user:hunter2@") + "/v1/"
        backend = VLLMServerBackend([address], tokenizer=tokenizer)
        ask(backend, in_group("g"), Request((5, 6), 2, temperature=0.0))
        with pytest.raises(GenerationError, match=f"^{raw.url} gives.*--logprobs-mode processed_logprobs"):
            ask(backend, Request((5, 6), 2, temperature=0.7))


def test_what_cannot_work_is_refused_at_once(tokenizer: Any) -> None:
    for arguments in ({"estimator": "exact"}, {"topk": 0}, {"urls": []}, {"urls": ["localhost:8000"]}):
        with pytest.raises(ValueError, match=r"estimator|address"):
            VLLMServerBackend(**{"urls": ["http://localhost:8000"], "tokenizer": tokenizer, **arguments})


# Many requests, and none.


def test_cancelling_ends_the_computation_on_the_server(one: VLLMServerBackend, server: FakeVLLM) -> None:
    async def main() -> None:
        await one.begin()
        task = asyncio.create_task(one.generate(in_group("g", tokens=1000)))
        while not server.under_way:
            await asyncio.sleep(0.01)
        task.cancel()
        while server.under_way:
            await asyncio.sleep(0.01)
        await one.end()

    asyncio.run(asyncio.wait_for(main(), 30))
    assert server.gone == 1


def test_a_hundred_requests_are_under_way_at_once(both: VLLMServerBackend, server: FakeVLLM, other: FakeVLLM) -> None:
    requests = [in_group(f"g{n % 16}", seed=n, tokens=4) for n in range(100)]
    got = asyncio.run(asyncio.wait_for(rollout(both, requests), 120))
    assert all(len(one.ids) == 4 or one.finish == "eos" for one in got)
    assert len({tuple(one.ids) for one in got}) > 90
    assert server.most + other.most > 50


def test_what_was_cached_before_a_rollout_is_not_used(one: VLLMServerBackend, server: FakeVLLM) -> None:
    ask(one, in_group("g"))
    again = ask(one, in_group("g"))[0]
    assert (again.cached, again.queued) == (0, 0.003)  # as the server says
    assert len({body["cache_salt"] for body in asked(server)}) == 2


def test_a_key_is_sent_and_never_said(server: FakeVLLM, tokenizer: Any) -> None:
    server.wrong = [refused(401, "key hunter2 is wrong: Unauthorized")]
    backend = VLLMServerBackend([server.url], tokenizer=tokenizer, api_key="hunter2")
    with pytest.raises(GenerationError, match=r"key \*\*\* is wrong.*VLLM_API_KEY"):
        ask(backend, in_group("g"))
    assert server.keys == ["Bearer hunter2"]
    for key in ("hunt\ner2", "hünter2"):
        with pytest.raises(ValueError, match=r"^the key cannot be sent in a header: look for line breaks"):
            VLLMServerBackend([server.url], tokenizer=tokenizer, api_key=key)
