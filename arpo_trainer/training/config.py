"""`ARPOConfig`: TRL's `GRPOConfig` plus how trees are grown and how credit is spread over them."""

from __future__ import annotations

import importlib.util
import logging
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import torch

from arpo_trainer.algorithms.advantages import ADVANTAGES
from arpo_trainer.algorithms.credit_assignment import ATTRIBUTIONS
from arpo_trainer.algorithms.entropy import ESTIMATORS
from arpo_trainer.algorithms.losses import LOSSES, Loss, get_loss
from arpo_trainer.algorithms.registry import get_algorithm
from arpo_trainer.rollout.settings import RolloutSettings
from arpo_trainer.training.config_checks import check_sampling, check_trl_loss, check_vllm
from arpo_trainer.training.entropy_advantage import Moments, entropy_factor
from arpo_trainer.training.process_count import planned_processes, process_count
from arpo_trainer.training.trl_hooks import GRPOConfig
from arpo_trainer.training.trl_losses import check_loss_settings, no_op
from arpo_trainer.validation import check_name, check_types

logger = logging.getLogger(__name__)
_READ = {
    "num_generations": "int", "num_generations_eval": "int | None", "per_device_train_batch_size": "int",
    "gradient_accumulation_steps": "int", "steps_per_generation": "int | None", "num_iterations": "int",
    "max_completion_length": "int", "temperature": "float", "beta": "float", "epsilon": "float",
    "epsilon_high": "float | None", "delta": "float | None", "seed": "int",
    "learning_rate": "float", "max_steps": "int", "num_train_epochs": "float", "weight_decay": "float",
    "use_vllm": "bool", "vllm_mode": "str", "vllm_gpu_memory_utilization": "float", "vllm_tensor_parallel_size": "int",
    "vllm_max_model_length": "int | None",
}  # fmt: skip


@dataclass
class ARPOConfig(GRPOConfig):  # type: ignore[misc]  # trl is untyped
    """Settings of `ARPOTrainer`; everything of `GRPOConfig` is there too.

    `num_generations` is M of the paper, `temperature` and `max_completion_length` (the environment's tokens
    included) mean what they mean in TRL.

    Raises:
        ValueError: settings that cannot work together, before anything is loaded.
    """

    _VALID_DICT_FIELDS: ClassVar[list[str]] = [*GRPOConfig._VALID_DICT_FIELDS, "limits"]

    algorithm: str = field(
        default="arpo",
        metadata={
            "help": "A row of rollout and loss: 'arpo' grows trees (branches after tool results), 'aepo' balances "
            "roots and branches by entropy and keeps gradients that the clip drops, 'grpo' starts all at the prompt; "
            "also 'dapo', 'reinforce++', 'arpo-ranked', 'random', 'tree-grpo', 'arpo-reference', 'aepo-reference'."
        },
    )
    budget: str | None = field(
        default=None,
        metadata={"help": "Instead of the algorithm's: 'grpo', 'arpo' (N of M), 'aepo', 'aepo-reference'."},
    )
    branch: str | None = field(
        default=None,
        metadata={
            "help": "Instead of the algorithm's: 'arpo', 'aepo', 'arpo-ranked', 'random', 'tree-grpo', or a "
            "'-reference'."
        },
    )
    initial_rollouts: int | None = field(
        default=None,
        metadata={"help": "N: trajectories that start at the prompt; the rest is for branches. Default: half."},
    )
    branch_width: int = field(
        default=2,
        metadata={"help": "Z: paths that leave a branching point, the original included."},
    )
    branch_alpha: float = field(default=0.5, metadata={"help": "alpha: base of the branch score (ARPO eq. 5)."})
    branch_beta: float = field(default=0.2, metadata={"help": "beta: weight of the entropy rise (ARPO eq. 5)."})
    branch_threshold: float = field(default=0.5, metadata={"help": "tau: a score above it branches."})
    branch_penalty: float = field(
        default=0.05, metadata={"help": "Slope of AEPO's penalty for high-entropy steps in a row."}
    )
    branch_quota: int | None = field(
        default=None,
        metadata={
            "help": "Most branches of one root and all its descendants. Default: ceil((M - N) / N), and none in "
            "'tree-grpo' and the '-reference' rows; 0 is no quota."
        },
    )
    budget_beta: float = field(default=0.5, metadata={"help": "AEPO's budget: weight of the difference of entropies."})
    entropy_window: int = field(default=20, metadata={"help": "k: tokens whose entropy is compared."})
    entropy_estimator: str = field(
        default="auto",
        metadata={
            "help": "'exact', 'renormalised', 'tail', 'nll' or 'raw10'; 'auto' is exact on transformers and "
            "renormalised on vLLM, which hands out the most likely tokens only."
        },
    )
    entropy_topk: int = field(default=20, metadata={"help": "Tokens an estimate of the entropy is made from."})
    attribution: str = field(
        default="soft",
        metadata={
            "help": "'soft': each copy of a shared token keeps its trajectory's advantage; 'hard': their mean; "
            "'dedup': a shared token weighs once; 'turn': values backed up turn by turn; 'at2po': by entropy."
        },
    )
    advantage: str | None = field(
        default=None,
        metadata={
            "help": "Instead of the algorithm's: 'grpo', 'grpo-population', 'grpo-no-std', 'rloo', 'tree-grpo', "
            "'reinforce++'."
        },
    )
    policy_loss: str | None = field(
        default=None,
        metadata={
            "help": "Instead of the algorithm's: 'clipped', 'dapo', 'aepo', 'gppo', 'cispo', 'gspo', 'gspo-turn', or a "
            "'-reference'. `epsilon`, `epsilon_high` and `delta` follow it unless they are given; `loss_type` says how "
            "tokens are added up."
        },
    )
    entropy_weight: float | None = field(
        default=None,
        metadata={"help": "a: advantages times 1 + a z, z a token's entropy in standard deviations (AEPO); 0 is off."},
    )
    entropy_limit: float = field(default=3.0, metadata={"help": "Largest |z| of the entropy-aware advantage."})
    max_turn_length: int | None = field(
        default=None,
        metadata={"help": "New tokens in one turn of the model. Default: max_completion_length."},
    )
    packing: str = field(
        default="flat",
        metadata={
            "help": "'tree' computes what the rows of a micro-batch share once, with the same numbers up to rounding; "
            "'flat' each row in full."
        },
    )
    packing_tokens: int | None = field(
        default=None,
        metadata={"help": "Most tokens in one packed forward; default: what the flat rows would have taken."},
    )
    vllm_importance_sampling_correction: bool | None = field(
        default=None,
        metadata={
            "help": "Weigh tokens by the ratio of the trainer's to vLLM's probability. Default: yes, but for the "
            "'-reference' algorithms, whose code does not."
        },
    )
    vllm_importance_sampling_mode: str = field(
        default="token_truncate",
        metadata={
            "help": "'token_truncate' weighs each token by its own ratio, at most `vllm_importance_sampling_clip_max`; "
            "or 'token_mask', 'sequence_truncate', 'sequence_mask'. TRL's default, 'sequence_mask', drops rows whose "
            "product of ratios is above that, which for long rows it easily is."
        },
    )
    max_rows: int = field(default=64, metadata={"help": "Requests decoded together by the transformers backend."})
    prefix_tokens: int = field(
        default=32_768,
        metadata={
            "help": "Tokens whose keys and values the transformers backend keeps for later turns and branches; a whole "
            "rollout's are needed to compute nothing twice."
        },
    )
    max_invalid: float = field(
        default=0.2,
        metadata={"help": "Stop if more than this share of a rollout fails: what is left would be biased."},
    )
    turn_timeout: float = field(
        default=900.0,
        metadata={"help": "Seconds a step of an environment may take, for tools that have no limit of their own."},
    )
    retries: int = field(
        default=1,
        metadata={
            "help": "How often an episode whose sandbox or search broke down is played again up to where it was, if "
            "its tools may be called twice."
        },
    )
    limits: dict[str, int] | str | None = field(
        default=None,
        metadata={
            "help": "Most at once, by kind: 'trajectory', 'generate', 'reset', 'fork', 'answer', or a tool's name, as "
            'in {"search": 16}.'
        },
    )
    trace_every: int = field(
        default=1,
        metadata={"help": "Write the rollout trees of every n-th step to traces.jsonl; 0 writes none."},
    )

    @property
    def world_size(self) -> int:
        """How many processes train together; those of a plan before they exist."""
        started: int = super().world_size
        return planned_processes() or started

    def __post_init__(self) -> None:
        check_types(self, {**_READ, **ARPOConfig.__annotations__})
        if self.initial_rollouts is None:
            self.initial_rollouts = max(1, (self.num_generations or 2) // 2)
        for name in ("per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        self._check_budget()
        row = get_algorithm(self.algorithm, self.budget, self.branch)
        self.advantage, self.policy_loss = self.advantage or row.advantage, self.policy_loss or row.loss
        self.entropy_weight = row.entropy_weight if self.entropy_weight is None else self.entropy_weight
        if self.vllm_importance_sampling_correction is None:
            self.vllm_importance_sampling_correction = not self.algorithm.endswith("-reference")
        check_name("advantage", self.advantage, ADVANTAGES)
        self._fit_loss()
        check_name("entropy_estimator", self.entropy_estimator, ("auto", *ESTIMATORS))
        check_name("packing", self.packing, ("tree", "flat"))
        check_name("attribution", self.attribution, ATTRIBUTIONS)
        check_sampling(self)
        lowest = {"max_rows": 1, "trace_every": 0, "entropy_topk": 1, "prefix_tokens": 1, "num_iterations": 1}
        for name, low in lowest.items():
            if getattr(self, name) < low:
                raise ValueError(f"{name} must be at least {low}, got {getattr(self, name)!r}")
        self._check_vllm()
        self.rollout_settings()
        self._fit_evaluation()
        super().__post_init__()
        self._check_limits()
        self._check_loss()

    def _fit_loss(self) -> None:
        """Give TRL's bounds the loss's values where nobody has set them."""
        loss = get_loss(self.policy_loss or "")
        if loss == LOSSES["clipped"]:  # TRL's own, whatever its bounds
            return
        low: float = self.epsilon
        low = loss.low if low == GRPOConfig.epsilon else low
        unset = {"epsilon_high": low if loss.low == loss.high else loss.high, "delta": loss.dual}
        for name, value in {"epsilon": low, **{n: v for n, v in unset.items() if getattr(self, n) is None}}.items():
            setattr(self, name, value)

    def _fit_evaluation(self) -> None:
        """Judge checkpoints by accuracy, and let TRL's check of a batch that evaluation does not use pass."""
        metric: str | None = self.metric_for_best_model  # type: ignore[has-type]
        if metric is None and (self.load_best_model_at_end or self.save_strategy == "best"):
            self.metric_for_best_model = "accuracy"
        if self.eval_strategy != "no" and self.num_generations_eval is None:
            size, rows = self.num_generations or 1, int(self.per_device_eval_batch_size)  # type: ignore[has-type]
            self.per_device_eval_batch_size = -(-rows // size) * size

    def token_loss(self) -> Loss:
        """Return the loss of a token, with the bounds that hold; TRL's own, "clipped", has its bounds from TRL."""
        if self.policy_loss == "clipped":
            return LOSSES["clipped"]
        high = self.epsilon if self.epsilon_high is None else self.epsilon_high
        try:
            return replace(get_loss(self.policy_loss or ""), low=self.epsilon, high=high, dual=self.delta)
        except ValueError as error:
            raise ValueError(f"{error}; low is `epsilon`, high `epsilon_high`, dual `delta`") from None

    def _check_loss(self) -> None:
        check_trl_loss(self)
        if self.policy_loss != "clipped":
            loss = self.token_loss()
            check_loss_settings(loss, self)
            if idle := no_op(loss, self):
                logger.warning("%s", idle)
        entropy_factor(torch.zeros(1), Moments(), self.entropy_weight or 0.0, self.entropy_limit)
        if self.scale_rewards == "none" and self.advantage in ("grpo-population", "tree-grpo", "reinforce++"):
            raise ValueError(
                f"advantage={self.advantage!r} divides by a deviation, which scale_rewards='none' leaves out: take "
                "advantage='grpo-no-std', or leave scale_rewards out"
            )
        whole = self.scale_rewards == "batch" or self.multi_objective_aggregation != "sum_then_normalize"
        if whole and self.advantage != "grpo":
            raise ValueError(
                f"advantage={self.advantage!r} compares rewards itself: leave scale_rewards and "
                "multi_objective_aggregation at their defaults"
            )

    def _check_vllm(self) -> None:
        if not self.use_vllm:
            return
        if self.entropy_estimator == "exact":
            raise ValueError(
                "entropy_estimator='exact' needs the whole distribution, and vLLM hands out the most likely tokens: "
                "take 'auto'"
            )
        check_vllm(self, process_count())
        if importlib.util.find_spec("vllm") is None and not planned_processes():
            raise ValueError("use_vllm=True needs vLLM here: pip install 'arpo-gym[vllm]', or leave use_vllm out")

    def _check_limits(self) -> None:
        given = self.limits if self.limits is not None else {}
        if not isinstance(given, dict) or not all(type(most) is int and most >= 1 for most in given.values()):
            raise ValueError(f"limits={given!r}: say how many at most by kind, as in {{'search': 16}}")

    def _check_budget(self) -> None:
        total, first = self.num_generations or 0, self.initial_rollouts or 0
        if total < 2:
            raise ValueError(f"num_generations must be at least 2: advantages compare trajectories; got {total}")
        if not 1 <= first <= total:
            raise ValueError(
                f"initial_rollouts ({first}) must be between 1 and num_generations ({total}): it is how many of them "
                "start at the prompt"
            )
        micro, steps = self.per_device_train_batch_size, self.steps_per_generation or self.gradient_accumulation_steps
        ranks = process_count()  # TRL knows them only after its own checks
        if self.generation_batch_size is None and (micro * steps * ranks) % total:
            raise ValueError(
                f"per_device_train_batch_size ({micro}) x steps_per_generation ({steps}) x processes ({ranks}) = "
                f"{micro * steps * ranks} rows must be a multiple of num_generations ({total}): whole groups"
            )

    def rollout_settings(self, **overrides: Any) -> RolloutSettings:
        """Return the settings of the rollout engine: the fields of `RolloutSettings`, copied by name.

        Args:
            overrides: fields with values that replace those of this configuration.
        """
        shared = {field.name: getattr(self, field.name) for field in fields(RolloutSettings)}
        return RolloutSettings(**{**shared, **overrides})

    def rollout_limits(self) -> dict[str, int]:
        """Return how much of a kind goes on at once."""
        return dict(self.limits or {})  # type: ignore[arg-type]  # text has been parsed
