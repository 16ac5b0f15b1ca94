"""The current GPU of a thread: CUDA gives every new thread the first one, whichever its process uses."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any


def device_of(accelerator: Any) -> contextlib.AbstractContextManager[object]:
    """Return a context in which the GPU of a process is the current one; for code on the thread of the event loop."""
    import torch

    device = accelerator.device
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


def same_device() -> tuple[Callable[..., object], tuple[Any, ...]] | tuple[()]:
    """Return the initializer and its arguments that start the threads of a pool on the GPU of this thread."""
    import torch

    # asking for the current device would initialise CUDA, also for a model that runs on the CPU
    used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return (torch.cuda.set_device, (torch.cuda.current_device(),)) if used else ()
