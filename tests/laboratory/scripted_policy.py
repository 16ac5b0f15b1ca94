"""A policy for the worlds of `arpo/Bifurcation-v0` without a model: it samples turns, and says how likely they are."""

import functools
import random
from collections.abc import Sequence
from dataclasses import replace

import numpy
import pytest

from arpo_env import ToolEnv
from arpo_trainer.backends.base import Generation, OnWindow, Request
from arpo_trainer.rollout.rendering import Renderer
from arpo_trainer.tree import Stopwatch
from benchmarks.laboratory import estimators
from benchmarks.laboratory.exact_values import exact_values
from benchmarks.laboratory.lab_policy import world_env
from benchmarks.laboratory.logit_table import LogitTable, last_seen
from benchmarks.laboratory.tiny_model import tiny_tokenizer
from benchmarks.laboratory.turn_policy import Floats, Ids, world_turns


class ScriptedPolicy:
    """Takes open doors with probabilities that depend on everything seen so far, and mostly answers with a key it sees.

    Sometimes it tries a door that is not open, or answers too early.
    """

    trains, wants_messages = True, False

    def __init__(self, env: ToolEnv, seed: int = 0) -> None:
        self.time, self.seed, self.tokenizer = Stopwatch(), seed, tiny_tokenizer()
        self.renderer = Renderer(self.tokenizer, env.protocol)
        self.turns = world_turns(self.renderer)
        self._places = {turn.ids: place for place, turn in enumerate(self.turns)}
        # for each length, which turns begin alike
        ids = numpy.array(list(self._places))
        self._alike = [(ids[:, None, :n] == ids[None, :, :n]).all(axis=-1).astype(float) for n in range(4)]
        self._known: dict[Ids, Floats] = {}

    async def begin(self) -> None: ...

    async def end(self) -> None: ...

    async def generate(self, request: Request, on_window: OnWindow | None = None) -> Generation:
        shares = self.shares(request.ids)
        [turn] = random.Random(request.seed).choices(range(len(shares)), shares.tolist())
        tokens = self.token_probabilities([request.ids], [self.turns[turn].ids])[0, 0]
        entropy = float(-(shares[shares > 0] * numpy.log(shares[shares > 0])).sum())
        if on_window:
            on_window([entropy] * min(request.window, 3))
        return Generation(list(self.turns[turn].ids), list(numpy.log(tokens)), [entropy] * 3, "stop")

    def token_probabilities(self, histories: Sequence[Ids], turns: Sequence[Ids]) -> Floats:
        shares = numpy.array([self.shares(history) for history in histories])
        places = [self._places[tuple(turn)] for turn in turns]
        masses = numpy.stack([shares @ alike for alike in self._alike], axis=-1)[:, places]
        return numpy.nan_to_num(masses[..., 1:] / numpy.maximum(masses[..., :-1], 1e-300))

    def shares(self, history: Sequence[int]) -> Floats:
        if tuple(history) not in self._known:
            self._known[tuple(history)] = self._weights(history)
        return self._known[tuple(history)]

    def _weights(self, history: Sequence[int]) -> Floats:
        rng = random.Random(f"{self.seed}/{tuple(history)}")
        words = self.tokenizer.convert_ids_to_tokens(list(history))
        last = len(words) - 1 - words[::-1].index("doors") if "doors" in words else 0
        key = words[words.index("key") + 1] if "key" in words[12:] else ""
        doors = [word for word in words[last + 1 :] if len(word) == 1 and word.isalpha()]
        weights = [0.0] * len(self.turns)
        for place, turn in enumerate(self.turns):
            if turn.door:
                weights[place] = rng.random() if turn.door in doors and not key else 0.0
            elif turn.key == key:
                weights[place] = 5.0
        weights[rng.randrange(8)] += 0.05
        weights[8 + rng.randrange(20)] += 0.1
        return numpy.array(weights) / sum(weights)


@functools.cache
def _ground() -> tuple[estimators.Ground, ScriptedPolicy]:
    env = world_env("short")
    policy = ScriptedPolicy(env)
    values = [exact_values(env, env.tasks.task(n), policy.renderer, policy, smallest=1e-6) for n in range(2)]
    table = LogitTable()
    parts = [table.exact(each, last_seen(each)) for each in values]
    gradient = {number: sum(part.get(number, 0.0) for part in parts) / 2 for part in parts for number in part}
    return estimators.Ground(None, policy.tokenizer, env, values, table, gradient), policy


def scripted_ground(monkeypatch: pytest.MonkeyPatch) -> estimators.Ground:
    """Let `judge_estimators` judge a scripted policy in two tasks of the level "short"."""
    found, policy = _ground()
    made = replace(found)
    monkeypatch.setattr(estimators, "prepare", lambda *_: made)
    monkeypatch.setattr(estimators, "transformers_backend", lambda *_, **__: policy)
    return made
