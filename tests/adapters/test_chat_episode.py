"""`ChatEpisode` gives the rewards of the environment, whether calls are text or structured."""

import asyncio
from typing import Any

import pytest
from gymnasium.error import ResetNeeded

from arpo_env import EnvFactory
from arpo_env.adapters import FAULTS
from arpo_env.adapters.chat_episode import ChatEpisode, close_tag

from .scripts import Script, breaking_sandbox, native_rewards, script_for, sets


async def through_messages(script: Script) -> list[float | None]:
    async def play(number: int) -> float | None:
        episode = ChatEpisode(script.factory())
        messages = await episode.start(index=number)
        while not episode.done:
            message = script.message(messages)
            messages += [message, *(await episode.reply(message))]
        await episode.close()
        return episode.reward

    return await asyncio.gather(*(play(number) for number in range(script.episodes)))


@pytest.mark.parametrize("protocol", ["arpo-tags", "hermes", "llama3"])
@pytest.mark.parametrize("env_id", sets())
def test_rewards_are_those_of_the_environment(env_id: str, protocol: str, isolation: str) -> None:
    rewards = asyncio.run(through_messages(script_for(env_id, protocol)))
    # the text of the calls is in the Hermes format
    native = native_rewards(script_for(env_id, "hermes" if protocol == "llama3" else protocol))
    assert rewards == native
    assert {1.0, 0.0, -1.0} <= set(native)


def test_a_broken_sandbox_raises_and_leaves_no_reward() -> None:
    async def play() -> ChatEpisode:
        with breaking_sandbox() as (factory, end):
            episode = ChatEpisode(factory())
            await episode.start(index=0)
            await episode.reply("<think>a</think><python>x = 1</python>")
            end()
            with pytest.raises(FAULTS):
                await episode.reply("<think>a</think><python>x</python>")
            # nor does a truncation afterwards make one
            with pytest.raises(ResetNeeded):
                await episode.truncate()
            return episode

    episode = asyncio.run(play())
    assert episode.reward is None
    assert not episode.done


def python(code: str) -> dict[str, Any]:
    call = {"id": code, "type": "function", "function": {"name": "python", "arguments": {"code": code}}}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def test_messages_at_the_same_time_get_their_own_results(isolation: str) -> None:
    async def play() -> list[list[dict[str, Any]]]:
        episode = ChatEpisode(EnvFactory("arpo/Arithmetic-v0", protocol="hermes")())
        await episode.start(index=0)
        codes = ("import time; time.sleep(0.2); x = 6; x", "x * 7")
        answers = await asyncio.gather(*(episode.reply(python(code)) for code in codes))
        await episode.close()
        return answers

    assert [answer["content"] for [answer] in asyncio.run(play())] == ["6", "42"]


def test_a_call_in_the_text_beside_structured_calls_is_a_quotation(isolation: str) -> None:
    quoted = 'I write <tool_call>{"name": "python", "arguments": {"code": "1"}}</tool_call>.'

    async def play() -> list[dict[str, Any]]:
        episode = ChatEpisode(EnvFactory("arpo/Arithmetic-v0", protocol="hermes")())
        await episode.start(index=0)
        answers = await episode.reply({**python("6 * 7"), "content": quoted})
        await episode.close()
        return answers

    assert [answer["content"] for answer in asyncio.run(play())] == ["42"]


@pytest.mark.parametrize(
    ("text", "closed"),
    [
        ("<think>a</think><python>1", "<think>a</think><python>1</python>"),
        ("<think>a</think><python>1</python>", "<think>a</think><python>1</python>"),
        ("<think>a</think><answer>1", "<think>a</think><answer>1</answer>"),
        ("<think>I could use <python></think>", "<think>I could use <python></think>"),
        ("no tags", "no tags"),
    ],
)
def test_a_stop_string_that_a_server_cut_off_is_put_back(text: str, closed: str) -> None:
    assert close_tag(text, ["</python>", "</answer>"]) == closed
