"""Hints: where they are put, and that sampled tokens before them stay as they are."""

import random
import time
from collections.abc import Sequence
from typing import Any

import pytest

from arpo_env.protocols import make_protocol
from arpo_env.protocols.protocol import Answer, ToolCalls
from arpo_env.tools.python import PythonTool
from arpo_env.tools.search_tool import SearchTool
from arpo_trainer.rollout.rendering import Renderer
from arpo_trainer.synthesis.synth_settings import HINTS, NoPlaceForHint, SampledTurn, opening
from tests.arpo_trainer.rollout.test_rendering import OPENED, QWEN3, small_tokenizer, template

TOOLS = [PythonTool.schema, SearchTool.schema]
TEXT = "<think>First I add. Maybe the sum is 12. Now I multiply, 12 × 3 = 36 ✓. It seems fine.</think>"
ANSWERED = TEXT + "<answer>\\boxed{36}</answer>"


@pytest.fixture
def renderer(tokenizer: Any) -> Renderer:
    return Renderer(tokenizer, make_protocol("arpo-tags"))


def ids_of(renderer: Renderer, text: str) -> list[int]:
    return renderer.tokenizer(text, add_special_tokens=False)["input_ids"]


def opened(renderer: Renderer, kind: str, text: str = ANSWERED, spread: Sequence[float] = (), seed: int = 0) -> str:
    ids = ids_of(renderer, text)
    made = opening(renderer, TOOLS, kind, ids, spread or [0.0] * len(ids), "36", random.Random(seed))
    return renderer.turn_text(made, first=True)


def test_a_teacher_that_loops_takes_no_quadratic_time(renderer: Renderer) -> None:
    began = time.process_time()
    for text in ("wait " * 4000, "Maybe. " * 600):
        assert opened(renderer, "verify", text).startswith(text[:4])
    assert time.process_time() - began < 3


def test_any_cut_keeps_whole_tokens_and_the_characters_between(renderer: Renderer) -> None:
    rng = random.Random(0)
    for _ in range(60):
        text = "".join(rng.choices(["a word ", "é", "中文", "𝔘", "<think>", " 12.5", "\n", "Maybe so. "], k=12))
        ids = ids_of(renderer, text)
        turn, place = SampledTurn(renderer, ids, []), rng.randrange(len(text) + 1)
        kept, rest = turn.cut(place)
        assert kept == ids[: len(kept)]
        assert renderer.turn_text(kept, first=True) + rest == turn.text[:place]


def test_the_uncertain_sentence_is_the_one_with_the_highest_entropy(renderer: Renderer) -> None:
    turn = SampledTurn(renderer, ids_of(renderer, ANSWERED), [])
    for phrase in ("Maybe the sum is 12.", "It seems fine."):
        begin = turn.token(ANSWERED.index(phrase))
        entropies = [2.0 * (begin <= number < begin + 6) for number in range(len(ids_of(renderer, ANSWERED)))]
        text = opened(renderer, "verify", spread=entropies)
        assert text.startswith(ANSWERED[: ANSWERED.index(phrase)] + phrase)
        assert "</think>" not in text[: text.index(phrase)]


@pytest.mark.parametrize(
    ("text", "kind", "cause"),
    [
        ("<think>It is 12.</think><answer>\\boxed{12}</answer>", "verify", "no uncertain phrase"),
        ("<think>Maybe <python>1</python>.</think><answer>1</answer>", "verify", "marks of tools in the text"),
        ("<think>Maybe</think><result>1</result><answer>1</answer>", "reflect", "marks of tools in the text"),
    ],
)
def test_where_a_hint_has_no_place_the_cause_is_told(renderer: Renderer, text: str, kind: str, cause: str) -> None:
    with pytest.raises(NoPlaceForHint) as fault:
        opened(renderer, kind, text)
    assert fault.value.cause == cause


NATIVE_CALL = '<tool_call>\n{"name": "python", "arguments": {"code": "1"}}\n</tool_call>'


@pytest.mark.parametrize("kind", HINTS)
@pytest.mark.parametrize("frame", ["qwen3", "opened"])
@pytest.mark.parametrize("protocol", ["hermes", "arpo-tags"])
def test_other_templates_and_protocols_take_hints_too(protocol: str, frame: str, kind: str) -> None:
    native = protocol == "hermes"
    tokenizer = small_tokenizer(QWEN3, template("qwen3") if frame == "qwen3" else OPENED)
    renderer = Renderer(tokenizer, make_protocol(protocol))
    answer = "\n\nIt is \\boxed{36}." if native else "<answer>\\boxed{36}</answer>"
    said = TEXT + answer if frame == "qwen3" else (TEXT + answer).removeprefix("<think>")  # the prompt opens it
    ids = ids_of(renderer, said + "<|im_end|>")
    made = opening(renderer, TOOLS, kind, ids, [0.0] * len(ids), "36", random.Random(0))
    text = renderer.turn_text(made, first=True)
    cut = next(n for n, (one, other) in enumerate(zip(made, ids, strict=False)) if one != other)
    assert tokenizer.decode(made[: cut - 1]) in said  # sampled tokens first, but for one that the cut divides
    assert "<|im_end|>" not in text
    assert text.startswith("<think>First I add.")
    assert text.count("<think>") == text.count("</think>")
    call = NATIVE_CALL if native else "<python>1</python>"
    assert isinstance(renderer.protocol.parse(text + call, TOOLS), ToolCalls)
    assert isinstance(renderer.protocol.parse(text + answer.strip(), TOOLS), Answer)
