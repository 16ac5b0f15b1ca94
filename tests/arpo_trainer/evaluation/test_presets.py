"""Presets of published checkpoints: their prompts, tags and templates on recorded text; no weights are needed."""

import re
from typing import Any

import pytest

from arpo_env import ToolEnv
from arpo_env.protocols import make_protocol
from arpo_env.protocols.protocol import Answer, Malformed, Nothing, ToolCall, ToolCalls
from arpo_trainer.evaluation.eval_settings import EvalSettings
from arpo_trainer.evaluation.suites import apply, preset, presets
from arpo_trainer.rollout.rendering import Renderer
from envs_registry import Task
from scripts.site.presets import preset_tables
from tests.arpo_env.protocols.schemas import BOTH, SEARCH
from tests.arpo_trainer.rollout.test_rendering import CHATML, META, OPENED, QWEN3, small_tokenizer, template

TEMPLATES = {  # family -> control tokens, name of the template, how the model's turn begins
    "qwen2.5": (CHATML, "qwen2_5", "<|im_start|>assistant\n"),
    "qwen3": (QWEN3, "qwen3", "<|im_start|>assistant\n"),
    "llama3.1": (META, "llama3_1", "<|start_header_id|>assistant<|end_header_id|>\n\n"),
    "qwq": (QWEN3, "", "<|im_start|>assistant\n<think>\n"),
}
TASK = Task("t", "Who wrote {The Leopard}?", ("Lampedusa",))


def tokenizer(family: str) -> Any:
    tokens, name, _ = TEMPLATES[family]
    return small_tokenizer(tokens, template(name) if name else OPENED)


def environment(name: str) -> ToolEnv:
    options, _ = apply(preset(name), {}, {})
    return ToolEnv("arpo/MultiHop-v0", level=2, **options)


@pytest.mark.parametrize("name", presets())
def test_every_preset_makes_an_environment_and_settings(name: str) -> None:
    row, env = preset(name), environment(name)
    assert preset(row.model).name == row.name == name
    assert env.protocol.name == row.env_options["protocol"]
    assert env.budget.turns == row.env_options["max_turns"]
    settings = EvalSettings(("arpo/MultiHop-v0",), rollout=dict(row.rollout)).rollout_settings()
    assert {key: getattr(settings, key) for key in ("temperature", "top_p", "repetition_penalty")} == {
        key: row.rollout[key] for key in ("temperature", "top_p", "repetition_penalty")
    }
    assert f"`{name}`" in preset_tables("")


@pytest.mark.parametrize("name", [name for name in presets() if not name.startswith("websailor")])
def test_a_prompt_of_tags_has_the_structure_of_the_published_one(name: str) -> None:
    """System prompt with a worked example in the published order, the question, and the model's turn."""
    row, env = preset(name), environment(name)
    known = tokenizer(row.template)
    renderer = Renderer(known, env.protocol, row.chat_template_kwargs)
    prompt = known.decode(renderer.prompt_ids(env.messages(TASK), env.schemas), skip_special_tokens=False)
    assert prompt.endswith(TEMPLATES[row.template][2])
    system, _, rest = prompt.rpartition(TASK.question)
    example = system[system.index("<think>", system.index("<result>")) :]
    found = re.findall(r"</?(?:think|search|python|result|answer)>", example)
    published = ["think", "search", "result", "think", "python", "result", "think", "answer"]
    assert found[-16:] == [mark for tag in published for mark in (f"<{tag}>", f"</{tag}>")]
    assert "\\boxed{" in system
    assert env.protocol.stop_strings(env.schemas) == ["</search>", "</python>", "</answer>"]
    assert "<tool_call>" not in prompt  # the template does not show the tools a second time
    assert rest.startswith(("<|im_end|>", "<|eot_id|>"))


TWO = (ToolCall("search", {"query": "leopard"}), ToolCall("search", {"query": "gattopardo"}))
WEB = [
    '<think>I search.</think>\n<tool_call>\n{"name": "search", "arguments": {"query": ["leopard", "gattopardo"]}}\n'
    "</tool_call>",
    "<think>It is clear.</think>\n<answer>Lampedusa</answer>",
]


def test_websailors_prompt_and_conversation_are_those_of_the_published_loop() -> None:
    """Tools in the user's message and nowhere else; results as messages of the user, which the template makes."""
    env, known = environment("websailor-3b"), tokenizer("qwen2.5")
    system, user = (message["content"] for message in env.messages(TASK))
    assert user.endswith(f"User: {TASK.question}")
    marks = ["<tools>", "</tools>", "<think>", "<tool_call>", "<tool_response>", "<answer>", "User: "]
    places = [user.index(mark) for mark in marks]
    assert places == sorted(places)
    assert '"name": "search"' in user[places[0] : places[1]]
    assert '"array"' in user[places[0] : places[1]]
    assert "<tools>" not in system

    renderer = Renderer(known, env.protocol)
    prompt = renderer.prompt_ids(env.messages(TASK), env.schemas)
    turn = known(WEB[0], add_special_tokens=False)["input_ids"]
    pieces = [*prompt, *turn, known.eos_token_id, *renderer.result_ids(["Page 1: a novel"], True, env.schemas)]
    published = [
        {"role": "system", "content": system},
        {"role": "user", "content": user},
        {"role": "assistant", "content": WEB[0]},
        {"role": "user", "content": "<tool_response>\nPage 1: a novel\n</tool_response>"},
    ]
    assert known.decode(pieces) == known.apply_chat_template(published, tokenize=False, add_generation_prompt=True)


@pytest.mark.parametrize(
    ("text", "action"),
    [
        (WEB[0], ToolCalls(TWO)),
        (WEB[1], Answer("Lampedusa", boxed=True)),
        (WEB[0] + "\n<tool_response>", ToolCalls(TWO)),
        (f"{WEB[0]}\n<answer>\\boxed{{7}}</answer>", Answer("7", boxed=True)),
        ("<think><answer>a</answer></think> I do not know.", Nothing()),
        ("a thought that the prompt opened <answer>a</answer></think><answer>b</answer>", Answer("b", boxed=True)),
        ('<tool_call>{"name": "visit", "arguments": {"url": ["u"], "goal": "g"}}</tool_call>', Malformed),
        ('<tool_call>{"name": "search", "arguments": {"query": []}}</tool_call>', Malformed),
    ],
)
def test_a_turn_of_websailor_is_read(text: str, action: Any) -> None:
    got = make_protocol("websailor").parse(text, [SEARCH])
    assert isinstance(got, Malformed) if action is Malformed else got == action


def test_websailors_format_wants_an_answer_and_no_result_of_its_own() -> None:
    protocol = make_protocol("websailor")
    assert protocol.well_formed(WEB)
    assert not protocol.well_formed(WEB[:1])
    assert not protocol.well_formed([WEB[0] + "<tool_response>", WEB[1]])
    assert protocol.stop_strings(BOTH) == ["<tool_response>"]


def test_what_is_given_wins_over_a_preset() -> None:
    row = preset("arpo-qwen2.5-3b")
    options, rollout = apply(row, {"tools": ["python"], "split": "test"}, {"temperature": 0.0})
    assert options["tool_limits"] == {"python": 5}
    assert (options["split"], options["max_turns"], rollout["temperature"], rollout["top_p"]) == ("test", 17, 0.0, 0.95)
    assert row.rollout["temperature"] == 0.6
    with pytest.raises(ValueError, match=r"did you mean 'arpo-qwen2.5-3b'"):
        preset("arpo-qwen25-3b")
