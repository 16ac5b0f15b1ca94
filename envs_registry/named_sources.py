"""Tasks that a command line names: `named_source("arpo/MATH-v0:test=math.jsonl", "held out")`."""

from __future__ import annotations

from typing import Literal

from envs_registry.sources import LimitedSource, TaskSource, load_source
from envs_registry.spec import EnvSpec, get_spec, has_spec

OF_ENDLESS = 1000  # tasks of an endless source that are taken
Use = Literal["train", "held out"]


def named_source(text: str, use: Use) -> tuple[str, TaskSource]:
    """Return the name and the tasks of [MODULE:]ENV[:SPLIT][=PATH]; of an endless source the first ones.

    Args:
        text: what is named.
        use: without a split, "train" takes the first split, and "held out" the first one that is not for training.

    Raises:
        UnknownEnvError: there is no such environment.
        ValueError: it has no such split, or the file cannot be read.
    """
    where, _, path = text.partition("=")
    env_id, _, split = where.partition(":")
    # MODULE:ENV and ENV:SPLIT look the same; what is no known id and reads like a module is one
    if split and not has_spec(env_id) and all(part.isidentifier() for part in env_id.split(".")):  # a module
        name, _, split = split.partition(":")
        env_id = f"{env_id}:{name}"
    spec = get_spec(env_id)
    split = split or _split_of(spec, use)
    source = load_source(spec.source, split=split or None, data=path or None)
    # comparisons read every task, and refuse endless sources
    shown = f"{spec.id}:{split}" if split else spec.id
    return shown, source if source.size is not None else LimitedSource(source, OF_ENDLESS)


def _split_of(spec: EnvSpec, use: Use) -> str:
    first = next(iter(spec.splits), "")
    return first if use == "train" else next((split for split in spec.splits if split != "train"), first)
