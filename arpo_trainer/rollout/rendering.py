r"""Converts between text and token ids: prompts and results to ids, generated ids to the text of a turn.

Generated ids are never tokenised again. A result is encoded as exactly the delta that the chat template puts between a
turn and the next one, and appended. Foreign text (a question, a result, the description of a tool) cannot contain a
control token: words of it that spell an added token of the tokenizer, such as `<|im_end|>`, are encoded as ordinary
text. Without such words the ids are those of the plain template, including merges across borders.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from arpo_env.protocols.protocol import Protocol
from arpo_env.tools.tool import JsonSchema
from arpo_trainer.rollout.native import ENDS, ModelCalls, bind, check_template, name_of

if TYPE_CHECKING:
    from arpo_env import ToolEnv
    from arpo_trainer.algorithms.registry import Algorithm

Piece = tuple[str, bool]  # text, and whether it is foreign
_PROBE = "a\n"
# a template that strips contents drops a space; one that writes JSON puts a backslash before the quotation mark
_SLOT = re.compile(r"( ?)\ue000(\\?)\"(\d+)\ue000( ?)")


class Renderer:
    """Converts text to ids and back for one tokenizer and one protocol.

    Args:
        tokenizer: of the model, with its chat template.
        protocol: how episodes are written; "native" becomes that of the tokenizer (`arpo_trainer.rollout.native`).
        chat_template_kwargs: arguments for the chat template, such as `enable_thinking`.
        strict: whether a template that shows no tools or no results is refused where a native protocol needs them.
            Without it, "native" stays as it is.

    Raises:
        NoNativeCalls: the protocol is "native", and the model has no tool calls that can be written and read.
    """

    def __init__(
        self,
        tokenizer: Any,
        protocol: Protocol,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        strict: bool = True,
    ) -> None:
        self.strict = strict
        self.tokenizer = tokenizer
        self.protocol = bind(protocol, tokenizer, chat_template_kwargs) if strict else protocol
        self.chat_template_kwargs = dict(chat_template_kwargs or {})
        self._shows_tools = protocol.native and getattr(protocol, "template_shows_tools", True)
        added = {token.content for token in tokenizer.added_tokens_decoder.values()} | set(tokenizer.all_special_tokens)
        # longest first: a regular expression takes the first alternative that matches, not the longest
        # a single character cannot be cut in two (`_encode`), and added tokens for runs of spaces are ordinary text
        words = sorted((word for word in added if len(word) > 1 and not word.isspace()), key=len, reverse=True)
        self._control = re.compile("|".join(map(re.escape, words)) or r"(?!)")

    def prompt_ids(self, messages: Sequence[Mapping[str, str]], tools: Sequence[JsonSchema]) -> list[int]:
        """Render and tokenise the opening messages, up to where the model continues.

        Args:
            messages: with "role" and "content".
            tools: the tools that can be called; a native protocol passes them to the template.

        Raises:
            ValueError: there is no chat template, or the protocol is native and the template does not show the tools.
        """
        contents = [_encodable(message["content"]) for message in messages]
        slots = [{**message, "content": _slot(number)} for number, message in enumerate(messages)]
        frame = self._template(slots, tools)
        for tool in tools if self._shows_tools and self.strict else ():
            if tool["function"]["name"] not in frame:
                raise ValueError(_NO_TOOLS.format(what="show tools", name=self.protocol.name))
        # Without control words the plain template is used, so that the ids are exactly those of other tools.
        if not any(self._control.search(content) for content in contents):
            plain = [{**message, "content": content} for message, content in zip(messages, contents, strict=True)]
            return self._encode([(self._template(plain, tools), False)])
        return self._encode(_filled(frame, contents))

    def result_ids(
        self,
        texts: Sequence[str],
        last_turn_ended_with_eos: bool,
        tools: Sequence[JsonSchema] = (),
        names: Sequence[str] = (),
        ended_by: int | None = None,
    ) -> list[int]:
        """Tokenise what follows a turn of the model: the results of its calls, up to where the model continues.

        Args:
            texts: what the tools returned, one per call, or the one message of the environment.
            last_turn_ended_with_eos: whether the last id of the turn is its end token; if not, a native template's end
                token is part of what is appended.
            tools: as for `prompt_ids`.
            names: the tool that each text is from, which some templates show; for a turn without calls, none.
            ended_by: the id of the end token, if the turn has one. Behind another one than that of a turn with calls,
                a native template's own is part of what is appended.

        Raises:
            ValueError: the protocol is native, and the template does not show results.
        """
        slots = [_slot(number) for number in range(len(texts))]
        contents = [_encodable(self.protocol.defuse(text, tools)) for text in texts]
        if self.protocol.native:
            ended = last_turn_ended_with_eos and ended_by in (None, self.end_id)
            delta = self._delta(slots, ended, tools, names)
        else:
            delta = ""
        return self._encode(_filled(delta or self.protocol.render_result(slots, tools), contents))

    def turn_ids(self, text: str, first: bool = True, ended: bool = False) -> list[int]:
        """Tokenise a turn that was not sampled, such as one of a demonstration.

        The marks of thoughts and calls become their tokens; other words that spell a control token are ordinary text.

        Args:
            text: the turn, without an end token. A thought that the template opens in the prompt is left out.
            first: whether it is the first turn after the prompt.
            ended: whether the template's end token follows; a turn of a native protocol ends with it.
        """
        text = text.removeprefix(self._opened(first))
        pieces = [(piece, number % 2 == 0) for number, piece in enumerate(self._marks.split(_encodable(text)))]
        end = self.end_id
        if isinstance(self.protocol, ModelCalls) and not self.protocol.read_calls(text):
            end = self.tokenizer.convert_tokens_to_ids(self.protocol.answer_end)
        return self._encode(pieces) + ([end] if ended else [])

    @functools.cached_property
    def end_id(self) -> int:
        """The id that the chat template puts behind a turn of the model; the tokenizer's end token if it puts none."""
        if isinstance(self.protocol, ModelCalls):
            number: int = self.tokenizer.convert_tokens_to_ids(self.protocol.end)
            return number
        mark = self._control.search(self._delta((), False, ()))
        number = self.tokenizer.convert_tokens_to_ids(mark[0]) if mark else self.tokenizer.eos_token_id
        return number

    def turn_text(self, ids: Sequence[int], first: bool) -> str:
        """Return the text of a turn as the protocol reads it.

        A native protocol needs the special tokens, since Llama's `<|python_tag|>` is one, but not the end token. If the
        template has opened a thought in the prompt, the text begins with its mark, such as `<think>`.

        Args:
            ids: the generated ids, the end token included.
            first: whether it is the first turn after the prompt.
        """
        native = self.protocol.native
        ids = list(ids)
        if native and ids and ids[-1] in self._end_ids:
            ids.pop()
        text: str = self.tokenizer.decode(ids, skip_special_tokens=not native, clean_up_tokenization_spaces=False)
        opened = self._opened(first)
        return text if text.startswith(opened) else opened + text

    def _template(self, messages: Sequence[Mapping[str, str]], tools: Sequence[JsonSchema]) -> str:
        check_template(self.tokenizer)
        shown = [self._harmless(tool) for tool in tools] if self._shows_tools else []
        text: str = self.tokenizer.apply_chat_template(
            list(messages), tools=shown or None, add_generation_prompt=True, tokenize=False, **self.chat_template_kwargs
        )
        return text

    def _delta(self, slots: Sequence[str], ended: bool, tools: Sequence[JsonSchema], names: Sequence[str] = ()) -> str:
        """Return what the template puts between a turn and the next one, with slots for the results; "" if none."""
        if isinstance(self.protocol, ModelCalls):
            # a turn that called nothing is answered as if it had called the first tool
            called = [*names] or [tool["function"]["name"] for tool in tools[:1]] * len(slots)
            delta = self.protocol.end + self.protocol.after_turn(
                self._template(self.protocol.result_messages(slots, called), tools)
            )
        else:
            # the template is rendered with a marker as the turn; what follows the marker is the delta
            turn = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _TURN}]
            text = self._template([*turn, *({"role": "tool", "content": slot} for slot in slots)], tools)
            delta = text.rpartition(_TURN)[2]
        if not all(f'"{number}\ue000' in delta for number in range(len(slots))):
            if not self.strict:
                return ""
            raise ValueError(_NO_TOOLS.format(what="show the results of tools", name=self.protocol.name))
        end = self._control.search(delta)
        return delta[end.end() :] if ended and end else delta

    def _harmless(self, value: Any) -> Any:
        """Return a schema whose texts spell no control token, since a foreign server may have written them."""
        if isinstance(value, str):
            # the template returns one text, in which foreign parts cannot be marked; so a space splits the word itself
            return self._control.sub(lambda match: f"{match[0][0]} {match[0][1:]}", _encodable(value))
        if isinstance(value, dict):
            return {self._harmless(key): self._harmless(item) for key, item in value.items()}
        return [self._harmless(item) for item in value] if isinstance(value, list) else value

    def _encode(self, pieces: Sequence[Piece]) -> list[int]:
        """Tokenise; control tokens are recognised only where they lie within one piece that is not foreign."""
        text = "".join(piece for piece, _ in pieces)
        ours, start = [], 0
        for piece, foreign in pieces:
            ours += [] if foreign else [(start, start + len(piece))]
            start += len(piece)
        # `ours` holds the ranges of text that may contain control tokens; all other matches are cut in two
        cuts, position = [0], 0
        while match := self._control.search(text, position):
            while ours and ours[0][1] <= match.start():
                ours.pop(0)
            if ours and ours[0][0] <= match.start() and match.end() <= ours[0][1]:
                position = match.end()
            else:  # cut into two parts, the word is not a control token any more
                position = match.start() + 1
                cuts.append(position)
        parts = [text[begin:end] for begin, end in zip(cuts, [*cuts[1:], len(text)], strict=True) if begin < end]
        if not parts:
            return []
        encoded: list[list[int]] = self.tokenizer(parts, add_special_tokens=False)["input_ids"]
        return [number for ids in encoded for number in ids]

    @functools.cached_property
    def _end_ids(self) -> set[int]:
        ends = self.protocol.ends if isinstance(self.protocol, ModelCalls) else ENDS
        added = self.tokenizer.added_tokens_decoder.items()
        return {number for number, token in added if token.content in ends} | {self.tokenizer.eos_token_id}

    @functools.cached_property
    def _marks(self) -> re.Pattern[str]:
        """The control tokens of a turn that was not sampled."""
        words = self.protocol.words if isinstance(self.protocol, ModelCalls) else _MARKS
        return re.compile(f"({'|'.join(map(re.escape, sorted(words, key=len, reverse=True))) or '(?!)'})")

    def _opened(self, first: bool) -> str:
        """Return the mark of the thought that the template opens before a turn of the model; "" if it opens none."""
        if not (self.protocol.native or first):
            return ""
        return self._openings[0 if first else 1]

    @functools.cached_property
    def _openings(self) -> tuple[str, str]:
        """The marks of thoughts that the template opens after the prompt and after a result."""
        if not self.tokenizer.chat_template:
            return "", ""
        prompt = self._template([{"role": "user", "content": "?"}], ())
        if not isinstance(self.protocol, ModelCalls):
            return (_THINK, _THINK) if prompt.rstrip().endswith(_THINK) else ("", "")
        opening, after = self.protocol.opening, self._template(self.protocol.result_messages(["?"]), ())
        first, later = (
            opening if opening and text.rstrip().endswith(opening.rstrip()) else "" for text in (prompt, after)
        )
        return first, later


_THINK = "<think>"
_TURN = "\ue001turn\ue001"
_MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<|python_tag|>")
_NO_TOOLS = (
    "the chat template of this model does not {what}, which the protocol {name!r} needs; use a model that was "
    "trained to call tools (such as Qwen2.5-Instruct or Qwen3), or the protocol 'arpo-tags'"
)


def _slot(number: int) -> str:
    """Return a placeholder for a content; it shows whether the template strips it and whether it writes it as JSON."""
    return f' \ue000"{number}\ue000 '


def _filled(frame: str, contents: Sequence[str]) -> list[Piece]:
    """Split a rendered text at its slots and insert the contents, treated as the template would have treated them."""
    pieces: list[Piece] = []
    position = 0
    for slot in _SLOT.finditer(frame):
        content = contents[int(slot[3])]
        # without its quotation marks, which the frame has already
        content = json.dumps(content, ensure_ascii=False)[1:-1] if slot[2] else content
        content = content if slot[1] else content.lstrip()
        pieces += [(frame[position : slot.start()], False), (content if slot[4] else content.rstrip(), True)]
        position = slot.end()
    return [*pieces, (frame[position:], False)]


def _encodable(text: str) -> str:
    """Return the text without lone surrogates, which no tokenizer accepts."""
    return text.encode("utf-8", "replace").decode()


def check_tokenizer(tokenizer: Any) -> None:
    """Refuse a tokenizer without a chat template, or one whose ids cannot be joined span by span.

    Generated ids are never tokenised again, and each result is tokenised alone, so it does not matter what a tokenizer
    would merge across their border. But it must not add something of its own at the beginning of each text. Padding and
    end token may be the same: rows are masked by their length, never by the id of the padding.

    Raises:
        ValueError: says what to load instead.
    """
    check_template(tokenizer)
    ids = tokenizer(_PROBE, add_special_tokens=False)["input_ids"]
    joined = tokenizer.decode([*ids, *ids], clean_up_tokenization_spaces=False)
    if joined != 2 * _PROBE:
        raise ValueError(
            f"the tokenizer {name_of(tokenizer)!r} begins every text with something of its own: {_PROBE!r} twice reads "
            f"{joined!r}, so results could not be put after what the model wrote. Load it with "
            "add_prefix_space=False, or take another model"
        )


def as_published(env: ToolEnv, algorithm: Algorithm) -> ToolEnv:
    """Return an environment that writes results as the published code of the algorithm does.

    It is the given environment unless the algorithm is a reference and the protocol is that of the published tags.
    """
    tags = algorithm.published and env.protocol.name == "arpo-tags"
    return env.with_protocol("arpo-tags-reference") if tags else env


def with_model_calls(env: ToolEnv, tokenizer: Any, chat_template_kwargs: Mapping[str, Any] | None = None) -> ToolEnv:
    """Return an environment that reads the turns of this model if its protocol is "native", else the environment.

    Raises:
        NoNativeCalls: the model has no tool calls that can be written and read.
    """
    bound = bind(env.protocol, tokenizer, chat_template_kwargs)
    return env if bound is env.protocol else env.with_protocol(bound)
