"""Refuses TRL settings that have no effect here or cannot work; TRL would say so after the first rollout, or never."""

from __future__ import annotations

import logging
from typing import Any

import torch

from arpo_env.net import checked_address, strip_credentials
from arpo_trainer.algorithms.credit_assignment import CREDITS
from arpo_trainer.training.trl_losses import LOSS_TYPES, ratio_moves
from arpo_trainer.validation import check_name

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
