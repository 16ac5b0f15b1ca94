"""`ChatEpisode` besides its rewards, which test_play.py compares with the environment's."""

import asyncio
from typing import Any

import pytest

from arpo_env import EnvFactory
from arpo_env.adapters.chat_episode import ChatEpisode, close_tag


def python(code: str) -> dict[str, Any]:
    call = {"id": code, "type": "function", "function": {"name": "python", "arguments": {"code": code}}}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def played(*messages: dict[str, Any]) -> list[list[str]]:
    async def play() -> list[list[dict[str, Any]]]:
        episode = ChatEpisode(EnvFactory("arpo/Arithmetic-v0", protocol="hermes")())
        await episode.start(index=0)
        answers = await asyncio.gather(*map(episode.reply, messages))
        await episode.close()
        return answers

    return [[answer["content"] for answer in answers] for answers in asyncio.run(play())]


def test_messages_at_the_same_time_get_their_own_results(isolation: str) -> None:
    codes = ("import time; time.sleep(0.2); x = 6; x", "x * 7")
    assert played(*map(python, codes)) == [["6"], ["42"]]


def test_a_call_in_the_text_beside_structured_calls_is_a_quotation(isolation: str) -> None:
    quoted = 'I write <tool_call>{"name": "python", "arguments": {"code": "1"}}</tool_call>.'
    assert played({**python("6 * 7"), "content": quoted}) == [["42"]]


@pytest.mark.parametrize(
    "text", ["<think>I could use <python></think>", "<think>a</think><python>1</python>", "no tags"]
)
def test_a_tag_that_is_no_open_call_is_not_closed(text: str) -> None:
    assert close_tag(text, ["</python>", "</answer>"]) == text
