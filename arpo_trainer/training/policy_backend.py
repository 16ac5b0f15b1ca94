"""The backend that a trainer generates with, and how it gets the weights of the trainer.

use_vllm=False                           the model itself (`transformers_backend`), or a whole copy of it if its
                                         weights are sharded over processes or learn meanwhile (`FullCopyBackend`)
use_vllm=True, vllm_mode="colocate"      TRL's engine in this process (`VLLMEngineBackend`)
use_vllm=True, vllm_mode="server"        one or more servers that TRL pushes the weights to (`VLLMServerBackend`)
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import trl
from accelerate.utils import is_peft_model
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor

from arpo_env.event_loop import run
from arpo_env.net import strip_credentials
from arpo_trainer.backends.base import Backend, Generation, GenerationError, OnWindow, Request, device_of
from arpo_trainer.training.config import most_tokens
from arpo_trainer.training.trl_hooks import end_ids, tokenizer_of

logger = logging.getLogger(__name__)

# TRL pushes the weights to its vLLM host, to one server or to several. All uses of that host are here:
#
#     trainer._last_loaded_step; of its host _llm_weights_sleeping, vllm_client, sync_weights, group_port,
#     server_timeout, model, _dist; under FSDP before training _iter_named_params, _weight_metadata


def connect_servers(trainer: Any, urls: Sequence[str]) -> None:
    """Let TRL, which has connected the trainer to the first server, push the weights to each of several.

    A server with `--data-parallel-size` is one: all its workers are in one NCCL group. Each server has a client and a
    group of its own here (server n uses the port `vllm_group_port` + n of the main process), and TRL's push is repeated
    for each. No rollout is played meanwhile, so all of them generate with the same weights.

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

    TRL would take the adapters out again, which in bfloat16 leaves another base behind after each push.
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
    _check_tied(model, adapted)
    for name in names:
        owner, _, leaf = name.rpartition(".")
        base = model.get_submodule(owner)
        with _merged(base, adapted.get(base, ())):
            yield name, getattr(base, leaf)


def _check_tied(model: Any, adapted: Mapping[Any, Sequence[Any]]) -> None:
    """Refuse adapters of a layer whose weights are those of another layer as well: vLLM has one copy of them."""
    if all(getattr(config, "ensure_weight_tying", False) for config in model.peft_config.values()):
        return
    owners: dict[int, Any] = {}
    for module in model.modules():
        for parameter in module._parameters.values():
            other = owners.setdefault(id(parameter), module) if parameter is not None else module
            if other is not module and (module in adapted or other in adapted):
                raise GenerationError(
                    "vLLM cannot be given adapters of the embedding or the head (lm_head) of a model whose embedding "
                    "is its head: leave both out of lora_target_modules, set ensure_weight_tying in PEFT's "
                    "configuration, or take use_vllm: false"
                )


@contextlib.contextmanager
def _merged(base: Any, layers: Sequence[Any]) -> Iterator[None]:
    """Let a module have copies of its parameters inside the block, into which PEFT's layers have merged their adapters.

    The sum of weights and LoRA is formed in float32 and rounded once. Other adapters compute as they do by themselves.
    """
    from peft.tuners.lora import LoraLayer

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
    return isinstance(model, FullyShardedDataParallel) or any(isinstance(p, DTensor) for p in model.parameters())


def rollout_tokenizer(trainer: Any) -> Any:
    """Return the tokenizer for rollouts: a copy where they run beside the update.

    A tokenizer that is set to pad or truncate in one thread while another one uses it raises "Already borrowed".
    """
    tokenizer = tokenizer_of(trainer)
    return copy.deepcopy(tokenizer) if trainer.args.max_staleness else tokenizer


def trainer_backend(trainer: Any, tokenizer: Any = None) -> Backend:
    """Return the backend that the `args` of a trainer ask for; by default with the trainer's tokenizer.

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

    They are pushed at most once per training step. All processes must begin and end the same rollouts: pushing is
    collective where weights are sharded or served.
    """

    def __init__(self, backend: Backend, trainer: Any) -> None:
        self.backend, self.trainer, self.host = backend, trainer, trainer.vllm_generation
        self.time, self.trains, self.wants_messages = backend.time, backend.trains, backend.wants_messages
        self.sleeps: bool = self.host.mode == "colocate" and self.host.enable_sleep_mode
        self._awake = not self.sleeps

    @property
    def max_context(self) -> int | None:
        """That of the backend; see `Backend`."""
        return getattr(self.backend, "max_context", None)

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
                # level 1 would keep a copy in main memory, but whoever wakes the engine pushes weights anew
                self.host.llm.sleep(level=2)
            self.host._llm_weights_sleeping, self._awake = True, False

    def _load(self) -> None:
        if weights_are_old(self.trainer):
            push_weights(self.trainer)
        if not self._awake:
            # after the weights: until then its memory is free for gathering them
            self.host.llm.wake_up(tags=["kv_cache"])
            self._awake = True


def _transformers(trainer: Any, tokenizer: Any, entropy: dict[str, Any]) -> Backend:
    from arpo_trainer.backends.in_process import transformers_backend

    args, model = trainer.args, trainer.accelerator.unwrap_model(trainer.model)
    # a copy, too, where the model learns while it generates: its weights may not change under a rollout
    if copied := _shards(trainer) or bool(args.max_staleness):
        from arpo_trainer.backends.full_copy import FullCopyBackend, structure

        half = torch.bfloat16 if args.bf16 else torch.float16 if args.fp16 else None
        # made now, from the model as it is before training shards it
        model = structure(model, trainer.accelerator.device, half)
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


def _engine(trainer: Any, entropy: dict[str, Any]) -> Backend:
    from arpo_trainer.backends.vllm_engine import Lockstep, VLLMEngineBackend

    host = trainer.vllm_generation
    group = None
    if host.tensor_parallel_size > 1:
        size = host.tensor_parallel_size  # the same processes as TRL's own groups, but for objects on the CPU
        groups = [list(range(first, first + size)) for first in range(0, dist.get_world_size(), size)]
        group, _ = dist.new_subgroups_by_enumeration(groups, backend="gloo")  # type: ignore[no-untyped-call]
    return VLLMEngineBackend(host.llm, eos_token_ids=end_ids(trainer), lockstep=Lockstep(group), **entropy)


def _server(trainer: Any, tokenizer: Any, entropy: dict[str, Any]) -> Backend:
    from arpo_trainer.backends.servers import VLLMServerBackend

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

    A server with another name gets a warning: names prove nothing, but weights of another shape can only be refused
    when they are first sent. `tokens` is the environment's own limit, as in `most_tokens`.

    Raises:
        GenerationError: a server does not answer, or serves several models.
        ValueError: the context of a server has no room for a prompt before a full completion.
    """
    if not args.use_vllm or args.vllm_mode != "server":
        return
    from arpo_trainer.backends.servers import VLLMServerBackend

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
