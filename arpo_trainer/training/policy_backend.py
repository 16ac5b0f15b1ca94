"""The backend that a trainer generates with, and how it gets the weights of the trainer.

    use_vllm=False                           the model itself (`transformers_backend`), or a whole copy of it if its
                                             weights are sharded over processes or learn meanwhile (`FullCopyBackend`)
    use_vllm=True, vllm_mode="colocate"      TRL's engine in this process (`VLLMEngineBackend`)
    use_vllm=True, vllm_mode="server"        one or more servers that TRL pushes the weights to (`VLLMServerBackend`)

TRL makes the engine, `trainer.vllm_generation`, and pushes the weights (see `weight_push`).
"""

from __future__ import annotations

import copy
import logging
import pickle
from pathlib import Path
from typing import Any

from arpo_env.event_loop import run
from arpo_env.net import strip_credentials
from arpo_trainer.backends.base import Backend, Generation, OnWindow, Request
from arpo_trainer.backends.process_sync import Lockstep
from arpo_trainer.backends.thread_device import device_of
from arpo_trainer.training.config_checks import most_tokens
from arpo_trainer.training.trl_hooks import end_ids, tokenizer_of
from arpo_trainer.training.weight_push import connect_servers, push_weights, put_to_sleep, weights_are_old

logger = logging.getLogger(__name__)


def rollout_tokenizer(trainer: Any) -> Any:
    """Return the tokenizer for rollouts: a copy where they run beside the update.

    A tokenizer that is set to pad or truncate in one thread while another one uses it raises "Already borrowed".
    """
    tokenizer = tokenizer_of(trainer)
    return copy.deepcopy(tokenizer) if trainer.args.max_staleness else tokenizer


def trainer_backend(trainer: Any, tokenizer: Any = None) -> Backend:
    """Return the backend that the `args` of a trainer ask for.

    Args:
        trainer: has the settings and the weights.
        tokenizer: for the backend; by default that of the trainer.

    Raises:
        ValueError: the backend cannot serve the settings, or quantised weights are sharded over processes.
    """
    args, estimator = trainer.args, trainer.args.entropy_estimator
    if estimator == "auto":
        estimator = "renormalised" if args.use_vllm else "exact"
    entropy = {"topk": args.entropy_topk, "estimator": estimator}
    if not args.use_vllm:
        return _transformers(trainer, tokenizer, entropy)
    return SyncedBackend(
        _server(trainer, tokenizer, entropy) if args.vllm_mode == "server" else _engine(trainer, entropy), trainer
    )


class SyncedBackend:
    """A vLLM backend that gets the weights of the trainer whenever a rollout begins, whoever starts that rollout.

    All processes must begin and end the same rollouts: pushing weights is collective where they are sharded or served.

    Args:
        backend: generates.
        trainer: has the weights; its `vllm_generation` pushes them, at most once per training step during training.
    """

    def __init__(self, backend: Backend, trainer: Any) -> None:
        self.backend, self.trainer, self.host = backend, trainer, trainer.vllm_generation
        self.time, self.trains, self.wants_messages = backend.time, backend.trains, backend.wants_messages
        self.sleeps: bool = self.host.mode == "colocate" and self.host.enable_sleep_mode
        self._awake = not self.sleeps

    def __reduce__(self) -> tuple[Any, ...]:
        # elsewhere it is only what generates: this process pushes the weights
        return pickle.loads, (pickle.dumps(self.backend),)

    async def begin(self) -> None:
        """Push the weights of the trainer if the engine has older ones or none, and wake it."""
        with device_of(self.trainer.accelerator):
            self._load()
            # A server has the weights only when the main process has pushed them. The first collective operation of a
            # tensor-parallel engine must not overtake the last one of the trainer.
            if self.host.mode == "server" or self.host.tensor_parallel_size > 1:
                self.trainer.accelerator.wait_for_everyone()
        await self.backend.begin()

    async def generate(self, request: Request, on_window: OnWindow | None = None) -> Generation:
        """Generate one turn; see `Backend.generate`."""
        return await self.backend.generate(request, on_window)

    async def end(self) -> None:
        """Put the engine to sleep, if it can sleep; that discards its weights."""
        await self.backend.end()
        if self.sleeps and self._awake:
            with device_of(self.trainer.accelerator):
                put_to_sleep(self.trainer)
            self._awake = False

    def _load(self) -> None:
        if weights_are_old(self.trainer):
            push_weights(self.trainer)
        if not self._awake:
            # after the weights: until then its memory is free for gathering them
            self.host.llm.wake_up(tags=["kv_cache"])
            self._awake = True


def _transformers(trainer: Any, tokenizer: Any, entropy: dict[str, Any]) -> Backend:
    from arpo_trainer.backends.select_transformers import transformers_backend

    args, model = trainer.args, trainer.accelerator.unwrap_model(trainer.model)
    # a copy, too, where the model learns while it generates: its weights may not change under a rollout
    if copied := _shards(trainer) or bool(args.max_staleness):
        from arpo_trainer.backends.full_copy import FullCopyBackend, structure

        # made now, from the model as it is before training shards it
        model = structure(model, trainer.accelerator.device, _forward_dtype(args))
    backend = transformers_backend(
        model,
        tokenizer or tokenizer_of(trainer),
        max_rows=args.max_rows,
        prefix_tokens=args.prefix_tokens,
        eos_token_ids=end_ids(trainer),
        own_stream=bool(args.max_staleness),
        **entropy,
    )
    return FullCopyBackend(backend, model, trainer) if copied else backend


def _shards(trainer: Any) -> bool:
    """Return whether no process has all weights once training has begun."""
    from transformers.integrations import is_deepspeed_zero3_enabled

    return bool(trainer.is_fsdp_enabled or is_deepspeed_zero3_enabled())


def _forward_dtype(args: Any) -> Any:
    import torch

    return torch.bfloat16 if args.bf16 else torch.float16 if args.fp16 else None


def _engine(trainer: Any, entropy: dict[str, Any]) -> Backend:
    from arpo_trainer.backends.vllm_engine import VLLMEngineBackend

    host = trainer.vllm_generation
    group = None
    if host.tensor_parallel_size > 1:
        import torch.distributed as dist

        size = host.tensor_parallel_size  # the same processes as TRL's own groups, but for objects on the CPU
        groups = [list(range(first, first + size)) for first in range(0, dist.get_world_size(), size)]
        group, _ = dist.new_subgroups_by_enumeration(groups, backend="gloo")  # type: ignore[no-untyped-call]
    return VLLMEngineBackend(host.llm, eos_token_ids=end_ids(trainer), lockstep=Lockstep(group), **entropy)


def _server(trainer: Any, tokenizer: Any, entropy: dict[str, Any]) -> Backend:
    from arpo_trainer.backends.vllm_server import VLLMServerBackend

    args = trainer.args
    urls = server_urls(args)
    connect_servers(trainer, urls)
    return VLLMServerBackend(
        urls,
        tokenizer=tokenizer or tokenizer_of(trainer),
        eos_token_ids=end_ids(trainer),
        patience=args.vllm_server_timeout,
        **entropy,
    )


def server_urls(args: Any) -> list[str]:
    """Return the addresses of the vLLM servers of an `ARPOConfig`."""
    one = args.vllm_server_base_url or f"http://{args.vllm_server_host}:{args.vllm_server_port}"
    return args.vllm_server_urls or [one]


def check_served_model(args: Any, model: str, tokens: int | None) -> None:
    """Compare what the vLLM servers serve with the run, before weights are loaded here; does nothing without servers.

    Args:
        args: an `ARPOConfig`.
        model: the policy's folder or hub id. A server with another name gets a warning: names prove nothing, but
            weights of another shape can only be refused when they are first sent.
        tokens: most tokens after the prompt in an episode of the environment; None is no limit.

    Raises:
        GenerationError: a server does not answer, or serves several models.
        ValueError: the context of a server has no room for a prompt before a full completion.
    """
    if not args.use_vllm or args.vllm_mode != "server":
        return
    from arpo_trainer.backends.vllm_server import VLLMServerBackend

    urls, room = server_urls(args), most_tokens(args, tokens)
    asked = VLLMServerBackend(urls, tokenizer=None, eos_token_ids={0}, patience=args.vllm_server_timeout)

    async def cards() -> list[dict[str, Any]]:
        try:
            return await asked.served()
        finally:
            await asked.end()

    for url, card in zip(map(strip_credentials, urls), run(cards()), strict=True):
        length = card.get("max_model_len")
        if length is not None and length <= room:
            raise ValueError(
                f"the vLLM server {url} has a context of {length} tokens, which has no place for a prompt and {room} "
                "tokens after it: start it with a larger --max-model-len, or lower max_completion_length"
            )
        name, root = str(card["id"]), str(card.get("root") or card["id"])
        if Path(model).name not in (Path(name).name, Path(root).name):
            logger.warning(
                "the vLLM server %s serves %s, and the policy is %s: the policy's weights are sent to it, and have to "
                "fit, as its tokenizer has. Serve the policy; if it is the same, --served-model-name can say so",
                *(url, root, model),
            )
