"""`play` against real local servers: rewards as in the environment, faults without a reward, odd answers."""

import asyncio
import json
import threading
from typing import Any

import pytest

import arpo_env
from arpo_env import EnvFactory, PlayedEpisode, ToolEnv
from arpo_env.adapters import FAULTS
from arpo_env.errors import ServiceError
from sandbox import SandboxError
from tests.arpo_env.chat_server import Answer, chat_server, reply

from .chat_policy import completion, scripted
from .scripts import Script, breaking_sandbox, native_rewards, script_for, sets

ARITHMETIC = EnvFactory("arpo/Arithmetic-v0", level=2)
NATIVE = EnvFactory("arpo/Arithmetic-v0", level=2, protocol="hermes")
CALL = "<think>a</think><python>1</python>"


def play_with(answer: Answer, factory: EnvFactory = ARITHMETIC, tasks: Any = (0,), **options: Any) -> PlayedEpisode:
    with chat_server(answer) as server:
        return arpo_env.play(factory, tasks, base_url=server.address, model="m", **{"retries": 0, **options})[0]


@pytest.mark.parametrize(
    ("protocol", "in_place"), [("arpo-tags", False), ("arpo-tags", True), ("hermes", False), ("llama3", False)]
)
@pytest.mark.parametrize("env_id", sets())
def test_rewards_are_those_of_the_environment(
    env_id: str, protocol: str, in_place: bool, isolation: str, open_episodes: set[int]
) -> None:
    script = script_for(env_id, protocol)
    with chat_server(scripted(script)) as server:
        played = arpo_env.play(
            script.factory, script.episodes, base_url=server.address, model="m", in_place=in_place, concurrency=4
        )
    native = native_rewards(script_for(env_id, "hermes" if protocol == "llama3" else protocol))
    assert [each.reward for each in played] == native
    assert [each.task for each in played] == script.tasks
    assert {1.0, 0.0, -1.0} <= set(native)
    assert {each.outcome for each in played} == {"answered", "truncated"}
    assert server.busiest <= 4
    assert not open_episodes
    if in_place:
        assert all([m["role"] for m in each.messages] == ["system", "user", "assistant"] for each in played)


@pytest.mark.parametrize("factory", [ARITHMETIC, NATIVE], ids=["tags", "native"])
def test_a_native_request_has_tools_and_one_for_tags_has_stop_strings(isolation: str, factory: EnvFactory) -> None:
    options = {"temperature": 0.5, "max_tokens": 99, "extra": {"top_p": 0.9, "seed": None}, "token_ids": True}
    with chat_server(scripted(Script(factory, 2))) as server:
        [played] = arpo_env.play(factory, [1], base_url=server.address, model="m", api_key="key", **options)
    env = factory()
    calling = {"tools": env.schemas} if env.protocol.native else {"stop": ["</python>", "</answer>"]}
    expected = {"model": "m", "temperature": 0.5, "max_tokens": 99, "top_p": 0.9, **calling}
    expected |= {"logprobs": True, "return_token_ids": True, "messages": played.messages[:-1]}
    assert (server.bodies[-1], server.keys[-1]) == (expected, "Bearer key")
    turns = ["assistant", "tool" if env.protocol.native else "user"] * 2
    assert [each["role"] for each in played.messages] == ["system", "user", *turns, "assistant"]


def test_token_ids_and_log_probabilities_are_those_of_the_endpoint(isolation: str) -> None:
    script = Script(ARITHMETIC, 2)
    with chat_server(scripted(script)) as server:
        played = arpo_env.play(ARITHMETIC, script.tasks[0], base_url=server.address, model="m", token_ids=True)
    assert isinstance(played, PlayedEpisode)
    assert len(played.turns) == 2
    for turn, body in zip(played.turns, server.bodies, strict=True):
        expected = completion({"content": turn.message["content"]}, body)
        assert turn.token_ids == expected["choices"][0]["token_ids"]
        assert turn.prompt_ids == expected["prompt_token_ids"]
        assert turn.logprobs == [-each / 256 for each in turn.token_ids or ()]
    assert played.usage["completion_tokens"] == sum(len(turn.token_ids or ()) for turn in played.turns)
    assert [turn.finish_reason for turn in played.turns] == ["stop", "stop"]


def test_a_broken_sandbox_leaves_no_reward_and_the_others_go_on(isolation: str, open_episodes: set[int]) -> None:
    with breaking_sandbox() as (factory, end):
        script = Script(factory, 6)
        answers = scripted(script)
        turns = iter(range(1000))

        def answer(body: dict[str, Any]) -> tuple[int, Any]:
            if next(turns) == 5:
                end()
            return answers(body)

        with chat_server(answer) as server:
            played = arpo_env.play(factory, 6, base_url=server.address, model="m", concurrency=1)
        failed = [each.reward is None for each in played]
        assert failed == [isinstance(each.error, FAULTS) for each in played]
        # the others had called Python before that, or called none at all
        assert failed == [number in (2, 5) for number in range(6)]
        for each, reward in zip(played, native_rewards(Script(ARITHMETIC, 6)), strict=True):
            assert each.reward in (None, reward)
        with chat_server(answers) as server, pytest.raises(FAULTS):
            arpo_env.play(factory, 6, base_url=server.address, model="m", raise_faults=True)
    assert not open_episodes


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (200, reply("x", tool_calls=[{"id": "a"}]), "without a usable message"),
        (200, reply(None, finish_reason="abort"), "abort"),
        (200, reply("I had beg", finish_reason="abort"), "abort"),
        (500, {"error": "boom"}, "status 500"),
        (401, {"error": "no such key: s3cret"}, "Set OPENAI_API_KEY"),
        (400, {"error": {"message": "This model's maximum context length is 10 tokens."}}, "maximum context length"),
    ],
)
def test_a_failure_of_the_endpoint_is_no_reward(status: int, body: Any, why: str, open_episodes: set[int]) -> None:
    played = play_with(lambda _: (status, body), NATIVE, api_key="s3cret")
    assert played.reward is None
    assert isinstance(played.error, ServiceError)
    assert why in str(played.error)
    assert "s3cret" not in str(played.error)
    assert (played.outcome, played.turns, played.truncated) == ("failed", [], False)
    assert not open_episodes


@pytest.mark.parametrize("factory", [ARITHMETIC, NATIVE], ids=["tags", "native"])
def test_a_context_that_is_full_truncates_the_episode(isolation: str, factory: EnvFactory) -> None:
    answers = scripted(Script(factory, 1))
    refusal = {"error": {"code": "context_length_exceeded", "message": "Reduce the length of the messages."}}
    played = play_with(
        lambda body: answers(body) if len(body["messages"]) < 3 else (400, refusal), factory, raise_faults=True
    )
    assert played.truncated
    assert (played.outcome, len(played.turns)) == ("truncated", 1)
    assert played.reward is not None
    assert played.reward <= 0


def test_a_reply_that_was_cut_off_is_not_executed() -> None:
    cut = "<think>a</think><python>open('/tmp/left', 'w').write('hal"
    played = play_with(lambda _: (200, reply(cut, finish_reason="length")))
    assert (played.outcome, played.truncated, played.info["tool_calls"]) == ("truncated", True, 0)
    assert played.messages[-1]["content"] == cut


@pytest.mark.parametrize("content", [None, []])
@pytest.mark.parametrize("factory", [ARITHMETIC, NATIVE], ids=["tags", "native"])
def test_no_text_is_no_answer(isolation: str, factory: EnvFactory, content: Any) -> None:
    played = play_with(lambda _: (200, reply(content)), factory)
    assert (played.error, played.outcome) == (None, "no answer")
    assert played.reward is not None
    assert played.reward <= 0


def test_an_environment_that_cannot_be_closed_disturbs_neither_its_reward_nor_others(
    isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def aclose(self: ToolEnv) -> None:
        raise SandboxError("the machine is gone")

    monkeypatch.setattr(ToolEnv, "aclose", aclose)
    answer = "<think>a</think><answer>\\boxed{0}</answer>"
    with chat_server(lambda _: (200, reply(answer))) as server:
        played = arpo_env.play(ARITHMETIC, 3, base_url=server.address, model="m")
    assert [(each.reward, each.error) for each in played] == [(0.0, None)] * 3


def test_each_call_has_an_id_and_a_result_of_its_own(isolation: str) -> None:
    def call(code: str, name: Any) -> dict[str, Any]:
        # not strict JSON if there is a line break, but the environment can read it
        return {"id": name, "type": "function", "function": {"name": "python", "arguments": f'{{"code": "{code}"}}'}}

    for second in ("2 + 40", "x = 2\nx + 40"):
        calls = [call("1 + 6", "same"), call(second, "same"), call("8", 9)]
        replies = [reply(None, tool_calls=calls), reply("I stop.")]
        played = play_with(lambda _, left=replies: (200, left.pop(0)), NATIVE)
        assert played.info["tool_calls"] == 3
        told = [message for message in played.messages if message["role"] in ("tool", "user")][1:]
        assert "\n".join(each["content"] for each in told) == "7\n42\n8"
        names = [each.get("tool_call_id") for each in told]
        assert names == (["same", "call_1_1", "call_1_2"] if len(told) == 3 else [None])


@pytest.mark.parametrize("arguments", ['{"code": ', "[1]", None, {"code": 1}])
def test_broken_arguments_are_the_policy_s_fault_and_are_shown_to_it(isolation: str, arguments: Any) -> None:
    call = {"type": "function", "function": {"name": "python", "arguments": arguments}}
    seen: list[Any] = []

    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        seen.append(body["messages"])
        for message in body["messages"]:  # vLLM reads the arguments of earlier calls, and refuses what is no JSON
            for each in message.get("tool_calls", ()):
                if not isinstance(json.loads(each["function"]["arguments"]), dict):
                    return 400, {"error": "arguments"}
        return 200, reply("I stop.") if len(body["messages"]) > 2 else reply("", tool_calls=[call, call])

    played = play_with(answer, NATIVE)
    good = arguments == {"code": 1}  # JSON, though not what the tool takes
    assert played.error is None
    assert played.outcome == "answered"
    told = seen[1][3:]
    assert [each["role"] for each in told] == (["tool", "tool"] if good else ["user"])
    assert all("Error" in each["content"] for each in told)
    assert len({each["id"] for each in seen[1][2].get("tool_calls", ())}) == (2 if good else 0)


def test_mistakes_are_refused_before_anything_is_played() -> None:
    given: dict[str, Any] = {"tasks": 1, "base_url": "http://127.0.0.1:1/v1", "model": "m"}
    with pytest.raises(ValueError, match="at least 1"):
        arpo_env.play(ARITHMETIC, concurrency=0, **given)
    with pytest.raises(TypeError, match="not int"):
        arpo_env.play(7, **given)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least 0 of them, or a list of their numbers; got -2"):
        arpo_env.play(ARITHMETIC, **{**given, "tasks": -2})
    with pytest.raises(ValueError, match="in_place"):
        arpo_env.play(NATIVE, in_place=True, **given)


def test_a_seed_chooses_the_task_and_the_environment_itself_is_not_changed(isolation: str) -> None:
    env = ARITHMETIC()
    with chat_server(lambda _: (200, reply("I stop."))) as server:
        played = [arpo_env.play(env, base_url=server.address, model="m", seed=3) for _ in range(2)]
    env.reset(seed=3)
    assert [each.task for each in played] == [env.episode.task] * 2


def test_a_cancelled_play_closes_its_environments(isolation: str, open_episodes: set[int]) -> None:
    asked = threading.Event()

    def answer(_: dict[str, Any]) -> tuple[int, Any]:
        asked.set()
        return 200, reply(CALL)

    async def cancel() -> None:
        with chat_server(answer, seconds=0.2) as server:
            playing = asyncio.create_task(arpo_env.aplay(ARITHMETIC, 4, base_url=server.address, model="m"))
            await asyncio.to_thread(asked.wait, 10)
            assert open_episodes
            playing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await playing

    asyncio.run(cancel())
    assert not open_episodes
