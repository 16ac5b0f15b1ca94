"""Rows of training files read back as they were; hard questions in every data set; hints and where they are put."""

import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from arpo_env.protocols import make_protocol
from arpo_env.protocols.protocol import Answer, ToolCalls
from arpo_env.tools.python import PythonTool
from arpo_env.tools.search_tool import SearchTool
from arpo_trainer.rollout.rendering import Renderer
from arpo_trainer.sft.plain_trace import DroppedRow, ModelTurn, ToolResults, Trace
from arpo_trainer.sft.trace_data import TraceSettings, read_trace_files
from arpo_trainer.synthesis.sample_checks import check_format, dataset_info, hard_row, training_row
from arpo_trainer.synthesis.synth_session import open_question_sets
from arpo_trainer.synthesis.synth_settings import FORMATS, HINTS, NoPlaceForHint, SampledTurn, SynthSettings, opening
from envs_registry import load_source
from tests.arpo_trainer.rollout.test_rendering import OPENED, QWEN3, small_tokenizer, template

TOOLS = [PythonTool.schema, SearchTool.schema]
TAGS = (
    ModelTurn("<think>I add.</think><python>print('<b>' * 2)</python>"),
    ToolResults(("<b><b>\n &lt;answer> 3",)),
    ModelTurn("<think>So.</think><answer>\\boxed{2}</answer>"),
)
CALL = '<tool_call>\n{"name": "%s", "arguments": {"%s": "x"}}\n</tool_call>'
NATIVE = (
    ModelTurn("<think>I ask.</think>\n" + CALL % ("python", "code") + "\n" + CALL % ("search", "query")),
    ToolResults(("one", "two\nlines")),
    ModelTurn("<think>Again.</think>\n" + CALL % ("search", "query")),
    ToolResults(("three",)),
    ModelTurn("It is \\boxed{2}."),
)
TRACES = {"arpo-tags": TAGS, "hermes": NATIVE}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("protocol", TRACES)
def test_a_row_reads_back_in_its_format(protocol: str, form: str, tmp_path: Path) -> None:
    made = make_protocol(protocol)
    trace = Trace("Use tools.", "What is 1 + 1?", TRACES[protocol], protocol)
    if form == "alpaca" and made.native:
        with pytest.raises(ValueError, match="take sharegpt"):
            check_format(form, made)
        return
    row = training_row(trace, form, made, TOOLS)
    file = tmp_path / "sft.jsonl"
    file.write_text(json.dumps(row))
    data = read_trace_files([file], TraceSettings(protocol=protocol))
    assert not data.dropped
    assert (data.traces[0].system, data.traces[0].question) == (trace.system, trace.question)
    columns = dataset_info("mine", file.name, form, made)["mine"]["columns"]
    assert set(columns.values()) <= {*row, "instruction"}


def test_a_row_that_would_be_read_otherwise_is_dropped() -> None:
    own_result = ModelTurn("<think>a</think><python>1</python><result>9</result>")  # written by the model itself
    trace = Trace("s", "q", (own_result, *TAGS[1:]), "arpo-tags")
    with pytest.raises(DroppedRow, match="does not read back"):
        training_row(trace, "sharegpt", make_protocol("arpo-tags"), TOOLS)


SETS: dict[str, dict[str, Any]] = {
    "gsm8k": {"question": "2 + 2?", "answer": "It is easy. #### 4"},
    "math": {"problem": "1/2 of 8?", "solution": "It is \\boxed{4}."},
    "hotpotqa": {"question": "Who wrote it?", "answer": "Ann", "answer_aliases": ["A. Lee"]},
    "reasoning10k": {"prompt": [{"role": "user", "content": "2 + 2?"}], "reward_model": {"ground_truth": "4"}}
    | {"ability": "math"},
}


@pytest.mark.parametrize("name", SETS)
def test_hard_questions_are_the_same_tasks_in_their_data_set(name: str, tmp_path: Path) -> None:
    first, second = tmp_path / "train.jsonl", tmp_path / "hard.jsonl"
    first.write_text(json.dumps(SETS[name]))
    task = load_source(name, data=first).task(0)
    second.write_text(json.dumps(hard_row(task.as_dict(), 0)))
    again = load_source(name, data=second).task(0)
    assert (again.question, set(again.answers), again.kind) == (task.question, set(task.answers), task.kind)
    assert again.answers[0] == task.answers[0]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"hints": ("verfy",)}, "verify"),
        ({"easy": 2}, "from 0 to 1"),
        ({"direct": 0, "tir": 0}, "nothing is sampled"),
        ({"samples": 3}, "the settings of a synthesis"),
        ({"environments": ()}, "name the environments"),
        # episodes that no row can hold
        ({"env_options": {"level": "1", "folds": 1}, "tasks": 1}, "leave folds out"),
        (
            {"env_options": {"level": "1", "show_images": True, "tools": ["read_file"]}, "tasks": 1},
            "leave show_images out",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(options: dict[str, Any], told: str) -> None:
    with (
        pytest.raises(ValueError, match=told),
        open_question_sets(SynthSettings.from_dict({"environments": ["arpo/Arithmetic-v0"], **options})),
    ):
        pass


def test_questions_whose_long_results_a_model_condenses_are_also_asked_without_tools() -> None:
    options = {"level": "1", "result_model": "m", "model_url": "http://127.0.0.1:9/v1"}
    with open_question_sets(SynthSettings(("arpo/ToolWorld-v0",), env_options=options, tasks=1)) as [one]:
        assert (list(one.env.tools), list(one.plain.tools)) == (["tool_search"], [])


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


def test_where_a_hint_has_no_place_the_cause_is_told(renderer: Renderer) -> None:
    for text, kind, cause in (
        ("<think>It is 12.</think><answer>\\boxed{12}</answer>", "verify", "no uncertain phrase"),
        ("<think>Maybe <python>1</python>.</think><answer>1</answer>", "verify", "marks of tools in the text"),
        ("<think>Maybe</think><result>1</result><answer>1</answer>", "reflect", "marks of tools in the text"),
    ):
        with pytest.raises(NoPlaceForHint, match=cause):
            opened(renderer, kind, text)


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
    call = CALL % ("python", "code") if native else "<python>1</python>"
    assert isinstance(renderer.protocol.parse(text + call, TOOLS), ToolCalls)
    assert isinstance(renderer.protocol.parse(text + answer.strip(), TOOLS), Answer)
