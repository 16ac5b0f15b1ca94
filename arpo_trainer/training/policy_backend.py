"""Which backend a trainer generates with, and how that comes by the trainer's weights.

    use_vllm=False                           the model itself (`transformers_backend`); where its weights are sharded
                                             over processes, a whole copy (`FullCopyBackend`)
    use_vllm=True, vllm_mode="colocate"      TRL's engine in this process (`VLLMEngineBackend`)
    use_vllm=True, vllm_mode="server"        a server that TRL pushes the weights to (`VLLMServerBackend`)

TRL makes the engine, `trainer.vllm_generation`, and knows how to push weights (see `trl_seams`).
"""

from __future__ import annotations

import contextlib
from typing import Any

from arpo_trainer.backends.base import Backend, Generation, OnWindow, Request
from arpo_trainer.backends.lockstep import Lockstep
from arpo_trainer.training.trl_hooks import end_ids, push_weights, put_to_sleep, tokenizer_of, weights_are_old


def trainer_backend(trainer: Any) -> Backend:
    """Return what a trainer generates with, as its `args` say.

    Raises:
        ValueError: settings that this backend cannot serve, or quantised weights that are sharded over processes.
    """
    args, estimator = trainer.args, trainer.args.entropy_estimator
    if estimator == "auto":
        estimator = "renormalised" if args.use_vllm else "exact"
    entropy = {"topk": args.entropy_topk, "estimator": estimator}
    if not args.use_vllm:
        return _transformers(trainer, entropy)
    return HostedBackend(
        _server(trainer, entropy) if args.vllm_mode == "server" else _engine(trainer, entropy), trainer
    )


class HostedBackend:
    """A vLLM backend whose weights are the trainer's whenever a rollout begins, also one that TRL did not start.

    Every process begins and ends the same rollouts: pushing weights is a joint act where they are sharded or served.

    Args:
        backend: what generates.
        trainer: whose weights; its `vllm_generation` pushes them, at most once a training step while it trains.
    """

    def __init__(self, backend: Backend, trainer: Any) -> None:
        self.backend, self.trainer, self.host = backend, trainer, trainer.vllm_generation
        self.time, self.trains, self.wants_messages = backend.time, backend.trains, backend.wants_messages
        self.sleeps: bool = self.host.mode == "colocate" and self.host.enable_sleep_mode
        self._awake = not self.sleeps

    async def begin(self) -> None:
        """Push the trainer's weights if the engine has older ones or none, and wake it."""
        with device_of(self.trainer.accelerator):
            self._load()
            # a server has the weights when the main process has pushed them; a tensor-parallel engine's first
            # collective must not overtake the trainer's last
            if self.host.mode == "server" or self.host.tensor_parallel_size > 1:
                self.trainer.accelerator.wait_for_everyone()
        await self.backend.begin()

    async def generate(self, request: Request, on_window: OnWindow | None = None) -> Generation:
        """Generate one turn; see `Backend.generate`."""
        return await self.backend.generate(request, on_window)

    async def end(self) -> None:
        """Let the engine sleep, if it is one that sleeps; its weights are gone then."""
        await self.backend.end()
        if self.sleeps and self._awake:
            with device_of(self.trainer.accelerator):
                put_to_sleep(self.trainer)
            self._awake = False

    def _load(self) -> None:
        if weights_are_old(self.trainer):
            push_weights(self.trainer)
        if not self._awake:
            self.host.llm.wake_up(tags=["kv_cache"])
            self._awake = True


def device_of(accelerator: Any) -> contextlib.AbstractContextManager[object]:
    """Return what makes a process's GPU the current one: the event loop's thread starts on the first."""
    import torch

    device = accelerator.device
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


def _transformers(trainer: Any, entropy: dict[str, Any]) -> Backend:
    from arpo_trainer.backends.select_transformers import transformers_backend

    args, model = trainer.args, trainer.accelerator.unwrap_model(trainer.model)
    if sharded := _shards(trainer):
        from arpo_trainer.backends.full_copy import FullCopyBackend, structure

        model = structure(model, trainer.accelerator.device, _forward_dtype(args))
    backend = transformers_backend(
        model,
        tokenizer_of(trainer),
        max_rows=args.max_rows,
        prefix_tokens=args.prefix_tokens,
        eos_token_ids=end_ids(trainer),
        **entropy,
    )
    return FullCopyBackend(backend, model, trainer) if sharded else backend


def _shards(trainer: Any) -> bool:
    """Whether no process has the whole weights (once training has begun)."""
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


def _server(trainer: Any, entropy: dict[str, Any]) -> Backend:
    from arpo_trainer.backends.vllm_server import VLLMServerBackend

    args = trainer.args
    url = args.vllm_server_base_url or f"http://{args.vllm_server_host}:{args.vllm_server_port}"
    return VLLMServerBackend(
        [url],
        tokenizer=tokenizer_of(trainer),
        eos_token_ids=end_ids(trainer),
        patience=args.vllm_server_timeout,
        **entropy,
    )
