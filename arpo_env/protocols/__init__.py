"""Protocols define how a turn is parsed and how a tool result is rendered.

`arpo-tags` is the protocol of the papers; `arpo-tags-reference` renders results exactly as the published code does.
`native` is the tool calls of the model's own chat template, whatever its family; `hermes` (Qwen2.5, Qwen3, Hermes) and
`llama3` (Llama 3.1 and later) are those of two families for any model, and `websailor` is that of the WebSailor
checkpoints. `deepagent` has DeepAgent's tags, for tools that are found on the way.
`register_protocol` adds your own.

    from arpo_env.protocols import make_protocol
    make_protocol("hermes").parse('<tool_call>{"name": "python", "arguments": {"code": "1"}}</tool_call>', tools)
"""

from __future__ import annotations

from collections.abc import Callable

from arpo_env.protocols.protocol import Protocol
from envs_registry.nearest_name import nearest_hint

__all__ = ["PROTOCOLS", "make_protocol", "register_protocol"]

PROTOCOLS = ("arpo-tags", "arpo-tags-reference", "deepagent", "hermes", "llama3", "native", "websailor")
_MEMBERS = ("name", "native", "system_prompt", "stop_strings", "parse", "defuse", "render_result", "well_formed")
_NAME_IT = "write a name of its own in its class, name = '...', by which records and trained models know it"
_registered: dict[str, Callable[[], Protocol]] = {}


def register_protocol(name: str, make: Callable[[], Protocol], *, overwrite: bool = False) -> None:
    """Register a protocol of your own, so that `protocol=name` works wherever an environment is created.

    Args:
        name: name of the protocol.
        make: its class, or a function that returns an instance. See `arpo_env.Protocol` for the required members.
        overwrite: replace a protocol that is already registered. A class that is defined again, as by a reload or a
            notebook cell that is run again, replaces itself without this.

    Raises:
        ValueError: the name is taken, the protocol has another name, or it lacks a required member.
    """
    own = _check_members(make(), name).name
    known = _registered.get(name)
    # of a script the module may differ: `__main__`, or its name where another process imports it
    same = known is None or getattr(known, "__qualname__", known) == getattr(make, "__qualname__", make)
    if not overwrite and (name in PROTOCOLS or not same):
        raise ValueError(f"protocol {name!r} exists already; choose another name, or set overwrite=True to replace it")
    if own != name:
        raise ValueError(f"what is to be registered as {name!r} has the name {own!r}: {_NAME_IT}")
    _registered[name] = make


def make_protocol(name: str | Protocol) -> Protocol:
    """Return the protocol of this name: one of `PROTOCOLS`, or a registered one; a protocol is returned unchanged.

    Raises:
        ValueError: the name is unknown (the message suggests a similar one), or the object is not a protocol or has the
            name of the one that it derives from.
    """
    # imported at first use, which keeps `import arpo_env` cheap
    from arpo_env.protocols.arpo_tags import ArpoTags, ArpoTagsReference
    from arpo_env.protocols.chat_template import Hermes, Llama3, Native, WebSailor
    from arpo_env.protocols.deepagent import DeepAgentTags

    rows: tuple[type[Protocol], ...] = (ArpoTags, ArpoTagsReference, DeepAgentTags, Hermes, Llama3, Native, WebSailor)
    made: dict[str, Callable[[], Protocol]] = {**{row.name: row for row in rows}, **_registered}
    if isinstance(name, str):
        if name not in made:
            hint = nearest_hint(name.lower(), made, otherwise=".", likeness=0.4)
            raise ValueError(f"unknown protocol {name!r}{hint} Available: {', '.join(made)}")
        return made[name]()
    given = _check_members(name() if isinstance(name, type) else name, "protocol=")
    if "name" not in {**vars(type(given)), **getattr(given, "__dict__", {})}:
        raise ValueError(f"{type(given).__name__} has the name {given.name!r} of another protocol: {_NAME_IT}")
    return given


def _check_members(protocol: Protocol, name: str) -> Protocol:
    if lacking := [member for member in _MEMBERS if not hasattr(protocol, member)]:
        raise ValueError(
            f"{name} is not a protocol: {type(protocol).__name__} lacks {', '.join(lacking)}; see arpo_env.Protocol, "
            "or derive from arpo_env.ArpoTags"
        )
    return protocol
