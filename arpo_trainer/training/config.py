"""`ARPOConfig`: TRL's `GRPOConfig` plus the settings of tree rollouts and credit assignment."""

from __future__ import annotations

import importlib.util
import logging
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import torch
from transformers.utils import is_torch_bf16_gpu_available

from arpo_trainer.algorithms.advantages import ADVANTAGES
from arpo_trainer.algorithms.credit_assignment import CREDITS
from arpo_trainer.algorithms.entropy import ESTIMATORS
from arpo_trainer.algorithms.losses import LOSSES, Loss, get_loss
from arpo_trainer.algorithms.registry import get_algorithm
from arpo_trainer.optional_dependencies import warn_of_vllm
from arpo_trainer.packing.setting import packing_setting
from arpo_trainer.rollout.settings import RolloutSettings
from arpo_trainer.training.config_checks import (
    check_group_sizes,
    check_overlap,
    check_sampling,
    check_servers,
    check_trl_loss,
    check_vllm,
)
from arpo_trainer.training.devices import lacks_bfloat16
from arpo_trainer.training.entropy_advantage import Moments, entropy_factor
from arpo_trainer.training.process_count import planned_processes, process_count
from arpo_trainer.training.trl_hooks import GRPOConfig
from arpo_trainer.training.trl_losses import check_loss_settings, no_op
from arpo_trainer.training.worker_settings import RolloutWorkerSettings
from arpo_trainer.validation import check_name, check_types
from envs_registry.install_line import install_line

logger = logging.getLogger(__name__)
# TRL's settings that are read before TRL checks them; a wrong type would fail here with an obscure error
_READ = {
    "num_generations": "int",
    "num_generations_eval": "int | None",
    "per_device_train_batch_size": "int",
    "gradient_accumulation_steps": "int",
    "steps_per_generation": "int | None",
    "num_iterations": "int",
    "max_completion_length": "int",
    "temperature": "float",
    "beta": "float",
    "epsilon": "float",
    "epsilon_high": "float | None",
    "delta": "float | None",
    "seed": "int",
    "learning_rate": "float",
    "max_steps": "int",
    "num_train_epochs": "float",
    "weight_decay": "float",
    "use_vllm": "bool",
    "vllm_mode": "str",
    "vllm_gpu_memory_utilization": "float",
    "vllm_tensor_parallel_size": "int",
    "vllm_max_model_length": "int | None",
}


@dataclass
class ARPOConfig(RolloutWorkerSettings, GRPOConfig):  # type: ignore[misc]  # trl is untyped
    """Settings of `ARPOTrainer`, in addition to those of `GRPOConfig`.

    `num_generations` is M of the paper. `temperature` and `max_completion_length` (tokens of the environment included)
    have their meaning in TRL.

    Raises:
        ValueError: settings cannot work together; raised before anything is loaded.
    """

    _VALID_DICT_FIELDS: ClassVar[list[str]] = [*GRPOConfig._VALID_DICT_FIELDS, "limits", "rollout_worker_resources"]

    algorithm: str = field(
        default="arpo",
        metadata={
            "help": "Rollout and loss: 'arpo' grows trees (branches after tool results), 'aepo' balances roots and "
            "branches by entropy and keeps gradients that the clip would drop, 'grpo' starts all at the prompt; "
            "also 'dapo', 'reinforce++', 'arpo-ranked', 'random', 'tree-grpo', 'arpo-reference', 'aepo-reference', "
            "'spread', 'fork', 'at2po', 'treerl', 'treepo', 'rtmc', 'vineppo', 'spo', "
            "'igpo', 'a2tgpo', 'toolpo'; or 'MODULE:NAME', one of your own."
        },
    )
    budget: str | None = field(
        default=None,
        metadata={"help": "In place of the algorithm's: 'grpo', 'arpo' (N of M), 'aepo', 'aepo-reference'."},
    )
    branch: str | None = field(
        default=None,
        metadata={
            "help": "In place of the algorithm's: 'arpo', 'aepo', 'arpo-ranked', 'arpo-turn-end', 'random', "
            "'tree-grpo', 'spread', 'vine', 'treerl', 'at2po', 'treepo', or "
            "a '-reference' method."
        },
    )
    initial_rollouts: int | None = field(
        default=None,
        metadata={"help": "N: trajectories that start at the prompt; the others are for branches. Default: half."},
    )
    branch_width: int = field(
        default=2,
        metadata={"help": "Z: paths that leave a branching point, the original included."},
    )
    branch_alpha: float = field(default=0.5, metadata={"help": "alpha: base of the branch score (ARPO eq. 5)."})
    branch_beta: float = field(default=0.2, metadata={"help": "beta: weight of the entropy rise (ARPO eq. 5)."})
    branch_threshold: float = field(default=0.5, metadata={"help": "tau: a point with a score above it branches."})
    branch_penalty: float = field(
        default=0.05, metadata={"help": "Slope of AEPO's penalty for consecutive high-entropy steps."}
    )
    branch_quota: int | None = field(
        default=None,
        metadata={
            "help": "Most branches of one root and all its descendants. Default: ceil((M - N) / N), and no quota in "
            "'tree-grpo', the '-reference' algorithms and some others (see Algorithms). 0 means no quota."
        },
    )
    branch_baseline: str = field(
        default="root",
        metadata={
            "help": "What the rise of entropy is measured against: 'root' is the first turn of the tree, 'previous' "
            "the turn before on the same path."
        },
    )
    branch_order: str = field(
        default="rounds",
        metadata={
            "help": "'rounds' spends the branch budget as if trajectories played in rounds, so that trees do not "
            "depend on timing; 'arrival' spends it first come, first served (for an ablation)."
        },
    )
    budget_beta: float = field(default=0.5, metadata={"help": "AEPO's budget: weight of the entropy difference."})
    entropy_window: int = field(default=20, metadata={"help": "k: number of tokens whose entropy is compared."})
    entropy_estimator: str = field(
        default="auto",
        metadata={
            "help": "'exact', 'renormalised', 'tail', 'nll' or 'raw10'; 'auto' is exact on transformers and "
            "renormalised on vLLM, which returns the most likely tokens only."
        },
    )
    entropy_topk: int = field(default=20, metadata={"help": "Number of tokens that the entropy is estimated from."})
    attribution: str | None = field(
        default=None,
        metadata={
            "help": "In place of the algorithm's. 'soft': each copy of a shared token has the advantage of its "
            "trajectory; 'hard': their mean; 'dedup': a shared token counts once; 'turn': values backed up turn by "
            "turn; 'at2po': by entropy; 'fork': against sister branches; or the rule of a paper: 'treerl', 'treepo', "
            "'spo', 'vineppo', 'rtmc', 'igpo', 'a2tgpo' (gold answers)."
        },
    )
    advantage: str | None = field(
        default=None,
        metadata={
            "help": "In place of the algorithm's: 'grpo', 'grpo-population', 'grpo-no-std', 'rloo', 'tree-grpo', "
            "'reinforce++'."
        },
    )
    policy_loss: str | None = field(
        default=None,
        metadata={
            "help": "In place of the algorithm's: 'clipped', 'dapo', 'aepo', 'gppo', 'cispo', 'gspo', 'gspo-turn', "
            "or a '-reference' loss. It sets `epsilon`, `epsilon_high`, `delta` and `loss_type` unless they are given."
        },
    )
    loss_type: str | None = field(
        default=None,
        metadata={
            "help": "How the losses of tokens are added up: 'dapo', 'grpo', 'bnpo', 'dr_grpo', or a loss of TRL's. "
            "Default: that of the policy loss, 'grpo' (mean of each trajectory, then of trajectories) for 'gspo' and "
            "'gspo-turn', 'dapo' (mean of all tokens) for the others."
        },
    )
    use_bias_correction_kl: bool = field(
        default=False,
        metadata={
            "help": "Multiply the KL (`beta`) by the probability ratio. Default: false, which is the KL of the papers "
            "(GRPO eq. 4); TRL's own default is true."
        },
    )
    entropy_weight: float | None = field(
        default=None,
        metadata={
            "help": "a: advantages are multiplied by 1 + a z, z the entropy of a token in standard deviations "
            "(AEPO); 0 is off."
        },
    )
    entropy_limit: float = field(default=3.0, metadata={"help": "Largest |z| of the entropy-aware advantage."})
    action_weight: float | None = field(
        default=None,
        metadata={
            "help": "Weight of ToolPO's action advantage on the tokens of tool calls; it needs the reward component "
            "`right_calls`. 0 is off."
        },
    )
    max_turn_length: int | None = field(
        default=None,
        metadata={"help": "Most new tokens in one turn. Default: max_completion_length."},
    )
    # becomes True or False unless it is "auto"; annotated as what argument parsers take
    packing: str = field(
        default="auto",
        metadata={
            "help": "True computes what the rows of a micro-batch share once, with the same updates up to rounding; it "
            "fails where a model does not allow that. False computes each row in full. 'auto' packs where tests have "
            "compared the two (kind of model, device, sharding), and else trains on full rows, with FlashAttention "
            "without their padding, and logs why."
        },
    )
    packing_tokens: int | None = field(
        default=None,
        metadata={"help": "Most tokens in one packed forward; default: what the flat rows would have taken."},
    )
    vllm_importance_sampling_correction: bool | None = field(
        default=None,
        metadata={
            "help": "Weigh tokens by the ratio of the trainer's probability to the one they were sampled with: vLLM's, "
            "or with `max_staleness` that of older weights. Default: true, except for the '-reference' algorithms, "
            "whose code does not."
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
    vllm_server_urls: list[str] | None = field(
        default=None,
        metadata={"help": "Addresses of several vLLM servers, not `vllm_server_base_url`; each gets the weights."},
    )
    max_rows: int = field(
        default=64, metadata={"help": "Most requests that the transformers backend decodes together."}
    )
    prefix_tokens: int = field(
        default=32_768,
        metadata={
            "help": "Most tokens whose keys and values the transformers backend keeps for later turns and branches; to "
            "compute nothing twice it needs those of a whole rollout."
        },
    )
    max_invalid: float = field(
        default=0.2,
        metadata={"help": "Stop if more than this share of a rollout fails, because the rest would be biased."},
    )
    turn_timeout: float = field(
        default=900.0,
        metadata={"help": "Most seconds for a step of an environment, for tools without a limit of their own."},
    )
    retries: int = field(
        default=1,
        metadata={
            "help": "How often an episode whose sandbox or search failed is replayed up to where it was, if its tools "
            "may be called twice."
        },
    )
    limits: dict[str, int] | str | None = field(
        default=None,
        metadata={
            "help": "Most operations at once by kind: 'trajectory', 'generate', 'reset', 'fork', 'answer', or the name "
            'of a tool, as in {"search": 16}.'
        },
    )
    max_staleness: int = field(
        default=0,
        metadata={
            "help": "Play the next rollout while the model learns from the last one, with weights that are at most "
            "this many steps old at its first use. TRL's importance weights correct for their age. 0 waits for the "
            "new weights."
        },
    )
    logging_steps: float = field(
        default=1,
        metadata={
            "help": "Steps between two logs, the rows of metrics.jsonl; with TRL's 10 a short run would have none. "
            "Evaluations keep that interval unless `eval_steps` is given."
        },
    )
    trace_every: int = field(
        default=1,
        metadata={"help": "Write the rollout trees of every n-th step to traces.jsonl; 0 writes none."},
    )

    @classmethod
    def of(cls, args: Any) -> ARPOConfig:
        """Return settings as an `ARPOConfig`; of a `GRPOConfig` those are taken that differ from its defaults.

        Raises:
            TypeError: they are of another trainer.
        """
        if isinstance(args, cls):
            return args
        if not isinstance(args, GRPOConfig):
            raise TypeError(
                f"args must be an ARPOConfig, which has all fields of GRPOConfig; got {type(args).__name__}"
            )
        given = {each.name: getattr(args, each.name) for each in fields(args) if each.init}
        usual = {each.name: each.default for each in fields(args)}
        # TRL derives it from the others, and takes only one of the two
        derived = {"generation_batch_size"}
        if args.bf16:  # TRL's default, too, but only where a GPU has it
            derived.add("bf16")
        return cls(**{name: v for name, v in given.items() if v != usual[name] and name not in derived})

    @property
    def world_size(self) -> int:
        """Number of processes that train together; in a dry run, the planned number."""
        started: int = super().world_size
        # TRL checks batch sizes with it, so a dry run refuses the sizes that the real run would refuse
        return planned_processes() or started

    def __post_init__(self) -> None:
        check_types(self, {**_READ, **ARPOConfig.__annotations__, "packing": ""})
        if self.bf16 is None and not planned_processes():  # type: ignore[has-type]  # TRL's default fails without a GPU
            there = is_torch_bf16_gpu_available() and not lacks_bfloat16()
            self.bf16 = there and not (self.fp16 or self.use_cpu)
        if self.eval_steps is None and self.logging_steps == ARPOConfig.logging_steps:  # type: ignore[has-type]
            self.eval_steps = GRPOConfig.logging_steps
        if self.initial_rollouts is None:
            self.initial_rollouts = max(1, (self.num_generations or 2) // 2)
        for name in ("per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        self.max_turn_length = self.max_turn_length or None  # 0 has always meant the default
        check_group_sizes(self, process_count())  # TRL knows the processes only after its own checks
        row = get_algorithm(self.algorithm, self.budget, self.branch)
        self.advantage, self.policy_loss = self.advantage or row.advantage, self.policy_loss or row.loss
        self.attribution = self.attribution or row.attribution
        self.entropy_weight = row.entropy_weight if self.entropy_weight is None else self.entropy_weight
        self.action_weight = row.action_weight if self.action_weight is None else self.action_weight
        if self.vllm_importance_sampling_correction is None:
            self.vllm_importance_sampling_correction = not self.algorithm.endswith("-reference")
        check_name("advantage", self.advantage, ADVANTAGES)
        self._fit_loss()
        check_name("entropy_estimator", self.entropy_estimator, ("auto", *ESTIMATORS))
        self.packing = packing_setting(self.packing)  # type: ignore[assignment]
        check_name("attribution", self.attribution, CREDITS)
        check_sampling(self)
        lowest = {"max_rows": 1, "trace_every": 0, "entropy_topk": 1, "prefix_tokens": 1, "num_iterations": 1}
        lowest |= {"action_weight": 0, "max_staleness": 0}
        for name, low in lowest.items():
            if getattr(self, name) < low:
                raise ValueError(f"{name} must be at least {low}, got {getattr(self, name)!r}")
        self._check_vllm()
        self.check_workers(process_count())
        self.rollout_settings()  # refuses what the engine would refuse
        self._fit_evaluation()
        super().__post_init__()
        # these two need what TRL has just done: `limits` parsed from text, `steps_per_generation` filled in
        self._check_limits()
        self._check_loss()

    def _fit_loss(self) -> None:
        """Set TRL's bounds, and how tokens are added up, to those of the loss unless they were given."""
        loss = get_loss(self.policy_loss or "")
        self.loss_type = self.loss_type or loss.loss_type
        if loss == LOSSES["clipped"]:  # TRL's own loss, with any bounds
            return
        low: float = self.epsilon
        low = loss.low if low == GRPOConfig.epsilon else low  # TRL's default counts as not given
        unset = {"epsilon_high": low if loss.low == loss.high else loss.high, "delta": loss.dual}
        for name, value in {"epsilon": low, **{n: v for n, v in unset.items() if getattr(self, n) is None}}.items():
            setattr(self, name, value)

    def _fit_evaluation(self) -> None:
        """Choose the best checkpoint by accuracy, and satisfy TRL's check of a batch size that is not used here."""
        metric: str | None = self.metric_for_best_model  # type: ignore[has-type]
        if metric is None and (self.load_best_model_at_end or self.save_strategy == "best"):
            self.metric_for_best_model = "accuracy"
        if self.eval_strategy != "no" and self.num_generations_eval is None:
            size, rows = self.num_generations or 1, int(self.per_device_eval_batch_size)  # type: ignore[has-type]
            self.per_device_eval_batch_size = -(-rows // size) * size  # rounded up to whole groups

    def token_loss(self) -> Loss:
        """Return the loss with the bounds that are set; TRL's own loss, "clipped", reads its bounds itself."""
        if self.policy_loss == "clipped":
            return LOSSES["clipped"]
        high = self.epsilon if self.epsilon_high is None else self.epsilon_high
        try:
            return replace(get_loss(self.policy_loss or ""), low=self.epsilon, high=high, dual=self.delta)
        except ValueError as error:
            raise ValueError(f"{error}; low is `epsilon`, high `epsilon_high`, dual `delta`") from None

    def _check_loss(self) -> None:
        check_trl_loss(self)
        if self.max_staleness:
            check_overlap(self)
        if self.policy_loss != "clipped":
            loss = self.token_loss()
            check_loss_settings(loss, self)
            if idle := no_op(loss, self):
                logger.warning("%s", idle)
        # only for its errors: it refuses what could change the sign of an advantage
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
        if self.vllm_server_urls is not None:
            check_servers(self)
        if not self.use_vllm:
            return
        if self.entropy_estimator == "exact":
            raise ValueError(
                "entropy_estimator='exact' needs the whole distribution, and vLLM returns the most likely tokens only: "
                "use 'auto'"
            )
        check_vllm(self, process_count())
        # a dry run may be on a machine without vLLM
        if importlib.util.find_spec("vllm") is None and not planned_processes():
            raise ValueError(f"use_vllm=True needs vLLM here: {install_line('vllm')}, or leave use_vllm out")
        warn_of_vllm()

    def _check_limits(self) -> None:
        given = self.limits if self.limits is not None else {}
        # `type` instead of isinstance, which takes True for a number
        if not isinstance(given, dict) or not all(type(most) is int and most >= 1 for most in given.values()):
            raise ValueError(f"limits={given!r}: give a number by kind, such as {{'search': 16}}")

    def rollout_settings(self, **overrides: Any) -> RolloutSettings:
        """Return the settings of the rollout engine: the fields of `RolloutSettings`, copied by name.

        Args:
            overrides: fields with values that replace those of this configuration.
        """
        given = {field.name: getattr(self, field.name) for field in fields(RolloutSettings)}
        return RolloutSettings(**{**given, **overrides})

    def rollout_limits(self) -> dict[str, int]:
        """Return the limits on operations at once."""
        return dict(self.limits or {})  # type: ignore[arg-type]  # text has been parsed
