"""The device memory that a training process needs, part by part. An estimate; docs/how-to/costs.md compares it.

Weights, gradients and optimizer states are counted. What a layer keeps for the backward pass is the measured number of
bytes per token for layers like Llama's and Qwen's (RMSNorm, gated MLP, attention that does not store its scores); every
micro-batch is assumed to be full, and packed rows to share only their prompt. The CUDA context, unused memory of
allocators, NCCL's buffers and Python are not included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from arpo_trainer.backends.continuous import PREFILL_TOKENS
from arpo_trainer.costs.model_shape import ModelShape
from arpo_trainer.costs.sharding import ProcessLayout
from arpo_trainer.packing.support import ATTENTION
from arpo_trainer.training.config import ARPOConfig

# bytes per token that a layer keeps, by the width that they grow with: (hidden, queries, inner, normed queries + keys)
_KEPT = {"float32": (24, 16, 16, 8), "mixed": (21, 12, 8, 6), "bfloat16": (16, 8, 8, 6)}
_CACHED = {"float32": 8, "mixed": 6, "bfloat16": 4}  # bytes of a key and its value, per unit of a layer's key width
_TILE = (4096, 32_768)  # tokens and vocabulary rows of the head that TRL computes at once
_CPU_TILES = 7  # copies of one


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
        """The memory of an update or of a rollout, whichever is larger: they take turns.

        With `max_staleness` they do not: `training` has the parts of both then.
        """
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
    width, half = 4 if dtype == "float32" else 2, args.bf16 or args.fp16
    # FSDP and DeepSpeed cast the weights themselves, so that all in between is in 16 bits, too
    kind = "bfloat16" if width == 2 or (half and layout.sharding != "ddp") else "mixed" if half else "float32"
    kept = _kept(shape, args, layout, width)
    packs = will_pack(args, shape)
    rows, prompts = args.per_device_train_batch_size, prompts_computed(args, packs)
    tokens = rows * room + prompts * prompt
    # a rollout follows an update, which has dropped them
    training = {"gradients": kept.pop("gradients", 0)} | _update(shape, args, layout, tokens, rows * room, kind, on_cpu)
    if packs and (read := _keys_again(shape, tokens, (rows - prompts) * prompt, on_cpu)):
        layers = 1 if args.gradient_checkpointing else shape.layers
        training["keys and values of packed rows"] = read * (4 if kind == "float32" else 2) * layers
    rollout, elsewhere = _rollout(shape, args, layout, prompt + room, kind)
    if args.max_staleness and not args.use_vllm:  # the next rollout is played beside the update
        training, rollout = {**training, **rollout}, {}
    return MemoryNeeds(kept, training, rollout, elsewhere)


def will_pack(args: ARPOConfig, shape: ModelShape | None) -> bool:
    """Return whether a run trains on packed rows, as `PackedGRPOTrainer.choose_packing` decides when it starts.

    Args:
        args: settings of the run.
        shape: shape of the model; None if its configuration is not available, which counts as not packed.
    """
    packing: bool | str = args.packing
    attention = (args.model_init_kwargs or {}).get("attn_implementation") or "sdpa"
    if packing is False or shape is None or not shape.packable or attention not in ATTENTION:
        return False
    return packing is True or (shape.proven and not (args.torch_compile or args.use_liger_kernel))


def prompts_computed(args: ARPOConfig, packs: bool) -> int:
    """Return how many prompts one micro-batch computes at most: one for each row, or one for each group in it.

    Only the prompt is sure to be shared by the rows of a group. What branches share depends on the run, so a bound does
    not count it.
    """
    rows, group = int(args.per_device_train_batch_size), int(args.num_generations or 1)
    if not packs:
        return rows
    whole_groups = rows * (args.steps_per_generation or 1) % group == 0  # in what a process rolls out
    if whole_groups and rows % group == 0:
        return rows // group
    if whole_groups and group % rows == 0:
        return 1
    # groups may begin anywhere, so a micro-batch can hold a part of one at each end
    return min(rows, (rows + group - 2) // group + 1)


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


def _update(
    shape: ModelShape, args: ARPOConfig, layout: ProcessLayout, tokens: int, scored: int, kind: str, on_cpu: bool
) -> dict[str, int]:
    """Return the parts of an update at the moment when they need most together."""
    width, stream = 4 if kind == "float32" else 2, 2 if kind == "bfloat16" else 4  # bytes: products; between layers
    kept = _kept_by_a_layer(shape, kind)
    # going back through a layer: with checkpointing also what it keeps, made again
    working = 2 * width * shape.inner + 4 * shape.hidden
    if shape.adapted:  # adapters compute with inputs in 32 bits
        working += shape.hidden + shape.queries + 3 * shape.inner
    if args.gradient_checkpointing:
        activations, working = tokens * stream * shape.hidden * shape.layers, working + kept
    else:
        activations = tokens * kept * shape.layers
    copies = 2 * shape.trained if kind == "mixed" else 0  # autocast keeps what it casts for the way back
    layer_copies = min(copies, 2 * shape.largest) if args.gradient_checkpointing else copies
    head = shape.vocabulary * shape.hidden
    head_gradient = 0 if shape.adapted else 4 * head
    outside = shape.parameters - shape.layers * shape.largest  # embedding and head
    waiting = head_gradient if outside < 1.5 * head else 0  # the embedding is the head: its gradient comes last
    # on a CPU untouched memory costs nothing, but a tile is copied in 32 bits where the GPU's kernel works in place
    columns = min(shape.vocabulary, _TILE[1]) if on_cpu else _TILE[1]
    tile = min(tokens, _TILE[0]) * columns * (width + 4 * _CPU_TILES * on_cpu)
    gathered = 0 if layout.share("weights") == 1 else 4 * shape.largest
    at_layer = at_end = 0
    if layout.sharding.startswith("fsdp"):
        # embedding and head are whole all the time, and the gradients of a group until they are shared out, in 32 bits
        gathered = 2 * (shape.parameters if layout.sharding == "fsdp-no-reshard" else outside + shape.largest)
        waiting, at_layer, at_end = head_gradient // 2, 6 * shape.largest, 6 * outside
    moments: list[dict[str, float]] = [
        {"activations of a micro-batch": activations, "16-bit copies of the weights": copies, "logits of a tile": tile},
        {
            "activations of a micro-batch": activations + scored * 20 * shape.hidden,
            "16-bit copies of the weights": 0 if args.gradient_checkpointing else copies,
            "logits of a tile": tile,
            "gradient of the head": head_gradient,
        },
        {
            "activations of a micro-batch": activations + tokens * working,
            "16-bit copies of the weights": layer_copies,
            "gradient of the head": waiting,
            "gradients of a layer": at_layer,
        },
    ]
    for moment in moments:
        moment["weights gathered for a layer"] = gathered
    moments.append({"gradients of embedding and head": at_end})
    worst = max(moments, key=lambda moment: sum(moment.values()))
    return {name: round(size) for name, size in worst.items() if size}


def _keys_again(shape: ModelShape, tokens: int, shared: int, on_cpu: bool) -> int:
    """Return how many numbers the attention of packed rows reads in a layer beside those of flat rows."""
    if on_cpu:  # the keys and values of a shared prompt for each row
        return shared * 2 * shape.queries
    # transformers repeats them for each query head before FlexAttention, unless the heads are a power of two
    return 0 if shape.heads & (shape.heads - 1) == 0 else tokens * 2 * (shape.queries - shape.keys)


def _kept_by_a_layer(shape: ModelShape, kind: str) -> int:
    """Return the bytes that a layer keeps for the backward pass, for each token."""
    hidden, queries, inner, normed = _KEPT[kind]
    hidden += 5 * shape.adapted
    plain = hidden * shape.hidden + queries * shape.queries + inner * shape.inner
    return plain + (normed * (shape.queries + shape.keys) if shape.normed else 0)


def _rollout(
    shape: ModelShape, args: ARPOConfig, layout: ProcessLayout, tokens: int, kind: str
) -> tuple[dict[str, int], tuple[str, ...]]:
    if args.use_vllm:
        return _vllm(shape, args)
    trajectories = -(-(args.generation_batch_size or 1) // layout.processes)
    rows = min(args.max_rows, trajectories)
    cached = shape.layers * shape.keys * _CACHED[kind]
    parts: dict[str, int] = {
        "keys and values of kept prefixes": min(args.prefix_tokens, trajectories * tokens) * cached,
        "keys and values of running requests": rows * tokens * cached,
    }
    # what may need most: attention over new contexts, for which transformers repeats what heads share; their MLP; the
    # draw of a token
    new, width = min(PREFILL_TOKENS, rows * tokens), 4 if kind == "float32" else 2
    between = new * shape.hidden * (12 if kind == "bfloat16" else 20)
    repeated = rows * tokens * shape.queries * (_CACHED[kind] + 2 * (kind == "mixed")) * (shape.queries > shape.keys)
    steps = {
        "keys and values for each query head": repeated + between,
        "activations of new contexts": new * 3 * width * shape.inner + between,
        "logits of running requests": 4 * rows * shape.vocabulary * 4,
    }
    name = max(steps, key=lambda step: steps[step])
    parts[name] = steps[name]
    copied = layout.share("weights") < 1 or args.max_staleness > 0
    if kind == "mixed" and not copied:  # autocast keeps its casts of trained weights for a rollout
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
