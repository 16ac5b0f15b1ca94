"""True values: enumeration and the engine tell the same."""

import asyncio
import math
import random
import statistics
from typing import Any

import numpy
import pytest

from arpo_trainer.rollout.engine import Engine
from arpo_trainer.rollout.rendering import Renderer
from arpo_trainer.rollout.settings import RolloutSettings
from benchmarks.laboratory.exact_values import ExactValues, exact_values
from benchmarks.laboratory.lab_policy import world_env
from benchmarks.laboratory.tiny_model import tiny_model, tiny_tokenizer
from benchmarks.laboratory.turn_policy import ModelTurns, world_turns
from tests.laboratory.scripted_policy import ScriptedPolicy

WORLDS, PLAYED = 12, 32


def random_knobs(rng: random.Random) -> dict[str, Any]:
    dead_ends = rng.choice(["silent", "shown", "forgiving"])
    decisions = 1 if dead_ends == "forgiving" else rng.randint(1, 2)  # forgiving worlds have the most histories
    return {
        "decisions": decisions,
        "choices": rng.randint(2, 3),
        "routine": rng.randint(0, 1),
        "layout": rng.choice(["first", "spread"]),
        "critical": rng.randint(0, decisions),
        "rule": rng.choice(["fixed", "cue", "chance"]),
        "dead_ends": dead_ends,
        "noise": rng.choice([0.0, 0.3]),
        "slip": rng.choice([0.0, 0.3]),
        "uneven": rng.choice([0, 2]),
        "dense": rng.random() < 0.5,
        "shared_doors": rng.random() < 0.5,
    }


def test_enumeration_and_sampling_agree_on_random_worlds() -> None:
    scores = []
    for number in range(WORLDS):
        env = world_env("short", random_knobs(random.Random(number)), spare=0)
        policy, task = ScriptedPolicy(env, number), env.tasks.task(number)
        values = exact_values(env, task, policy.renderer, policy, smallest=1e-5)
        assert values.start.lost < 0.05
        settings = RolloutSettings(algorithm="grpo", num_generations=PLAYED, max_turn_length=8, seed=number)
        [tree] = asyncio.run(Engine(policy, policy.tokenizer, env, settings).rollout([task]))
        rewards = [trajectory.reward or 0.0 for trajectory in tree.trajectories]
        exact = values.start.value
        # where no episode earned anything, the error is that of one more that does
        error = max(statistics.stdev(rewards), math.sqrt(max(exact * (1 - exact), 1e-9))) / math.sqrt(PLAYED)
        scores.append((statistics.fmean(rewards) - exact) / error)
    assert max(map(abs, scores)) < 4
    assert abs(sum(scores)) / math.sqrt(len(scores)) < 3


KNOBS: dict[str, Any] = {"slip": 0.2, "noise": 0.2, "dead_ends": "forgiving", "decisions": 2, "choices": 2}


@pytest.fixture(scope="module")
def world() -> tuple[Any, ScriptedPolicy, ExactValues]:
    env = world_env("short", KNOBS, spare=0, max_turns=6)
    policy = ScriptedPolicy(env)
    return env, policy, exact_values(env, env.tasks.task(3), policy.renderer, policy, smallest=1e-9)


def test_values_are_those_of_what_follows(world: Any) -> None:
    _, policy, values = world
    assert values.start.high - values.start.low < 1e-6
    for history, state in list(values.states.items())[:50]:
        shares = policy.shares(history)
        known = ~numpy.isnan(state.turn_values)
        assert state.value == pytest.approx(shares[known] @ state.turn_values[known] / shares[known].sum())
        assert state.low - 1e-12 <= state.value <= state.high + 1e-12
        for place in numpy.flatnonzero(known & (shares > 0)):
            advantages = values.advantages(history, values.turns[place].ids)
            assert advantages is not None
            assert sum(advantages) == pytest.approx(state.turn_values[place] - state.value)


def test_what_is_not_followed_is_within_the_bounds(world: Any) -> None:
    env, policy, values = world
    cut = exact_values(env, env.tasks.task(3), policy.renderer, policy, smallest=0.02)
    assert len(cut.states) < len(values.states)
    assert cut.start.lost > 0.01
    assert cut.start.low <= values.start.value <= cut.start.high


def test_a_model_scores_turns_as_it_would_one_by_one() -> None:
    import torch

    env, tokenizer, model = world_env("short"), tiny_tokenizer(), tiny_model(seed=1)
    turns = [turn.ids for turn in world_turns(Renderer(tokenizer, env.protocol))]
    histories = [(1, 20, 21, 22), (1, 30, 31), (1, 9)]
    found = ModelTurns(model, temperature=0.7, positions=80).token_probabilities(histories, turns)
    for number, history in enumerate(histories):
        for place in (0, 5, 8, 27):
            ids = torch.tensor([[*history, *turns[place]]])
            shares = torch.softmax(model(ids).logits[0].detach().double() / 0.7, -1)
            wanted = [float(shares[len(history) - 1 + n, token]) for n, token in enumerate(turns[place])]
            assert found[number, place] == pytest.approx(wanted, rel=1e-4)
