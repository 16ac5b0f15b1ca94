"""The chat model: what it sends, what it makes of replies, and what it refuses."""

import asyncio
import logging
import threading
import traceback
from pathlib import Path
from typing import Any

import pytest

from arpo_env.cache import Cache
from arpo_env.chat_model import ChatModel, ContextFull
from arpo_env.net import ServiceError
from arpo_env.pages.page import Page
from arpo_env.pages.page_summary import PageSummariser
from arpo_env.tools.tool_search import ResultCondenser
from tests.arpo_env.chat_server import Answer, chat_server, reply, saying

HELLO = [{"role": "user", "content": "hello"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def complete(answer: Answer, **options: Any) -> str:
    with chat_server(answer) as server:
        return asyncio.run(ChatModel("m", server.address, retries=0).complete(HELLO, **options))


def test_a_request_holds_what_was_asked_for() -> None:
    with chat_server(saying("hi")) as server:
        chat = ChatModel("m", server.address, "secret", extra={"top_p": 0.9, "temperature": None})
        assert asyncio.run(chat.complete(HELLO, temperature=0.5, max_tokens=7)) == "hi"
    assert server.bodies == [{"model": "m", "messages": HELLO, "max_tokens": 7, "top_p": 0.9}]
    assert server.keys == ["Bearer secret"]


REFUSALS = {  # of OpenAI's models that reason
    "max_tokens": "parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
    "stop": "parameter: 'stop' is not supported with this model.",
    "temperature": "value: 'temperature' does not support 0.0 with this model. Only the default (1) is supported.",
}


def test_a_model_that_reasons_is_asked_as_openai_wants_it() -> None:
    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        refused = next((f"Unsupported {said}" for name, said in REFUSALS.items() if name in body), "")
        return (400, {"error": {"message": refused}}) if refused else (200, reply('{"a": 1}'))

    async def ask(server: str) -> None:
        chat = ChatModel("m", server, retries=0, extra={"stop": ["</a>"]})
        for _ in range(2):
            assert await chat.complete(HELLO, max_tokens=7, json_schema=SCHEMA) == '{"a": 1}'

    with chat_server(answer) as server:
        asyncio.run(ask(server.address))
    *refused, first, second = server.bodies
    assert len(refused) == 3
    assert first == second
    assert first.keys() == {"model", "messages", "max_completion_tokens", "response_format"}
    assert first["response_format"]["type"] == "json_schema"


def test_a_full_context_is_no_refusal_of_max_tokens() -> None:
    said = "'max_tokens' or 'max_completion_tokens' is too large: 90. The model's maximum context length is 80 tokens."

    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        limited = {"max_tokens", "max_completion_tokens"} & set(body)
        return (400, {"error": {"message": said}}) if limited else (200, reply("hi"))

    with chat_server(answer) as server:
        assert asyncio.run(ChatModel("m", server.address, retries=0).complete(HELLO, max_tokens=90)) == "hi"
    assert [body.get("max_tokens") for body in server.bodies] == [90, None]


def test_openai_without_a_key_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ServiceError, match="set OPENAI_API_KEY, or OPENAI_BASE_URL"):
        asyncio.run(ChatModel("m").complete(HELLO))


@pytest.mark.parametrize("before", ["<think>Let me see.</think>\n\n", "Let me see.\n</think>\n", ""])
def test_reasoning_is_no_part_of_the_reply(before: str) -> None:
    assert complete(saying(f"{before}42 <think> is a tag")) == "42 <think> is a tag"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (reply(None), "the reply is empty"),
        (reply("<think>so much to think", finish_reason="length"), "reasoning used all tokens"),
        (reply(None, refusal="I will not."), "refused: I will not"),
        ({"error": {"message": "overloaded"}}, "without a message: .*overloaded"),
        ([1], "without a message"),
        (b"<html>proxy</html>", "no JSON"),
    ],
)
def test_a_reply_without_text_is_a_failure_of_the_service(body: Any, why: str) -> None:
    with pytest.raises(ServiceError, match=f"chat model m: .*{why}"):
        complete(lambda _: (200, body))


@pytest.mark.parametrize(("known", "tries"), [("json_object", 2), ("", 3)])
def test_a_server_that_knows_no_schemas_is_asked_in_simpler_ways(known: str, tries: int) -> None:
    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        form = body.get("response_format", {}).get("type", "")
        return (200, reply("{}")) if form in (known, "") else (400, {"error": "unknown response_format"})

    with chat_server(answer) as server:
        chat = ChatModel("m", server.address)
        for count in (tries, tries + 1):  # what was refused once is not tried again
            assert asyncio.run(chat.complete(HELLO, json_schema=SCHEMA)) == "{}"
            assert len(server.bodies) == count
    assert server.bodies[0]["response_format"]["json_schema"]["schema"] == SCHEMA


def small(context: int) -> Answer:
    """Answer as a model that takes so many characters; like vLLM it counts the tokens that it may write with them."""

    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        asked = len(body["messages"][-1]["content"])
        if asked + body.get("max_tokens", 0) > context:
            said = f"request ({asked} tokens) exceeds the available context size ({context} tokens), try increasing it"
            return 400, {"error": {"message": said, "type": "exceed_context_size_error"}}
        return 200, reply("short")

    return answer


def test_a_small_context_gets_what_fits_and_a_replay_the_same(tmp_path: Path) -> None:
    with chat_server(small(6000)) as server:
        chat = ChatModel("m", server.address)
        assert asyncio.run(chat.complete(HELLO, max_tokens=8000, json_schema=SCHEMA)) == "short"
        assert [body.get("max_tokens") for body in server.bodies] == [8000, None]
        summary = PageSummariser(chat).summarise("q", [], [Page(f"http://{n}", "", "x" * 5000) for n in range(9)])
        assert asyncio.run(summary) == "short"
        assert "http://0" in server.prompts[-1]  # the first page has precedence
        condensed = asyncio.run(ResultCondenser(chat, 500).condense("find", {}, [], "begin" + "x" * 50_000 + "end"))
        assert condensed.startswith("short")
        assert all(part in server.prompts[-1] for part in ("begin", "end"))
        record, text = tmp_path / "c.sqlite", "x" * 50_000
        asyncio.run(ResultCondenser(chat, 500, Cache(record)).condense("find", {}, [], text))
        asked, replayed = len(server.bodies), ResultCondenser(chat, 500, Cache(record, "replay"))
        assert asyncio.run(replayed.condense("find", {}, [], text)).startswith("short")
        assert len(server.bodies) == asked
    with chat_server(small(300)) as server, pytest.raises(ContextFull, match=r"status 400.*context size"):
        asyncio.run(PageSummariser(ChatModel("m", server.address)).summarise("q", [], [Page("http://a", "", "x")]))
    assert len(server.bodies) < 20


def test_few_ask_at_the_same_time_on_all_loops_together() -> None:
    with chat_server(saying("hi"), seconds=0.03) as server:
        chat = ChatModel("m", server.address, concurrency=3)

        async def many() -> None:
            await asyncio.gather(*(chat.complete(HELLO) for _ in range(8)))

        threads = [threading.Thread(target=lambda: asyncio.run(many())) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(server.bodies) == 16
    assert server.busiest == 3


def test_replies_go_through_the_cache_by_the_server_that_gave_them(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "c.sqlite")
    with chat_server(saying("one", "two", "three")) as server, chat_server(saying("other")) as another:
        chat = ChatModel("m", server.address, cache=cache)
        replies = [asyncio.run(chat.complete(HELLO, temperature=t)) for t in (0.0, 0.0, 0.5, 0.5)]
        assert asyncio.run(ChatModel("m", another.address, cache=cache).complete(HELLO)) == "other"
    assert replies == ["one", "one", "two", "two"]
    replayed = ChatModel("m", server.address, cache=Cache(tmp_path / "c.sqlite", mode="replay"))
    assert asyncio.run(replayed.complete(HELLO)) == "one"


def test_a_server_that_shows_the_key_puts_it_in_no_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    key = "-".join(("sk", "secret"))  # not in one piece, since a traceback shows this line
    for status in (401, 200):
        answer = lambda _, status=status: (status, {"error": f"no such key: {key}"})  # noqa: E731
        with chat_server(answer) as server, pytest.raises(ServiceError) as caught:
            asyncio.run(ChatModel("m", server.address, key, retries=0).complete(HELLO))
        assert key not in "".join(traceback.format_exception(caught.value)) + caplog.text
