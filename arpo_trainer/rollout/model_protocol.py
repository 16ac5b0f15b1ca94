"""The protocol that a model is played with where nobody chose one.

An environment that was given a protocol keeps it (`ToolEnv.protocol_given`). Otherwise, in this order: the protocol
that the model was trained with, by the mark that trainers leave in its tokenizer or by the record of its run; the tags
for the papers' checkpoints, and for algorithms and rewards that read them; the model's own tool calls if its chat
template has them; the tags.
"""

from __future__ import annotations

import copy
import functools
import json
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arpo_trainer.rollout.native import INSTEAD, ModelCalls, name_of

if TYPE_CHECKING:
    from arpo_env import ToolEnv
    from arpo_trainer.rollout.settings import RolloutSettings

logger = logging.getLogger(__name__)
TAGS = "arpo-tags"
_MARK = "arpo_protocol"  # in tokenizer_config.json
_PAPERS = re.compile(r"(?<![a-z])(?:arpo|aepo|tool-star)(?![a-z])", re.IGNORECASE)
_RECORDS = ("run.json", "sft.json", "dpo.json")  # of commands that train
_TRAINING = (None, "sft", "dpo")  # `kind` in these; an evaluation beside its model writes a run.json, too


def marked(processing_class: Any, protocol: str) -> Any:
    """Return a copy of a tokenizer, or of a processor, that says with which protocol its model was trained.

    It is saved with the tokenizer, and read again by `protocol_for`. A model that had another protocol is warned of.
    """
    copied = copy.copy(processing_class)
    if hasattr(copied, "tokenizer"):
        copied.tokenizer = marked(copied.tokenizer, protocol)
    else:
        before, why = learnt_protocol(copied) or (protocol, "")
        if before.removesuffix("-reference") != protocol.removesuffix("-reference"):
            text = "%s had protocol %s, since %s, and is trained with %s from now on; protocol=%s keeps the former"
            logger.warning(text, name_of(copied), before, why, protocol, before)
        copied.init_kwargs = {**copied.init_kwargs, _MARK: protocol}
    return copied


def learnt_protocol(tokenizer: Any, folder: str | Path = "") -> tuple[str, str] | None:
    """Return the name of the protocol that a model was trained with here, and from where it is known, if it is.

    Args:
        tokenizer: of the model, or of its base.
        folder: of the model, if its tokenizer may be from elsewhere; what it says goes first.
    """
    own = _json(Path(folder, "tokenizer_config.json")).get(_MARK) if folder else None
    for mark, path in ((own, folder), (tokenizer.init_kwargs.get(_MARK), tokenizer.name_or_path)):
        if mark:
            return str(mark), "the model was trained with it"
        if recorded := _recorded(str(path or "")):
            return recorded, "the record of the model's run"
    return None


def protocol_for(
    tokenizer: Any, chat_template_kwargs: Mapping[str, Any] | None = None, needs_tags: str = ""
) -> tuple[str, str]:
    """Return the name of the protocol for a model where nobody chose one, and why.

    Args:
        tokenizer: of the model.
        chat_template_kwargs: arguments for its chat template.
        needs_tags: what needs the tags, in words: an algorithm or a reward.
    """
    if learnt := learnt_protocol(tokenizer):
        return learnt
    if _PAPERS.search(_own_name(tokenizer.name_or_path or "")):
        return TAGS, "a checkpoint of the papers, by its name"
    if needs_tags:
        return TAGS, f"{needs_tags} reads tags"
    try:
        calls = ModelCalls(tokenizer, chat_template_kwargs)
    except ValueError as error:
        return TAGS, f"not native, since {str(error).removesuffix(f'; {INSTEAD}')}"
    return "native", f"the chat template has tool calls, of the family {calls.family}"


def with_model_protocol(
    env: ToolEnv,
    settings: RolloutSettings,
    tokenizer: Any,
    chat_template_kwargs: Mapping[str, Any] | None = None,
    endpoint: str = "",
) -> ToolEnv:
    """Return an environment with the protocol that its model gets, and log which; one that was given stays.

    `endpoint` is what a model at an endpoint is called in messages, "" for others. It keeps the tags, unless its
    tokenizer is of a model that was trained here: only who set up its server knows whether that reads tool calls.

    Raises:
        ValueError: the model was trained with a protocol that is not registered here, or that the reward cannot read.
    """
    if env.protocol_given:
        return env
    if endpoint:
        name, why = learnt_protocol(tokenizer) or (TAGS, "an endpoint's tool calls are used with protocol=native")
    else:
        of_reward = "reward reference" if env.reward_reads_tags else ""
        needs_tags = f"algorithm {settings.algorithm}" if settings.parts.published else of_reward
        name, why = protocol_for(tokenizer, chat_template_kwargs, needs_tags)
    whose = endpoint or name_of(tokenizer)
    _say(f"protocol {name} for {whose}: {why}. The environment's option protocol chooses another")
    try:
        return env.with_protocol(name)
    except ValueError as error:
        raise ValueError(
            f"{name_of(tokenizer)} has protocol {name}, since {why}, and {error}. Register your own protocol first "
            "(arpo_env.register_protocol), or choose one with the environment's option protocol"
        ) from error


@functools.lru_cache(maxsize=256)  # each environment, evaluation and group of a run would say the same
def _say(line: str) -> None:
    logger.info("%s", line)


def _own_name(path: str) -> str:
    """Return the name of a model itself: the last part of a folder or hub id, or that of a snapshot in the cache."""
    parts = Path(path).absolute().parts if path else ("",)
    return parts[-3] if parts[-2:-1] == ("snapshots",) and len(parts) > 2 else parts[-1]


def _recorded(path: str) -> str:
    """Return the protocol that the record of a model's run names, the tags if it names none, or "" without a record.

    Earlier releases marked no tokenizer, and trained with tags unless another protocol was given.
    """
    folder = Path(path).absolute()
    of_run = folder.name in ("model", "adapter") or folder.name.startswith("checkpoint-")
    for file in ((folder.parent if of_run else folder) / name for name in _RECORDS):
        if path and (found := _json(file)) and found.get("kind") in _TRAINING:
            places = (found, found.get("traces"), _part(found, "env", "kwargs"), _part(found, "settings", "env_kwargs"))
            return next((str(each) for place in places if (each := _part(place, "protocol"))), TAGS)
    return ""


def _json(file: Path) -> dict[str, Any]:
    """Return the object in a file, or {}."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # ValueError: a run was killed while it wrote
        return {}
    return found if isinstance(found, dict) else {}


def _part(record: Any, *names: str) -> Any:
    """Return what a record has under these names, one in the other, or None."""
    for name in names:
        record = record.get(name) if isinstance(record, dict) else None
    return record
