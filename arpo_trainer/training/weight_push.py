"""How vLLM gets the weights of the trainer: TRL pushes them, to one server or to several; all uses of its vLLM host.

    trainer._last_loaded_step; of its host _llm_weights_sleeping, vllm_client, sync_weights, group_port, server_timeout,
    model, _dist; under FSDP before training _iter_named_params, _weight_metadata

TRL pushes to one server. A server with `--data-parallel-size` is one: all its workers are in one NCCL group. Of several
servers each has a client and a group of its own here, and TRL's push is repeated for each, one after the other. No
rollout is played meanwhile, so all of them generate with the same weights.

TRL merges PEFT's adapters into their base for a push and takes them out again, which in bfloat16 leaves another base
behind each time. Here each layer is merged in a copy, while TRL reads it (`_merged_copies`).
"""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import trl
from accelerate.utils import is_peft_model

from arpo_env.net import strip_credentials
from arpo_trainer.backends.base import GenerationError


def connect_servers(trainer: Any, urls: Sequence[str]) -> None:
    """Let TRL push the weights to each of several servers.

    Args:
        trainer: TRL has connected it to the first server.
        urls: of all servers. Server n uses the port `vllm_group_port` + n of the main process.

    Raises:
        GenerationError: a server does not answer, or cannot take weights; names it.
    """
    if len(urls) < 2:
        return
    host = trainer.vllm_generation
    clients: list[Any] = [None] * len(urls)  # the main process alone talks to servers; the others only gather
    if trainer.accelerator.is_main_process:
        clients = [host.vllm_client, *(_connected(trainer, urls[number], number) for number in range(1, len(urls)))]
    push_to_one = host.sync_weights

    def push_to_each() -> None:
        try:
            for url, client in zip(urls, clients, strict=True):
                with _naming(url, "could not be given the weights"):
                    host.vllm_client = client
                    push_to_one()
        finally:
            host.vllm_client = clients[0]

    host.sync_weights = push_to_each


def _connected(trainer: Any, url: str, number: int) -> Any:
    host = trainer.vllm_generation
    with _naming(url, "cannot be used"):
        client = type(host.vllm_client)(
            base_url=url, group_port=host.group_port + number, connection_timeout=host.server_timeout
        )
        client.init_communicator(device=trainer.accelerator.device)
    return client


@contextlib.contextmanager
def _naming(url: str, what: str) -> Iterator[None]:
    """Name the server in errors: TRL's say which one only in some."""
    try:
        yield
    except Exception as error:
        raise GenerationError(
            f"the vLLM server {strip_credentials(url)} {what}: {error}. A server that was restarted cannot join again: "
            "restart all of them, and resume from the last checkpoint"
        ) from error


def weights_are_old(trainer: Any) -> bool:
    """Return whether vLLM may have other weights than the trainer, or has discarded them to sleep."""
    host = trainer.vllm_generation
    asleep: bool = host.mode == "colocate" and host.enable_sleep_mode and host._llm_weights_sleeping
    # outside training the step proves nothing: the best checkpoint may have been loaded since
    return asleep or not (trainer.is_in_train and trainer.state.global_step == trainer._last_loaded_step)


def push_weights(trainer: Any) -> None:
    """Give vLLM the weights of the trainer. All processes must call it where weights are sharded or served.

    Raises:
        GenerationError: only one process has the weights before training, and vLLM needs them on each.
    """
    host = trainer.vllm_generation
    with _unsharded_walk(host, trainer), _merged_copies(host):
        host.sync_weights()
    trainer._last_loaded_step = trainer.state.global_step


def put_to_sleep(trainer: Any) -> None:
    """Put the engine of this process to sleep, which discards its weights."""
    # level 1 would keep a copy in main memory, but whoever wakes the engine pushes weights anew
    trainer.vllm_generation.llm.sleep(level=2)
    trainer.vllm_generation._llm_weights_sleeping = True


@contextlib.contextmanager
def _unsharded_walk(host: Any, trainer: Any) -> Iterator[None]:
    """Let TRL iterate over a model that FSDP will shard only when training begins; it expects shards from the start."""
    if not trainer.is_fsdp_enabled or _is_sharded(trainer.model):
        yield
        return
    if os.environ.get("FSDP_CPU_RAM_EFFICIENT_LOADING", "").lower() == "true":
        raise GenerationError(
            "before training only the main process has the weights, and vLLM needs them on each: set "
            "fsdp_cpu_ram_efficient_loading: false, or leave out what generates before training (eval_tasks: 0)"
        )
    if not hasattr(host, "_iter_named_params"):
        raise GenerationError(
            f"TRL {trl.__version__} cannot give vLLM weights that FSDP will shard: install trl>=1.16, or leave out "
            "what generates before training (eval_tasks: 0)"
        )
    sharded, walk, device = host._dist, host._iter_named_params, trainer.accelerator.device
    # a copy without FSDP makes TRL walk over plain parameters, which may still be on the CPU
    host._dist = copy.copy(sharded)
    host._dist.fsdp_version = None
    host._iter_named_params = lambda: ((name, value.to(device)) for name, value in walk())
    try:
        yield
    finally:
        host._dist, host._weight_metadata = sharded, None  # FSDP may use another precision
        del host._iter_named_params


@contextlib.contextmanager
def _merged_copies(host: Any) -> Iterator[None]:
    """Let TRL read the parameters of a PEFT model as merged copies, one layer at a time, instead of merging it.

    The parameters themselves are not touched, so they are the same bits after any number of pushes.
    """
    model = host.model
    # TRL walks over the modules of FSDP1 by itself, and does not know their adapters' names
    if not is_peft_model(model) or host._dist.fsdp_version == 1:
        yield
        return
    plain = model.named_parameters
    theirs = {
        "merge_adapter": lambda: None,
        "unmerge_adapter": lambda: None,
        "parameters": lambda: (parameter for _, parameter in plain()),  # to gather: torch's asks `named_parameters`
        "named_parameters": lambda: _merged_parameters(model, [name for name, _ in plain()]),
    }
    for name, method in theirs.items():
        setattr(model, name, method)
    try:
        yield
    finally:
        for name in theirs:
            delattr(model, name)


def _merged_parameters(model: Any, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
    from peft.tuners.tuners_utils import BaseTunerLayer

    adapted: dict[Any, list[Any]] = {}
    for layer in model.modules():
        if isinstance(layer, BaseTunerLayer):
            adapted.setdefault(layer.get_base_layer(), []).append(layer)
    for name in names:
        owner, _, leaf = name.rpartition(".")
        base = model.get_submodule(owner)
        with _merged(base, adapted.get(base, ())):
            yield name, getattr(base, leaf)


@contextlib.contextmanager
def _merged(base: Any, layers: Sequence[Any]) -> Iterator[None]:
    """Let a module have copies of its parameters inside the block, into which PEFT's layers have merged their adapters.

    The sum of weights and LoRA is formed in float32 and rounded once. Other adapters compute as they do by themselves.
    """
    import torch
    from peft.tuners.lora import LoraLayer
    from torch.distributed.tensor import DTensor

    own = dict(base._parameters) if layers else {}
    # a quantised parameter is left as it is: PEFT puts another one in its place
    plain = {leaf: value for leaf, value in own.items() if value is not None and value.is_floating_point()}
    wide = all(isinstance(layer, LoraLayer) for layer in layers)
    if any(isinstance(value, DTensor) for value in plain.values()) and not all(
        isinstance(layer, LoraLayer) and not layer.lora_variant for layer in layers
    ):  # PEFT would set `data`, which changes nothing of a sharded parameter
        raise GenerationError(
            "vLLM cannot be given sharded weights with other adapters than plain LoRA (DoRA, for example): use LoRA, "
            "weights that are not sharded (ddp or zero2), or use_vllm: false"
        )
    try:
        for leaf, value in plain.items():
            copied = value.detach().to(torch.float32 if wide else value.dtype, copy=True)
            base._parameters[leaf] = torch.nn.Parameter(copied, requires_grad=False)
        for layer in layers:
            layer.merge()
        for leaf, value in plain.items():
            rounded = base._parameters[leaf].detach().to(value.dtype)
            base._parameters[leaf] = torch.nn.Parameter(rounded, requires_grad=False)
        yield
    finally:
        base._parameters.update(own)
        for layer in layers:
            layer.merged_adapters.clear()


def _is_sharded(model: Any) -> bool:
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.tensor import DTensor

    return isinstance(model, FullyShardedDataParallel) or any(isinstance(p, DTensor) for p in model.parameters())
