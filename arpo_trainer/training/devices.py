"""How all trainers here use GPUs: one process has one, and what a sharded model computes reaches the loss in float32.

Of TRL's, transformers' and accelerate's internals this module uses `args._n_gpu`, `create_accelerator_and_postprocess`,
the policy of accelerate's FSDP plugin, and `gradient_state`.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import logging
import os
import socket
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import torch

logger = logging.getLogger(__name__)
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # of mallopt
# of a dry run, which plans for another machine (`arpo train --num-processes 8 --dry-run`)
_planned: ContextVar[int | None] = ContextVar("planned", default=None)


def process_count() -> int:
    """Return the number of processes of the run, over all machines."""
    return _planned.get() or int(os.environ.get("WORLD_SIZE", 1))  # set by the launcher


def planned_processes() -> int | None:
    """Return the number of processes of a dry run; None outside of one."""
    return _planned.get()


@contextlib.contextmanager
def planning(processes: int | None) -> Iterator[None]:
    """Let settings be read for this number of processes; None changes nothing."""
    if processes is not None and processes < 1:
        raise ValueError(f"--num-processes must be at least 1, got {processes}")
    token = _planned.set(processes)
    try:
        yield
    finally:
        _planned.reset(token)


Mixin: Any = object  # the base of classes that come before TRL's trainer, of which the type checker knows nothing


class OneDevice(Mixin):  # type: ignore[misc]
    """Comes before TRL's trainer among the bases of a trainer.

    Raises:
        ValueError: this GPU has no bfloat16, see `check_devices`.
    """

    def __init__(self, model: Any, *given: Any, **kwargs: Any) -> None:
        args: Any = kwargs.get("args")
        if args is None:  # TRL's own settings, or they came by position
            super().__init__(model, *given, **kwargs)
            return
        check_devices(args)
        if getattr(args, "use_vllm", False) and args.vllm_mode == "colocate" and process_count() == 1:
            take_port()
        if not torch.cuda.is_available():
            keep_freed_memory()
        loading = args.model_init_kwargs
        if args.n_gpu > 1:
            args._n_gpu = 1  # more is nn.DataParallel, whose copies TRL's forward would leave out
            # a model that is loaded already, without a reference model beside it, needs no options of loading
            if isinstance(model, str) or getattr(args, "beta", None):
                # TRL's own choice is "auto", which spreads the layers over all GPUs
                args.model_init_kwargs = {"device_map": {"": str(args.device)}, **(loading or {})}
        try:
            super().__init__(model, *given, **kwargs)
        finally:
            args.model_init_kwargs = loading  # as given: checkpoints compare them, whatever machine a run goes on on

    def create_accelerator_and_postprocess(self) -> None:
        """Make the accelerator, and let FSDP2 leave outputs as the model has computed them.

        accelerate asks FSDP2 to cast whatever the model returns to bfloat16: log-probabilities and entropies, too, of
        which 8 bits are left then. Most ratios of a small step are exactly 1, and the others are off by more than they
        differ from 1. Gradients of all processes would be added up in bfloat16 as well. The weights that layers compute
        with stay bfloat16. This is before the reference model is sharded with the same policy.

        Between the micro-batches of an update FSDP2 would keep the gradients of all weights whole on each GPU, 28 GiB
        for 7B. So they are shared out after each, as DeepSpeed does, unless `accelerator_config` asks otherwise.
        """
        super().create_accelerator_and_postprocess()
        plugin: Any = getattr(self.accelerator.state, "fsdp_plugin", None)
        if getattr(plugin, "fsdp_version", 1) == 2:
            asked = self.args.accelerator_config.gradient_accumulation_kwargs or {}
            self.accelerator.gradient_state.plugin_kwargs["sync_each_batch"] = asked.get("sync_each_batch", True)
        policy: Any = getattr(plugin, "mixed_precision_policy", None)
        if hasattr(policy, "output_dtype"):  # FSDP1's policy has none
            # None and not float32: each layer has this policy, and would hand on float32 to the next one
            plugin.mixed_precision_policy = replace(policy, reduce_dtype=torch.float32, output_dtype=None)


def take_port() -> None:
    """Choose a port for the engine's group of one process, unless `MASTER_PORT` says one.

    TRL chooses the first free one of the same four in every process, long before anything listens there: of runs that
    begin together on one machine, as on a GPU each, all but one would end with "address already in use".
    """
    if not os.environ.get("MASTER_PORT"):
        with socket.socket() as free:
            free.bind(("", 0))
            os.environ["MASTER_PORT"] = str(free.getsockname()[1])


@functools.cache
def keep_freed_memory() -> None:
    """Let glibc keep large blocks that are freed instead of giving them back: a training step asks for them again.

    The system would clear each page anew: a fifth of the time of the output matrix on a CPU (benchmarks/cpu_step.py).
    """
    with contextlib.suppress(AttributeError, OSError):  # another C library
        library = ctypes.CDLL(None)
        for option, value in ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 2**28)):
            library.mallopt(option, value)


def give_back_freed_memory() -> None:
    """Give back what `keep_freed_memory` has kept, between a rollout and an update, whose blocks have other sizes.

    What one leaves does not fit the other: a process of 8 GB had grown to 16 GB after some steps of Qwen2.5-0.5B.
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def check_devices(args: Any) -> None:
    """Refuse a precision that the GPU here lacks, warn of one the CPU lacks, and say which of several GPUs is used."""
    if planned_processes():
        return
    dtype = str((args.model_init_kwargs or {}).get("dtype", "")).removeprefix("torch.")
    asked = "bf16=True" if args.bf16 else "dtype=bfloat16" if dtype == "bfloat16" else ""
    if args.use_cpu or not torch.cuda.is_available():
        if asked and lacks_bfloat16(on_cpu=True):
            _say_once(  # measured for layers of Qwen2.5-0.5B on a CPU with AVX2
                f"{asked}: this CPU has no instructions for bfloat16 (AVX512-BF16 or AMX), and PyTorch emulates "
                "them, 7 times slower than float32 forward, 40 times slower backward. Set dtype=float32 (sft.dtype "
                "and train.dtype of arpo run) and bf16=False, which takes twice the memory for the model's weights"
            )
        return
    if asked and lacks_bfloat16():
        version = ".".join(map(str, torch.cuda.get_device_capability()))
        raise ValueError(
            f"{asked}: {torch.cuda.get_device_name()} (compute capability {version}) has no bfloat16, which begins "
            "with 8.0: PyTorch would emulate it slowly, and vLLM refuse it. Set bf16=False and fp16=True, with dtype "
            "float32"
        )
    if args.n_gpu > 1:
        _say_once(
            f"{args.n_gpu} GPUs are visible, and one process uses one of them: {args.device} "
            f"({torch.cuda.get_device_name()}). To use all, start one process for each: arpo train "
            "--accelerate-config ddp ... (sft and dpo, too; or fsdp2, zero2, zero3), or accelerate launch --multi_gpu "
            f"--num_processes {args.n_gpu} YOUR_SCRIPT.py. CUDA_VISIBLE_DEVICES=N chooses another GPU; see "
            "docs/how-to/gpus.md"
        )


def lacks_bfloat16(on_cpu: bool = False) -> bool:
    """Return whether a GPU here, or this CPU, only emulates bfloat16, which transformers counts as having it."""
    if on_cpu:
        # not public, and not in every release
        return not getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)()
    return torch.cuda.is_available() and not torch.cuda.is_bf16_supported(including_emulation=False)


@functools.cache
def _say_once(text: str) -> None:
    logger.warning("%s", text)
