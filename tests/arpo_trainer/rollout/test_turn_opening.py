"""A turn that begins with given tokens: the model goes on behind them, and the episode reads the whole turn."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from arpo_env import ToolEnv
from arpo_trainer.rollout.engine import Engine, Group, rollout_context
from arpo_trainer.rollout.live_trajectory import ConcurrencyLimits
from arpo_trainer.rollout.settings import RolloutSettings
from arpo_trainer.tree import RolloutTree
from tests.arpo_trainer.rollout.test_engine import TASK, ScriptedPolicy

BEGIN = "<think>I compute it. "
REST = "Now.</think><python>1 + 1</python>"
DONE = "<think>Done.</think><answer>\\boxed{2}</answer>"


@dataclass
class ChatPolicy(ScriptedPolicy):
    wants_messages = True


def grown(env: ToolEnv, policy: Any, tokenizer: Any, opening: tuple[int, ...], **settings: Any) -> RolloutTree:
    values = {"algorithm": "grpo", "num_generations": 1, "initial_rollouts": 1, **settings}
    engine = Engine(policy, tokenizer, env, RolloutSettings(**values))
    group = Group(rollout_context(engine, ConcurrencyLimits({"trajectory": 8})), TASK, 0, 0, opening)

    async def grow() -> None:
        await policy.begin()
        await group.grow()
        await policy.end()

    asyncio.run(grow())
    return group.tree


def ids_of(tokenizer: Any, text: str) -> tuple[int, ...]:
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])


def test_the_first_turn_is_the_opening_and_what_was_sampled(env: ToolEnv, tokenizer: Any) -> None:
    opening = ids_of(tokenizer, BEGIN)
    policy = ScriptedPolicy(tokenizer, [REST, DONE], [0.5, 0.5])
    tree = grown(env, policy, tokenizer, opening, max_completion_length=200)
    first, second = policy.seen
    assert first.ids == (*tree.prompt_ids, *opening)
    assert first.max_tokens == 200 - len(opening)
    turn, result, answer = tree.spans
    assert tuple(turn.ids) == (*opening, *ids_of(tokenizer, REST))
    assert turn.logprobs == [0.0] * len(opening) + [-0.1] * (len(turn.ids) - len(opening))
    assert turn.entropies[: len(opening)] == [0.0] * len(opening)
    assert result.tool is not None
    assert result.tool["status"] == "ok"
    assert second.ids == (*tree.prompt_ids, *turn.ids, *result.ids)
    assert answer.text == DONE
    assert tree.meta["opening"] == len(opening)


def test_an_endpoint_gets_the_opening_as_its_last_message(env: ToolEnv, tokenizer: Any) -> None:
    policy = ChatPolicy(tokenizer, [REST, DONE], [0.5, 0.5])
    grown(env, policy, tokenizer, ids_of(tokenizer, BEGIN))
    first, second = policy.seen
    assert first.messages[-1] == {"role": "assistant", "content": BEGIN}
    assert [message["role"] for message in second.messages] == ["system", "user", "assistant", "user"]
    assert second.messages[2]["content"] == BEGIN + REST


def test_a_model_goes_on_from_its_own_tokens_as_it_did(env: ToolEnv, tokenizer: Any, tiny_model: Any) -> None:
    from arpo_trainer.backends import transformers_backend

    backend = transformers_backend(tiny_model, tokenizer)
    settings = {"temperature": 0.0, "max_completion_length": 24}
    whole = grown(env, backend, tokenizer, (), **settings).spans[0]
    for length in (1, 7, 20):
        again = grown(env, backend, tokenizer, tuple(whole.ids[:length]), **settings).spans[0]
        assert again.ids == whole.ids
        assert again.text == whole.text


def test_an_algorithm_that_compares_first_tokens_takes_none(env: ToolEnv, tokenizer: Any) -> None:
    policy = ScriptedPolicy(tokenizer, [REST], [0.5])
    with pytest.raises(ValueError, match="only 'grpo' takes an opening"):
        grown(env, policy, tokenizer, (5, 6), algorithm="arpo", num_generations=2)
