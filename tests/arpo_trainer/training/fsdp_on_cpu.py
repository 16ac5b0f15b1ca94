"""FSDP on the CPU: accelerate has a plugin for it, and leaves it out where there is no accelerator.

`AcceleratorState` looks at FSDP only for MULTI_GPU, MULTI_XPU and the like, and runs DDP for MULTI_CPU without a word.
PyTorch itself shards over gloo, so here the state is told what it would be on GPUs. Everything after that (what
accelerate, transformers and TRL do with a sharded model) is the real thing.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import Any
from unittest import mock

from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType


@contextlib.contextmanager
def fsdp(version: int) -> Iterator[None]:
    """Let accelerators made in here shard with FSDP 1 or 2, as the environment of `accelerate launch` does."""
    settings = {
        "ACCELERATE_USE_FSDP": "true",
        "FSDP_VERSION": str(version),
        "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
        "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
        "FSDP_RESHARD_AFTER_FORWARD": "true" if version == 2 else "FULL_SHARD",
        "FSDP_CPU_RAM_EFFICIENT_LOADING": "false",
    }
    made = AcceleratorState.__init__

    def with_plugin(self: Any, *args: Any, fsdp_plugin: Any = None, **kwargs: Any) -> None:
        made(self, *args, fsdp_plugin=fsdp_plugin, **kwargs)
        if fsdp_plugin is not None:
            self.distributed_type, self.fsdp_plugin = DistributedType.FSDP, fsdp_plugin
            PartialState._shared_state["distributed_type"] = DistributedType.FSDP  # where accelerate keeps it, too
            if self._mixed_precision != "no":
                fsdp_plugin.set_mixed_precision(self._mixed_precision)

    with mock.patch.dict(os.environ, settings), mock.patch.object(AcceleratorState, "__init__", with_plugin):
        AcceleratorState._reset_state()
        try:
            yield
        finally:
            AcceleratorState._reset_state()
            PartialState._shared_state["distributed_type"] = DistributedType.MULTI_CPU
