"""`FullCopyBackend`: generates with a whole copy of a model whose weights are sharded over the processes.

Each process plays its own trees at its own speed, but a forward pass of a sharded model is collective. So each process
has a plain copy of the model's structure. When a rollout begins, all processes together gather the weights into it, one
unit at a time; when it ends, the weights are dropped. This costs the memory of the weights on each device during a
rollout, in the precision of the forward pass (bf16: 2 bytes per parameter), and nothing during the update. Adapters
(PEFT) are copied as they are.

It serves FSDP2, FSDP1 and ZeRO-3. TRL's own iteration over the weights is not used: it produces vLLM's names and fails
before the model is sharded.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor

from arpo_trainer.backends.base import Backend, Generation, OnWindow, Request, device_of

_WRAPPERS = ("_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "_orig_mod.")  # what wrappers insert into names


class FullCopyBackend:
    """Generates with a copy that has the weights of the trainer from `begin` to `end`.

    All processes must begin and end the same rollouts, since gathering the weights is collective. `backend` generates
    with `model`, which is from `structure`.
    """

    def __init__(self, backend: Backend, model: Any, trainer: Any) -> None:
        self.backend, self.model, self.trainer = backend, model, trainer
        self.time, self.trains, self.wants_messages = backend.time, backend.trains, backend.wants_messages
        self.max_context = getattr(backend, "max_context", None)

    async def begin(self) -> None:
        """Gather the weights; all processes must call it."""
        with device_of(self.trainer.accelerator):
            fill(self.model, self.trainer.model)
        await self.backend.begin()

    async def generate(self, request: Request, on_window: OnWindow | None = None) -> Generation:
        """Generate one turn; see `Backend.generate`."""
        return await self.backend.generate(request, on_window)

    async def end(self) -> None:
        """Release the memory of the weights."""
        await self.backend.end()
        drop(self.model)


def structure(model: Any, device: torch.device, dtype: torch.dtype | None = None) -> Any:
    """Return a copy of a model, which is not sharded yet, without its weights; None keeps the model's dtype."""
    if getattr(model, "is_quantized", False):
        raise ValueError(
            "a quantised model whose weights are sharded (FSDP, ZeRO-3) cannot generate here: train it with DDP or "
            "ZeRO-2, or generate with vLLM (use_vllm=True)"
        )
    empty = {id(value): _empty(value, device, dtype) for value in model.parameters()}
    made = copy.deepcopy(model, empty)
    for module in made.modules():
        module.__dict__.pop("forward", None)  # a patched forward is bound to the original: TRL's head, autocast
    return made.to(device).eval()


def fill(made: Any, model: Any) -> None:
    """Give a `structure` the weights of a model; all processes must call it.

    Raises:
        KeyError: the model has another structure now.
    """
    empty = dict(made.named_parameters())
    for name, value in whole_weights(model, next(iter(empty.values())).device):
        # gathered tensors may be freed, and `.to` alone copies only where device or type differ
        empty[name].data = value.detach().to(empty[name].device, empty[name].dtype, copy=True)


def drop(made: Any) -> None:
    """Drop the weights of a `structure`."""
    for value in made.parameters():
        value.data = torch.empty(0, device=value.device, dtype=value.dtype)


def whole_weights(model: Any, device: torch.device) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield each parameter under its name in the model as it was before it was wrapped; all processes must iterate.

    A tensor is valid until the next one is requested. What is not sharded (yet) comes from the main process: with
    memory-efficient loading only that one has read the file.
    """
    if isinstance(model, FullyShardedDataParallel):
        yield from _fsdp1(model)
        return
    for name, value in model.named_parameters():
        if hasattr(value, "ds_id"):
            from deepspeed.runtime.zero import GatheredParameters  # type: ignore[import-not-found]

            with GatheredParameters([value]):
                yield plain_name(name), value.data
        elif isinstance(value, DTensor):
            yield plain_name(name), cast(DTensor, value.to(device)).full_tensor()
        else:
            yield plain_name(name), _of_main_process(value, device)


def _fsdp1(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Gather one unit at a time, inner units first."""
    seen: set[str] = set()
    with FullyShardedDataParallel.summon_full_params(model, recurse=False, writeback=False):
        pass  # FSDP1 wants the outermost unit to be the first one ever gathered
    units = [(name, unit) for name, unit in model.named_modules() if isinstance(unit, FullyShardedDataParallel)]
    for prefix, unit in reversed(units):
        with FullyShardedDataParallel.summon_full_params(unit, recurse=False, writeback=False):
            for name, value in unit.named_parameters(prefix):
                if plain_name(name) not in seen and not name.endswith("_flat_param"):  # an inner unit's, sharded again
                    seen.add(plain_name(name))
                    yield plain_name(name), value.data


def _of_main_process(value: torch.Tensor, device: torch.device) -> torch.Tensor:
    if not (dist.is_initialized() and dist.get_world_size() > 1):
        return value.data
    known = dist.get_rank() == 0
    whole = (
        value.detach().to(device, copy=True) if known else torch.empty(value.shape, dtype=value.dtype, device=device)
    )
    dist.broadcast(whole, 0)
    return whole


def plain_name(name: str) -> str:
    """Return a parameter's name without what wrappers insert into it."""
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def _empty(value: Any, device: torch.device, dtype: torch.dtype | None) -> torch.nn.Parameter:
    kind = dtype if dtype is not None and value.is_floating_point() else value.dtype
    return torch.nn.Parameter(torch.empty(0, device=device, dtype=kind), requires_grad=False)
