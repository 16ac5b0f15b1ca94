"""Which backend a trainer generates with, and how that comes by the trainer's weights.

    use_vllm=False                           the model itself (`transformers_backend`); where its weights are sharded
                                             over processes, a whole copy (`FullCopyBackend`)
    use_vllm=True, vllm_mode="colocate"      TRL's engine in this process (`VLLMEngineBackend`)
    use_vllm=True, vllm_mode="server"        a server that TRL pushes the weights to (`VLLMServerBackend`)

TRL makes the engine and knows how to push weights; of its inside we use `trainer.vllm_generation` (`llm`,
`sync_weights`, `enable_sleep_mode`, `_llm_weights_sleeping`, `tensor_parallel_size`, and under FSDP before training
`_dist`, `_iter_named_params`, `_weight_metadata`) and `trainer._last_loaded_step`.
"""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Iterator
from typing import Any

from arpo_trainer.backends.lockstep import Lockstep
from arpo_trainer.generation import Backend, Generation, GenerationError, OnWindow, Request


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
                self.host.llm.sleep(level=2)
            self.host._llm_weights_sleeping, self._awake = True, False

    def _load(self) -> None:
        step = self.trainer.state.global_step
        # outside of training the step says nothing: the best checkpoint may have been loaded since
        known = self.trainer.is_in_train and step == self.trainer._last_loaded_step
        if not known or (self.sleeps and self.host._llm_weights_sleeping):
            with _walk(self.host, self.trainer):
                self.host.sync_weights()
            self.trainer._last_loaded_step = step
        if not self._awake:
            self.host.llm.wake_up(tags=["kv_cache"])
            self._awake = True


@contextlib.contextmanager
def _walk(host: Any, trainer: Any) -> Iterator[None]:
    """Let TRL walk over a model that FSDP will shard when training begins; it expects shards from the start."""
    if not trainer.is_fsdp_enabled or _is_sharded(trainer.model):
        yield
        return
    if os.environ.get("FSDP_CPU_RAM_EFFICIENT_LOADING", "").lower() == "true":
        raise GenerationError(
            "before training only the main process has the weights, and vLLM needs them on each: set "
            "fsdp_cpu_ram_efficient_loading: false, or leave out what generates before training (eval_tasks: 0)"
        )
    sharded, walk, device = host._dist, host._iter_named_params, trainer.accelerator.device
    host._dist = copy.copy(sharded)
    host._dist.fsdp_version = None
    host._iter_named_params = lambda: ((name, value.to(device)) for name, value in walk())
    try:
        yield
    finally:
        host._dist, host._weight_metadata = sharded, None  # FSDP may keep another precision
        del host._iter_named_params


def _is_sharded(model: Any) -> bool:
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.tensor import DTensor

    return isinstance(model, FullyShardedDataParallel) or any(isinstance(p, DTensor) for p in model.parameters())


def device_of(accelerator: Any) -> contextlib.AbstractContextManager[object]:
    """Return what makes a process's GPU the current one: the event loop's thread starts on the first."""
    import torch

    device = accelerator.device
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


def _transformers(trainer: Any, entropy: dict[str, Any]) -> Backend:
    from arpo_trainer.backends.choice import transformers_backend

    args, model = trainer.args, trainer.accelerator.unwrap_model(trainer.model)
    if sharded := _shards(trainer):
        from arpo_trainer.backends.full_copy import FullCopyBackend, structure

        model = structure(model, trainer.accelerator.device, _forward_dtype(args))
    backend = transformers_backend(
        model,
        trainer._tokenizer,
        max_rows=args.max_rows,
        prefix_tokens=args.prefix_tokens,
        eos_token_ids=set(trainer.eos_token_ids),
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
    return VLLMEngineBackend(host.llm, eos_token_ids=set(trainer.eos_token_ids), lockstep=Lockstep(group), **entropy)


def _server(trainer: Any, entropy: dict[str, Any]) -> Backend:
    from arpo_trainer.backends.vllm_server import VLLMServerBackend

    args = trainer.args
    url = args.vllm_server_base_url or f"http://{args.vllm_server_host}:{args.vllm_server_port}"
    eos = set(trainer.eos_token_ids)
    return VLLMServerBackend(
        [url], tokenizer=trainer._tokenizer, eos_token_ids=eos, patience=args.vllm_server_timeout, **entropy
    )
