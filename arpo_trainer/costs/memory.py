"""The device memory that a training process needs, part by part. An estimate; docs/how-to/costs.md compares it.

Weights, gradients and optimizer states are counted. What a layer keeps for the backward pass is the measured number of
bytes per token for layers like Llama's and Qwen's (RMSNorm, gated MLP, attention that does not store its scores); every
micro-batch is assumed to be full, and packed rows to share only their prompt. The CUDA context, unused memory of
allocators, NCCL's buffers and Python are not included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from arpo_trainer.costs.model_shape import ModelShape
from arpo_trainer.costs.packed import prompts_computed, will_pack
from arpo_trainer.costs.sharding import ProcessLayout
from arpo_trainer.training.config import ARPOConfig

# bytes per token that a layer keeps, by the width that they grow with: (hidden, queries, inner, normed queries + keys)
_KEPT = {"float32": (24, 16, 16, 8), "mixed": (21, 12, 8, 6), "bfloat16": (16, 8, 8, 6)}
_CACHED = {"float32": 8, "mixed": 6, "bfloat16": 4}  # bytes of a key and its value, per unit of a layer's key width
_TILE = (4096, 32_768)  # tokens and vocabulary rows of the head that TRL computes at once
_CPU_TILES, _GPU_TILES = 8, 1  # tiles in memory: the GPU kernel works in place, PyTorch on the CPU does not


@dataclass(frozen=True)
class MemoryNeeds:
    """Bytes of one process.

    Attributes:
        kept: parts that exist from the first step to the last, by name.
        training: further parts of an update.
        rollout: further parts of a rollout.
        elsewhere: memory that is not counted here, in words.
    """

    kept: dict[str, int]
    training: dict[str, int]
    rollout: dict[str, int]
    elsewhere: tuple[str, ...] = ()

    @property
    def peak(self) -> int:
        """The memory of an update or of a rollout, whichever is larger: they take turns."""
        return sum(self.kept.values()) + max(sum(self.training.values()), sum(self.rollout.values()))


def memory(
    shape: ModelShape,
    args: ARPOConfig,
    layout: ProcessLayout,
    prompt: int,
    room: int,
    dtype: str = "float32",
    on_cpu: bool = False,
) -> MemoryNeeds:
    """Return the memory that one process needs.

    Args:
        shape: the model's shape.
        args: the settings of the run.
        layout: how the processes share the model.
        prompt: tokens of the longest prompt.
        room: tokens after the prompt, at most.
        dtype: the type of the loaded weights.
        on_cpu: whether the run trains on the CPU.
    """
    width = 4 if dtype == "float32" else 2
    mixed = width == 4 and (args.bf16 or args.fp16)
    kind = "mixed" if mixed else "float32" if width == 4 else "bfloat16"
    kept = _kept(shape, args, layout, width)
    prompts = prompts_computed(args, will_pack(args, shape, layout, on_cpu))
    rows = args.per_device_train_batch_size
    training = _training(shape, args, layout, rows * room + prompts * prompt, kind, on_cpu)
    if shared := (rows - prompts) * prompt:  # attention still reads the keys and values of a prompt in each row
        width = 4 if kind == "float32" else 2
        layers = 1 if args.gradient_checkpointing else shape.layers
        training["keys and values of shared prompts"] = shared * 2 * shape.queries * width * layers
    if layout.deepspeed and (args.bf16 or args.fp16):
        kind = "bfloat16"
    rollout, elsewhere = _rollout(shape, args, layout, prompt + room, kind)
    if args.max_staleness and not args.use_vllm:  # the next rollout is played beside the update
        training, rollout = {**training, **rollout}, {}
    return MemoryNeeds(kept, training, rollout, elsewhere)


def _kept(shape: ModelShape, args: ARPOConfig, layout: ProcessLayout, width: int) -> dict[str, int]:
    half = layout.deepspeed and (args.bf16 or args.fp16)  # DeepSpeed trains a 16-bit model and keeps a 32-bit copy
    weights = 2 if half else width
    learned = 4 if shape.adapted else weights  # PEFT keeps adapters in 32 bits
    frozen = shape.parameters if args.beta and not shape.adapted else 0
    parts = {
        "weights": shape.parameters * weights * layout.share("weights"),
        "weights of the reference model": frozen * weights * layout.share("weights"),
        "gradients": shape.trained * learned * layout.share("gradients"),
        "optimizer": shape.trained * (4 * half + _moments(args, 4 if half else learned)) * layout.share("optimizer"),
    }
    if layout.processes > 1 and layout.sharding == "ddp":
        parts["gradients in DDP's buckets"] = shape.trained * learned
    return {name: round(size) for name, size in parts.items() if size}


def _moments(args: ARPOConfig, width: int) -> float:
    """Return the bytes of optimizer state per trained parameter."""
    name = str(getattr(args.optim, "value", args.optim))
    # by the names of optimizers: Adam keeps two moments, Lion and RMSprop one
    if "8bit" in name:
        return 1 if "lion" in name else 2
    if name.startswith(("sgd", "adafactor", "galore", "apollo")):
        return 0
    return width if name.startswith(("lion", "rmsprop", "adagrad")) else 2 * width


def _training(
    shape: ModelShape, args: ARPOConfig, layout: ProcessLayout, tokens: int, kind: str, on_cpu: bool
) -> dict[str, int]:
    per_token = sum(
        size * factor for size, factor in zip((shape.hidden, shape.queries, shape.inner, 0), _KEPT[kind], strict=True)
    ) + (_KEPT[kind][3] * (shape.queries + shape.keys) if shape.normed else 0)
    # checkpointing keeps the input of each layer, and the inside of one layer at a time
    between = shape.hidden * (2 if kind == "bfloat16" else 4) * shape.layers
    layers = between + per_token if args.gradient_checkpointing else shape.layers * per_token
    tile = min(tokens, _TILE[0]) * min(shape.vocabulary, _TILE[1]) * 4
    parts = {
        "activations of a micro-batch": tokens * layers,
        "logits of a tile": tile * (_CPU_TILES if on_cpu else _GPU_TILES),
        "gradient of the head": shape.vocabulary * shape.hidden * 4 if not shape.adapted else 0,
        "16-bit copies of the weights": 2 * shape.parameters if kind == "mixed" and layout.sharding == "ddp" else 0,
    }
    if layout.share("weights") < 1:
        whole = layout.sharding == "fsdp-no-reshard"
        parts["weights gathered for a layer"] = 2 * (shape.parameters if whole else 2 * shape.largest)
    return {name: round(size) for name, size in parts.items() if size}


def _rollout(
    shape: ModelShape, args: ARPOConfig, layout: ProcessLayout, tokens: int, kind: str
) -> tuple[dict[str, int], tuple[str, ...]]:
    if args.use_vllm:
        return _vllm(shape, args)
    trajectories = -(-(args.generation_batch_size or 1) // layout.processes)
    rows = min(args.max_rows, trajectories)
    cached = shape.layers * shape.keys * _CACHED[kind]
    parts = {
        "keys and values of kept prefixes": min(args.prefix_tokens, trajectories * tokens) * cached,
        "keys and values of running requests": rows * tokens * cached,
        "logits of running requests": 4 * rows * shape.vocabulary * 4,
    }
    copied = layout.share("weights") < 1 or args.max_staleness > 0
    if (
        kind == "mixed" and layout.sharding == "ddp" and not copied
    ):  # autocast keeps its casts of trained weights for a rollout
        parts["16-bit copies of the weights"] = 2 * shape.trained
    if copied:
        parts["weights of a whole copy"] = shape.parameters * (2 if args.bf16 or args.fp16 else 4)
    return parts, ()


def _vllm(shape: ModelShape, args: ARPOConfig) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return what vLLM takes: a fixed share of the GPU for every model, which includes its copy of the weights."""
    size = shape.parameters * 2 / max(1, args.vllm_tensor_parallel_size) / 2**30
    if args.vllm_mode == "server":
        return {}, ("the vLLM server has GPUs of its own",)
    share, sleeps = args.vllm_gpu_memory_utilization, args.vllm_enable_sleep_mode
    when = "while it rolls out" if sleeps else "all the time"
    words = f"vLLM takes {share:.0%} of the GPU {when}; {size:.1f} GiB of that are its copy of the weights (16 bit)"
    return {}, (words,)


def checkpoint_bytes(shape: ModelShape, args: ARPOConfig, dtype: str = "float32") -> int:
    """Return the size of one checkpoint: trained weights and optimizer states."""
    width = 4 if dtype == "float32" or shape.adapted else 2
    states = 0.0 if args.save_only_model else _moments(args, width)
    return round(shape.trained * (width + states))


def format_bytes(size: Any) -> str:
    """Return bytes as text with a unit."""
    for name, unit in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20)):
        if size >= unit:
            return f"{size / unit:,.1f} {name}"
    return f"{size:,.0f} bytes"
