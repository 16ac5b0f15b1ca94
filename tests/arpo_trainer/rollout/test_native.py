"""Tool calls as each family of models writes them, with the chat templates that TRL ships.

A family is a template of TRL, the control tokens that are named in it, and a small tokenizer. Turns are written by the
template itself, and read back.
"""

import asyncio
import copy
import functools
import importlib.resources
import json
import pickle
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from trl import chat_template_utils
from trl.chat_template_utils import add_response_schema

from arpo_env import ToolEnv
from arpo_env.episode import FOLD
from arpo_env.memory_folding import mentions_fold
from arpo_env.protocols import make_protocol
from arpo_env.protocols.chat_template import Native
from arpo_env.protocols.protocol import Answer, Malformed, Nothing, ToolCall, ToolCalls
from arpo_trainer.backends.base import Generation, Request
from arpo_trainer.rollout.engine import Engine, RolloutSettings
from arpo_trainer.rollout.model_protocol import protocol_for
from arpo_trainer.rollout.native import ModelCalls, NoNativeCalls
from arpo_trainer.rollout.rendering import Renderer
from arpo_trainer.run.arguments import SFTArguments
from arpo_trainer.run.sft_run import prepare
from arpo_trainer.sft.plain_trace import ModelTurn, ToolResults, Trace
from arpo_trainer.sft.trace_data import tokenised
from arpo_trainer.training.trainer import call_start
from tests.arpo_env.protocols.schemas import ALL
from tests.arpo_trainer.rollout.test_rendering import HOSTILE, parsed, small_tokenizer
from tests.arpo_trainer.text_policy import TextPolicy

TOKENS = re.compile(
    r"<\|[^|<>\s'\"{}]+\|>|<\|[a-z_]+>|<[a-z_]+\|>|<\|\"\|>|</?(?:tool_call|tool_response|think|arg_key|arg_value)>"
)
ENDS = ("<|im_end|>", "<|eot_id|>", "<|return|>", "<turn|>", "<|user|>")
FAMILIES = (  # all that TRL reads: `test_models_page`
    *("qwen2_5", "qwen3", "qwen3_instruct_2507", "qwen3_vl"),
    *("qwen3_5_nothink", "qwen3_5_think", "qwen3_6", "qwen3_8"),
    *("nemotron_3_nano", "nemotron_3_super", "nemotron_3_ultra", "nemotron_3_5_lightning"),
    *("gemma4", "gemma4_v2", "gemma4_v3", "gemma4_v4", "gemma4_v5"),
    *("lfm2_v2", "lfm2_2_5", "lfm2_2_5_v2", "lfm2_2_5_vl"),
    *("glm4moe", "gptoss", "llama3_1", "llama3_2"),
)
# one of each form
FORMS = ("qwen3", "qwen3_5_think", "nemotron_3_nano", "gemma4_v5", "lfm2_2_5", "glm4moe", "gptoss", "llama3_1")
SEARCH, RUN, MARK = ("search", {"query": "a (b), c", "k": 2}), ("python", {"code": "1 + 1"}), ("mark", {"levels": [1]})
LONG = {"code": 'def f(x):\n    return {"a": [x, (1)]}\n\nprint(f(2))'}
QUESTION = {"role": "user", "content": "?"}


@functools.cache
def tokenizer_of(family: str) -> Any:
    text = (importlib.resources.files("trl") / "chat_templates" / f"{family}.jinja").read_text()
    words = sorted(set(TOKENS.findall(text)) | ({"<|return|>", "<|constrain|>"} if family == "gptoss" else set()))
    tokenizer = small_tokenizer((words, []), text)
    tokenizer.eos_token = next(end for end in ENDS if end in words)
    return tokenizer


@functools.cache
def renderer_of(family: str) -> Renderer:
    return Renderer(tokenizer_of(family), make_protocol("native"))


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


def protocol_of(family: str) -> ModelCalls:
    protocol = renderer_of(family).protocol
    assert isinstance(protocol, ModelCalls)
    return protocol


def messages_of(*calls: tuple[str, Any]) -> list[dict[str, Any]]:
    made = [
        {"type": "function", "id": f"call{number:05d}", "function": {"name": name, "arguments": arguments}}
        for number, (name, arguments) in enumerate(calls)
    ]
    return [QUESTION, {"role": "assistant", "content": "", "tool_calls": made}]


def turn_of(family: str, *calls: tuple[str, Any]) -> str:
    """Return a turn as the template writes it, from where the model begins to its end token."""
    tokenizer, protocol = tokenizer_of(family), protocol_of(family)
    whole = tokenizer.apply_chat_template(messages_of(*calls), tokenize=False)
    start = max(match.end() for match in re.finditer(ANCHORS, whole))
    end = whole.find(protocol.end, start)
    return whole[start : end if end > 0 else None]


ANCHORS = (
    r"<\|im_start\|>assistant\n|<\|turn>model\n|<\|assistant\|>|<\|start\|>assistant|assistant<\|end_header_id\|>\n\n"
)


def as_calls(*calls: tuple[str, Any]) -> ToolCalls:
    return ToolCalls(tuple(ToolCall(*call) for call in calls))


@pytest.mark.parametrize("calls", [(SEARCH,), (("python", LONG),), (("now", {}),), (MARK,), (SEARCH, MARK, SEARCH)])
def test_what_the_template_writes_is_read_and_written_again(family: str, calls: tuple[Any, ...]) -> None:
    protocol = protocol_of(family)
    if len(calls) > 1 and family in ("gptoss", "llama3_1", "llama3_2"):
        with pytest.raises(ValueError, match="cannot write"):
            protocol.write_calls("", calls)
        return
    assert protocol.parse(turn_of(family, *calls), ALL) == as_calls(*calls)
    written = protocol.write_calls("<think>Hm.</think>", calls)
    assert protocol.parse(written, ALL) == as_calls(*calls)
    read = protocol.read_calls(written)
    assert [name for name, _ in read[1]] == [name for name, _ in calls]
    assert protocol.well_formed([written])


def test_a_part_of_a_call_is_never_a_call_or_an_answer(family: str) -> None:
    protocol, whole = protocol_of(family), turn_of(family, SEARCH)
    start = protocol.write_calls("", [SEARCH])[:8]
    for end in range(whole.find("search") + 1, len(whole.rstrip()) - 1, 5):
        action = protocol.parse(whole[:end], ALL)
        # of these families the end of the turn closes a call
        closed = isinstance(action, ToolCalls) and family == "gptoss"
        assert closed or isinstance(action, Malformed), whole[:end]
        if closed:
            assert action == as_calls(SEARCH)
    missing = whole.replace(start, "", 1) if family not in ("gptoss", "llama3_1", "llama3_2") else whole[:-3]
    assert isinstance(protocol.parse(missing, ALL), Malformed)


def thought(family: str, text: str, closed: bool = True) -> str:
    if family == "gptoss":
        return f"<|channel|>analysis<|message|>{text}" + "<|end|><|start|>assistant" * closed
    if family.startswith("gemma"):
        return f"<|channel>thought\n{text}" + "<channel|>" * closed
    return f"<think>\n{text}" + "\n</think>\n\n" * closed


def answer(family: str, text: str) -> str:
    return f"<|channel|>final<|message|>{text}" if family == "gptoss" else text


def test_a_call_in_a_thought_is_a_quotation(family: str) -> None:
    protocol, call = protocol_of(family), protocol_of(family).write_calls("", [SEARCH])
    quoted = thought(family, f"I could write {call} or so \\boxed{{1}}.")
    assert protocol.parse(quoted + answer(family, "It is \\boxed{4}."), ALL) == Answer("4", boxed=True)
    assert protocol.parse(quoted + call, ALL) == as_calls(SEARCH)
    credited = call_start(cast("Any", SimpleNamespace(protocol=protocol)))(quoted + call)
    assert (quoted + call)[credited:].strip() == call.strip()
    assert protocol.parse(quoted, ALL) == Nothing()
    assert protocol.parse(thought(family, "I wonder", closed=False), ALL) == Nothing()
    if not family.startswith("llama"):  # whose calls have no marks
        open_thought = protocol.parse(thought(family, f"I call {call}<|call|>", closed=False), ALL)
        assert isinstance(open_thought, Malformed)
    assert protocol.parse(answer(family, "Lima"), ALL) == Answer("Lima", boxed=False)
    assert protocol.parse("", ALL) == Nothing()


def test_results_spell_no_control_token(family: str) -> None:
    renderer = renderer_of(family)
    frame = renderer.result_ids(["x"], True, ALL, ["search"])
    added = renderer.tokenizer.added_tokens_decoder
    controls = [number for number in frame if number in added]
    for text in [*HOSTILE, *protocol_of(family).words, turn_of(family, SEARCH), protocol_of(family)._result_mark]:
        ids = renderer.result_ids([text], True, ALL, ["search"])
        assert [number for number in ids if number in added] == controls, text
        shown = renderer.protocol.defuse(text)
        assert not isinstance(renderer.protocol.parse(answer(family, f".{shown}"), ALL), ToolCalls)
        assert renderer.protocol.defuse(shown) == shown


# where rendering anew differs from what the model was given and wrote, and how
ANEW = {
    "qwen3": "drops the empty thought of a turn when a result follows",
    **dict.fromkeys(
        ("nemotron_3_nano", "nemotron_3_super", "nemotron_3_ultra", "nemotron_3_5_lightning"),
        "writes <think></think> where the prompt opened a thought with a line break",
    ),
}


def test_ids_are_appended_as_the_template_writes_them(family: str) -> None:
    renderer, tokenizer = renderer_of(family), tokenizer_of(family)
    opened = messages_of(SEARCH)
    if renderer._opened(True):
        opened[1] |= {"reasoning_content": "Hm.", "thinking": "Hm."}
    whole = [*opened, {"role": "tool", "tool_call_id": "call00000", "name": "search", "content": "Lima"}]
    rendered = tokenizer.apply_chat_template(whole, tokenize=True, add_generation_prompt=True, return_dict=False)
    prompt = tokenizer.apply_chat_template([QUESTION], tokenize=True, add_generation_prompt=True, return_dict=False)
    result = renderer.result_ids(["Lima"], True, ALL[:0], ["search"])
    assert rendered[-len(result) :] == result
    turn = rendered[len(prompt) : -len(result)]
    assert turn[-1] == renderer.end_id
    # without its end token the turn is ended for it
    assert renderer.result_ids(["Lima"], False, (), ["search"]) == [renderer.end_id, *result]
    if family in ANEW:
        return
    assert rendered[: len(prompt)] == prompt
    assert parsed(renderer, turn, ALL) == as_calls(SEARCH)


@pytest.mark.parametrize("form", FORMS)
def test_names_may_have_dots_and_dashes_and_texts_the_mark_of_a_thought(form: str) -> None:
    tool = copy.deepcopy(ALL[0])
    tool["function"]["name"] = "web.search-2"
    call = ("web.search-2", {"query": "x </think> y"})
    assert protocol_of(form).parse(turn_of(form, call), [*ALL, tool]) == as_calls(call)
    tokenizer = copy.deepcopy(tokenizer_of(form))
    tokenizer.response_template = copy.deepcopy(add_response_schema(copy.copy(tokenizer)).response_template)
    for field in tokenizer.response_template["fields"].values():
        field["close_pattern"] = field["close_pattern"].replace(r"\s*", "")
    assert ModelCalls(tokenizer).parse(turn_of(form, call), [*ALL, tool]) == as_calls(call)


@pytest.mark.parametrize("form", FORMS)
def test_a_fold_that_cannot_be_read_is_seen(form: str) -> None:
    assert mentions_fold(protocol_of(form).write_calls("", [(FOLD, {"focus": "x"})])[:-6])
    assert not mentions_fold(f"I could call {FOLD}. {protocol_of(form).write_calls('', [SEARCH])}")


@pytest.mark.parametrize("form", FORMS)
def test_hostile_turns_take_little_time(form: str) -> None:
    protocol = protocol_of(form)
    call, size = protocol.write_calls("", [SEARCH]), 1_000_000
    head = call[: call.find("search") + 6]
    pieces = [
        *sorted(protocol.words),
        call,
        head,
        thought(form, ""),
        *("\n", "[", '{"a":', " <", "'", "<parameter=a>", "to=functions.a", "\\"),
    ]
    texts = [piece * (size // len(piece)) for piece in pieces]
    texts += [head + text for text in texts[-8:]] + [call[: call.find("a (b)")] + text for text in texts[-8:]]
    began = time.process_time()
    for text in texts:
        assert not isinstance(protocol.parse(text, ALL), ToolCalls)
    assert time.process_time() - began < 0.5 * len(texts)


HARMONY = '{"query": "a (b), c", "k": 2}'
SEARCHED, RAN, BOXED = as_calls(SEARCH), as_calls(("python", {"code": "1\n2"})), Answer("2", boxed=True)
OPENED = Malformed("a call was opened that cannot be read; write it as you were shown")
BARE = Malformed("a call cannot be read, or there is more than it; write its JSON object and nothing else")
STRAY = Malformed("the text 'The answer is 2.' stands in no message; begin each with its channel")
UNKNOWN_TOOL = Malformed("there is no tool 'isNone'. The tools are: search, python, add, now, mark")
ANALYSIS, NEXT = "<|channel|>analysis<|message|>Hm.<|end|>", "<|start|>assistant"
WRITTEN: dict[str, list[tuple[str, object]]] = {
    "gptoss": [
        (f"{ANALYSIS}{NEXT} to=functions.search<|channel|>commentary json<|message|>{HARMONY}", SEARCHED),
        (f"{ANALYSIS}{NEXT}<|channel|>commentary to=functions.search <|constrain|>json<|message|>{HARMONY}", SEARCHED),
        (f"{ANALYSIS}{NEXT}<|channel|>analysis to=functions.search code<|message|>{HARMONY}", SEARCHED),
        (f"<|channel|>final<|message|>\\boxed{{2}}<|end|>{NEXT} to=functions.search<|message|>{HARMONY}", SEARCHED),
        (f"<|channel|>commentary<|message|>I look.<|end|>{NEXT}<|channel|>final<|message|>\\boxed{{2}}", BOXED),
        ("<|channel|>final <|constrain|>json<|message|>[2]<|return|>", Answer("[2]", boxed=False)),
        (f"<|channel|>final<|message|>to=functions.search<|message|>{HARMONY}", OPENED),
        ("The answer is 2.", STRAY),
    ],
    "qwen3": [('<tool_call>{"name": "python", "arguments": {"code": "1\n2"}}</tool_call>', RAN)],
    "glm4moe": [("<tool_call>\npython\n<arg_key>code</arg_key>\n<arg_value>1\n2</arg_value>\n</tool_call>", RAN)],
    "qwen3_5_think": [
        ("a</think><function=now>\n</function>\n\\boxed{2}", OPENED),
        ("Hm.</think>\n\n\\boxed{2}<|im_end|>", BOXED),
    ],
    "lfm2_2_5": [
        ("<|tool_call_start|>[python(code='1\n2')]<|tool_call_end|>I wait.", RAN),
        ("<|tool_call_start|>[isNone()]<|tool_call_end|>", UNKNOWN_TOOL),
        (
            '<|tool_call_start|>[search(query="it\'s\\n", k=2), mark(levels=[1], loud=True)]<|tool_call_end|>',
            as_calls(("search", {"query": "it's\n", "k": 2}), ("mark", {"levels": [1], "loud": True})),
        ),
    ],
    "llama3_2": [
        (f'{{"function": "search", "parameters": {HARMONY}}}', BARE),
        (f'I look.\n{{"name": "search", "arguments": {HARMONY}}}', BARE),
    ],
    "llama3_1": [
        (f'{{"type": "function", "name": "search", "parameters": {HARMONY}}}', SEARCHED),
        (f'<|python_tag|>{{"name": "search", "parameters": {HARMONY}}}<|eom_id|>', SEARCHED),
        ('{"a": 1}', Answer('{"a": 1}', boxed=False)),
    ],
}


@pytest.mark.parametrize(("form", "text", "action"), [(form, *row) for form, rows in WRITTEN.items() for row in rows])
def test_what_models_write_besides_their_templates_is_read(form: str, text: str, action: object) -> None:
    assert protocol_of(form).parse(text, ALL) == action


def test_text_around_calls_is_a_lead_and_the_calls_keep_their_order() -> None:
    protocol = protocol_of("qwen3")
    first, second = (protocol.write_calls("", [call]) for call in (SEARCH, MARK))
    assert protocol.parse(f"I look.\n{first} and {second} now", ALL) == as_calls(SEARCH, MARK)
    assert protocol.parse(first + second.replace("levels", "level"), ALL) == Malformed(
        "mark needs levels; mark has no argument 'level'; it takes levels (array of integer), loud (boolean)"
    )
    # a closing mark in a string ends no call
    quoted = ("python", {"code": "'</tool_call>'"})
    assert protocol.parse(protocol.write_calls("", [quoted]), ALL) == as_calls(quoted)
    assert not protocol.well_formed([f"{first}<tool_response>2</tool_response>"])


def test_an_opened_thought_belongs_to_the_turn() -> None:
    tokenizer = tokenizer_of("gemma4_v5")
    renderer = Renderer(tokenizer, make_protocol("native"), {"enable_thinking": True})
    ids = tokenizer("I could.", add_special_tokens=False)["input_ids"] + renderer.turn_ids("<channel|>Lima")
    assert parsed(renderer, ids, ALL, first=False) == Answer("Lima", boxed=False)
    assert renderer.turn_text(ids, first=False).startswith("<|channel>thought\n")
    plain = Renderer(tokenizer_of("qwen3_5_think"), make_protocol("native"), {"enable_thinking": False})
    lima = plain.tokenizer("Lima", add_special_tokens=False)["input_ids"]
    assert plain.turn_text(lima, first=True) == "Lima"
    assert renderer_of("qwen3_5_think").turn_text(lima, first=True) == "<think>Lima"


def test_a_turn_that_ended_otherwise_is_ended_for_the_template() -> None:
    renderer = renderer_of("glm4moe")
    user = renderer.tokenizer.convert_tokens_to_ids("<|user|>")
    shown = renderer.result_ids(["Error"], True, ALL, ended_by=user)
    assert shown == [renderer.end_id, *renderer.result_ids(["Error"], True, ALL, ended_by=renderer.end_id)]


def test_a_changed_template_that_writes_a_known_form_is_read() -> None:
    tokenizer = small_tokenizer((["<|im_end|>"], []), "x")
    tokenizer.chat_template = tokenizer_of("qwen3").chat_template + "{# mine #}"
    protocol = Renderer(tokenizer, make_protocol("native")).protocol
    assert protocol.parse(turn_of("qwen3", SEARCH), ALL) == as_calls(SEARCH)
    assert pickle.loads(pickle.dumps(protocol)).parse(turn_of("qwen3", SEARCH), ALL) == as_calls(SEARCH)
    assert protocol_for(tokenizer)[0] == "native"


@pytest.mark.parametrize(
    "own", [{}, "text", {"fields": {"content": {"close": "x"}}}, chat_template_utils.gptoss_template]
)
def test_a_response_template_that_reads_no_calls_is_not_used(own: Any) -> None:
    tokenizer = copy.deepcopy(tokenizer_of("qwen3"))
    tokenizer.response_template = own
    protocol = Renderer(tokenizer, make_protocol("native")).protocol
    assert isinstance(protocol, ModelCalls)
    assert protocol.family == "qwen3"


def test_a_model_without_tool_calls_or_end_token_is_refused() -> None:
    """One reason of each kind; `test_models_page` has those of the templates that TRL ships."""
    tokenizer = small_tokenizer((["<|im_end|>"], []), "{% for m in messages %}{{ m.content }}{% endfor %}")
    with pytest.raises(ValueError, match=r"does not show calls.*protocol='arpo-tags'"):
        Renderer(tokenizer, make_protocol("native"))
    assert protocol_for(tokenizer)[0] == "arpo-tags"
    tokenizer.chat_template = None
    with pytest.raises(ValueError, match="has no chat template"):
        Renderer(tokenizer, make_protocol("native"))
    tokenizer.chat_template, tokenizer.eos_token = tokenizer_of("qwen3").chat_template, None
    with pytest.raises(NoNativeCalls, match=r"no end token.*tokenizer.eos_token.*arpo-tags"):
        Renderer(tokenizer, make_protocol("native"))


class _Model(TextPolicy):
    """Writes these turns in the tokens of its family."""

    def __init__(self, *turns: str) -> None:
        self.turns, self.renderer, self.prompts = turns, None, []

    async def generate(self, request: Request, on_window: Any = None) -> Generation:
        self.prompts.append(list(request.ids))
        number = len(self.prompts)
        ids = self.renderer.turn_ids(self.turns[number - 1], number == 1, ended=True)
        return Generation(ids, [-0.1] * len(ids), [0.1] * len(ids), "eos")


@pytest.mark.parametrize("form", FORMS)
def test_an_episode_is_one_row_of_ids(form: str) -> None:
    def double(number: int) -> str:
        """Double a number."""
        return f"{2 * number}<|im_end|><|call|>"

    calls = [("double", {"number": number}) for number in ((3, 4) if protocol_of(form)._several else (3,))]
    env = ToolEnv("arpo/Arithmetic-v0", tools=[double], protocol="native")
    called = thought(form, "Hm.") + protocol_of(form).write_calls("", calls)
    model = _Model(called, thought(form, "Hm.") + answer(form, "\\boxed{1}"))
    settings = RolloutSettings(algorithm="grpo", num_generations=1)
    engine = Engine(model, tokenizer_of(form), env, settings)
    model.renderer = engine.renderer
    [tree] = asyncio.run(engine.rollout([env.tasks.task(0)]))
    [played] = tree.trajectories
    assert (played.outcome, played.answer) == ("answered", "1")
    first, result, last = tree.path(0)
    text = engine.tokenizer.decode(result.ids)
    assert [text.count(str(2 * call[1]["number"])) for call in calls] == [1] * len(calls)
    assert model.prompts[1] == [*model.prompts[0], *first.ids, *result.ids]
    assert last.ids[-1] == engine.tokenizer.convert_tokens_to_ids(protocol_of(form).answer_end)
    # whoever plays the environment itself reads the canonical form
    assert type(env.protocol) is Native


@pytest.mark.parametrize("form", FORMS)
def test_a_demonstration_has_the_ids_of_a_rollout(form: str) -> None:
    renderer, call = renderer_of(form), protocol_of(form).write_calls("", [RUN])
    turns = (ModelTurn(call), ToolResults(("2",)), ModelTurn(answer(form, "\\boxed{2}")))
    example = tokenised(Trace("", "1 + 1?", turns, "native"), renderer, ALL)
    shown = renderer.result_ids(["2"], True, ALL, ["python"], renderer.end_id)
    masked = [number for number, label in zip(example["input_ids"], example["labels"], strict=True) if label < 0]
    assert masked[-len(shown) :] == shown


def test_traces_are_rewritten_as_the_model_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    run = SFTArguments(data=str(path), protocol="native", chat_template_kwargs={"enable_thinking": True})

    def prepared(first: str) -> Any:
        turns = [("user", "1 + 1?"), ("assistant", first), ("tool", "2"), ("assistant", "\\boxed{2}")]
        row = {"messages": [{"role": role, "content": text} for role, text in turns]}
        path.write_text(json.dumps(row) + "\n")
        return prepare(run, SimpleNamespace(max_length=None), tokenizer_of("qwen3_5_think"))

    call = '<tool_call>\n{"name": "python", "arguments": {"code": "1 + 1"}}\n</tool_call>'
    data, [example] = prepared(f"<think>Hm.</think>\n{call}")
    learnt = [number for number, label in zip(example["input_ids"], example["labels"], strict=True) if label >= 0]
    text = tokenizer_of("qwen3_5_think").decode(learnt)
    assert text.startswith("Hm.</think>\n<tool_call>\n<function=python>\n<parameter=code>\n1 + 1\n</parameter>")
    assert text.endswith("</tool_call><|im_end|>\\boxed{2}<|im_end|>")
    assert data.traces[0].protocol == "native"
    # and those that it wrote itself stay as they are
    again, [same] = prepared(data.traces[0].turns[0].text)
    assert same == example
    assert again.traces[0].turns[0].text == data.traces[0].turns[0].text
