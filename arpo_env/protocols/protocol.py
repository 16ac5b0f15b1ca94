"""The interface of a protocol, which parses turns and renders results: `Protocol` and the actions of a turn.

The protocols themselves are in `arpo_env.protocols`. They parse only what the model wrote in this one turn, so that a
tag in the example of a prompt or in a tool result is neither executed nor counted.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from typing import Protocol as TypingProtocol

from arpo_env.tools.tool import JsonSchema
from envs_registry.nearest_name import nearest_hint

Language = Literal["en", "zh"]
Style = Literal["short", "paper"]


@dataclass(frozen=True)
class ToolCall:
    """One call whose arguments match the tool's schema."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ToolCalls:
    """The turn calls tools: one or more calls, in the order they were written."""

    calls: tuple[ToolCall, ...]


@dataclass(frozen=True)
class Answer:
    """The turn ends the episode with an answer: `value` is scored, `boxed` says whether it was in a box."""

    value: str
    boxed: bool


@dataclass(frozen=True)
class Malformed:
    """The turn attempts an action that cannot be parsed. `reason` is shown to the model, so it contains no tags."""

    reason: str


@dataclass(frozen=True)
class Nothing:
    """The turn contains no action; the model stopped without one."""


Action = ToolCalls | Answer | Malformed | Nothing


class Protocol(TypingProtocol):
    """The format in which an episode is written.

    Attributes:
        name: name for `make_protocol`.
        native: True if the model's own chat template shows the tools and carries results as messages of the role
            "tool", and the model's end token ends a turn. False if the whole episode is one assistant message.

    A protocol may have two more members. `user_message(question, tools)` returns the opening message of the user, if it
    is not the question alone. `template_shows_tools` is False where a native protocol shows the tools itself.
    """

    name: str
    native: bool

    def system_prompt(self, tools: Sequence[JsonSchema], language: Language = "en", style: Style = "short") -> str:
        """Return the instructions for the given tool schemas."""

    def stop_strings(self, tools: Sequence[JsonSchema]) -> list[str]:
        """Return the strings that end the model's turn; empty if only its end token does."""

    def parse(self, text: str, tools: Sequence[JsonSchema]) -> Action:
        """Parse one turn of the model; never raises, whatever the text is."""

    def defuse(self, text: str, tools: Sequence[JsonSchema] = ()) -> str:
        """Return a tool result in which nothing looks like a delimiter of this protocol or a call of these tools."""

    def render_result(self, texts: Sequence[str], tools: Sequence[JsonSchema] = ()) -> str:
        """Return the results of one turn's calls as the model sees them, defused."""

    def well_formed(self, turns: Sequence[str]) -> bool:
        """Return whether the model's turns, taken together, follow the format."""


class NativeProtocol(Protocol, TypingProtocol):
    """A protocol with `native` True that can write calls, and read them back."""

    def write_calls(self, text: str, calls: Sequence[tuple[Any, Any]]) -> str:
        """Return a turn with a text and these calls: name, and arguments as an object or as JSON text."""

    def read_calls(self, text: str) -> tuple[str, list[tuple[str, dict[str, Any]]]] | None:
        """Return what `write_calls` took, whatever tools there are; None for a turn without calls that can be read."""


_BOX_OR_BRACE = re.compile(r"\\boxed\s*\{|[{}]")


def last_boxed(text: str) -> str | None:
    r"""Return the content of the last `\boxed{...}` with balanced braces; None if there is none."""
    # A stack of open braces gives the matching pairs in one pass; of nested boxes the innermost last one counts.
    open_braces: list[tuple[bool, int]] = []
    best: tuple[int, int] | None = None
    for match in _BOX_OR_BRACE.finditer(text):
        if match[0] != "}":
            open_braces.append((len(match[0]) > 1, match.end()))
        elif open_braces:
            is_box, start = open_braces.pop()
            if is_box and (best is None or start > best[0]):
                best = (start, match.start())
    return None if best is None else text[best[0] : best[1]].strip()


def boxed_answer(text: str) -> Answer:
    """Return the answer in the last box of a text, else the text itself."""
    box = last_boxed(text)
    return Answer(text if box is None else box, boxed=box is not None)


# Parses calls that a model wrote: strict JSON, checked against the tool's schema. All faults are `UnreadableCall`.
#
# Parsing never fails otherwise and takes linear time: deep nesting, NaN, numbers out of range, duplicate keys and
# halves of surrogate pairs are faults like any other. One exception to strict JSON: line breaks may be unescaped in
# strings, since models write code that way.

_LONGEST_NAME = 64
_MOST_NAMES = 50  # an episode may have found hundreds of tools
_MOST_FAULTS = 5
_SPACE = re.compile(r"\s*")
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


class UnreadableCall(ValueError):
    """Raised for text that is meant as a call but cannot be parsed; the message is shown to the model."""


def read_object(text: str, start: int) -> tuple[dict[str, Any], int]:
    """Return the JSON object that begins at `start` after white space, and the position after it and white space."""
    begin = _space_end(text, start)
    if text[begin : begin + 1] != "{":
        raise UnreadableCall(f"a call is a JSON object, this begins with {text[begin : begin + 20]!r}")
    return read_json(text, begin)


def read_json(text: str, start: int) -> tuple[Any, int]:
    """Return the JSON value that begins at `start` after white space, and the position after it and white space."""
    begin = _space_end(text, start)
    try:
        value, end = _DECODER.raw_decode(text, begin)
        # lone surrogates parse as JSON but could not be sent to a tool
        json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise UnreadableCall("the JSON is nested too deeply") from None
    except UnicodeEncodeError:
        raise UnreadableCall("the JSON holds half of a surrogate pair") from None
    except json.JSONDecodeError as error:
        raise UnreadableCall(f"the JSON cannot be read: {error.msg} at character {error.pos - begin}") from None
    except UnreadableCall:
        raise
    except ValueError:  # Python limits the number of digits
        raise UnreadableCall("the JSON holds a number that is too long") from None
    return value, _space_end(text, end)


def checked_call(name: object, arguments: object, tools: Sequence[JsonSchema]) -> ToolCall:
    """Return the call if the tool exists and accepts these arguments; the error names what was expected."""
    schema = find_tool(name, tools)
    if not isinstance(arguments, dict):
        raise UnreadableCall(f"the arguments of {name} must be a JSON object, not {_kind(arguments)}")
    parameters = schema["function"].get("parameters") or {}
    properties, required = parameters.get("properties") or {}, parameters.get("required") or []
    missing = [key for key in required if key not in arguments]
    # a misspelt optional argument would otherwise be ignored silently
    unknown = [] if parameters.get("additionalProperties") else [key for key in arguments if key not in properties]
    faults = [f"{name} needs {', '.join(missing)}"] if missing else []
    faults += [f"{name} has no argument {key[:_LONGEST_NAME]!r}" for key in unknown[:_MOST_FAULTS]]
    faults += [f"it takes {_signature(properties)}"] if faults else []
    faults += [
        f"the argument {key} of {name} must be {_type_name(properties[key])}, not {_kind(value)}"
        for key, value in arguments.items()
        if not _fits(value, properties.get(key))
    ]
    if faults:
        raise UnreadableCall("; ".join(faults))
    return ToolCall(schema["function"]["name"], arguments)


def object_call(value: dict[str, Any], tools: Sequence[JsonSchema], keys: Sequence[str]) -> ToolCall:
    """Return the call that a JSON object holds; `keys` are those of name and arguments, and others that are ignored."""
    name, arguments = keys[:2]
    if name not in value or not set(value) <= set(keys):
        found = ", ".join(repr(key[:_LONGEST_NAME]) for key in list(value)[:5]) or "none"
        raise UnreadableCall(f'a call is {{"{name}": ..., "{arguments}": {{...}}}}, this has the keys: {found}')
    return checked_call(value[name], value.get(arguments, {}), tools)


def tagged_call(name: str, content: str, tools: Sequence[JsonSchema], optional: Sequence[str] = ()) -> ToolCall:
    """Return the call of a tool by a tag of its name: plain text for its first parameter, or a JSON object.

    The tags of the `optional` tools may be empty.
    """
    try:
        content.encode()
    except UnicodeEncodeError:
        raise UnreadableCall(f"{name} holds half of a surrogate pair") from None
    tool = find_tool(name, tools)
    parameter = tag_parameter(tool)
    if parameter is not None and content:
        return checked_call(name, _text_arguments(content, parameter, tool), tools)
    if parameter is not None and name not in optional:
        raise UnreadableCall(f"{name} was empty; write something between its tags")
    arguments, end = read_object(content, 0) if content else ({}, 0)
    if end < len(content):
        raise UnreadableCall(f"write nothing but one JSON object between the tags of {name}")
    return checked_call(name, arguments, tools)


def find_tool(name: object, tools: Sequence[JsonSchema]) -> JsonSchema:
    """Return the schema of a tool; the error suggests a similar name."""
    names = tool_names(tools)
    if not isinstance(name, str):
        raise UnreadableCall(f"the name of a tool is a string, not {_kind(name)}; the tools are: {_listed(names)}")
    if name in names:
        return tools[names.index(name)]
    shown = name[:_LONGEST_NAME]
    hint = nearest_hint(shown.lower(), names, "; did you mean {}?", ".", likeness=0.5)
    raise UnreadableCall(f"there is no tool {shown!r}{hint} The tools are: {_listed(names)}")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return (", ".join(names[:_MOST_NAMES]) or "none") + more


def tool_names(tools: Sequence[JsonSchema]) -> list[str]:
    """Return the names of the tools, in order."""
    return [tool["function"]["name"] for tool in tools]


def tag_parameter(tool: JsonSchema) -> str | None:
    """Return the parameter that plain text can fill: the first string if nothing else is required; else None."""
    parameters = tool["function"].get("parameters") or {}
    for key, schema in (parameters.get("properties") or {}).items():
        if "string" in _allowed(schema):
            return key if set(parameters.get("required") or []) <= {key} else None
    return None


def _text_arguments(text: str, parameter: str, tool: JsonSchema) -> dict[str, Any]:
    """Return the text as the value of the parameter, unless it is a JSON object with the names of several ones."""
    parameters = tool["function"]["parameters"]
    names, required = set(parameters["properties"]), set(parameters.get("required") or [])
    # with a single parameter, the text may itself be JSON (code, a dict) and stays one value
    if len(names) > 1 and text.startswith("{"):
        try:
            value, end = read_object(text, 0)
        except UnreadableCall:
            return {parameter: text}
        if value and end == len(text) and required <= value.keys() <= names:
            return value
    return {parameter: text}


def _no_constant(text: str) -> Any:
    raise UnreadableCall(f"{text} is no JSON number")


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise UnreadableCall("the JSON holds a number that is out of range")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise UnreadableCall("a key stands twice in the JSON; give each once")
    return value


# strict=False accepts control characters in strings, that is line breaks in code
_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_number, parse_constant=_no_constant, strict=False)


def _space_end(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def _fits(value: object, schema: Any) -> bool:
    # the enum applies in addition to the type
    if isinstance(schema, dict) and isinstance(schema.get("enum"), list) and value not in schema["enum"]:
        return False
    allowed = _allowed(schema)
    if not allowed:  # another kind of schema (anyOf, $ref), which the tool must check itself
        return True
    kinds = {kind for kind in allowed if isinstance(value, _TYPES.get(kind, ()))}
    if isinstance(value, bool):  # bool is a subclass of int in Python
        kinds &= {"boolean"}
    if kinds == {"array"} and isinstance(value, list):
        return all(_fits(item, schema.get("items")) for item in value)
    return bool(kinds)


def _allowed(schema: Any) -> list[str]:
    kinds = schema.get("type") if isinstance(schema, dict) else None
    return [kinds] if isinstance(kinds, str) else list(kinds or [])


def _type_name(schema: JsonSchema) -> str:
    if isinstance(schema.get("enum"), list):
        return "one of " + ", ".join(map(repr, schema["enum"]))
    name = " or ".join(_allowed(schema))
    return f"{name} of {_type_name(schema['items'])}" if name == "array" and _allowed(schema.get("items")) else name


def _signature(properties: dict[str, Any]) -> str:
    return ", ".join(f"{key} ({_type_name(schema) or 'anything'})" for key, schema in properties.items()) or "nothing"


def _kind(value: object) -> str:
    for name in ("boolean", "integer", "number", "string", "array", "object"):
        if isinstance(value, _TYPES[name]):
            return name
    return "null"
