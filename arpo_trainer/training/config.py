"""`ARPOConfig`: TRL's `GRPOConfig` plus the settings of tree rollouts and credit assignment, all checked at the start.

TRL settings that have no effect here or cannot work are refused; TRL would say so after the first rollout, or never.
"""

from __future__ import annotations

import importlib.util
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import torch
from transformers.utils import is_torch_bf16_gpu_available

from arpo_env.net import checked_address, strip_credentials
from arpo_trainer.algorithms.advantages import ADVANTAGES
from arpo_trainer.algorithms.branching import ESTIMATORS
from arpo_trainer.algorithms.credit import CREDITS
from arpo_trainer.algorithms.losses import LOSS_TYPES, LOSSES, Loss, check_loss_settings, get_loss, no_op, ratio_moves
from arpo_trainer.optional_dependencies import require, warn_of_vllm
from arpo_trainer.packing import packing_setting
from arpo_trainer.rollout.engine import Engine, rank_count, this_rank
from arpo_trainer.rollout.settings import RolloutSettings, TreeSettings
from arpo_trainer.training.devices import lacks_bfloat16, planned_processes, process_count
from arpo_trainer.training.rollout_batch import Moments, entropy_factor
from arpo_trainer.training.trackers import check_trackers
from arpo_trainer.training.trl_hooks import GRPOConfig
from arpo_trainer.validation import check_lowest, check_name, check_types
from envs_registry.install_line import install_line

logger = logging.getLogger(__name__)

# the values that leave the policy's distribution as it is; they are TRL's defaults
UNUSED_SAMPLING = {"top_p": 1.0, "top_k": 0, "min_p": None, "repetition_penalty": 1.0, "generation_kwargs": None}
CORRECTIONS = ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")
WITHOUT_CLIP = ("cispo", "sapo", "vespo")  # their losses are not the minimum of two terms and have other bounds
# TRL's settings that are read before TRL checks them; a wrong type would fail here with an obscure error
_READ = {
    **dict.fromkeys(("num_generations", "per_device_train_batch_size", "gradient_accumulation_steps", "seed"), "int"),
    **dict.fromkeys(("num_iterations", "max_completion_length", "max_steps", "vllm_tensor_parallel_size"), "int"),
    **dict.fromkeys(("num_generations_eval", "steps_per_generation", "vllm_max_model_length"), "int | None"),
    **dict.fromkeys(("temperature", "beta", "epsilon", "learning_rate", "num_train_epochs", "weight_decay"), "float"),
    "vllm_gpu_memory_utilization": "float",
    **dict.fromkeys(("epsilon_high", "delta"), "float | None"),
    "use_vllm": "bool",
    "vllm_mode": "str",
}
_LOWEST = {"max_rows": 1, "trace_every": 0, "entropy_topk": 1, "prefix_tokens": 1, "num_iterations": 1,
           "action_weight": 0, "max_staleness": 0, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 1,
           "steps_per_generation": 1, "rollout_workers": 0, "rollout_worker_cpus": 0,
           "rollout_worker_timeout": 0.001}  # fmt: skip


def _refuse(wrong: object, words: str) -> None:
    if wrong:
        raise ValueError(words)


def check_vllm_length(args: Any, tokens: int | None) -> None:
    """Refuse an engine whose context has no room for a prompt before a full completion; see `most_tokens`."""
    room = most_tokens(args, tokens)
    # None cannot be checked yet: vLLM takes the length of the model, which is not loaded
    short = args.use_vllm and args.vllm_mode == "colocate" and (args.vllm_max_model_length or room + 1) <= room
    _refuse(
        short,
        f"vllm_max_model_length={args.vllm_max_model_length} has no place for a prompt and {room} tokens after it: "
        "raise it to their sum, or lower max_completion_length",
    )


def most_tokens(args: Any, tokens: int | None) -> int:
    """Return the maximum number of tokens after a prompt; `tokens` is the environment's own limit, or None."""
    return int(args.max_completion_length if tokens is None else min(args.max_completion_length, tokens))


def warn_of_dropout(model: Any, args: Any) -> None:
    """Warn if activations are dropped at random where ratios are compared: log pi and log pi_old see different ones."""
    compares = ratio_moves(args) or args.use_vllm or args.max_staleness
    if compares and any(isinstance(part, torch.nn.Dropout) and part.p > 0 for part in model.modules()):
        logger.warning(
            "the model drops activations at random, also while the old policy's probabilities are computed: ratios "
            "differ from 1 by that noise alone, and clips act on it. Set lora_dropout: 0, or no dropout in its config"
        )


@dataclass
class RolloutWorkerSettings:
    """Settings for rollouts on Ray; they are fields of `ARPOConfig`.

    Attributes:
        rollout_workers: Ray actors that play the groups, over all training processes; 0 plays them in the training
            processes, or with `ray_address` on one actor for each node (and at least one for each training process). It
            needs `vllm_mode: server`.
        ray_address: address of the Ray cluster, 'HOST:PORT' or 'auto'. Default: with `rollout_workers` the variable
            RAY_ADDRESS, or else Ray is started on this machine.
        rollout_worker_cpus: CPUs that an actor asks Ray for.
        rollout_worker_resources: custom resources of Ray that an actor asks for, to choose its nodes: {"sandbox": 1}.
        rollout_worker_timeout: maximum number of seconds until all actors run, and until a lost one is replaced.
    """

    rollout_workers: int = 0
    ray_address: str | None = None
    rollout_worker_cpus: float = 1.0
    rollout_worker_resources: dict[str, float] | str | None = None
    rollout_worker_timeout: float = 300.0

    @property
    def uses_workers(self) -> bool:
        """Whether Ray actors play the groups."""
        return bool(self.rollout_workers) or self.ray_address is not None

    def worker_resources(self) -> dict[str, float]:
        """Return the custom resources of an actor."""
        given: Any = self.rollout_worker_resources or {}
        try:
            given = json.loads(given) if isinstance(given, str) else given
            return {str(name): float(amount) for name, amount in given.items()}
        except (ValueError, TypeError, AttributeError):
            raise ValueError(
                f"rollout_worker_resources={given!r}: give a number by name, as in {{'sandbox': 1}}"
            ) from None


def on_workers(engine: Engine, args: RolloutWorkerSettings) -> Engine:
    """Return an engine with the same parts that plays on Ray actors, or the engine itself if none are asked for.

    The actors are divided over the training processes; each process starts its own.

    Raises:
        RuntimeError: the cluster cannot be used, or not all actors could be started.
    """
    if not args.uses_workers:
        return engine
    from arpo_trainer.ray_rollouts import RayEngine, RolloutWorkers

    count, rank, ranks = args.rollout_workers, this_rank(), rank_count()
    workers = RolloutWorkers(
        count // ranks + (rank < count % ranks),
        args.ray_address,
        cpus=args.rollout_worker_cpus,
        resources=args.worker_resources(),
        start_timeout=args.rollout_worker_timeout,
        sharers=ranks,
    )
    logger.info("rollout workers: %s", ", ".join(workers.nodes()))
    parts: Mapping[str, Any] = {name: getattr(engine, name) for name in ("backend", "tokenizer", "env", "settings")}
    return RayEngine(**parts, chat_template_kwargs=engine.chat_template_kwargs, limits=engine.limits, workers=workers)


@dataclass
class ARPOConfig(RolloutWorkerSettings, GRPOConfig, TreeSettings):  # type: ignore[misc]  # trl is untyped
    """Settings of `ARPOTrainer`, in addition to those of `GRPOConfig` and `TreeSettings`.

    `num_generations` is M of the paper. `temperature` and `max_completion_length` (tokens of the environment included)
    have their meaning in TRL.

    Attributes:
        entropy_estimator: 'exact', 'renormalised', 'tail', 'nll' or 'raw10'; 'auto' is exact on transformers and
            renormalised on vLLM, which returns the most likely tokens only.
        entropy_topk: number of tokens that the entropy is estimated from.
        attribution: in place of the algorithm's. 'soft': each copy of a shared token has the advantage of its
            trajectory; 'hard': their mean; 'dedup': a shared token counts once; 'turn': values backed up turn by turn;
            'fork': against sister branches.
        advantage: in place of the algorithm's: 'grpo', 'grpo-population', 'grpo-no-std', 'rloo', 'tree-grpo',
            'reinforce++'.
        policy_loss: in place of the algorithm's: 'clipped', 'dapo', 'aepo', 'gppo', 'cispo', 'gspo', 'gspo-turn', or a
            '-reference' loss. It sets `epsilon`, `epsilon_high`, `delta` and `loss_type` unless they are given.
        loss_type: how the losses of tokens are added up: 'dapo', 'grpo', 'bnpo', 'dr_grpo', or a loss of TRL's.
            Default: that of the policy loss, 'grpo' (mean of each trajectory, then of trajectories) for 'gspo' and
            'gspo-turn', 'dapo' (mean of all tokens) for the others.
        use_bias_correction_kl: multiply the KL (`beta`) by the probability ratio. Default: false, which is the KL of
            the papers (GRPO eq. 4); TRL's own default is true.
        entropy_weight: a: advantages are multiplied by 1 + a z, z the entropy of a token in standard deviations (AEPO);
            0 is off.
        entropy_limit: largest absolute z of the entropy-aware advantage.
        action_weight: weight of ToolPO's action advantage on the tokens of tool calls; it needs the reward component
            `right_calls`. 0 is off.
        packing: True computes what the rows of a micro-batch share once, with the same updates up to rounding; it fails
            where a model does not allow that. False computes each row in full. 'auto' packs where tests have compared
            the two (kind of model, device, sharding), and else trains on full rows, with FlashAttention without their
            padding, and logs why.
        vllm_importance_sampling_correction: weigh tokens by the ratio of the trainer's probability to the one they were
            sampled with: vLLM's, or with `max_staleness` that of older weights. Default: true, except for the
            '-reference' algorithms, whose code does not.
        vllm_importance_sampling_mode: 'token_truncate' weighs each token by its own ratio, at most
            `vllm_importance_sampling_clip_max`; or 'token_mask', 'sequence_truncate', 'sequence_mask'. TRL's default,
            'sequence_mask', drops rows whose product of ratios is above that, which for long rows it easily is.
        vllm_server_urls: addresses of several vLLM servers, not `vllm_server_base_url`; each gets the weights.
        max_rows: maximum number of requests that the transformers backend decodes together.
        prefix_tokens: maximum number of tokens whose keys and values the transformers backend keeps for later turns and
            branches; to compute nothing twice it needs those of a whole rollout.
        limits: maximum number of operations at once by kind: 'trajectory', 'generate', 'reset', 'fork', 'answer' or the
            name of a tool, as in {"search": 16}.
        max_staleness: play the next rollout while the model learns from the last one, with weights that are at most
            this many steps old at its first use. TRL's importance weights correct for their age. 0 waits for the new
            weights.
        logging_steps: steps between two logs, the rows of metrics.jsonl; with TRL's 10 a short run would have none.
            Evaluations keep that interval unless `eval_steps` is given.
        trace_every: write the rollout trees of every n-th step to traces.jsonl; 0 writes none.

    Raises:
        ValueError: settings cannot work together; raised before anything is loaded.
    """

    _VALID_DICT_FIELDS: ClassVar[list[str]] = [*GRPOConfig._VALID_DICT_FIELDS, "limits", "rollout_worker_resources"]

    entropy_estimator: str = "auto"
    entropy_topk: int = 20
    attribution: str | None = None
    advantage: str | None = None
    policy_loss: str | None = None
    loss_type: str | None = None
    use_bias_correction_kl: bool = False
    entropy_weight: float | None = None
    entropy_limit: float = 3.0
    action_weight: float | None = None
    # becomes True or False unless it is "auto"; annotated as what argument parsers take
    packing: str = "auto"
    vllm_importance_sampling_correction: bool | None = None
    vllm_importance_sampling_mode: str = "token_truncate"
    vllm_server_urls: list[str] | None = None
    max_rows: int = 128
    prefix_tokens: int = 32_768
    limits: dict[str, int] | str | None = None
    max_staleness: int = 0
    logging_steps: float = 1
    trace_every: int = 1

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
        own = {**RolloutWorkerSettings.__annotations__, **ARPOConfig.__annotations__, "packing": ""}
        check_types(self, {**_READ, **own})  # `rollout_settings` checks those of trees
        if self.bf16 is None and not planned_processes():  # type: ignore[has-type]  # TRL's default fails without a GPU
            there = self.use_cpu or is_torch_bf16_gpu_available()
            self.bf16 = there and not (self.fp16 or lacks_bfloat16(self.use_cpu))
        if self.eval_steps is None and self.logging_steps == ARPOConfig.logging_steps:  # type: ignore[has-type]
            self.eval_steps = GRPOConfig.logging_steps
        self.max_turn_length = self.max_turn_length or None  # 0 has always meant the default
        self._check_group_sizes()
        row = self.parts
        self.advantage, self.policy_loss = self.advantage or row.advantage, self.policy_loss or row.loss
        self.attribution = self.attribution or row.attribution
        self.entropy_weight = row.entropy_weight if self.entropy_weight is None else self.entropy_weight
        self.action_weight = row.action_weight if self.action_weight is None else self.action_weight
        if self.vllm_importance_sampling_correction is None:
            self.vllm_importance_sampling_correction = not self.algorithm.endswith("-reference")
        check_name("advantage", self.advantage, ADVANTAGES)
        check_name("attribution", self.attribution, CREDITS)
        check_name("entropy_estimator", self.entropy_estimator, ("auto", *ESTIMATORS))
        self._fit_loss()
        self.packing = packing_setting(self.packing)  # type: ignore[assignment]
        self._check_sampling()
        check_lowest(self, _LOWEST)
        self._check_vllm()
        self._check_workers()
        self.initial_rollouts = self.rollout_settings().initial_rollouts  # refuses what the engine would refuse
        self._fit_evaluation()
        super().__post_init__()
        # these need what TRL has just done: lists and `limits` made of text, `steps_per_generation` filled in
        check_trackers(self.report_to)
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

    def _check_group_sizes(self) -> None:
        """Refuse groups in which nothing can be compared, and batches that are not whole groups."""
        total, processes = self.num_generations or 0, process_count()  # TRL knows the processes only after its checks
        _refuse(total < 2, f"num_generations must be at least 2, since advantages compare trajectories; got {total}")
        micro, steps = self.per_device_train_batch_size, self.steps_per_generation or self.gradient_accumulation_steps
        _refuse(
            self.generation_batch_size is None and (micro * steps * processes) % total,
            f"per_device_train_batch_size ({micro}) x steps_per_generation ({steps}) x processes ({processes}) = "
            f"{micro * steps * processes} rows must be a multiple of num_generations ({total}): whole groups",
        )

    def _check_sampling(self) -> None:
        """Refuse sampling from anything but the policy, and masks that would leave nothing to train on."""
        for name, unused in UNUSED_SAMPLING.items():
            _refuse(
                getattr(self, name) != unused,
                f"{name}={getattr(self, name)!r}: trees are sampled from the policy itself, so that its "
                f"log-probabilities and entropies are exact; only `temperature` can be set. Leave {name} out.",
            )
        _refuse(
            self.mask_truncated_completions,
            "mask_truncated_completions=True: turns end at stop strings, which TRL takes for truncated, so nothing "
            "would be learned. Leave it out; a trajectory that was cut off has the reward of a missing answer.",
        )
        _refuse(self.temperature <= 0, f"temperature must be above 0 to learn from samples, got {self.temperature}")

    def _check_loss(self) -> None:
        _refuse(self.beta < 0, f"beta={self.beta} would push the policy away from its reference: give 0 or more")
        self._check_trl_loss()
        if self.max_staleness:
            self._check_overlap()
        if self.policy_loss != "clipped":
            loss = self.token_loss()
            check_loss_settings(loss, self)
            if idle := no_op(loss, self):
                logger.warning("%s", idle)
        # only for its errors: it refuses what could change the sign of an advantage
        entropy_factor(torch.zeros(1), Moments(), self.entropy_weight or 0.0, self.entropy_limit)
        _refuse(
            self.scale_rewards == "none" and self.advantage in ("grpo-population", "tree-grpo", "reinforce++"),
            f"advantage={self.advantage!r} divides by a deviation, which scale_rewards='none' leaves out: take "
            "advantage='grpo-no-std', or leave scale_rewards out",
        )
        whole = self.scale_rewards == "batch" or self.multi_objective_aggregation != "sum_then_normalize"
        _refuse(
            whole and self.advantage != "grpo",
            f"advantage={self.advantage!r} compares rewards itself: leave scale_rewards and "
            "multi_objective_aggregation at their defaults",
        )

    def _check_trl_loss(self) -> None:
        """Refuse names that TRL would refuse after the first rollout."""
        _refuse(
            self.loss_type == "luspo",
            "loss_type='luspo' takes one advantage per row, but trees have one per token; use 'dapo' or 'grpo'",
        )
        check_name("loss_type", self.loss_type or "", (*LOSS_TYPES, *WITHOUT_CLIP))
        check_name("importance_sampling_level", self.importance_sampling_level, ("token", "sequence"))
        check_name("scale_rewards", str(self.scale_rewards), ("group", "batch", "none"))
        ways = ("sum_then_normalize", "normalize_then_sum")
        check_name("multi_objective_aggregation", self.multi_objective_aggregation, ways)

    def _check_overlap(self) -> None:
        """Refuse rollouts beside the update where both use one engine's GPUs; warn if old weights are not corrected."""
        _refuse(
            self.use_vllm and self.vllm_mode == "colocate",
            f"max_staleness={self.max_staleness} with vllm_mode='colocate': the engine shares the GPUs and the process "
            "of the update. Serve the model on other GPUs (vllm_mode: server), or leave max_staleness out",
        )
        if not self.vllm_importance_sampling_correction:
            logger.warning(
                "max_staleness=%d without vllm_importance_sampling_correction: rollouts of older weights are used as "
                "if the present ones had sampled them",
                self.max_staleness,
            )

    def _check_vllm(self) -> None:
        """Refuse vLLM settings that TRL or vLLM would refuse once the model is loaded, or after a rollout."""
        if self.vllm_server_urls is not None:
            self._check_servers()
        if not self.use_vllm:
            return
        _refuse(
            self.entropy_estimator == "exact",
            "entropy_estimator='exact' needs the whole distribution, and vLLM returns the most likely tokens only: "
            "use 'auto'",
        )
        check_name("vllm_mode", self.vllm_mode, ("colocate", "server"))
        check_name("vllm_importance_sampling_mode", self.vllm_importance_sampling_mode, CORRECTIONS)
        if self.vllm_mode == "colocate":  # a server has its own settings
            size = self.vllm_tensor_parallel_size
            _refuse(
                size < 1 or process_count() % size,
                f"vllm_tensor_parallel_size={size}: an engine spans that many of the {process_count()} processes; "
                "use a number that divides them, or start more (--accelerate_config, --num_processes)",
            )
        # a dry run may be on a machine without vLLM
        _refuse(
            importlib.util.find_spec("vllm") is None and not planned_processes(),
            f"use_vllm=True needs vLLM here: {install_line('vllm')}, or leave use_vllm out",
        )
        warn_of_vllm()

    def _check_workers(self) -> None:
        """Refuse rollouts on Ray that cannot work, or for which Ray is missing."""
        self.worker_resources()
        if not self.uses_workers:
            return
        _refuse(
            not (self.use_vllm and self.vllm_mode == "server"),
            "rollout workers generate on a server, which gets the weights of the trainer: set use_vllm: true and "
            "vllm_mode: server, or leave rollout_workers and ray_address out",
        )
        if not planned_processes():  # a dry run may be on a machine without Ray
            require("ray")
        _refuse(
            0 < self.rollout_workers < process_count(),
            f"rollout_workers={self.rollout_workers} are fewer than the {process_count()} training processes, each of "
            f"which plays its groups on workers of its own: take {process_count()} or more",
        )

    def _check_servers(self) -> None:
        """Refuse addresses of servers that would not be used, and set TRL's own address, which is that of the first."""
        urls = self.vllm_server_urls
        _refuse(
            not (self.use_vllm and self.vllm_mode == "server"),
            "vllm_server_urls needs use_vllm: true and vllm_mode: server; without them leave it out",
        )
        if not isinstance(urls, list) or not urls or not all(isinstance(url, str) for url in urls):
            raise ValueError(f"vllm_server_urls={urls!r}: give a list of addresses, such as [http://10.0.0.3:8000]")
        plain = [checked_address("vllm_server_urls", url).removesuffix("/v1") for url in urls]
        _refuse(
            len(set(plain)) < len(plain),
            f"vllm_server_urls names a server twice: {', '.join(map(strip_credentials, plain))}",
        )
        _refuse(
            self.vllm_server_base_url not in (None, urls[0], plain[0]),  # type: ignore[has-type]
            "give vllm_server_urls or vllm_server_base_url, not both: TRL uses the first of the former",
        )
        self.vllm_server_urls, self.vllm_server_base_url = plain, plain[0]

    def _check_limits(self) -> None:
        given = self.limits if self.limits is not None else {}
        # `type` instead of isinstance, which takes True for a number
        good = isinstance(given, dict) and all(type(most) is int and most >= 1 for most in given.values())
        _refuse(not good, f"limits={given!r}: give a number by kind, such as {{'search': 16}}")

    def rollout_settings(self, **overrides: Any) -> RolloutSettings:
        """Return the settings of the rollout engine; `overrides` replace those of this configuration."""
        given = {each.name: getattr(self, each.name) for each in fields(RolloutSettings)}
        return RolloutSettings(**{**given, **overrides})

    def rollout_limits(self) -> dict[str, int]:
        """Return the limits on operations at once."""
        return dict(self.limits or {})  # type: ignore[arg-type]  # text has been parsed
