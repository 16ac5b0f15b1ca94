"""Policies to start from: a tiny model that has seen scripted walks through a world, kept in the cache directory.

A walk takes open doors at random and answers with the key that it finds. So the policy knows how to walk and how to
answer, and its success is that of chance. A share of the walks is short: in long ones the answer is one token of many,
and the policy would learn to walk long before it learns to copy the key.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import random
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, cast

from arpo_env import ToolEnv
from arpo_trainer.make_env import make_env
from arpo_trainer.rollout.rendering import Renderer
from arpo_trainer.run.sft_run import cold_start
from arpo_trainer.sft.plain_trace import ModelTurn, ToolResults, Trace, Turn
from arpo_trainer.sft.trace_data import Example, tokenised
from arpo_trainer.validation import check_name, check_types
from benchmarks.laboratory.tiny_model import SIZES, tiny_model, tiny_tokenizer
from envs_registry.generated.bifurcation import LEVELS, BifurcationSource, WorldSettings
from sandbox.images.profiles import cache_directory, locked

WORLD_ID = "arpo/Bifurcation-v0"
_VERSION = 3  # of what a policy is made of; a new number makes all policies anew
_SHORT = {"decisions": 1, "routine": 1, "layout": "first", "critical": 0}
_FIRST_TASK = 1_000_000  # demonstrations use tasks that training does not
_FOLDER = "lab-policies"  # of the cache directory
_PATIENCE = 2000  # calls that a walk may waste: where wrong doors can be mended, it goes on until it finds a key

Material = tuple[Any, Any, Iterator[Example]]  # a model, its tokenizer, and what the model is shown


class StartSettings:
    """What a policy to start from is made of; a dataclass for each kind of policy has these fields and its own.

    Attributes:
        level: name of the world.
        knobs: of the world, in place of the level's.
        batch_size: demonstrations per step.
        learning_rate: initial learning rate; it falls linearly to 0.
        seed: of everything that is drawn.
        bf16: compute in bfloat16; the weights keep their type.
        packing: of `cold_start`.
    """

    level: str
    knobs: dict[str, Any]
    batch_size: int
    learning_rate: float
    seed: int
    bf16: bool = False
    packing: ClassVar[bool | str] = False

    @property
    def folder(self) -> Path:
        """Where the policy is kept: a folder of the cache directory that belongs to exactly these settings."""
        facts = {**self.facts(), "version": _VERSION}
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]
        return cache_directory() / _FOLDER / digest

    @property
    def level_knobs(self) -> dict[str, Any]:
        """The knobs of the level."""
        raise NotImplementedError

    def facts(self) -> dict[str, Any]:
        """Return the settings as plain data, without knobs that are those of the level."""
        knobs = {name: knob for name, knob in self.knobs.items() if knob != self.level_knobs[name]}
        return {**asdict(cast(Any, self)), "knobs": knobs}

    def material(self) -> Material:
        """Return what the policy is made from."""
        raise NotImplementedError


@dataclass(frozen=True)
class PolicySettings(StartSettings):
    """What a policy is made of.

    Attributes:
        level: of the world that is demonstrated.
        knobs: of the world, in place of the level's.
        size: of the model; one of `tiny_model.SIZES`.
        demonstrations: number of walks.
        short_share: share of the walks that are short.
        batch_size: walks per step.
        learning_rate: initial learning rate; it falls linearly to 0.
        seed: of weights, walks and their order.

    Raises:
        ValueError: an unknown level, knob or size, or a number out of range.
    """

    level: str = "short"
    knobs: dict[str, Any] = field(default_factory=dict)
    size: str = "0.8M"
    demonstrations: int = 8000
    short_share: float = 0.4
    batch_size: int = 16
    learning_rate: float = 1e-3
    seed: int = 0

    def __post_init__(self) -> None:
        check_types(self, self.__annotations__)
        BifurcationSource(level=self.level, **self.knobs)
        check_name("size", self.size, SIZES)
        for name, least in (("demonstrations", 1), ("batch_size", 1), ("seed", 0), ("learning_rate", 0.0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if not 0 <= self.short_share <= 1:
            raise ValueError(f"short_share must be between 0 and 1, got {self.short_share}")

    @property
    def level_knobs(self) -> dict[str, Any]:
        """The knobs of the level."""
        return asdict(LEVELS[self.level])

    def material(self) -> Material:
        """Return the model, its tokenizer and the walks."""
        tokenizer = tiny_tokenizer()
        return tiny_model(self.size, self.seed), tokenizer, _examples(self, tokenizer)


def lab_policy(settings: StartSettings, again: bool = False) -> Path:
    """Return the folder of a policy; the first call trains it (a minute on one core for short worlds).

    Args:
        settings: what it is made of.
        again: make it again even if it is there.

    Raises:
        SandboxError: the cache directory cannot be written.
    """
    folder = settings.folder
    if again or not _is_made(folder):
        with locked(folder.name, _FOLDER, "makes the same policy"):
            if again or not _is_made(folder):
                _make(settings, folder)
    return folder


def _is_made(folder: Path) -> bool:
    return (folder / "config.json").exists()


def _make(settings: StartSettings, folder: Path) -> None:
    model, tokenizer, examples = settings.material()
    scratch = folder.with_name(f"{folder.name}.unfinished")
    # progress bars and numbers of a training of which only the result is of interest
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        cold_start(
            model,
            tokenizer,
            list(examples),
            scratch,
            epochs=1,
            batch_size=settings.batch_size,
            learning_rate=settings.learning_rate,
            bf16=settings.bf16,
            seed=settings.seed,
            packing=settings.packing,
        )
        model.save_pretrained(scratch)
    tokenizer.save_pretrained(scratch)
    (scratch / "policy.json").write_text(json.dumps(settings.facts(), indent=1) + "\n", encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    scratch.rename(folder)  # at the end: the cache never holds half a policy


def world_env(level: str, knobs: dict[str, Any] | None = None, spare: int = 2, **options: Any) -> ToolEnv:
    """Return the environment of a world whose episodes end soon after the calls that it needs.

    Args:
        level: of the world.
        knobs: in place of the level's.
        spare: calls that may be wasted.
        options: of the environment, such as `split` and `seed`.
    """
    settings: WorldSettings = BifurcationSource(level=level, **(knobs or {})).settings
    most = settings.rooms + spare + (settings.rooms if settings.dead_ends == "forgiving" else 0)
    return make_env(
        WORLD_ID, {"level": level, **(knobs or {}), "max_tool_calls": most, "max_turns": most + 3, **options}
    )


def _examples(settings: PolicySettings, tokenizer: Any) -> Iterator[Example]:
    rng = random.Random(settings.seed)
    whole = world_env(settings.level, settings.knobs, spare=_PATIENCE)
    short = world_env(settings.level, {**settings.knobs, **_SHORT}, spare=_PATIENCE)
    renderer = Renderer(tokenizer, whole.protocol)
    for number in range(settings.demonstrations):
        env = short if rng.random() < settings.short_share else whole
        yield tokenised(walk(env, _FIRST_TASK + number, rng), renderer, env.schemas, end_token=False)


def walk(env: ToolEnv, index: int, rng: random.Random) -> Trace:
    """Return a walk through open doors drawn at random that answers with the key it finds."""
    question, info = env.reset(seed=index, options={"task": env.tasks.task(index)})
    seen, turns = question, list[Turn]()
    while " doors " in f" {seen}" or seen == "dead end":
        text = f"<go>{rng.choice(seen.rpartition('doors ')[2].split())}</go>"
        *_, step = env.step(text)
        turns += [ModelTurn(text), ToolResults(tuple(step["results"]))]
        seen = question if step["results"][0] == "dead end" else step["results"][0]
        question = seen
    turns.append(ModelTurn(f"<answer>\\boxed{{{seen.rpartition('key ')[2]}}}</answer>"))
    return Trace(info["messages"][0]["content"], info["messages"][-1]["content"], tuple(turns), env.protocol.name)
