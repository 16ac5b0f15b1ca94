"""Tiny models: sizes are what their names say, and no word of any world is unknown to the tokenizer."""

import random
import re
from typing import Any

import pytest

from benchmarks.laboratory.tiny_model import tiny_tokenizer, vocabulary
from envs_registry.generated.bifurcation import CUES, DEAD_END, DOORS, KEYS, NO_DOOR, BifurcationSource


@pytest.fixture(scope="module")
def tokens() -> Any:
    return tiny_tokenizer()


def test_turns_survive_the_tokenizer(tokens: Any) -> None:
    turns = [f"<go>{door}</go>" for door in DOORS] + [f"<answer>\\boxed{{{key}}}</answer>" for key in KEYS]
    for turn in turns:
        ids = tokens(turn, add_special_tokens=False)["input_ids"]
        assert tokens.decode(ids) == turn
        assert len(ids) == 3
    assert len(set(vocabulary())) == len(vocabulary()) == len(tokens)


@pytest.mark.parametrize("dead_ends", ["silent", "shown", "forgiving"])
@pytest.mark.parametrize(("decisions", "choices"), [(12, 2), (3, 8)])
def test_no_word_of_a_world_is_unknown(tokens: Any, dead_ends: str, decisions: int, choices: int) -> None:
    largest: dict[str, Any] = {"routine": 40, "cues": len(CUES), "uneven": 10, "noise": 1.0}
    source = BifurcationSource(dead_ends=dead_ends, decisions=decisions, choices=choices, **largest)
    rng, texts = random.Random(0), [NO_DOOR, DEAD_END]
    for index in range(5):
        world = source.world(index)
        state = world.start
        texts.append(source.task(index).question)
        while state.room < len(world.rooms):
            state, seen = world.enter(state, rng.choice(world.rooms[state.room].doors), rng)
            texts.append(f"\n<result>\n{seen}\n</result>\n")
    for text in texts:
        ids = tokens(text, add_special_tokens=False)["input_ids"]
        assert tokens.unk_token_id not in ids, text
        assert tokens.decode(ids).replace(" ", "") == text.replace(" ", "")


def test_a_prompt_is_the_question_alone(tokens: Any) -> None:
    source = BifurcationSource(level="long-critical")
    messages = [
        {"role": "system", "content": "Unknown words."},
        {"role": "user", "content": source.task(0).question},
    ]
    text = tokens.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert re.fullmatch(r"<s>Find the key\. room 1 .*\n", text)
    ids = tokens(text, add_special_tokens=False)["input_ids"]
    assert ids[0] == tokens.bos_token_id
    assert len(ids) < 16
