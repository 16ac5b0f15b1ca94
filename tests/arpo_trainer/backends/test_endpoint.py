"""An OpenAI-compatible endpoint as the policy: what is asked, how its text becomes a generation, what is refused."""

import asyncio
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import pytest

from arpo_trainer.backends import EndpointBackend
from arpo_trainer.backends.base import Generation, GenerationError, Request
from tests.arpo_env.chat_server import Answer, ChatServer, chat_server, reply, saying
from tests.arpo_trainer.backends.conformance import rollout

MESSAGES = ({"role": "system", "content": "Use tools."}, {"role": "user", "content": "What is 6*7?"})
STOPS = ("</python>", "</search>", "</answer>")


def asking(stop: Sequence[str] = STOPS, tokens: int = 50, **more: Any) -> Request:
    return Request((5, 6, 7), tokens, tuple(stop), seed=3, messages=MESSAGES, **more)


def choosing(text: str | None, **choice: Any) -> Answer:
    """Answer with this text, and more about it, as OpenAI and vLLM write it."""
    made = reply(text)
    made["choices"][0] |= choice
    return lambda _: (200, made)


def ask(
    tokenizer: Any, answer: Answer, request: Request | None = None, **options: Any
) -> tuple[Generation, ChatServer]:
    """Ask a server that answers like this; return what came of it, and the server."""
    with chat_server(answer) as server:
        backend = EndpointBackend("m", server.address, tokenizer=tokenizer, **options)
        [made] = asyncio.run(asyncio.wait_for(rollout(backend, [request or asking()]), 60))
    return made, server


def test_a_chat_is_asked_with_the_messages(tokenizer: Any) -> None:
    _, server = ask(tokenizer, saying("42"), asking(STOPS * 2), api_key="hunter2")
    assert server.keys == ["Bearer hunter2"]
    assert server.bodies[0] == {
        "model": "m",
        "messages": list(MESSAGES),
        "max_tokens": 50,
        "temperature": 1.0,
        "seed": 3,
        "stop": [*STOPS, "</python>"],  # OpenAI takes four
    }


def test_extra_fields_replace_and_remove(tokenizer: Any) -> None:
    extra = {"max_tokens": None, "max_completion_tokens": 9}
    _, server = ask(tokenizer, saying("42"), asking(top_p=0.95, min_p=0.1), extra=extra)
    [body] = server.bodies
    assert (body["max_completion_tokens"], body["top_p"], body["min_p"]) == (9, 0.95, 0.1)
    assert not body.keys() & {"max_tokens", "top_k", "repetition_penalty"}  # not what is off, either


ENDINGS = [
    ("a <python>print(1)", {}, "a <python>print(1)</python>", "stop"),  # cut off: the open tag says which
    ("<search>x</search> <answer>1", {}, "<search>x</search>", "stop"),  # the endpoint knows no stop strings
    ("<search> or <answer>1", {}, "<search> or <answer>1</answer>", "stop"),
    ("a < b", {"stop_reason": "</answer>"}, "a < b</answer>", "stop"),  # vLLM says which
    ("the end", {}, "the end<|im_end|>", "eos"),
    ("<python>prin", {"finish_reason": "length"}, "<python>prin", "length"),
    (None, {"finish_reason": "length"}, "<|im_end|>", "length"),  # all its tokens went into reasoning
]


@pytest.mark.parametrize(("text", "choice", "want", "finish"), ENDINGS)
def test_the_stop_string_is_put_back(
    tokenizer: Any, text: str | None, choice: dict[str, Any], want: str, finish: str
) -> None:
    got, _ = ask(tokenizer, choosing(text, **choice))
    assert (tokenizer.decode(got.ids), got.finish) == (want, finish)
    assert got.logprobs == got.entropies == [0.0] * len(got.ids)


def test_logprobs_are_taken_as_far_as_the_tokens_agree(tokenizer: Any) -> None:
    def token(text: str, *values: float) -> dict[str, Any]:
        return {"token": text, "logprob": values[0], "top_logprobs": [{"token": "?", "logprob": v} for v in values[1:]]}

    content = [
        token("4", -0.7, -0.7, -0.7),
        token("2", -0.1, -0.1, -2.5),
        token("!?", -1.0, -1.0),
        token("3", -1.0, -1.0),
    ]
    got, server = ask(tokenizer, choosing("42!3", logprobs={"content": content}), topk=2)
    assert server.bodies[0]["top_logprobs"] == 2
    assert got.logprobs == [-0.7, -0.1, 0.0, 0.0, 0.0]
    assert got.entropies[0] == pytest.approx(math.log(2))
    assert 0 < got.entropies[1] < 0.69
    assert got.entropies[2:] == [0.0, 0.0, 0.0]


REFUSALS = [
    (401, "bad key sk-hunter2", r"status 401: .*bad key \*\*\*.* Set OPENAI_API_KEY"),
    (404, "no such model", r"--endpoint, base_url= .* ends in /v1"),
    (400, "Unsupported value: 'temperature' does not support 1.0 with this model.", "extra="),
    (400, "maximum context length is 8192", "fewer tokens"),
    (404, "No endpoints found that support image input", "Give a model that sees"),
    (400, "longer than the maximum model length of 4096. For image inputs, the number ...", "fewer tokens"),
]


@pytest.mark.parametrize(("status", "message", "cure"), REFUSALS)
def test_refusals_name_the_cure_and_no_key(tokenizer: Any, status: int, message: str, cure: str) -> None:
    answers = iter([(status, {"error": {"message": message}}), (200, reply("42"))])
    with pytest.raises(GenerationError, match=cure) as error:
        ask(tokenizer, lambda _: next(answers), api_key="sk-hunter2")
    assert "hunter2" not in str(error.value)


def test_a_context_that_is_full_cuts_a_later_turn_off(tokenizer: Any) -> None:
    said = {"role": "assistant", "content": "<python>print(6*7)</python>"}
    request = dataclasses.replace(asking(), messages=(*MESSAGES, said, {"role": "user", "content": "42"}))
    full = {"error": {"message": "maximum context length is 8192"}}
    got, _ = ask(tokenizer, lambda _: (400, full), request)
    assert (got.finish, got.ids) == ("length", [tokenizer.eos_token_id])


@pytest.mark.parametrize("shown", [{"choices": []}, [], b"<html>", {"choices": [{"message": "temperature"}]}])
def test_an_answer_that_is_none_is_quoted_and_no_reason_for_a_cure(tokenizer: Any, shown: Any) -> None:
    with pytest.raises(GenerationError, match=r"answered without a usable message|no JSON") as failed:
        ask(tokenizer, lambda _: (200, shown))
    assert "Give extra" not in str(failed.value)


def test_what_cannot_work_is_refused_at_once(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="set OPENAI_API_KEY"):
        EndpointBackend("m", tokenizer=tokenizer)
    with pytest.raises(ValueError, match="endpoint of m needs an address"):
        EndpointBackend("m", "localhost", tokenizer=tokenizer)
    with pytest.raises(ValueError, match="estimator 'exact'"):
        EndpointBackend("m", "http://localhost/v1", tokenizer=tokenizer, topk=5, estimator="exact")
    with pytest.raises(ValueError, match="needs messages"):
        asyncio.run(EndpointBackend("m", "http://localhost/v1", tokenizer=tokenizer).generate(Request((1, 2), 3)))


def test_the_environment_says_where_and_who(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with chat_server(saying("42")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.address + "/")
        monkeypatch.setenv("OPENAI_API_KEY", "hunter2")
        backend = EndpointBackend("m", tokenizer=tokenizer)
        told: list[list[float]] = []
        asyncio.run(backend.generate(asking(window=2), lambda first: told.append(list(first))))
    assert server.keys == ["Bearer hunter2"]
    assert told == [[0.0, 0.0]]
    assert (backend.trains, backend.wants_messages) == (False, True)
    assert backend.time.seconds > 0
