r"""The model's own tool calls: `bind` makes the protocol "native" for one tokenizer.

    protocol = bind(tokenizer)
    protocol.parse('<tool_call>\n{"name": "python", "arguments": {"code": "1"}}\n</tool_call>', tools)

How a family writes its turns is data: the response template of the tokenizer, or the one that TRL has for its chat
template, corrected where it is lenient or slow (`_CORRECTIONS`). The values of a call are read by transformers'
`parse_response`. What surrounds the calls is read here, since `parse_response` passes over what it does not understand:
text that opens or closes a call and is none makes the turn malformed, and so do a call in an open thought, and anything
between the arguments of a call. A call in a closed thought is a quotation.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from arpo_env.protocols.chat_template import Native
from arpo_env.protocols.protocol import (
    Action,
    Nothing,
    Protocol,
    ToolCall,
    ToolCalls,
    UnreadableCall,
    boxed_answer,
    object_call,
    read_json,
)
from arpo_env.tools.tool import JsonSchema

Messages = list[dict[str, Any]]

_QUESTION = {"role": "user", "content": "?"}
_PROBE, _SENTINEL, _RESULT = "probe_tool", "argument_of_the_probe", "result_of_the_probe"
_PROBE_SCHEMA: JsonSchema = {
    "type": "function",
    "function": {
        "name": _PROBE,
        "description": "shown_to_the_model",
        "parameters": {"type": "object", "properties": {"text": {"type": "string", "description": "a text"}}},
    },
}
# tokens that end a turn or a text in many families, whatever their templates say
ENDS = frozenset({"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|end_of_text|>"})
INSTEAD = "use protocol='arpo-tags', whose tags every model can learn"
# a turn with more calls than any model writes on purpose is not read to its end
_MOST_CALLS = 200
# response templates of a tokenizer are foreign regular expressions; those below take linear time
_SECONDS = 2.0
_VALUE = {"name": "text", "args": {"strip": False}}
# `<parameter=key>` and `</parameter>` stand on lines of their own: one line break at each end is not of the value
_XML_ARGUMENTS = {
    "tag_pattern": r"<parameter=(?P<key>[^>\n]+)>\n?(?P<value>.*?)\n?</parameter>",
    "value_parser": _VALUE,
}
_THINK = {"open": "<think>", "close": "</think>", "close_pattern": None, "content": "text"}
# TRL's name of a response template -> field -> what differs; None takes a key away
_CORRECTIONS: dict[str, dict[str, dict[str, Any]]] = {
    "qwen3_5_template": {"tool_calls": {"content_args": _XML_ARGUMENTS}},
    # the published one looks for </think> from every position; our turns begin with the <think> of the prompt
    "nemotron_3_template": {
        "reasoning_content": {"open_pattern": None, **_THINK},
        "tool_calls": {"content_args": _XML_ARGUMENTS},
    },
    "glm4moe_template": {
        "tool_calls": {
            "open_pattern": r"<tool_call>\s*+(?P<name>[^\s<]+)\n?",
            "content_args": {
                "tag_pattern": r"<arg_key>(?P<key>[^<]+)</arg_key>\s*+<arg_value>(?P<value>.*?)</arg_value>",
                "value_parser": _VALUE,
            },
        }
    },
    # the model also names its object's type first, and may put its own token before it
    "llama3_template": {
        "tool_calls": {
            "open_pattern": r"(?:\A\s*+|(?<=</think>)\s*+|<\|python_tag\|>\s*+)"
            r'\{\s*+(?:"type":\s*+"function",\s*+)?"name":\s*+"(?P<name>[^"\n]+)",\s*+"parameters":\s*+',
            "close_pattern": r"\}",
        }
    },
    # the template writes the recipient before the channel "commentary", the model also behind it or the channel
    # "analysis", with <|constrain|> or "code"; and it may say in "commentary" what it is about to do. What it writes
    # behind its final message counts, too
    "gptoss_template": {
        "thinking": {"open": None, "open_pattern": r"<\|channel\|>(?:analysis|commentary)<\|message\|>"},
        "content": {
            "open": None,
            "open_pattern": r"<\|channel\|>final\s*+(?:<\|constrain\|>[^<]*+)?<\|message\|>",
            "close_pattern": r"(?:<\|return\|>|<\|end\|>)\s*",
        },
        "tool_calls": {
            "open_pattern": r"(?:<\|channel\|>(?:commentary|analysis)\s++)?to=functions\.(?P<name>[^\s<]{1,99}+)\s*+"
            r"(?:<\|channel\|>(?:commentary|analysis)\s*+)?(?:<\|constrain\|>\s*+)?(?:(?i:json|code)\s*+)?<\|message\|>"
        },
    },
    # one block holds Python calls, whose strings may contain every mark of TRL's pattern
    "lfm2_2_5_template": {
        "tool_calls": {
            "open_pattern": r"<\|tool_call_start\|>",
            "close_pattern": r"<\|tool_call_end\|>\s*",
            "content": "text",
            "content_args": None,
            "transform": {"type": "function", "function": "{content}"},
        }
    },
    "qwen3_template": {},
    # names of tools may have dots and dashes
    "gemma4_template": {"tool_calls": {"open_pattern": r"<\|tool_call>call:(?P<name>[\w.-]++)"}},
}


class NoNativeCalls(ValueError):
    """Raised for a model whose tool calls cannot be written or read; says what it lacks and what to use instead."""


@dataclass(frozen=True)
class _Region:
    kind: Literal["text", "thought", "call"]
    start: int
    end: int
    text: str = ""
    closed: bool = True
    calls: tuple[ToolCall, ...] = ()


class ModelCalls(Native):
    """The protocol "native" of one tokenizer: turns as its model writes them.

    Args:
        tokenizer: of the model, with its chat template.
        chat_template_kwargs: arguments for the chat template, such as `enable_thinking`.

    Attributes:
        family: whose form its calls have: TRL's name, or "its own" where the tokenizer brings a response template.
        end: the token that ends a turn with calls.
        answer_end: the token that ends a turn without calls.
        ends: all tokens that end a turn.
        words: control tokens that belong to a turn, such as the marks of thoughts and calls.
        opening: what a thought begins with.

    Raises:
        NoNativeCalls: the tokenizer has no end token, its template has no tools or raises an error, or nothing is
            known of how its model writes a call.
    """

    name = Native.name

    def __init__(self, tokenizer: Any, chat_template_kwargs: Mapping[str, Any] | None = None) -> None:
        self.tokenizer, self._options = tokenizer, dict(chat_template_kwargs or {})
        check_template(tokenizer)
        if tokenizer.eos_token_id is None:
            raise NoNativeCalls(
                f"the tokenizer {name_of(tokenizer)!r} has no end token, by which its model could end a turn: set "
                f"tokenizer.eos_token, or {INSTEAD}"
            )
        self._text_arguments, self._filler = False, ""
        self._probe()
        self._several = self._writes_several()
        known = _response_templates(tokenizer)
        self.family = next((name for name, template in known.items() if self._fits(template)), "")
        if not self.family:
            raise NoNativeCalls(
                f"the chat template of {name_of(tokenizer)!r} writes tool calls in an unknown form: set "
                "tokenizer.response_template (Transformers: response parsing) to one that reads them, or "
                f"{INSTEAD}"
            )

    # what the chat template writes

    def _render(self, messages: Messages, prompt: bool = True, tools: Sequence[JsonSchema] = ()) -> str:
        text: str = self.tokenizer.apply_chat_template(
            messages, tools=list(tools) or None, add_generation_prompt=prompt, tokenize=False, **self._options
        )
        return text

    def _probe(self) -> None:
        """Render a call and its result, to see what the template can do."""
        name = name_of(self.tokenizer)
        try:
            self._prompt = self._render([_QUESTION])
            try:
                written = self._render(self.result_messages([_RESULT]))
            except TypeError:  # DeepSeek's template joins the arguments as text
                self._text_arguments = True
                written = self._render(self.result_messages([_RESULT]))
        except Exception as error:
            # jinja2 and the template itself raise what they like
            raise NoNativeCalls(
                f"the chat template of {name!r} cannot be rendered with a tool call ({type(error).__name__}: "
                f"{str(error).splitlines()[0] if str(error) else ''}); {INSTEAD}"
            ) from error
        for what, word in (("calls", _PROBE), ("calls", _SENTINEL), ("results of tools", _RESULT)):
            if word not in written:
                raise NoNativeCalls(f"the chat template of {name!r} does not show {what}; {INSTEAD}")
        shown = self._render([_QUESTION], tools=[_PROBE_SCHEMA])
        if "shown_to_the_model" not in shown:
            raise NoNativeCalls(f"the chat template of {name!r} does not show tools; {INSTEAD}")
        self._written = written

    def _writes_several(self) -> bool:
        calls = [(_PROBE, {"text": f"{_SENTINEL}{number}"}) for number in range(2)]
        try:
            written = self._render([_QUESTION, self._turn(calls)])
        except Exception:  # the template refuses several calls, as those of Llama 3 do
            return False
        return all(f"{_SENTINEL}{number}" in written for number in range(2))

    def _turn(self, calls: Sequence[tuple[Any, Any]], content: str = "") -> dict[str, Any]:
        """Return the assistant's message with these calls."""
        written = [
            {"name": name, "arguments": json.dumps(given, ensure_ascii=False) if self._text_arguments else given}
            for name, given in calls
        ]
        made = [{"type": "function", "id": _call_id(number), "function": each} for number, each in enumerate(written)]
        return {"role": "assistant", "content": content, "tool_calls": made}

    def result_messages(self, results: Sequence[str], names: Sequence[str] = ()) -> Messages:
        """Return a conversation that ends with these results of calls of the named tools."""
        called = [*names] or [_PROBE] * len(results)
        shown = [
            {"role": "tool", "tool_call_id": _call_id(number), "name": name, "content": text}
            for number, (text, name) in enumerate(zip(results, called, strict=True))
        ]
        return [_QUESTION, self._turn([(name, {"text": _SENTINEL}) for name in called]), *shown]

    def after_turn(self, rendered: str) -> str:
        """Return what the template puts behind the end of the turn that `result_messages` has."""
        return rendered.rpartition(_SENTINEL)[2].partition(self.end)[2]

    # how its turns are read

    def _fits(self, template: dict[str, Any]) -> bool:
        """Take over a response template; return whether it reads what the chat template writes."""
        try:
            self._load(template)
        except (ValueError, KeyError, TypeError, AttributeError):  # one of a tokenizer may be wrong
            return False
        position = self._written.find(_SENTINEL)
        starts = [each.end() for each in self._spec.start_anchor_re.finditer(self._written) if each.end() < position]
        if not starts:
            return False
        turn = self._written[starts[-1] :]
        behind = turn.partition(_SENTINEL)[2].partition(_RESULT)[0]
        self._mark_end(behind)
        turn = turn.partition(_RESULT)[0].rpartition(self.end)[0]
        self._mark_frame(behind)
        self._filler = self._other_text(turn)
        return self.parse(turn, [_PROBE_SCHEMA]) == ToolCalls((ToolCall(_PROBE, {"text": _SENTINEL}),))

    def _load(self, template: dict[str, Any]) -> None:
        """Take over a response template, and collect the words that mark calls and thoughts."""
        import regex  # type: ignore[import-untyped]
        from transformers.utils.chat_parsing.response_templates import load_response_template

        if not any(_is_thought(name) for name in template["fields"]):
            template = _corrected({**template, "fields": {"thinking": {}, **template["fields"]}}, {"thinking": _THINK})
        self._spec = load_response_template(template)
        self._calls = self._spec.fields["tool_calls"]
        # a call's own text, cut out of the turn, is all that `parse_response` reads
        self._reader = replace(self._spec, fields={"tool_calls": replace(self._calls, close_re=None)}, implicit=None)
        thoughts = [field for name, field in self._spec.fields.items() if _is_thought(name)]
        self.opening: str = (thoughts[0].open_literals or [""])[0]
        self._close_mark = _leading(thoughts[0].close_re)
        tokens = {token.content for token in self.tokenizer.added_tokens_decoder.values()}
        self._tokens = tokens | set(self.tokenizer.all_special_tokens)
        texts = [field for field in self._spec.fields.values() if field is not self._calls]
        of_texts = self._in(*(each for field in texts for each in (field.open_re, field.close_re)))
        of_calls = (self._calls.open_re, self._calls.close_re, *_strings(self._calls.content_args))
        self._of_calls = self._in(*of_calls) - of_texts
        self._argument = regex.compile(self._calls.content_args.get("tag_pattern", "(?!)"), regex.DOTALL)
        # a model may leave out the first of two marks
        heads = {_leading(each) for each in of_calls[:2]}.union(*(_TAG.findall(_source(each)) for each in of_calls))
        # a brace begins other things than calls, too
        marks = {word for word in self._of_calls | heads if len(word) > 3 and word[0] in "<["}
        self._mark = re.compile(_either(marks))
        self._opening_marks = {word for word in marks if word in _source(self._calls.open_re)}
        of_thoughts = self._in(*(each for field in thoughts for each in (field.open_re, field.close_re)))
        # without a field for the rest, a turn is messages with heads of their own
        heads = self._in(self._spec.start_anchor_re, *(field.open_re for field in texts))
        self.words = self._of_calls | of_thoughts | (heads if self._spec.implicit is None else set())

    def _mark_end(self, behind: str) -> None:
        """Find the end of a turn in what stands between the last argument of a call and its result."""
        last = end = ""
        for match in re.finditer(_either(self._tokens), behind):
            if match[0] not in self._of_calls:
                # what begins the next message did not end this one: then the mark behind the call did
                end = last if last and match[0] in _source(self._spec.start_anchor_re) else match[0]
                break
            last = match[0]
        self.end: str = end or self.tokenizer.eos_token
        content = self._spec.fields.get("content")
        closes = content.close_re if content else None
        self.ends = self._in(closes) - {self._close_mark} | {self.end, self.tokenizer.eos_token} | (self._tokens & ENDS)
        first = re.search(_either(self._in(closes)), _source(closes))
        self.answer_end: str = first[0] if first else self.tokenizer.eos_token
        # its sampled end closes the call, and `Renderer.turn_text` takes it away
        self._call_end = self.end if self.end in _source(self._calls.close_re) else ""

    def _mark_frame(self, behind: str) -> None:
        """Collect the words around results, which a result may not spell and a turn may not hold."""
        around = [word for word in _WORD.findall(behind.rpartition(self.end)[2]) if word not in self.ends]
        self._result_mark = around[-1] if around else "\0"
        words = self._tokens | {*around, *_WORD.findall("<think></think><tool_call><tool_response><tools>")}
        words |= {_leading(each) for each in (self._calls.open_re, self._calls.close_re)}
        tags = sorted({word.strip("</>") for word in words if re.fullmatch(r"</?\w+>", word)})
        others = [re.escape(word[1:]) for word in sorted(words) if word[:1] == "<" and len(word) > 2]
        self._delimiters = re.compile(
            rf"<(?=\s*+/?+\s*+(?:{'|'.join(map(re.escape, tags))})\b|(?:{'|'.join(others) or '(?!)'}))", re.IGNORECASE
        )

    def _in(self, *patterns: Any) -> set[str]:
        """Return the tokens that these patterns spell."""
        source = " ".join(map(_source, patterns))
        return {token for token in self._tokens if token in source}

    def _other_text(self, turn: str) -> str:
        """Return what the template writes behind the arguments of a call, such as `</function>`."""
        match = self._calls.open_re.search(turn)
        if not match or self._calls.content != "xml-inline":
            return ""
        end = self._arguments_end(turn, match.end())
        close = self._calls.close_re.search(turn, end)
        return turn[end : close.start()].strip() if close else ""

    def _arguments_end(self, text: str, position: int) -> int:
        """Return where the arguments end that stand in tags from a position on; a key may stand once."""
        keys = set()
        while match := self._argument.match(text, _SPACE.match(text, position).end(), timeout=_SECONDS):  # type: ignore[union-attr]
            if match["key"] in keys:
                raise UnreadableCall("an argument stands twice in the call; give each once")
            keys.add(match["key"])
            position = match.end()
        return position

    def write_calls(self, text: str, calls: Sequence[tuple[Any, Any]]) -> str:
        """Return a turn with these calls, as the chat template writes them.

        Raises:
            UnreadableCall: the template cannot write them, or writes them so that they cannot be read.
        """
        given = [(name, json.loads(each) if isinstance(each, str) else each or {}) for name, each in calls]
        if len(given) > 1 and not self._several:
            raise UnreadableCall("the chat template cannot write several calls in a turn")
        try:
            if self._spec.implicit is None:  # its texts stand in messages, too
                plain = _THOUGHT.sub(r"\1", text).strip()
                written = self._render([_QUESTION, self._turn(given, plain)], prompt=False)
                return written.removeprefix(self._prompt).removesuffix(self._call_end)
            written = self._render([_QUESTION, self._turn(given)], prompt=False)
        except Exception as error:  # jinja2 and the template raise what they like
            raise UnreadableCall(f"the chat template cannot write these calls: {error}") from error
        starts = [0, *(each.end() for each in self._spec.start_anchor_re.finditer(written))]
        turn = written[starts[-1] :]
        found = [each for each in self._regions(turn, None) if each.calls]
        calls_text = turn[found[0].start : found[-1].end].removesuffix(self._call_end).strip() if found else ""
        return f"{self._own_thoughts(text).rstrip()}\n{calls_text}".lstrip("\n")

    def _own_thoughts(self, text: str) -> str:
        """Return a text whose thoughts in `<think>` tags have the marks of the family."""
        if not self.opening or self.opening == "<think>":
            return text
        return _THOUGHT.sub(lambda match: f"{self.opening}{match[1].strip()}{self._close_mark}", text)

    def well_formed(self, turns: Sequence[str]) -> bool:
        """Return whether every thought is closed and the model wrote no tool result itself."""
        for turn in turns:
            try:
                regions = self._regions(turn, None)
            except UnreadableCall:
                return False
            if any(not each.closed for each in regions if each.kind == "thought"):
                return False
            if any(
                self._result_mark in each.text or self._close_mark in each.text
                for each in regions
                if each.kind == "text"
            ):
                return False
        return True

    def _read(self, text: str, tools: Sequence[JsonSchema] | None) -> tuple[Action, int]:
        """Return the action, and where its calls begin; without `tools` any name and any arguments are a call."""
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UnreadableCall("the turn holds half of a surrogate pair") from None
        regions = self._regions(text, tools)
        calls = [call for each in regions for call in each.calls]
        visible, bare = "", re.search(r"\{(?!\d)", _source(self._calls.open_re))
        for each in regions:
            if each.kind == "thought":
                visible = ""
            elif each.kind == "text":
                visible += each.text
                mark = self._mark.search(each.text)
                # a message of its own may hold what would be a call outside of it
                inside = self._spec.implicit is None and self._calls.open_re.search(each.text, timeout=_SECONDS)
                if mark or inside:
                    opened = not mark or mark[0] in self._opening_marks
                    raise UnreadableCall(
                        "a call was opened that cannot be read; write it as you were shown"
                        if opened
                        else "a call was closed but not opened; write its opening tag first"
                    )
        # a call without marks is the JSON object alone
        if bare and ((calls and visible.strip()) or _BARE_CALL.match(visible) or _BARE_HEAD.search(visible)):
            raise UnreadableCall(
                "a call cannot be read, or there is more than it; write its JSON object and nothing else"
            )
        if calls:
            if len(calls) > 1 and not self._several:
                raise UnreadableCall("write one call in a turn, and wait for its result")
            return ToolCalls(tuple(calls)), next(each.start for each in regions if each.calls)
        visible = visible.strip()
        return (boxed_answer(visible) if visible else Nothing()), len(text)

    def _regions(self, text: str, tools: Sequence[JsonSchema] | None) -> list[_Region]:
        """Divide a turn into its texts, thoughts and calls, in order."""
        for end in sorted(self.ends, key=len, reverse=True):
            if text.endswith(end):
                text = text[: -len(end)]
                break
        try:
            return list(self._divided(text, tools))
        except TimeoutError:
            raise UnreadableCall("the turn takes too long to read; write less") from None
        except RecursionError:
            raise UnreadableCall("the call is nested too deeply") from None

    def _divided(self, text: str, tools: Sequence[JsonSchema] | None) -> Iterator[_Region]:
        position, number, whole = 0, 0, text + self._call_end
        opened = [field for field in self._spec.fields.values() if field.open_re is not None]
        found: dict[str, Any] = {}
        # some templates open a thought in the prompt
        closed, thought = text.find(self._close_mark), text.find(self.opening) % (len(text) + 1)
        if self.opening and 0 <= closed < thought and not self._spans(whole, closed, tools):
            position = closed + len(self._close_mark)
            yield _Region("thought", 0, position, text[:closed])
        while True:
            for field in opened:
                if field.name not in found or (found[field.name] and found[field.name].start() < position):
                    found[field.name] = field.open_re.search(whole, position, timeout=_SECONDS)
            nearest = [(match.start(), -match.end(), name) for name, match in found.items() if match]
            if not nearest:
                break
            start, _, name = min(nearest)
            yield from self._text(text[position:start], position)
            field, match, number = self._spec.fields[name], found[name], number + 1
            if number > _MOST_CALLS:
                raise UnreadableCall("there are too many thoughts and calls in the turn; write fewer")
            if field is self._calls:
                end, calls = self._one_call(whole, match, tools)
                yield _Region("call", start, end, calls=calls)
            else:
                close = field.close_re.search(whole, match.end(), timeout=_SECONDS) if field.close_re else None
                body, end = (close.start(), close.end()) if close else (len(text), len(text))
                kind: Literal["text", "thought"] = "thought" if _is_thought(name) else "text"
                if kind == "thought" and not close:
                    marked = self._mark.search(text, match.end())
                    if marked or self._calls.open_re.search(text, match.end(), timeout=_SECONDS):
                        raise UnreadableCall("a call stands inside a thought; close the thought first")
                yield _Region(kind, start, end, whole[match.end() : body], closed=close is not None)
            position = max(end, start + 1)
        yield from self._text(text[position:], position)

    def _spans(self, text: str, position: int, tools: Sequence[JsonSchema] | None) -> bool:
        """Return whether a position lies inside the first call, such as in a string of its arguments."""
        match = self._calls.open_re.search(text, timeout=_SECONDS)
        if not match or match.start() > position:
            return False
        try:
            return self._one_call(text, match, tools)[0] > position
        except UnreadableCall:
            return False

    def _text(self, text: str, start: int) -> Iterator[_Region]:
        """Return the text outside of all marks, which a turn that consists of messages has none of."""
        if self._spec.implicit is None and _leading(self._spec.start_anchor_re):
            rest = text.replace(_leading(self._spec.start_anchor_re), "")
            if rest.strip():
                raise UnreadableCall(
                    f"the text {rest.strip()[:20]!r} stands in no message; begin each with its channel"
                )
            return
        if text:
            yield _Region("text", start, start + len(text), text)

    def _one_call(self, text: str, match: Any, tools: Sequence[JsonSchema] | None) -> tuple[int, tuple[ToolCall, ...]]:
        """Return where a call ends, and what it calls."""
        field, begin = self._calls, match.end()
        if field.content == "json" and not field.content_args:
            # the end of JSON is known, whatever marks stand in its strings
            value, end = read_json(text, begin)
            close = field.close_re.match(text, end, timeout=_SECONDS)
            source = text[match.start() : begin] + json.dumps(value)  # line breaks in strings become strict JSON
        else:
            end = self._arguments_end(text, begin) if field.content == "xml-inline" else begin
            close = field.close_re.search(text, end, timeout=_SECONDS)
            rest = text[end : close.start()].strip() if close else ""
            if field.content == "xml-inline" and rest not in ("", self._filler):
                raise UnreadableCall(f"the arguments of the call end before {rest[:20]!r}; write each in its own tags")
            end = close.start() if close else len(text)
            source = text[match.start() : end]
        if not close:
            raise UnreadableCall("the call was not closed; write its closing mark after the arguments")
        body = text[begin:end]
        if any(body.count(each) > _MOST_CALLS for pair in field.content_args.get("string_delims", ()) for each in pair):
            raise UnreadableCall("the call has too many texts; write fewer")
        try:
            message = self.tokenizer.parse_response(
                source, schema=self._reader, prefix="", tools=list(tools) if tools else None
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UnreadableCall("the arguments of the call cannot be read; write them as you were shown") from None
        read = message.get("tool_calls") or []
        functions = [each.get("function") for each in (read if isinstance(read, list) else [read]) if each]
        return close.end(), tuple(call for each in functions for call in _tool_calls(each, tools))


def _tool_calls(function: Any, tools: Sequence[JsonSchema] | None) -> list[ToolCall]:
    """Return the call that a response template gave, or the Python calls in its text."""
    if isinstance(function, str):
        return [call for each in _python_calls(function) for call in _tool_calls(each, tools)]
    if not isinstance(function, dict):
        raise UnreadableCall("a call is an object with a name and arguments")
    try:
        json.dumps(function, allow_nan=False)
    except ValueError:
        raise UnreadableCall("the arguments hold a number that is out of range") from None
    name, arguments = function.get("name"), function.get("arguments")
    if tools is None and isinstance(name, str) and isinstance(arguments, dict | None):
        return [ToolCall(name, arguments or {})]
    return [object_call({**function, "arguments": {} if arguments is None else arguments}, tools or (), _KEYS)]


_KEYS = ("name", "arguments")
_THOUGHT = re.compile(r"<think>(.*?)</think>", re.DOTALL)
_BARE_CALL = re.compile(r'\s*+\{\s*+"(?:name|type|function|parameters)"')
_BARE_HEAD = re.compile(
    r'\{\s*+(?:"type":\s*+"function",\s*+)?"(?:name|function)":\s*+"[^"\n]++",\s*+"(?:parameters|arguments)":'
)
_WORD = re.compile(r"<[^<>\s]{1,40}>")
_TAG = re.compile(r"<\w+=")
_SPACE = re.compile(r"\s*+")
_PYTHON = re.compile(
    r"""(?P<text>'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")|(?<![\w.-])(?P<word>True|False|None)\b|[^'"TFN]++|.""",
    re.DOTALL,
)
_PYTHON_CALL = re.compile(r"\s*+([\w.-]++)\s*+\(\s*+")
_PYTHON_KEY = re.compile(r"\s*+([\w.-]++)\s*+=")
_WORDS = {"True": "true", "False": "false", "None": "null"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\n": ""}


def _python_calls(source: str) -> list[dict[str, Any]]:
    """Return the calls in a list like `[f(a='x', n=2), g()]`, whose values are literals of Python or JSON."""
    as_json = "".join(
        json.dumps(_unescaped(match["text"][1:-1])) if match["text"] else _WORDS.get(match[0], match[0])
        for match in _PYTHON.finditer(source.strip())
    )
    if as_json[:1] != "[":
        raise UnreadableCall("calls stand in a list, as in [name(key='value')]")
    calls, position = [], 1
    while head := _PYTHON_CALL.match(as_json, position):
        position, arguments = head.end(), {}
        while key := _PYTHON_KEY.match(as_json, position):
            if key[1] in arguments:
                raise UnreadableCall("an argument stands twice in the call; give each once")
            arguments[key[1]], position = read_json(as_json, key.end())
            if as_json[position : position + 1] != ",":
                break
            position += 1
        if as_json[position : position + 1] != ")":
            raise UnreadableCall("an argument of the call cannot be read; write key='value'")
        calls.append({"name": head[1], "arguments": arguments})
        position += 1
        while as_json[position : position + 1].isspace():
            position += 1
        if as_json[position : position + 1] != ",":
            break
        position += 1
    if as_json[position:].strip() != "]" or not calls:
        raise UnreadableCall("the list of calls cannot be read; write [name(key='value')]")
    return calls


def _unescaped(text: str) -> str:
    return re.sub(
        r"\\(.)",
        lambda match: _ESCAPES.get(match[1], match[1] if match[1] in "\\'\"" else match[0]),
        text,
        flags=re.DOTALL,
    )


def _is_thought(name: str) -> bool:
    return name not in ("tool_calls", "content")


def _call_id(number: int) -> str:
    return f"call{number:05d}"  # nine letters and digits, as Mistral's templates want them


def _source(pattern: Any) -> str:
    """Return the text of a pattern, in which literal words can be found."""
    return re.sub(r"\\(\W)", r"\1", getattr(pattern, "pattern", pattern) or "")


def _leading(pattern: Any) -> str:
    """Return the literal text that a pattern begins with."""
    source = getattr(pattern, "pattern", "")
    literal = re.match(r"(?:\\\W|[^\\.^$*+?{}\[\]()|])*", source)
    assert literal is not None
    text = literal[0]
    if source[len(text) : len(text) + 1] in ("*", "?", "{"):
        text = text[:-1]
    return "" if source[len(text) :].startswith("|") else re.sub(r"\\(\W)", r"\1", text)


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for each in values for text in _strings(each)]


def _either(words: Iterable[str]) -> str:
    return "|".join(map(re.escape, sorted(words, key=len, reverse=True))) or r"(?!)"


def _response_templates(tokenizer: Any) -> dict[str, dict[str, Any]]:
    """Return the response templates to try, by family: the tokenizer's own, that of its chat template, or all known."""
    from trl import chat_template_utils

    known = {name: getattr(chat_template_utils, name) for name in _CORRECTIONS}
    families = {_family(name): _corrected(known[name], _CORRECTIONS[name]) for name in known}
    own = getattr(tokenizer, "response_template", None)
    if own is None:
        try:
            told = chat_template_utils.add_response_schema(copy.copy(tokenizer)).response_template
        except ValueError:
            # an unknown text, such as that of a fine-tuned model, may still write calls in a known form
            return families
        return {_family(name): families[_family(name)] for name in known if known[name] == told}
    fields = own.get("fields", {}) if isinstance(own, dict) else {}
    if "tool_calls" not in fields:
        return families
    # those of Gemma 4 differ from TRL's in white space alone, and need the same corrections
    name = next((name for name in known if _opens(known[name]["fields"]) == _opens(fields)), "")
    mine = {_family(name): _corrected(own, _CORRECTIONS[name])} if name else {"its own": own}
    return mine | {name: template for name, template in families.items() if name not in mine}


def _opens(fields: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[Any, ...]]:
    """Return what each field begins with."""
    return {name: (row.get("open"), row.get("open_pattern")) for name, row in fields.items()}


def _family(name: str) -> str:
    """Return the name of a family from TRL's name of its response template."""
    return name.removesuffix("_template")


def _corrected(template: dict[str, Any], corrections: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    fields = {
        name: {key: value for key, value in {**row, **corrections.get(name, {})}.items() if value is not None}
        for name, row in template["fields"].items()
    }
    return {**template, "fields": fields}


def bind(protocol: Protocol, tokenizer: Any, chat_template_kwargs: Mapping[str, Any] | None = None) -> Protocol:
    """Return the protocol for this tokenizer: another one than "native" is returned unchanged.

    Raises:
        NoNativeCalls: see `ModelCalls`.
    """
    return ModelCalls(tokenizer, chat_template_kwargs) if type(protocol) is Native else protocol


def check_template(tokenizer: Any) -> None:
    """Refuse a tokenizer without a chat template.

    Raises:
        ValueError: says where to put one.
    """
    if not tokenizer.chat_template:
        raise ValueError(
            f"the tokenizer {name_of(tokenizer)!r} has no chat template, and an episode begins as a chat: use the "
            "model's Instruct version, put the template into the model's folder as chat_template.jinja, or set "
            "tokenizer.chat_template and give it as processing_class"
        )


def name_of(tokenizer: Any) -> str:
    """Return the name of a tokenizer, for messages."""
    return getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__
