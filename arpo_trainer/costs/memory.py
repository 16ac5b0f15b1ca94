"""The device memory that a training process needs, part by part. An estimate; docs/how-to/costs.md compares it.

Weights, gradients and optimizer states are counted. What a layer keeps for the backward pass is the measured number of
bytes per token for layers like Llama's and Qwen's (RMSNorm, gated MLP, attention that does not store its scores); every
micro-batch is assumed to be full, and packed rows to share only their prompt. The CUDA context, unused memory of
allocators, NCCL's buffers and Python are not included.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import transformers
import yaml
from transformers import AutoConfig, AutoModelForCausalLM

from arpo_trainer.backends.in_process import PREFILL_TOKENS
from arpo_trainer.packing import ATTENTION, why_not_packable, why_not_proven
from arpo_trainer.training.config import ARPOConfig


@dataclass(frozen=True)
class ModelShape:
    """The sizes that memory depends on."""

    parameters: int  # all of them; tied ones count once, and experts whether a token uses them or not
    trained: int
    largest: int  # parameters of the largest layer, which sharded training gathers
    layers: int
    hidden: int  # the width between layers
    inner: int  # the width inside the MLP; in a mixture of experts, of all experts that a token uses
    queries: int  # the width of all query heads
    keys: int  # that of all key heads, and of the values
    vocabulary: int  # rows of the head
    heads: int = 1  # query heads
    dtype: str = "float32"
    normed: bool = False  # whether queries and keys have norms of their own (Qwen3)
    packable: bool = True  # `why_not_packable`
    proven: bool = False  # whether tests have compared packed rows of its kind with flat ones (`why_not_proven`)
    quantised: bool = False  # whether the checkpoint holds fewer bits than `dtype`, which nothing here counts
    idle: int = 0  # parameters of the experts that a token does not go through
    others: tuple[str, ...] = ()  # kinds of layers other than full attention, which are counted as if they were that

    @property
    def adapted(self) -> bool:
        """Whether adapters are trained instead of the weights."""
        return self.trained < self.parameters

    @property
    def active(self) -> int:
        """Parameters that a token goes through, which its operations grow with."""
        return self.parameters - self.idle


def model_shape(
    path: str | Path, peft_config: Any = None, trust_remote_code: bool = False, revision: str = "main"
) -> ModelShape:
    """Return the shape of a model from its configuration alone, for a folder or a hub id.

    `peft_config` is that of the adapters, if only those are trained. Raises OSError without the configuration, and
    ValueError if transformers does not know the model as a causal language model, or its widths have other names.
    """
    return shape_of(empty_model(path, trust_remote_code, revision), peft_config)


def empty_model(path: str | Path, trust_remote_code: bool = False, revision: str = "main") -> Any:
    """Return a model of the class that TRL trains, whose weights have shapes and no storage; see `model_shape`."""
    config = AutoConfig.from_pretrained(path, trust_remote_code=trust_remote_code, revision=revision)
    # TRL loads the class that the configuration names: Qwen3.5 and Gemma 4 then have parts that see
    named = getattr(transformers, (config.architectures or [""])[0], None)
    dtype = config.dtype or config.get_text_config().dtype or torch.float32
    # meta tensors have a shape and no storage, so a model of any size can be counted here
    with torch.device("meta"):
        if named is not None:
            return named._from_config(config, dtype=dtype)
        return AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=trust_remote_code)


def shape_of(model: Any, peft_config: Any = None) -> ModelShape:
    """Return the shape of a model on any device; ValueError if its configuration does not say how wide layers are."""
    # a model that also reads images keeps the widths of its decoder in a configuration inside its own
    config = model.config.get_text_config()
    try:
        heads, hidden = config.num_attention_heads, config.hidden_size
        # heads may be wider than their share of the hidden width, as in Qwen3
        head = getattr(config, "head_dim", None) or hidden // heads
        widths = {
            "layers": config.num_hidden_layers,
            "hidden": hidden,
            "inner": _inner(config),
            "queries": heads * head,
            "keys": (getattr(config, "num_key_value_heads", None) or heads) * head,
        }
    except AttributeError as error:
        raise ValueError(
            f"the configuration of {type(model).__name__} has no known names for the widths: {error}"
        ) from error
    largest = max(_count(layer) for name, layer in model.named_modules() if _is_layer(name))
    normed = any(name.endswith("q_norm.weight") for name, _ in model.named_parameters())
    idle, parameters = _idle(model, config), _count(model)
    trained = parameters
    if peft_config is not None:
        from peft import get_peft_model

        with torch.device("meta"):  # this changes the model itself: their dropout decides whether it is proven
            adapted = get_peft_model(model, peft_config)
        trained = sum(parameter.numel() for parameter in adapted.parameters() if parameter.requires_grad)
    dtype = str(getattr(config, "dtype", None) or "float32").removeprefix("torch.")
    return ModelShape(
        parameters=parameters,
        trained=trained,
        largest=largest,
        vocabulary=config.vocab_size,
        heads=heads,
        dtype=dtype,
        normed=normed,
        packable=why_not_packable(model) is None,
        proven=why_not_proven(model) is None,
        quantised=bool(getattr(model.config, "quantization_config", None)),
        idle=idle,
        others=tuple(sorted(set(layer_kinds(config)) - {"full_attention"})),
        **widths,
    )


def layer_kinds(config: Any) -> list[str]:
    """Return what each layer of a text configuration mixes tokens with: "full_attention", "sliding_attention", ..."""
    kinds = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None)
    if kinds:
        return list(kinds)
    window = getattr(config, "sliding_window", None)
    return ["sliding_attention" if window else "full_attention"] * config.num_hidden_layers


def experts_of(config: Any) -> tuple[int, int]:
    """Return how many experts a layer has and how many of them a token goes through; (0, 0) if it has none."""
    names = ("num_experts", "num_local_experts", "n_routed_experts")
    total = next((int(count) for name in names if (count := getattr(config, name, None))), 0)
    used = getattr(config, "num_experts_per_tok", None) or getattr(config, "top_k_experts", None) or 0
    return (total, int(used)) if total and used else (0, 0)


def _inner(config: Any) -> int:
    used = experts_of(config)[1]
    if not used:
        return int(config.intermediate_size)
    # Qwen's experts have a width of their own; Mixtral's is called as that of a dense layer
    width = int(getattr(config, "moe_intermediate_size", None) or config.intermediate_size)
    shared = getattr(config, "shared_expert_intermediate_size", None) or 0
    return width * (used + int(getattr(config, "n_shared_experts", None) or 0)) + int(shared)


def _idle(model: Any, config: Any) -> int:
    total, used = experts_of(config)
    # transformers keeps the experts of a layer in one tensor, code of others in a list
    routed = sum(
        parameter.numel()
        for name, parameter in model.named_parameters()
        if ".experts." in name and (parameter.shape[0] == total or re.search(r"\.experts\.\d", name))
    )
    return routed * (total - used) // total if total else 0


def _count(module: Any) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _is_layer(name: str) -> bool:
    """Return whether a module is an item of a list, such as "model.layers.3", and not a part of one."""
    return name.rpartition(".")[2].isdigit() and not any(part.isdigit() for part in name.split(".")[:-1])


SHARDINGS = {
    "ddp": (),
    "zero1": ("optimizer",),
    "zero2": ("optimizer", "gradients"),
    "zero3": ("optimizer", "gradients", "weights"),
    "fsdp": ("optimizer", "gradients", "weights"),
    "fsdp-no-reshard": ("optimizer", "gradients", "weights"),  # weights are whole from forward to backward
}


@dataclass(frozen=True)
class ProcessLayout:
    """How the processes of a run share a model."""

    processes: int = 1  # on all machines
    sharding: str = "ddp"  # a key of SHARDINGS, which names the parts that are divided among the processes
    offloaded: tuple[str, ...] = ()  # parts that are in the machine's memory instead of the GPU's

    def share(self, part: str) -> float:
        """Return the share of "weights", "gradients" or "optimizer" that a process has on its device."""
        if part in self.offloaded:
            return 0.0
        return 1 / self.processes if part in SHARDINGS[self.sharding] else 1.0

    @classmethod
    def of(cls, processes: int, environ: Mapping[str, str] = os.environ) -> ProcessLayout:
        """Return the layout that the environment variables of `accelerate launch` describe."""
        if environ.get("ACCELERATE_USE_DEEPSPEED", "").lower() == "true":
            stage = environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE", "2")
            places = {"optimizer": "OPTIMIZER", "weights": "PARAM"}
            told = {part: environ.get(f"ACCELERATE_DEEPSPEED_OFFLOAD_{name}_DEVICE") for part, name in places.items()}
            offloaded = tuple(part for part, device in told.items() if device in ("cpu", "nvme"))
            # stage 0 divides nothing
            return cls(processes, f"zero{stage}" if stage in "123" else "ddp", offloaded)
        if environ.get("ACCELERATE_USE_FSDP", "").lower() == "true":
            reshards = environ.get("FSDP_RESHARD_AFTER_FORWARD", "true").lower() != "false"
            # FSDP 1 calls it SHARD_GRAD_OP (2), FSDP 2 not to reshard after forward
            whole = environ.get("FSDP_SHARDING_STRATEGY", "") in ("SHARD_GRAD_OP", "2") or not reshards
            parts = SHARDINGS["fsdp"] if environ.get("FSDP_OFFLOAD_PARAMS", "").lower() == "true" else ()
            return cls(processes, "fsdp-no-reshard" if whole else "fsdp", parts)
        return cls(processes)

    @classmethod
    def of_file(cls, processes: int, config: str | Path) -> ProcessLayout:
        """Return the layout that an accelerate configuration file describes."""
        told: dict[str, Any] = yaml.safe_load(Path(config).read_text(encoding="utf-8")) or {}
        kind = str(told.get("distributed_type"))
        environ = {"ACCELERATE_USE_DEEPSPEED": str(kind == "DEEPSPEED"), "ACCELERATE_USE_FSDP": str(kind == "FSDP")}
        deepspeed, fsdp = told.get("deepspeed_config") or {}, told.get("fsdp_config") or {}
        environ |= {f"ACCELERATE_DEEPSPEED_{name.upper()}": str(value) for name, value in deepspeed.items()}
        environ |= {name.upper(): str(value) for name, value in fsdp.items()}
        return cls.of(processes, environ)


# bytes per token that a layer keeps, by the width that they grow with: (hidden, queries, inner, normed queries + keys)
_KEPT = {"float32": (24, 16, 16, 8), "mixed": (21, 12, 8, 6), "bfloat16": (16, 8, 8, 6)}
_CACHED = {"float32": 8, "mixed": 4, "bfloat16": 4}  # bytes of a key and its value, per unit of a layer's key width
_TILE = (4096, 32_768)  # tokens and vocabulary rows of the head that TRL computes at once
_CPU_TILES = 7  # copies of one


@dataclass(frozen=True)
class MemoryNeeds:
    """Bytes of one process, by the names of the parts."""

    kept: dict[str, int]  # from the first step to the last
    training: dict[str, int]  # further parts of an update
    rollout: dict[str, int]  # further parts of a rollout
    elsewhere: tuple[str, ...] = ()  # memory that is not counted here, in words

    @property
    def peak(self) -> int:
        """The memory of an update or of a rollout, whichever is larger; with `max_staleness` `training` has both."""
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
    """Return the memory that one process needs, for prompts of `prompt` tokens and at most `room` tokens after them."""
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
    """Return whether a run trains on packed rows, as `PackedGRPOTrainer.choose_packing` decides when it starts."""
    attention = (args.model_init_kwargs or {}).get("attn_implementation") or "sdpa"
    packing: Any = args.packing  # "auto", True or False
    if packing is False or shape is None or not shape.packable or attention not in ATTENTION:
        return False
    return packing is True or (shape.proven and not (args.torch_compile or args.use_liger_kernel))


def prompts_computed(args: ARPOConfig, packs: bool) -> int:
    """Return how many prompts one micro-batch computes at most: one for each row, or one for each group in it.

    What branches share besides depends on the run.
    """
    rows, group = int(args.per_device_train_batch_size), int(args.num_generations)
    if not packs:
        return rows
    whole_groups = rows * args.steps_per_generation % group == 0  # in what a process rolls out
    if whole_groups and rows % group == 0:
        return rows // group
    if whole_groups and group % rows == 0:
        return 1
    # groups may begin anywhere, so a micro-batch can hold a part of one at each end
    return min(rows, (rows + group - 2) // group + 1)


def _kept(shape: ModelShape, args: Any, layout: ProcessLayout, width: int) -> dict[str, int]:
    # DeepSpeed trains a 16-bit model and keeps a 32-bit copy
    half = layout.sharding.startswith("zero") and (args.bf16 or args.fp16)
    weights = 2 if half else width
    learned = 4 if shape.adapted else weights  # PEFT keeps adapters in 32 bits
    # paged states go to main memory where the GPU is full
    moments = 0 if args.optim.startswith("paged") else _moments(args, 4 if half else learned)
    frozen = shape.parameters if getattr(args, "beta", 0) and not shape.adapted else 0
    parts = {
        "weights": shape.parameters * weights * layout.share("weights"),
        "weights of the reference model": frozen * weights * layout.share("weights"),
        "gradients": shape.trained * learned * layout.share("gradients"),
        "optimizer": shape.trained * (4 * half + moments) * layout.share("optimizer"),
    }
    if layout.processes > 1 and layout.sharding == "ddp":
        parts["gradients in DDP's buckets"] = shape.trained * learned
    return {name: round(size) for name, size in parts.items() if size}


def check_cpu_memory(shape: ModelShape, args: Any, dtype: str, has: int, layout: ProcessLayout | None = None) -> None:
    """Compare what training surely takes on the CPU with the bytes that are free, before weights are loaded.

    `args` are those of any of TRL's trainers, and `dtype` is that of the weights, if `model_init_kwargs` has none.

    Raises:
        MemoryError: weights, gradients and optimizer states alone do not fit; names settings with which they do.
    """
    layout = layout or ProcessLayout()
    here = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    asked = str((args.model_init_kwargs or {}).get("dtype", dtype)).removeprefix("torch.")
    plain = shape.dtype if asked == "auto" else asked

    # TRL's DPO has a reference always, as a second copy of the model or as its log-probabilities
    computed = getattr(args, "precompute_ref_log_probs", None)
    reference = 0 if computed else getattr(args, "beta", 0)

    def parts(dtype: str = plain, adapted: bool = False, **settings: Any) -> dict[str, int]:
        changed = SimpleNamespace(optim=args.optim, bf16=args.bf16, fp16=args.fp16, beta=reference)
        vars(changed).update(settings)
        # adapters are a small part of the weights
        trained = replace(shape, trained=min(shape.trained, shape.parameters // 50)) if adapted else shape
        return _kept(trained, changed, layout, 4 if dtype == "float32" else 2)

    def total(**settings: Any) -> int:
        return here * sum(parts(**settings).values())

    if (needed := total()) <= has or shape.quantised:
        return
    ways: dict[str, dict[str, Any]] = {
        "lora_rank=16": {"adapted": True},
        "optim=adafactor": {"optim": "adafactor"},
        "beta=0" if computed is None else "precompute_ref_log_probs=true": {"beta": 0},
        "dtype=bfloat16": {"dtype": "bfloat16"},
        "lora_rank=16 dtype=bfloat16": {"adapted": True, "dtype": "bfloat16"},
    }
    sizes = {way: total(**settings) for way, settings in ways.items()}
    enough = ", ".join(f"{way} ({format_bytes(size)})" for way, size in sizes.items() if size <= has)
    needs = ", ".join(f"{name} ({format_bytes(size)})" for name, size in parts().items())
    raise MemoryError(
        f"{needs} take {format_bytes(needed)}{f' in {here} processes' * (here > 1)}, and {format_bytes(has)} of memory "
        f"are free. {f'With one of these it fits: {enough}' if enough else 'No setting lowers that enough'}; or take a "
        "smaller model"
    )


def _moments(args: Any, width: int) -> float:
    """Return the bytes of optimizer state per trained parameter."""
    name = args.optim
    # by the names of optimizers: Adam keeps two moments, Lion and RMSprop one
    if "8bit" in name:
        return 1 if "lion" in name else 2
    if "4bit" in name:
        return 1
    if name.startswith(("sgd", "adafactor", "galore", "apollo", "lomo", "adalomo")):
        return 0
    return width if name.startswith(("lion", "paged_lion", "rmsprop", "adagrad", "schedule_free_sgd")) else 2 * width


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
    if args.use_vllm and args.vllm_mode == "server":
        return {}, ("the vLLM server has GPUs of its own",)
    if args.use_vllm:  # it takes a fixed share of the GPU for every model, which includes its copy of the weights
        size = shape.parameters * 2 / max(1, args.vllm_tensor_parallel_size) / 2**30
        share = f"{args.vllm_gpu_memory_utilization:.0%} of the GPU"
        when = "while it rolls out" if args.vllm_enable_sleep_mode else "all the time"
        return {}, (f"vLLM takes {share} {when}; {size:.1f} GiB of that are its copy of the weights (16 bit)",)
    trajectories = -(-args.generation_batch_size // layout.processes)
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
    repeated = rows * tokens * shape.queries * _CACHED[kind] * (shape.queries > shape.keys)
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
