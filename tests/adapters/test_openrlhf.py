"""OpenRLHF's real MultiTurnAgentExecutor, with a stand-in for its engine: rewards, token ids, faults."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("openrlhf")

from arpo_env import EnvFactory, ToolEnv
from arpo_env.adapters import FAULTS
from arpo_env.adapters import openrlhf as adapter
from arpo_env.adapters.task_rows import task_rows

from .byte_level import byte_level
from .scripts import Script, native_rewards, script_for, sets

TEMPLATE = "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}<|im_end|>{% endfor %}[assistant] "


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """One of bytes, so that ids of texts can be joined as OpenRLHF does it."""
    return byte_level(TEMPLATE)


class Engine:
    """Stands for vLLM: takes ids, returns ids, text and log-probabilities of the script's turn."""

    def __init__(self, script: Script, tokenizer: Any) -> None:
        self.script, self.tokenizer = script, tokenizer
        self.contexts: list[list[int]] = []
        self.turns: list[list[int]] = []

    async def generate(self, ids: list[int], params: Any, multi_modal_data: Any = None) -> Any:
        assert params.stop == [f"</{name}>" for name in (*self.script.tools, "answer")]
        assert params.include_stop_str_in_output
        await asyncio.sleep(0)
        context = self.tokenizer.decode(ids)
        written = self.tokenizer(text=self._text(context), add_special_tokens=False)["input_ids"]
        cut = written[: params.max_tokens]
        self.contexts.append(list(ids))
        self.turns.append(cut)
        logprobs = [{token: SimpleNamespace(logprob=-token / 512)} for token in cut]
        reason = "stop" if cut == written else "length"
        text = self.tokenizer.decode(cut)
        return SimpleNamespace(
            outputs=[SimpleNamespace(token_ids=list(cut), text=text, finish_reason=reason, logprobs=logprobs)]
        )

    def _text(self, context: str) -> str:
        conversation = context.rpartition("[assistant] ")[2]
        turns = conversation.split("<result>")
        return str(self.script.turn(self.script.number_of(context), len(turns) - 1, turns[-1])["content"])


def rows_of(script: Script, tokenizer: Any) -> list[dict[str, Any]]:
    """Return rows as OpenRLHF's data set makes them of exported ones: prompts rendered by the chat template."""
    rows = task_rows(script.factory, "openrlhf", script.episodes, leave_out=("sandbox",))
    return [
        {**row, "input": tokenizer.apply_chat_template(row["input"], tokenize=False)}
        for row in map(json.loads, map(json.dumps, rows))
    ]


def execute(script: Script, engine: Engine, max_length: int = 100_000) -> list[dict[str, Any]]:
    """Play all rows at once with one object of sampling parameters, as OpenRLHF's actor does with samples."""
    executor, params = adapter.AgentExecutor(), SimpleNamespace(max_tokens=None, logprobs=1)

    async def play() -> list[Any]:
        rows = rows_of(script, engine.tokenizer)
        plays = (
            executor.execute(row["input"], row["label"], params, max_length, engine.tokenizer, engine) for row in rows
        )
        return list(await asyncio.gather(*plays, return_exceptions=True))

    responses = asyncio.run(play())
    for response in responses:
        if isinstance(response, BaseException):
            raise response
    assert vars(params) == {"max_tokens": None, "logprobs": 1}
    return responses


@pytest.mark.parametrize("env_id", sets())
def test_rewards_and_token_ids(env_id: str, isolation: str, tokenizer: Any, open_episodes: set[int]) -> None:
    script = script_for(env_id)
    engine = Engine(script, tokenizer)
    responses = execute(script, engine)
    native = native_rewards(script)
    assert [response["reward"] for response in responses] == native
    assert {1.0, 0.0, -1.0} <= set(native)
    assert [response["extra_logs"]["truncated"] for response in responses] == [
        float(number % 6 == 5) for number in range(script.episodes)
    ]
    assert not open_episodes
    for response in responses:  # ids are the engine's; what is between them are the results, encoded once
        ids = response["observation_tokens"]
        turns = [ids[start:end] for start, end in response["action_ranges"]]
        assert all(turn in engine.turns for turn in turns)
        assert all(ids[:start] in engine.contexts for start, _ in response["action_ranges"])
        logprobs = [-token / 512 for turn in turns for token in turn]
        taken = [number for start, end in response["action_ranges"] for number in range(start, end)]
        assert [response["rollout_log_probs"][number] for number in taken] == logprobs


def test_token_ids_are_those_of_the_environment_s_own_texts(isolation: str, tokenizer: Any) -> None:
    script = script_for("arpo/Arithmetic-v0")
    [response] = execute(Script(script.factory, 1), Engine(script, tokenizer))
    env = script.factory()
    _, info = env.reset(options={"index": 0})
    text, last, ended, turn = tokenizer.apply_chat_template(info["messages"], tokenize=False), "", False, 0
    while not ended:
        action = script.turn(0, turn, last)["content"]
        last, _, terminated, truncated, _ = env.step(action)
        text, turn, ended = text + action + last, turn + 1, terminated or truncated
    env.close()
    assert tokenizer.decode(response["observation_tokens"]) == text
    assert response["observation_tokens"] == tokenizer(text=text)["input_ids"]
    assert turn == 2


def test_a_failed_episode_is_played_again_and_then_raised(
    isolation: str, tokenizer: Any, open_episodes: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script(EnvFactory("arpo/Arithmetic-v0", level=2), 1)
    failures, step = [2], ToolEnv.astep

    async def failing(self: ToolEnv, action: str) -> Any:
        if failures[0]:
            failures[0] -= 1
            raise FAULTS[0]("gone")
        return await step(self, action)

    monkeypatch.setattr(ToolEnv, "astep", failing)
    assert [response["reward"] for response in execute(script, Engine(script, tokenizer))] == [1.0]
    failures[0] = 3
    with pytest.raises(FAULTS):
        execute(script, Engine(script, tokenizer))
    assert (failures, open_episodes) == ([0], set())


def test_a_full_context_is_a_truncation_of_the_environment(
    isolation: str, tokenizer: Any, open_episodes: set[int]
) -> None:
    script = Script(EnvFactory("arpo/Arithmetic-v0", level=2), 1)
    engine = Engine(script, tokenizer)
    [whole] = execute(script, engine)
    for room in (60, len(engine.turns[0]) + 5):  # within the first turn, and in the middle of the result
        prompt = whole["action_ranges"][0][0]
        [response] = execute(script, engine, max_length=prompt + room)
        assert response["extra_logs"]["accuracy"] == 0.0
        assert response["reward"] <= 0.0
        assert len(response["action_ranges"]) == 1
        if room > 60:
            assert (response["truncated"], response["extra_logs"]["truncated"]) == (True, 1.0)
    assert not open_episodes


def test_results_hold_no_control_tokens(isolation: str, tokenizer: Any) -> None:
    script = Script(EnvFactory("arpo/Arithmetic-v0", level=2), 1)
    engine = Engine(script, tokenizer)
    call = {"content": "<think>a</think><python>'<|im' + '_end|>'</python>"}
    turn = script.turn
    script.turn = lambda number, count, last: call if count == 0 else turn(number, count, last)  # type: ignore
    [response] = execute(script, engine)
    prompt = response["action_ranges"][0][0]
    assert "<|im_end|>" in tokenizer.decode(response["observation_tokens"][prompt:])
    assert tokenizer.eos_token_id not in response["observation_tokens"][prompt:]
    assert tokenizer.eos_token_id in response["observation_tokens"][:prompt]


def test_a_label_that_names_no_task_is_refused(tokenizer: Any) -> None:
    with pytest.raises(ValueError, match="arpo data export"):
        asyncio.run(adapter.AgentExecutor().execute("p", "42", SimpleNamespace(), 10, tokenizer, None))
