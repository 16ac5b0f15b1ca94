"""Ways of growing trees and of giving credit, judged without training: against the true advantages of a fixed policy.

Every method grows the same number of groups of the same tasks with the real engine, gives credit as the trainer would,
and is compared with `exact_values`: in units of reward (`grpo-no-std`, no factor of the entropy), where a bias means
something, and as published. Methods that grow trees alike are judged on the same trees. See `credit_errors` for the
measures and `logit_table` for the direction of the gradient, which is compared at equal cost.

    study = EstimatorStudy("short", [parse_algorithm("grpo"), parse_algorithm("fork=arpo:attribution=fork")])
    result = judge_estimators(study)
"""

from __future__ import annotations

import asyncio
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import torch

from arpo_trainer.algorithms.credit import CREDITS
from arpo_trainer.backends.in_process import transformers_backend
from arpo_trainer.rollout.engine import Engine
from arpo_trainer.rollout.metrics import fork_contrasts
from arpo_trainer.rollout.rendering import Renderer
from arpo_trainer.rollout.settings import RolloutSettings
from arpo_trainer.training.config import ARPOConfig
from arpo_trainer.tree import RolloutTree
from arpo_trainer.validation import check_name
from benchmarks.laboratory.credit_errors import CreditSample, Floats, credit_errors, jackknife
from benchmarks.laboratory.exact_values import ExactValues, exact_values
from benchmarks.laboratory.grid_run import AlgorithmChoice
from benchmarks.laboratory.lab_policy import PolicySettings, lab_policy, world_env
from benchmarks.laboratory.logit_table import LogitTable, batch_cosines, cosine, last_seen, squared_mean
from benchmarks.laboratory.paper_rows import answer_format, plain_logps, score_answers
from benchmarks.laboratory.training_run import SETTINGS, RunSpec, run_config, tree_costs
from benchmarks.laboratory.true_credit import GivenCredit, TrueCredit, given_credit, true_credit
from benchmarks.laboratory.turn_policy import ModelTurns
from envs_registry.generated.bifurcation import LEVELS, knob_names

COSTS = ("sampled_tokens", "tool_calls")
_MOST_LOST = 0.5


@dataclass(frozen=True)
class EstimatorStudy:
    """What is judged, and where.

    Attributes:
        level: of the world.
        methods: with labels that differ; costs are compared with those of the first one.
        knobs: of the world, in place of the level's.
        groups: groups of each task and method.
        tasks: number of tasks.
        batch: groups of the first method that a batch of the gradient costs.
        seed: of everything that is drawn.
        settings: fields of `ARPOConfig` for all methods.
        policy: folder of the policy; None is the `lab_policy` of the level and the knobs.
        smallest: histories less likely than this are not enumerated.
    """

    level: str
    methods: Sequence[AlgorithmChoice]
    knobs: dict[str, Any] = field(default_factory=dict)
    groups: int = 16
    tasks: int = 4
    batch: int = 4
    seed: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    policy: Path | None = None
    smallest: float = 1e-5

    def __post_init__(self) -> None:
        for name in ("groups", "tasks", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        labels = [method.label for method in self.methods]
        if twice := {label for label in labels if labels.count(label) > 1}:
            raise ValueError(f"method given twice: {', '.join(sorted(twice))}")
        if not labels:
            raise ValueError("give at least one method")
        for name in ("temperature", "max_completion_length"):
            if any(name in one.settings for one in self.methods):
                raise ValueError(f"{name} changes the true values, which are computed once: set it for all methods")
        if any("seed" in settings for settings in (self.settings, *(one.settings for one in self.methods))):
            raise ValueError("seed is no setting of a method here: `seed` of the study is that of everything drawn")

    def config(self, method: AlgorithmChoice) -> Any:
        """Return the `ARPOConfig` of a method.

        Raises:
            ValueError: an algorithm or a setting is unknown, or settings do not go together.
        """
        settings = {**self.settings, **method.settings}
        known = [each.name for each in fields(ARPOConfig)]
        for name in settings:
            check_name(f"{method.label}: the setting", name, known)
        check_name("level", self.level, LEVELS)
        for name in self.knobs:
            check_name("knob", name, knob_names())
        spec = RunSpec(
            method.algorithm,
            method.label,
            self.level,
            self.seed,
            {"trajectories": 10**9},
            self.knobs,
            settings=settings,
        )
        return run_config(spec, Path("unused"))


@dataclass
class Ground:
    """The policy and the worlds that all methods of a study share.

    Attributes:
        model: the policy.
        tokenizer: of the policy.
        env: the environment.
        values: the true values of each task.
        table: of logits.
        gradient: the exact one, mean over tasks.
    """

    model: Any
    tokenizer: Any
    env: Any
    values: list[ExactValues]
    table: LogitTable
    gradient: dict[int, float]


def judge_estimators(study: EstimatorStudy) -> dict[str, Any]:
    """Judge the methods of a study.

    Returns:
        Plain data: "study" (what was judged), "world" (true values and what the enumeration left out), and "methods":
        for each label its costs, its trees, its errors per token and per turn in both units, and its cosines.

    Raises:
        ValueError: a level, knob, algorithm or setting is unknown, or settings do not go together.
    """
    configs = [study.config(method) for method in study.methods]
    torch.set_num_threads(1)
    ground = prepare(study, float(configs[0].temperature))
    grown: dict[RolloutSettings, GrownTrees] = {}
    judged: dict[str, Any] = {}
    for method, config in zip(study.methods, configs, strict=True):
        settings = config.rollout_settings()
        if settings not in grown:
            grown[settings] = grow(study, ground, settings)
        if CREDITS[config.attribution or ""].prepare:
            _score_answers(ground, grown[settings].trees, float(config.temperature))
        judged[method.label] = _judge(study, ground, grown[settings], config)
    _compare_directions(study, ground, judged)
    return {"study": _described(study), "world": _world(ground), "methods": judged}


def prepare(study: EstimatorStudy, temperature: float = 1.0) -> Ground:
    """Load the policy, and compute the true values of all tasks.

    Raises:
        ValueError: most of what the policy does could not be enumerated.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = study.policy or lab_policy(PolicySettings(level=study.level, knobs=study.knobs))
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder).eval()
    env = world_env(study.level, study.knobs)
    renderer, policy = Renderer(tokenizer, env.protocol), ModelTurns(model, temperature)
    limit = int({**SETTINGS, **study.settings}["max_completion_length"])
    tasks = [env.tasks.task(number) for number in range(study.tasks)]
    values = [exact_values(env, task, renderer, policy, smallest=study.smallest, limit=limit) for task in tasks]
    if (lost := max(each.start.lost for each in values)) > _MOST_LOST:
        raise ValueError(
            f"{lost:.0%} of what the policy {str(folder)!r} does could not be enumerated: lower `smallest` "
            f"({study.smallest:g}), or take a policy that was trained in this world"
        )
    table, gradient = LogitTable(), dict[int, float]()
    for each in values:
        for number, value in table.exact(each, last_seen(each)).items():
            gradient[number] = gradient.get(number, 0.0) + value / len(values)
    return Ground(model, tokenizer, env, values, table, gradient)


@dataclass
class GrownTrees:
    """The trees of one way of growing them, with what their tokens are worth; tree n plays task n mod `tasks`."""

    trees: list[RolloutTree]
    true: list[TrueCredit]


def grow(study: EstimatorStudy, ground: Ground, settings: RolloutSettings) -> GrownTrees:
    """Grow the groups of a study: round after round one group of each task."""
    backend = transformers_backend(ground.model, ground.tokenizer, max_rows=512, prefix_tokens=400_000)
    engine = Engine(backend, ground.tokenizer, ground.env, settings)
    tasks = [ground.env.tasks.task(number) for number in range(study.tasks)]
    trees = asyncio.run(engine.rollout(tasks * study.groups))
    return GrownTrees(trees, [true_credit(tree, ground.values[n % study.tasks]) for n, tree in enumerate(trees)])


def _score_answers(ground: Ground, trees: Sequence[RolloutTree], temperature: float) -> None:
    form = answer_format(ground.env.protocol, ground.env.schemas)
    score_answers(trees, ground.tokenizer, form, partial(plain_logps, ground.model, temperature=temperature, size=64))


def _judge(study: EstimatorStudy, ground: Ground, grown: GrownTrees, config: Any) -> dict[str, Any]:
    costs = [tree_costs(tree) for tree in grown.trees]
    judged: dict[str, Any] = {
        "algorithm": config.algorithm,
        "attribution": config.attribution,
        "advantage": config.advantage,
        "cost_per_group": {name: statistics.fmean(cost[name] for cost in costs) for name in costs[0]},
        "trees": _trees(study, ground, grown),
    }
    for units, advantage, args in (("reward", "grpo-no-std", None), ("published", config.advantage, config)):
        given = given_credit(grown.trees, advantage, config.attribution, args)
        judged[units] = {
            kind: _measured(study, sample)
            for kind, sample in (("token", token_sample(grown, given)), ("turn", turn_sample(grown, given)))
        }
        judged[units]["rows"] = _gradients(ground, grown, given, every=True)
        judged[units]["worthless"] = _gradients(ground, grown, given, every=False)
    return judged


def _gradients(ground: Ground, grown: GrownTrees, given: Sequence[GivenCredit], every: bool) -> list[dict[int, float]]:
    """Return the gradient of each group: of all tokens, or of choices that are worth nothing alone."""
    found = []
    for number, (tree, true, each) in enumerate(zip(grown.trees, grown.true, given, strict=True)):
        task = number % len(ground.values)
        pushes = each.of(true)[0] * (every | numpy.array(true.worthless))
        found.append(ground.table.estimated(tree, true, pushes, ground.values[task], task))
    return found


def token_sample(grown: GrownTrees, given: Sequence[GivenCredit]) -> CreditSample:
    """Return the tokens of all trees."""
    cells: dict[Any, int] = {}
    columns: list[list[Any]] = [[] for _ in range(6)]
    for number, (true, each) in enumerate(zip(grown.true, given, strict=True)):
        pushes, weights = each.of(true)
        names = [cells.setdefault(cell, len(cells)) for cell in true.cells]
        _extend(columns, number, names, weights, pushes, true.advantages, true.worthless)
    return _sample(columns)


def turn_sample(grown: GrownTrees, given: Sequence[GivenCredit]) -> CreditSample:
    """Return the turns of all trees: the true advantage of one is the sum over its tokens, the given one the mean."""
    cells: dict[Any, int] = {}
    columns: list[list[Any]] = [[] for _ in range(6)]
    for number, (tree, true, each) in enumerate(zip(grown.trees, grown.true, given, strict=True)):
        spans = list(dict.fromkeys(true.spans))
        place = {span: position for position, span in enumerate(spans)}
        worth, nothing = [0.0] * len(spans), [False] * len(spans)
        names = [0] * len(spans)
        for span, advantage, worthless, cell in zip(
            true.spans, true.advantages, true.worthless, true.cells, strict=True
        ):
            worth[place[span]] += advantage
            nothing[place[span]] |= worthless
            names[place[span]] = cells.setdefault((cell[0], tuple(tree.spans[span].ids)), len(cells))
        pushes = [float(each.pushes[span].mean()) for span in spans]
        _extend(columns, number, names, [each.weights[span] for span in spans], pushes, worth, nothing)
    return _sample(columns)


def _extend(columns: list[list[Any]], group: int, cells: list[int], weights: Any, pushes: Any, *rest: Any) -> None:
    for column, values in zip(columns, ([group] * len(cells), cells, weights, pushes, *rest), strict=True):
        column += list(values)


def _sample(columns: list[list[Any]]) -> CreditSample:
    group, cell, weight, push, true, worthless = map(numpy.array, columns)
    kept = weight > 0  # what a method does not train on has no error
    given = push[kept] / weight[kept]
    return CreditSample(group[kept], cell[kept], weight[kept], given, true[kept], worthless[kept])


def _measured(study: EstimatorStudy, sample: CreditSample) -> dict[str, Any]:
    total = study.groups * study.tasks
    found = jackknife(lambda groups: credit_errors(sample.of_groups(groups)), total, study.tasks)
    return {name: _pair(*pair) for name, pair in found.items()}


def _trees(study: EstimatorStudy, ground: Ground, grown: GrownTrees) -> dict[str, Any]:
    """Return what the trees are like: contrast of their forks, and the mean of their leaves as an estimate of V."""
    contrasts = [[each for each in fork_contrasts(tree) if each is not None] for tree in grown.trees]
    starts = [ground.values[number % study.tasks].start.value for number in range(len(grown.trees))]
    leaves, roots = list[float](), list[list[float]]()
    for tree, value in zip(grown.trees, starts, strict=True):
        valid = [one for one in tree.trajectories if one.reward is not None]
        leaves.append(statistics.fmean(one.reward or 0.0 for one in valid) - value)
        roots.append([((one.reward or 0.0) - value) ** 2 for one in valid if one.origin != "branch"])

    def measures(groups: Any) -> dict[str, float]:
        forks = [each for group in groups for each in contrasts[group]]
        single = statistics.fmean(square for group in groups for square in roots[group])
        spread = statistics.fmean(leaves[group] ** 2 for group in groups)
        return {
            "fork_contrast": statistics.fmean(forks) if forks else math.nan,
            "forks_per_group": len(forks) / len(groups),
            "roots_per_group": statistics.fmean(len(roots[group]) for group in groups),
            "leaf_mean_bias": statistics.fmean(leaves[group] for group in groups),
            "effective_leaves": single / spread if spread else math.nan,
        }

    found = jackknife(measures, len(grown.trees), study.tasks)
    known = sum(len(true.spans) for true in grown.true)
    unknown = sum(true.unknown for true in grown.true)
    return {
        "leaves_per_group": statistics.fmean(len(tree.trajectories) for tree in grown.trees),
        "tokens_not_known": round(unknown / max(1, known + unknown), 5),
        **{name: _pair(*pair) for name, pair in found.items()},
    }


def _compare_directions(study: EstimatorStudy, ground: Ground, judged: dict[str, Any]) -> None:
    """Replace the gradients of groups by their cosines with the exact one, in batches of equal cost."""
    # all gradients first: each may add entries to the table
    table = ground.table
    exact = table.dense([ground.gradient])[0]
    first = next(iter(judged.values()))["cost_per_group"]
    for one in judged.values():
        for units in ("reward", "published"):
            rows, worthless = table.dense(one[units].pop("rows")), table.dense(one[units].pop("worthless"))
            directions = {
                f"equal_{cost}": _pair(
                    *batch_cosines(rows, exact, study.batch * first[cost] / one["cost_per_group"][cost])
                )
                for cost in COSTS
                if one["cost_per_group"][cost]
            }
            whole = jackknife(_directions(rows, worthless, exact), len(rows), study.tasks)
            one[units]["cosine"] = directions | {"all_groups": _pair(*whole["cosine"])}
            one[units]["worthless_push"] = _pair(*whole["push"])
        one["cost_per_group"] = {name: round(value, 2) for name, value in one["cost_per_group"].items()}


def _directions(rows: Floats, worthless: Floats, exact: Floats) -> Any:
    def measures(groups: Any) -> dict[str, float]:
        mean = rows[groups].mean(axis=0)
        # the part along the exact gradient, whose scale depends on the method
        useful = float(mean @ exact) ** 2 / float(exact @ exact)
        push = squared_mean(worthless[groups]) / useful if useful else math.nan
        return {"cosine": cosine(mean, exact), "push": push}

    return measures


def _described(study: EstimatorStudy) -> dict[str, Any]:
    names = ("level", "knobs", "groups", "tasks", "batch", "seed", "settings", "smallest")
    methods = {one.label: {"algorithm": one.algorithm, **one.settings} for one in study.methods}
    return {**{name: getattr(study, name) for name in names}, "methods": methods}


def _world(ground: Ground) -> dict[str, Any]:
    starts = [values.start for values in ground.values]
    return {
        "values": [round(start.value, 5) for start in starts],
        "lost": [round(start.lost, 5) for start in starts],
        "histories": [len(values.states) for values in ground.values],
    }


def _pair(value: float, error: float) -> list[float | None]:
    """Return a value and its standard error with five digits; None for NaN, which JSON does not have."""
    return [None if math.isnan(each) else float(f"{each:.5g}") for each in (value, error)]
