"""One run of a comparison: a policy is trained in a world by one algorithm, until a cost is spent.

Costs are counted from the trees, so they are exact: what several trajectories share was sampled and executed once.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback

import benchmarks.laboratory.paper_rows  # noqa: F401  (registers rows)
from arpo_trainer.backends.in_process import transformers_backend
from arpo_trainer.rollout.engine import Engine
from arpo_trainer.rollout.metrics import mean_of_samples
from arpo_trainer.rollout.settings import RolloutSettings
from arpo_trainer.training.config import ARPOConfig
from arpo_trainer.training.recorder import RunRecorder, versions
from arpo_trainer.training.trainer import ARPOTrainer
from arpo_trainer.tree import RolloutTree
from benchmarks.laboratory.lab_policy import StartSettings, lab_policy
from benchmarks.laboratory.lab_worlds import LabWorld, lab_world
from benchmarks.laboratory.tiny_model import parameters

COSTS = ("trajectories", "sampled_tokens", "tool_calls", "update_tokens")
SETTINGS: dict[str, Any] = {
    "num_generations": 16,
    "learning_rate": 3e-4,
    "lr_scheduler_type": "constant",
    "max_completion_length": 1000,
    "max_turn_length": 8,
    "entropy_window": 3,  # the tokens of one call
    "bf16": False,
}
_PLUMBING: dict[str, Any] = {
    "gradient_checkpointing": False,
    "gradient_accumulation_steps": 1,
    "report_to": [],
    "save_strategy": "no",
    "logging_strategy": "no",
    "disable_tqdm": True,
}
_OWN = {
    "output_dir",
    "algorithm",
    "seed",
    "per_device_train_batch_size",
    "max_steps",
    "use_cpu",
}  # they follow from the `RunSpec`
_MOST_POINTS = 64  # of a stored curve
_MOST_STEPS = 4  # times those that a budget is expected to last, for policies that stop calling tools


@dataclass(frozen=True)
class RunSpec:
    """One run.

    Attributes:
        algorithm: a row of `algorithms.registry.ALGORITHMS`.
        label: name of the run's algorithm in tables; two labels may name the same algorithm with other settings.
        level: name of the world; a row of `lab_worlds.WORLDS`.
        knobs: of the world, in place of its own.
        seed: of training; the starting policy is the same for all seeds.
        budget: cost -> how much of it may be spent; names of `COSTS`. Training ends when one of them is spent.
        groups: prompts per step.
        settings: fields of `ARPOConfig` that replace `SETTINGS` and those of the world.
        policy: settings of the policy to start from that replace the defaults; level and knobs are those of the run.
        test_tasks: number of held-out tasks of the final evaluation, each sampled four times.

    Raises:
        ValueError: there are no groups or no test tasks, or a setting of the policy is wrong.
    """

    algorithm: str
    label: str
    level: str
    seed: int
    budget: dict[str, int]
    knobs: dict[str, Any] = field(default_factory=dict)
    groups: int = 4
    settings: dict[str, Any] = field(default_factory=dict)
    policy: dict[str, Any] = field(default_factory=dict)
    test_tasks: int = 64

    def __post_init__(self) -> None:
        for name in ("groups", "test_tasks"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {getattr(self, name)!r}")
        _ = self.policy_settings  # for its errors, which would otherwise come with the first run

    @property
    def world(self) -> LabWorld:
        """The row of the world."""
        return lab_world(self.level)

    @property
    def policy_settings(self) -> StartSettings:
        """The settings of the starting policy."""
        return self.world.start(self.level, self.knobs, self.policy)


def training_run(spec: RunSpec, folder: Path) -> dict[str, Any]:
    """Train, and return the record of the run as plain data.

    The record holds the costs after each step and the mean success of the planned roots of that step's rollout, which
    is an unbiased estimate of the success of the policy before that step's update (`root_success`).

    Args:
        spec: the run.
        folder: where TRL may write.
    """
    started = time.monotonic()
    torch.set_num_threads(1)
    env = spec.world.env(spec.knobs)
    config = run_config(spec, folder)
    costs = CostCounter(spec.budget, config.num_iterations)
    trainer = ARPOTrainer(
        lab_policy(spec.policy_settings),
        env,
        args=config,
        callbacks=[StopWhenSpent(costs)],
    )
    trainer.remove_callback(RunRecorder)  # the record of the run is what this function returns
    costs.packed = trainer.packs  # known only now: "auto" may come to flat rows
    trainer.train()
    return {
        "algorithm": spec.algorithm,
        "label": spec.label,
        "env": spec.level,
        "seed": spec.seed,
        "settings": asdict(spec),
        "status": "finished",
        "error": "",
        "curve": thinned(costs.curve),
        "final": final_success(trainer, spec),
        "seconds": round(time.monotonic() - started, 1),
        "versions": versions(),
    }


def run_config(spec: RunSpec, folder: Path) -> ARPOConfig:
    """Return the trainer's settings of a run.

    Raises:
        ValueError: a setting is one that all runs share, settings do not go together, or the budget does not last.
    """
    settings = {**SETTINGS, **spec.world.settings, **spec.settings}
    plumbing = {**_PLUMBING, "max_rows": spec.world.max_rows, "prefix_tokens": spec.world.prefix_tokens}
    if fixed := sorted(settings.keys() & (plumbing.keys() | _OWN)):
        raise ValueError(f"{', '.join(fixed)} cannot be set here: it is the same for all runs, or follows from the run")
    rows = spec.groups * settings["num_generations"]
    return ARPOConfig(
        output_dir=str(folder),
        algorithm=spec.algorithm,
        seed=spec.seed,
        per_device_train_batch_size=rows,
        max_steps=most_steps(spec, rows) * int(settings.get("num_iterations", 1)),
        use_cpu=not (spec.world.gpu and torch.cuda.is_available()),
        **plumbing,
        **settings,
    )


def most_steps(spec: RunSpec, rows: int) -> int:
    """Return the most rollouts of a run.

    Raises:
        ValueError: the budget is empty, has a cost that does not exist, or is too small for one step.
    """
    expected = spec.world.expected(spec.knobs)
    for name, most in spec.budget.items():
        if name not in COSTS:
            raise ValueError(f"budget: {name!r} is no cost; the costs are {', '.join(COSTS)}")
        if most < rows * expected[name]:
            raise ValueError(
                f"budget: {name}={most} does not last for one step of {rows} trajectories, which takes about "
                f"{rows * expected[name]}; raise it, or lower num_generations or groups"
            )
    if not spec.budget:
        raise ValueError(f"give a budget, such as {{'tool_calls': 20000}}; the costs are {', '.join(COSTS)}")
    steps = [math.ceil(most / (rows * expected[name])) for name, most in spec.budget.items()]
    return min(steps) * (1 if "trajectories" in spec.budget else _MOST_STEPS)


class CostCounter:
    """Counts what rollouts cost, and keeps the learning curve.

    Args:
        budget: cost -> how much may be spent.
        iterations: number of updates that use a rollout (`num_iterations`).

    Attributes:
        packed: whether updates compute what trajectories share once.
    """

    packed = True

    def __init__(self, budget: dict[str, int], iterations: int = 1) -> None:
        self.budget, self.curve, self.iterations = budget, list[dict[str, Any]](), iterations
        self.total = dict.fromkeys(COSTS, 0)

    def add(self, trees: Sequence[RolloutTree]) -> None:
        """Count one rollout."""
        for tree in trees:
            for name, cost in tree_costs(tree, self.packed).items():
                self.total[name] += cost * (self.iterations if name == "update_tokens" else 1)
        success, episodes = root_success(trees)
        self.curve.append({"step": len(self.curve) + 1, **self.total, "success": success, "episodes": episodes})

    @property
    def spent(self) -> bool:
        """Whether a cost has reached its budget."""
        return any(self.total[name] >= most for name, most in self.budget.items())


def thinned(curve: Sequence[dict[str, Any]], most: int = _MOST_POINTS) -> list[dict[str, Any]]:
    """Return a learning curve of at most so many points: neighbours are joined, their successes by episodes."""
    size = -(-len(curve) // most)
    points = []
    for first in range(0, len(curve), size or 1):
        part = curve[first : first + size]
        episodes = sum(point["episodes"] for point in part)
        success = sum(point["success"] * point["episodes"] for point in part) / max(1, episodes)
        points.append({**part[-1], "success": round(success, 5), "episodes": episodes})
    return points


def tree_costs(tree: RolloutTree, packed: bool = True) -> dict[str, int]:
    """Return what a tree cost: trajectories, tokens sampled, calls executed, and tokens of an update.

    Args:
        tree: the tree.
        packed: whether the update computes what trajectories share once; otherwise each of them is a row of its own.
    """
    rows, after_prompt = (1, tree.unique_tokens()) if packed else (len(tree.trajectories), tree.copied_tokens())
    model = [span for span in tree.spans if span.kind == "model"]
    return {
        "trajectories": len(tree.trajectories),
        "sampled_tokens": sum(len(span.ids) for span in model),
        "tool_calls": sum(span.is_result for span in tree.spans),
        "update_tokens": rows * len(tree.prompt_ids) + after_prompt,
    }


def root_success(trees: Sequence[RolloutTree]) -> tuple[float, int]:
    """Return the mean reward of the independent samples, every prompt counting the same, and their number.

    Top-ups are none, although they begin at the prompt: how many a group gets depends on how its roots fared. Samples
    that failed do not count.
    """
    rewards = [[one.reward for one in tree.trajectories] for tree in trees]
    count = sum(
        group[number] is not None for tree, group in zip(trees, rewards, strict=True) for number in tree.samples()
    )
    return mean_of_samples(trees, rewards) or 0.0, count


class StopWhenSpent(TrainerCallback):  # type: ignore[misc]  # transformers is untyped
    """Counts what is spent, and ends the training when it is the budget."""

    def __init__(self, costs: CostCounter) -> None:
        self.costs = costs

    def on_rollout(self, trees: list[RolloutTree]) -> None:
        """Count a rollout."""
        self.costs.add(trees)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        """Stop if the budget is spent."""
        control.should_training_stop = control.should_training_stop or self.costs.spent
        return control


def final_success(trainer: ARPOTrainer, spec: RunSpec, samples: int = 4) -> dict[str, Any]:
    """Return the mean success of the trained policy on held-out tasks, sampled as in training."""
    env = spec.world.env(spec.knobs, split="test")
    settings = trainer.args.rollout_settings().plain(samples)
    trainer.model.eval()
    engine = Engine(trainer.backend, trainer.engine.tokenizer, env, settings, limits=_at_once(spec.world))
    return _sampled_success(engine, spec.test_tasks)


def start_success(policy: StartSettings, tasks: int = 32, samples: int = 4) -> dict[str, Any]:
    """Return the mean success of a policy before training, sampled as in training, and its number of parameters.

    Args:
        policy: what it is made of; it is made if it is not there.
        tasks: number of tasks.
        samples: trajectories of each task.
    """
    torch.set_num_threads(1)
    folder = lab_policy(policy)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    world = lab_world(policy.level)
    limits = {name: {**SETTINGS, **world.settings}[name] for name in ("max_completion_length", "max_turn_length")}
    settings = RolloutSettings(**limits).plain(samples)
    env, backend = world.env(policy.knobs, split="test"), transformers_backend(model, tokenizer)
    found = _sampled_success(Engine(backend, tokenizer, env, settings, limits=_at_once(world)), tasks)
    return {**found, "parameters": parameters(model)}


def _at_once(world: LabWorld) -> dict[str, int]:
    """Return the limit of an evaluation: more trajectories than rows would only fill the memory."""
    return {"trajectory": world.max_rows}


def _sampled_success(engine: Engine, tasks: int) -> dict[str, Any]:
    trees = asyncio.run(engine.rollout([engine.env.tasks.task(number) for number in range(tasks)]))
    success, episodes = root_success(trees)
    return {"success": success, "episodes": episodes}
