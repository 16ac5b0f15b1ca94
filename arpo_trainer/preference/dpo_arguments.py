"""The settings of `arpo dpo`: `DPOArguments`, and how settings by name become `DPOArguments` and TRL's `DPOConfig`.

run, args = configure_dpo(read_settings("dpo-tool-star-qwen2.5-3b", ["model=runs/mine/model"], command="dpo"))
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arpo_trainer.demo_model import DEMO_MODEL, check_model_folder
from arpo_trainer.evaluation.eval_settings import EvalSettings
from arpo_trainer.make_env import known_id
from arpo_trainer.preference.pairs import PairSettings, check_shared_losses
from arpo_trainer.run.sft_arguments import split_rows_settings
from arpo_trainer.run.weight_arguments import WeightArguments
from arpo_trainer.training.devices import process_count
from arpo_trainer.validation import check_name, check_types

if TYPE_CHECKING:
    from trl import DPOConfig

GENERATORS = ("transformers", "vllm", "vllm-server")  # an endpoint does not return the ids that it sampled
NO_PAIRS = ("error", "skip")
_SAMPLING = {"top_p": 1.0, "repetition_penalty": 1.0}  # as in training: the pairs are of the policy itself
_LOWEST = {
    **dict.fromkeys(("tasks", "pairs_per_task", "concurrency", "rows_per_update", "max_turn_length"), 1),
    "max_completion_length": 1,
    "first_task": 0,
    "samples": 2,
}


@dataclass
class DPOArguments(WeightArguments):
    """The settings of a round of self-critic DPO beside TRL's `DPOConfig`, with those of `WeightArguments`.

    Attributes:
        model: the policy: a hub id, a folder, or "smollm2-135m-instruct". It is sampled, trained, and the reference.
        env: the environment whose tasks are sampled; its reward scores them.
        env_kwargs: its options. What is missing is the split "train", and for a finite set an order drawn with `seed`.
        tasks: how many tasks are sampled.
        first_task: the number of the first one; the next round of a pipeline begins behind those of this one.
        samples: trajectories of each task.
        algorithm: "grpo" samples independently; one that branches, such as "arpo", plays a tree for each task.
        temperature: of sampling.
        max_turn_length: tokens of one turn; None is 4096.
        max_completion_length: tokens after the prompt, with results; None is what the model takes.
        rollout: other settings of rollouts by name, such as {"initial_rollouts": 4}.
        generation: "transformers", "vllm" (an engine in this process) or "vllm-server".
        vllm_server: addresses of servers that serve `model`, for "vllm-server".
        concurrency: most trajectories at once.
        limits: most operations of one kind at once, such as {"python": 8}.
        max_broken: largest share of trajectories that may break before the round stops.
        pairs: files of pairs to learn from, in place of sampling.
        chosen_reward: the least reward of a chosen trajectory; what has less is rejected.
        pairs_per_task: most pairs of one task; no trajectory is in two.
        pair_kind: "any", or "fork" for pairs of trajectories that share a turn.
        no_pairs: what happens if no pair is found: "error" stops, "skip" hands the policy on as it is.
        rows_per_update: pairs that an update sees, on any number of processes; None leaves TRL's settings.
    """

    model: str = DEMO_MODEL
    env: str = "arpo/Arithmetic-v0"
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    tasks: int = 64
    first_task: int = 0
    samples: int = 8
    algorithm: str = "grpo"
    temperature: float = 1.0
    max_turn_length: int | None = None
    max_completion_length: int | None = None
    rollout: dict[str, Any] = field(default_factory=dict)
    generation: str = "transformers"
    vllm_server: list[str] = field(default_factory=list)
    concurrency: int = 64
    limits: dict[str, int] = field(default_factory=dict)
    max_broken: float = 0.2
    pairs: str | list[str] = field(default_factory=list)
    chosen_reward: float = 1.0
    pairs_per_task: int = 4
    pair_kind: str = "any"
    no_pairs: str = "error"
    rows_per_update: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_types(self, DPOArguments.__annotations__)
        for name, low in _LOWEST.items():
            if (value := getattr(self, name)) is not None and value < low:
                raise ValueError(f"{name} must be at least {low}, got {value}")
        check_name("generation", self.generation, GENERATORS)
        check_name("no_pairs", self.no_pairs, NO_PAIRS)
        if (self.generation == "vllm-server") != bool(self.vllm_server):
            raise ValueError("generation: vllm-server and vllm_server: [URL] go together: give both, or neither")
        self.pair_settings(0)

    def pair_settings(self, seed: int) -> PairSettings:
        """Return how trajectories become pairs."""
        return PairSettings(self.chosen_reward, self.pairs_per_task, self.pair_kind, seed)

    def pair_files(self) -> list[str]:
        """Return the files of `pairs`."""
        return [self.pairs] if isinstance(self.pairs, str) else self.pairs

    def sampling(self, env_options: dict[str, Any], seed: int) -> EvalSettings:
        """Return what is played.

        Args:
            env_options: complete options of the environment.
            seed: of everything that is drawn.

        Raises:
            ValueError: a setting of rollouts is unknown, or cannot work.
        """
        lengths = {name: getattr(self, name) for name in ("max_turn_length", "max_completion_length")}
        given = {name: value for name, value in lengths.items() if value is not None}
        rollout = {**_SAMPLING, "temperature": self.temperature, **given, **self.rollout}
        trees = self.algorithm != "grpo"
        return EvalSettings(
            (self.env,),
            env_options,
            tasks=self.tasks,
            first_task=self.first_task,
            samples=1 if trees else self.samples,
            algorithm=self.algorithm,
            seed=seed,
            rollout={"num_generations": self.samples, **rollout} if trees else rollout,
            concurrency=self.concurrency,
            limits=self.limits,
            max_broken=self.max_broken,
        )


def configure_dpo(settings: dict[str, Any]) -> tuple[DPOArguments, DPOConfig]:
    """Return the checked `DPOArguments` and `DPOConfig` for settings by name; no model and no task is loaded.

    Raises:
        ValueError: a setting is unknown or cannot work.
        UnknownEnvError: the environment is unknown; the error lists the nearest ids.
        FileNotFoundError: the model's folder is missing.
    """
    from trl import DPOConfig

    from arpo_trainer.training.devices import check_devices

    run, values = split_rows_settings(settings, DPOArguments, DPOConfig, "dpo")
    known_id(run.env)
    if values.get("remove_unused_columns"):
        raise ValueError("remove_unused_columns=true would remove the masks of tool results: leave it out")
    args = DPOConfig(**{**values, "remove_unused_columns": False})
    check_devices(args)
    if run.algorithm != "grpo" and not run.pairs:  # pairs that share turns are on their way
        check_shared_losses(args)
    if args.precompute_ref_log_probs and process_count() > 1:
        raise ValueError("precompute_ref_log_probs=true works in one process; leave it out with several")
    if Path(run.model).resolve() == Path(args.output_dir, "model").resolve():
        raise ValueError(
            f"the round would write its model over the one that it starts from, {run.model!r}, which a resumed round "
            "needs as the reference: give another output_dir"
        )
    run.sampling({}, args.seed).rollout_settings()  # checks the settings of rollouts
    check_model_folder(run.model)
    return run, args
