"""The memory that updates and rollouts need at real sizes, measured on tensors without data, beside `--dry-run`'s.

    python -m benchmarks.memory            # all cases, some minutes, no GPU and no weights
    python -m benchmarks.memory 7b         # those whose name begins so

PyTorch's fake tensors have shapes and no data, so a model of any size runs through TRL's head, checkpointing, autocast
and FSDP2 (with a fake process group of any size) on any machine. What is counted is what a GPU would hold. The kernels
of FlashAttention, FlexAttention and TRL's head are replaced by functions that keep and make the same tensors; the rest
is the code of a run.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import transformers.integrations.flex_attention as flex
import trl.kernels.chunked_logprob as head_kernels
import trl.trainer.utils as trl_utils
from peft import LoraConfig, get_peft_model
from torch._guards import active_fake_mode
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from transformers import AutoConfig, AutoModelForCausalLM

from arpo_trainer import ARPOConfig
from arpo_trainer.backends.in_process import PREFILL_TOKENS, TransformersBackend
from arpo_trainer.backends.sampling import Chances
from arpo_trainer.costs.memory import ProcessLayout, format_bytes, memory, shape_of
from arpo_trainer.packing import BLOCK, accept_tree_masks, block_mask

# kind, vocabulary, hidden, inner, layers, heads, key heads, tied
SIZES: dict[str, tuple[Any, ...]] = {
    "0.5b": ("qwen2", 151936, 896, 4864, 24, 14, 2, True),
    "1.5b": ("qwen2", 151936, 1536, 8960, 28, 12, 2, True),
    "3b": ("qwen2", 151936, 2048, 11008, 36, 16, 2, True),
    "7b": ("qwen2", 152064, 3584, 18944, 28, 28, 4, False),
    "llama-8b": ("llama", 128256, 4096, 14336, 32, 32, 8, False),
    "8b": ("qwen3", 151936, 4096, 12288, 36, 32, 8, False),
    "14b": ("qwen3", 151936, 5120, 17408, 40, 40, 8, False),
}


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of all tensors that exist, as an allocator would, and the most there have been.

    Attributes:
        now: bytes at this moment.
        peak: the most since `peak` was last set.
        chosen: how many entries of a mask are true: a fake mask does not know it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = self.chosen = 0
        self._sizes: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # seen again as operations on its local part
        if func is torch.ops.aten.index.Tensor and args[1][0].dtype == torch.bool:
            places = [torch.empty(self.chosen, dtype=torch.long) for _ in range(args[1][0].dim())]
            args = (args[0], places)
        made = func(*args, **(kwargs or {}))
        if active_fake_mode() is self._mode:  # a DTensor works out its shapes in another one
            for value in tree_iter(made):
                if isinstance(value, torch.Tensor):
                    self.count(value.untyped_storage())
        return made

    def __enter__(self) -> Any:
        self._mode = active_fake_mode()
        return super().__enter__()

    def count(self, storage: Any) -> None:
        """Count a storage, or count it anew after its size has changed."""
        key, size = storage._cdata, -(-storage.nbytes() // 512) * 512
        if key not in self._sizes:
            weakref.finalize(storage, self._gone, key)
        self.now += size - self._sizes.get(key, 0)
        self._sizes[key] = size
        self.peak = max(self.peak, self.now)

    def _gone(self, key: int) -> None:
        self.now -= self._sizes.pop(key, 0)


@dataclass(frozen=True)
class Case:
    """A run whose memory is measured.

    Attributes:
        size: a key of `SIZES`.
        prompt: tokens of a prompt.
        room: tokens after it; every row is full.
        settings: of `ARPOConfig`.
        layout: how the processes share the model.
        dtype: of the loaded weights.
        rank: of LoRA's adapters; None trains all weights.
        layers: of the model, if not all.
        rollout: whether it is a rollout with transformers that is measured, and not an update.
    """

    size: str
    prompt: int
    room: int
    settings: dict[str, Any] = field(default_factory=dict)
    layout: ProcessLayout = field(default_factory=ProcessLayout)
    dtype: str = "float32"
    rank: int | None = None
    layers: int | None = None
    rollout: bool = False

    @property
    def args(self) -> ARPOConfig:
        """The settings of the run; four micro-batches make an update."""
        given = {"per_device_train_batch_size": 2, "num_generations": 2, "bf16": True, "gradient_checkpointing": True}
        given |= {"gradient_accumulation_steps": 4, "output_dir": "unused", "use_cpu": True, "report_to": []}
        return ARPOConfig(**given | {"packing": False, "max_completion_length": self.room, **self.settings})


_ROLLOUT = {"per_device_train_batch_size": 64, "num_generations": 8, "max_rows": 64, "prefix_tokens": 1}
# the recipes of the package at their longest, and what differs from them
CASES = {
    "3b, one GPU": Case("3b", 254, 4096),
    "3b, one GPU, packed": Case("3b", 254, 4096, {"packing": True}),
    "3b, LoRA": Case("3b", 200, 2048, {"per_device_train_batch_size": 4}, dtype="bfloat16", rank=32),
    "8b, LoRA": Case("8b", 300, 6144, {"per_device_train_batch_size": 4}, dtype="bfloat16", rank=32),
    "7b, FSDP2 x 8": Case("7b", 254, 4096, layout=ProcessLayout(8, "fsdp")),
    "7b, FSDP2 x 8, packed": Case("7b", 254, 4096, {"packing": True}, ProcessLayout(8, "fsdp")),
    "8b, FSDP2 x 8": Case("8b", 254, 8192, layout=ProcessLayout(8, "fsdp")),
    "14b, FSDP2 x 16": Case("14b", 254, 8192, layout=ProcessLayout(16, "fsdp")),
    "0.5b, 32 bits, no checkpointing": Case("0.5b", 254, 1024, {"bf16": False, "gradient_checkpointing": False}),
    "1.5b, no checkpointing": Case("1.5b", 254, 1024, {"gradient_checkpointing": False}),
    "1.5b, no checkpointing, packed": Case("1.5b", 254, 1024, {"gradient_checkpointing": False, "packing": True}),
    "1.5b, DDP x 2": Case("1.5b", 254, 2048, layout=ProcessLayout(2)),
    "0.5b, rollout": Case("0.5b", 256, 1792, _ROLLOUT, rollout=True),
    "3b, rollout": Case("3b", 256, 1792, _ROLLOUT, rollout=True),
    "7b, rollout": Case("7b", 254, 4096, _ROLLOUT, dtype="bfloat16", rollout=True),
}


def measure(case: Case) -> tuple[int, int]:
    """Return the most bytes that a case needs, and the estimate."""
    live, args = LiveBytes(), case.args
    with torch.device("meta"):
        shape, base = shape_of(_model(case), _lora(case)), _model(case)
        model = base if case.rank is None else get_peft_model(base, _lora(case))
    needs = memory(shape, args, case.layout, case.prompt, case.room, case.dtype)
    with _processes(case.layout, live) as mesh, FakeTensorMode(allow_non_fake_inputs=True), live, _as_on_a_gpu():
        model.to_empty(device="cpu")
        base.tie_weights()
        if case.rollout:
            _roll_out(model, case)
            return live.peak, needs.kept["weights"] + sum(needs.rollout.values())
        _prepare(model, base, case, mesh)
        _update(model, case, live)
    return live.peak, sum(needs.kept.values()) + sum(needs.training.values())


def _update(model: Any, case: Case, live: LiveBytes) -> None:
    """A later micro-batch of a later update: gradients and the optimizer's states are there."""
    trained = [p for p in model.parameters() if p.requires_grad]
    for p in trained:
        p.grad = torch.empty_like(p)
    optimizer = torch.optim.AdamW(trained, fused=True)
    optimizer.step()
    gc.collect()  # what the making of the model has left
    live.peak = live.now
    _micro_batch(model, case, live)


@torch.no_grad()
def _roll_out(model: Any, case: Case) -> None:
    """Decode with all rows at their end, with two pieces of new context on the way."""
    rows, length = case.args.max_rows, case.prompt + case.room
    backend = TransformersBackend(model.eval(), SimpleNamespace(eos_token_id=0), max_rows=rows, prefix_tokens=1)
    new = min(case.prompt, PREFILL_TOKENS // rows)
    for _ in range(rows):
        backend._cache.join(None, length)
    backend._cache.lengths = [length - 2 * (new + 1)] * rows
    with torch.autocast("cpu", enabled=False):  # keeps the casts of the weights, as `InProcessBackend.begin` does
        for tokens in (new, 1, new, 1):
            with torch.autocast("cpu", torch.bfloat16, enabled=case.args.bf16):
                logits = backend._forward(0, [[0] * tokens] * rows)
        with contextlib.suppress(DataDependentOutputException):  # at the end it asks for the numbers
            backend.sampler.draw(logits.float(), Chances.of([1.0] * rows, range(rows), [0] * rows))


def _model(case: Case) -> Any:
    kind, vocabulary, hidden, inner, layers, heads, keys, tied = SIZES[case.size]
    config = AutoConfig.for_model(
        kind,
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=case.layers or layers,
        num_attention_heads=heads,
        num_key_value_heads=keys,
        tie_word_embeddings=tied,
        head_dim=128 if hidden > 1000 else 64,
        max_position_embeddings=32_768,
        use_cache=False,
    )
    return AutoModelForCausalLM.from_config(config, dtype=getattr(torch, case.dtype), attn_implementation="sdpa")


def _lora(case: Case) -> Any:
    if case.rank is None:
        return None
    return LoraConfig(r=case.rank, lora_alpha=case.rank, target_modules="all-linear", task_type="CAUSAL_LM")


def _prepare(model: Any, base: Any, case: Case, mesh: Any) -> None:
    """Do with a model what TRL and accelerate do: checkpointing, head, shards."""
    if case.args.gradient_checkpointing:
        base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if case.rank is not None:
            base.enable_input_require_grads()
    trl_utils.add_fused_lm_head(base, outputs=("log_probs", "entropy"))
    if mesh is not None:
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for layer in base.model.layers:
            fully_shard(layer, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
    elif case.layout.processes > 1:
        # DDP's reducer is C++ and sees no fake tensors: what it holds is a copy of the gradients
        model.buckets = [torch.empty_like(p) for p in model.parameters() if p.requires_grad]
    model.train()


def _micro_batch(model: Any, case: Case, live: LiveBytes) -> None:
    rows, prompt, room = case.args.per_device_train_batch_size, case.prompt, case.room
    live.chosen = rows * room
    with torch.autocast("cpu", torch.bfloat16, enabled=case.args.bf16):
        if case.args.packing:
            size = -(-(prompt + rows * room) // BLOCK) * BLOCK
            ids = torch.zeros(1, size, dtype=torch.long)
            accept_tree_masks()
            mask = block_mask(torch.zeros(size, dtype=torch.long))
            asked = {"attention_mask": mask, "position_ids": torch.zeros_like(ids), "shift_labels": ids}
        else:
            ids = torch.zeros(rows, prompt + room, dtype=torch.long)
            asked = {"labels": ids}
        output = model(input_ids=ids, **asked, fused_lm_head=True)
    (output.log_probs.sum() + output.entropy.sum() * 0).backward()


class _FlashAttention(torch.autograd.Function):
    """Keeps what FlashAttention and FlexAttention keep: its inputs, the output, a number for each query and head."""

    @staticmethod
    def forward(ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        output = torch.empty_like(query)
        ctx.save_for_backward(query, key, value, output, output.new_empty(query.shape[:3], dtype=torch.float32))
        return output

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(torch.empty_like(tensor) for tensor in ctx.saved_tensors[:3])


def _attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    if torch.is_autocast_enabled("cpu"):
        query, key, value = (tensor.to(torch.get_autocast_dtype("cpu")) for tensor in (query, key, value))
    output: torch.Tensor = _FlashAttention.apply(query, key, value)
    return output


class _Kernel:
    """In the place of a Triton kernel, which writes into what it is given."""

    def __getitem__(self, grid: Any) -> Any:
        return lambda *args, **kwargs: None


@contextlib.contextmanager
def _as_on_a_gpu() -> Iterator[None]:
    """Take the ways of CUDA through TRL's head and attention, with the memory of their kernels."""
    torch.__future__.set_overwrite_module_params_on_conversion(True)  # fake tensors cannot be changed in their place
    with contextlib.ExitStack() as stack:
        stack.callback(torch.__future__.set_overwrite_module_params_on_conversion, False)
        for place, name, value in (
            (torch.nn.functional, "scaled_dot_product_attention", _attend),
            (flex, "compile_friendly_flex_attention", _attend),
            (head_kernels, "_use_triton", lambda device: True),
            (trl_utils, "_use_triton", lambda device: True),
            (trl_utils, "_ChunkedLogProbFunction", head_kernels.ChunkedLogProbFunction),
            (head_kernels, "_forward_kernel", _Kernel()),
            (head_kernels, "_backward_kernel", _Kernel()),
            (head_kernels, "triton", SimpleNamespace(cdiv=lambda size, by: -(-size // by))),
            (head_kernels, "_addmm_fp32", lambda sums, one, other: None),
        ):
            stack.enter_context(mock.patch.object(place, name, value, create=True))
        yield


@contextlib.contextmanager
def _processes(layout: ProcessLayout, live: LiveBytes) -> Iterator[Any]:
    """Be the first of several processes, whose others do not exist, where the weights are sharded; yield their mesh."""
    if layout.sharding != "fsdp":
        yield None
        return
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    resize = torch.UntypedStorage.resize_

    def resized(storage: torch.UntypedStorage, size: int) -> None:
        resize(storage, size)  # no operation that a dispatch mode sees
        live.count(storage)

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=layout.processes)
    try:
        with mock.patch.object(torch.UntypedStorage, "resize_", resized):
            yield init_device_mesh("cpu", (layout.processes,))
    finally:
        dist.destroy_process_group()


def main() -> None:
    """Print measured and estimated memory of the cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", nargs="?", default="", help="how the names of the cases begin")
    wanted = parser.parse_args().case
    print(f"{'case':36} {'measured':>10} {'estimate':>10} ratio  seconds")
    for name, case in CASES.items():
        if name.startswith(wanted):
            started = time.perf_counter()
            found, estimate = measure(case)
            numbers = f"{format_bytes(found):>10} {format_bytes(estimate):>10} {estimate / found:5.2f}"
            print(f"{name:36} {numbers} {time.perf_counter() - started:8.1f}", flush=True)


if __name__ == "__main__":
    main()
