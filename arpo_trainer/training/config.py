"""`ARPOConfig`: TRL's `GRPOConfig` plus the settings of tree rollouts and credit assignment."""

from __future__ import annotations

import importlib.util
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import torch
from transformers.utils import is_torch_bf16_gpu_available

from arpo_env.net import checked_address, strip_credentials
from arpo_trainer.algorithms.advantages import ADVANTAGES
from arpo_trainer.algorithms.credit import CREDITS
from arpo_trainer.algorithms.entropy import ESTIMATORS
from arpo_trainer.algorithms.losses import LOSSES, Loss, get_loss
from arpo_trainer.algorithms.registry import get_algorithm
from arpo_trainer.optional_dependencies import require, warn_of_vllm
from arpo_trainer.packing.support import packing_setting
from arpo_trainer.rollout.distributed import rank_count, this_rank
from arpo_trainer.rollout.engine import Engine
from arpo_trainer.rollout.settings import RolloutSettings
from arpo_trainer.training.devices import lacks_bfloat16, planned_processes, process_count
from arpo_trainer.training.entropy_advantage import Moments, entropy_factor
from arpo_trainer.training.trl_hooks import GRPOConfig
from arpo_trainer.training.trl_losses import LOSS_TYPES, check_loss_settings, no_op, ratio_moves
from arpo_trainer.validation import check_name, check_types
from envs_registry.install_line import install_line

# Refuses TRL settings that have no effect here or cannot work; TRL would say so after the first rollout, or never.

logger = logging.getLogger(__name__)

# the values that leave the policy's distribution as it is; they are TRL's defaults
UNUSED_SAMPLING = {"top_p": 1.0, "top_k": 0, "min_p": None, "repetition_penalty": 1.0, "generation_kwargs": None}
CORRECTIONS = ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")
WITHOUT_CLIP = ("cispo", "sapo", "vespo")  # their losses are not the minimum of two terms and have other bounds


def check_sampling(args: Any) -> None:
    """Refuse sampling from anything but the policy, and masks that would leave nothing to train on.

    Args:
        args: an `ARPOConfig`.

    Raises:
        ValueError: names the setting to leave out.
    """
    for name, unused in UNUSED_SAMPLING.items():
        if getattr(args, name) != unused:
            raise ValueError(
                f"{name}={getattr(args, name)!r}: trees are sampled from the policy itself, so that its "
                f"log-probabilities and entropies are exact; only `temperature` can be set. Leave {name} out."
            )
    if args.mask_truncated_completions:
        raise ValueError(
            "mask_truncated_completions=True: turns end at stop strings, which TRL takes for truncated, so nothing "
            "would be learned. Leave it out; a trajectory that was cut off has the reward of a missing answer."
        )
    if args.temperature <= 0:
        raise ValueError(f"temperature must be above 0 to learn from samples, got {args.temperature}")


def check_vllm(args: Any, processes: int) -> None:
    """Refuse vLLM settings that TRL or vLLM would refuse once the model is loaded, or after a rollout.

    Args:
        args: an `ARPOConfig`.
        processes: number of training processes.

    Raises:
        ValueError: names the setting and its allowed values.
    """
    check_name("vllm_mode", args.vllm_mode, ("colocate", "server"))
    check_name("vllm_importance_sampling_mode", args.vllm_importance_sampling_mode, CORRECTIONS)
    # the rest is about an engine in the training processes; a server has its own settings
    if args.vllm_mode == "server":
        return
    if not 0 < args.vllm_gpu_memory_utilization <= 1:
        raise ValueError(
            f"vllm_gpu_memory_utilization is a share of the GPU, in (0, 1]; got {args.vllm_gpu_memory_utilization}"
        )
    size = args.vllm_tensor_parallel_size
    if size < 1 or processes % size:
        raise ValueError(
            f"vllm_tensor_parallel_size={size}: an engine spans that many of the {processes} processes; "
            "use a number that divides them, or start more (--accelerate_config, --num_processes)"
        )


def check_vllm_length(args: Any, tokens: int | None) -> None:
    """Refuse an engine whose context has no room for a prompt before a full completion.

    Args:
        args: an `ARPOConfig`.
        tokens: most tokens after the prompt in an episode of the environment; None is no limit.

    Raises:
        ValueError: names the setting to raise.
    """
    room = most_tokens(args, tokens)
    # None cannot be checked yet: vLLM takes the length of the model, which is not loaded
    if args.use_vllm and args.vllm_mode == "colocate" and (args.vllm_max_model_length or room + 1) <= room:
        raise ValueError(
            f"vllm_max_model_length={args.vllm_max_model_length} has no place for a prompt and {room} tokens after it: "
            "raise it to their sum, or lower max_completion_length"
        )


def most_tokens(args: Any, tokens: int | None) -> int:
    """Return the most tokens after a prompt; `tokens` is the environment's own limit, or None."""
    return int(args.max_completion_length if tokens is None else min(args.max_completion_length, tokens))


def check_group_sizes(args: Any, processes: int) -> None:
    """Refuse groups in which nothing can be compared, and batches that are not whole groups.

    Args:
        args: an `ARPOConfig`.
        processes: number of training processes.

    Raises:
        ValueError: names the settings.
    """
    total, first = args.num_generations or 0, args.initial_rollouts or 0
    if total < 2:
        raise ValueError(f"num_generations must be at least 2, since advantages compare trajectories; got {total}")
    if not 1 <= first <= total:
        raise ValueError(
            f"initial_rollouts ({first}) must be between 1 and num_generations ({total}): it is the number of them "
            "that start at the prompt"
        )
    micro, steps = args.per_device_train_batch_size, args.steps_per_generation or args.gradient_accumulation_steps
    if args.generation_batch_size is None and (micro * steps * processes) % total:
        raise ValueError(
            f"per_device_train_batch_size ({micro}) x steps_per_generation ({steps}) x processes ({processes}) = "
            f"{micro * steps * processes} rows must be a multiple of num_generations ({total}): whole groups"
        )


def check_servers(args: Any) -> None:
    """Refuse addresses of servers that would not be used, and set TRL's own address, which is that of the first.

    Args:
        args: an `ARPOConfig` with `vllm_server_urls`.

    Raises:
        ValueError: names the setting.
    """
    urls = args.vllm_server_urls
    if not (args.use_vllm and args.vllm_mode == "server"):
        raise ValueError("vllm_server_urls needs use_vllm: true and vllm_mode: server; without them leave it out")
    if not isinstance(urls, list) or not urls or not all(isinstance(url, str) for url in urls):
        raise ValueError(f"vllm_server_urls={urls!r}: give a list of addresses, such as [http://10.0.0.3:8000]")
    plain = [checked_address("vllm_server_urls", url).removesuffix("/v1") for url in urls]
    if len(set(plain)) < len(plain):
        raise ValueError(f"vllm_server_urls names a server twice: {', '.join(map(strip_credentials, plain))}")
    if args.vllm_server_base_url not in (None, urls[0], plain[0]):
        raise ValueError("give vllm_server_urls or vllm_server_base_url, not both: TRL uses the first of the former")
    args.vllm_server_urls, args.vllm_server_base_url = plain, plain[0]


def check_overlap(args: Any) -> None:
    """Refuse rollouts beside the update where both would use one engine's GPUs; warn if old weights are not corrected.

    Args:
        args: an `ARPOConfig` with `max_staleness` above 0.

    Raises:
        ValueError: the engine is in the training processes.
    """
    if args.use_vllm and args.vllm_mode == "colocate":
        raise ValueError(
            f"max_staleness={args.max_staleness} with vllm_mode='colocate': the engine shares the GPUs and the process "
            "of the update. Serve the model on other GPUs (vllm_mode: server), or leave max_staleness out"
        )
    if not args.vllm_importance_sampling_correction:
        logger.warning(
            "max_staleness=%d without vllm_importance_sampling_correction: rollouts of older weights are used as if "
            "the present ones had sampled them",
            args.max_staleness,
        )


def needs_answers(args: Any) -> bool:
    """Return whether the credit of an `ARPOConfig` needs the probability of the gold answer."""
    return CREDITS[args.attribution].needs_answers


def check_action_credit(args: Any) -> None:
    """Refuse ToolPO's action advantage with credit that reads rewards and gains itself, which calls do not have.

    Args:
        args: an `ARPOConfig`.

    Raises:
        ValueError: names the settings.
    """
    if args.action_weight and needs_answers(args):
        raise ValueError(
            f"action_weight={args.action_weight} with attribution={args.attribution!r}: the action advantage is spread "
            "by the same attribution, which would add the gains of turns to it. Set action_weight=0, or "
            "attribution='soft'"
        )


def warn_of_dropout(model: Any, args: Any) -> None:
    """Warn if activations are dropped at random where ratios are compared: log pi and log pi_old see different ones.

    Args:
        model: to be trained, with its adapters.
        args: an `ARPOConfig`.
    """
    compares = ratio_moves(args) or args.use_vllm or args.max_staleness
    if compares and any(isinstance(part, torch.nn.Dropout) and part.p > 0 for part in model.modules()):
        logger.warning(
            "the model drops activations at random, also while the old policy's probabilities are computed: ratios "
            "differ from 1 by that noise alone, and clips act on it. Set lora_dropout: 0, or no dropout in its config"
        )


def check_trl_loss(args: Any) -> None:
    """Refuse bounds and names that do not make a loss.

    Args:
        args: an `ARPOConfig`.

    Raises:
        ValueError: names the setting and its allowed values.
    """
    if args.loss_type == "luspo":
        raise ValueError(
            "loss_type='luspo' takes one advantage per row, but trees have one per token; use 'dapo' or 'grpo'"
        )
    check_name("loss_type", args.loss_type, (*LOSS_TYPES, *WITHOUT_CLIP))
    check_name("importance_sampling_level", args.importance_sampling_level, ("token", "sequence"))
    check_name("scale_rewards", str(args.scale_rewards), ("group", "batch", "none"))
    ways = ("sum_then_normalize", "normalize_then_sum")
    check_name("multi_objective_aggregation", args.multi_objective_aggregation, ways)
    if args.beta < 0:
        raise ValueError(
            f"beta={args.beta} would push the policy away from its reference: it is the weight of the KL, >= 0"
        )
    if not 0 < args.top_entropy_quantile <= 1:
        raise ValueError(f"top_entropy_quantile is a share of the tokens, in (0, 1]; got {args.top_entropy_quantile}")
    if args.policy_loss == "clipped":  # other losses check their own bounds
        _check_bounds(args)


def _check_bounds(args: Any) -> None:
    high = args.epsilon if args.epsilon_high is None else args.epsilon_high
    if not 0 <= args.epsilon <= 1:
        raise ValueError(f"epsilon={args.epsilon}: ratios are kept above 1 - epsilon, so it lies between 0 and 1")
    if high < 0:
        raise ValueError(f"epsilon_high={high}: ratios are kept below 1 + epsilon_high, so it is at least 0")
    if args.delta is None:
        return
    if args.loss_type in WITHOUT_CLIP:
        raise ValueError(f"delta={args.delta} does nothing with loss_type={args.loss_type!r}: leave it out")
    if args.delta <= 1 + high:
        raise ValueError(f"delta={args.delta} must be above 1 + epsilon_high = {1 + high:g}: it is the outer bound")


# `RolloutWorkerSettings`: the settings of `ARPOConfig` for rollouts on Ray, and the engine that they ask for.


@dataclass
class RolloutWorkerSettings:
    """Settings for rollouts on Ray; they are fields of `ARPOConfig`."""

    rollout_workers: int = field(
        default=0,
        metadata={
            "help": "Ray actors that play the groups, over all training processes; 0 plays them in the training "
            "processes, or with `ray_address` on one actor for each node (and at least one for each training process). "
            "It needs `vllm_mode: server`."
        },
    )
    ray_address: str | None = field(
        default=None,
        metadata={
            "help": "Address of the Ray cluster, 'HOST:PORT' or 'auto'. Default: with `rollout_workers` the variable "
            "RAY_ADDRESS, or else Ray is started on this machine."
        },
    )
    rollout_worker_cpus: float = field(default=1.0, metadata={"help": "CPUs that an actor asks Ray for."})
    rollout_worker_resources: dict[str, float] | str | None = field(
        default=None,
        metadata={"help": 'Custom resources of Ray that an actor asks for, to choose its nodes: {"sandbox": 1}.'},
    )
    rollout_worker_timeout: float = field(
        default=300.0, metadata={"help": "Most seconds until all actors run, and until a lost one is replaced."}
    )

    @property
    def uses_workers(self) -> bool:
        """Whether Ray actors play the groups."""
        return bool(self.rollout_workers) or self.ray_address is not None

    def check_workers(self, processes: int) -> None:
        """Refuse settings that cannot work.

        Args:
            processes: number of training processes.

        Raises:
            ValueError: names the setting and the cure.
            ModuleNotFoundError: Ray is not installed.
        """
        check_types(self, RolloutWorkerSettings.__annotations__)
        if self.rollout_workers < 0 or self.rollout_worker_cpus < 0 or self.rollout_worker_timeout <= 0:
            raise ValueError(
                "rollout_workers and rollout_worker_cpus must be at least 0 and rollout_worker_timeout above 0, got "
                f"{self.rollout_workers}, {self.rollout_worker_cpus:g} and {self.rollout_worker_timeout:g}"
            )
        self.worker_resources()
        if not self.uses_workers:
            return
        if not (getattr(self, "use_vllm", False) and getattr(self, "vllm_mode", "") == "server"):
            raise ValueError(
                "rollout workers generate on a server, which gets the weights of the trainer: set use_vllm: true and "
                "vllm_mode: server, or leave rollout_workers and ray_address out"
            )
        if not planned_processes():  # a dry run may be on a machine without Ray
            require("ray")
        if 0 < self.rollout_workers < processes:
            raise ValueError(
                f"rollout_workers={self.rollout_workers} are fewer than the {processes} training processes, each of "
                f"which plays its groups on workers of its own: take {processes} or more"
            )

    def worker_resources(self) -> dict[str, float]:
        """Return the custom resources of an actor.

        Raises:
            ValueError: they are no numbers by name.
        """
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
