"""Sharded weights: two real processes with FSDP do what one does with whole weights.

The pair is started once: `experiment` runs in each of its processes and, without FSDP, in this one. FSDP is real, over
gloo on the CPU; see `fsdp_on_cpu` for the one thing that is pretended.
"""

import copy
import json
import os
import sys
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl.distributed import DistributedBackend
from trl.generation.vllm_generation import VLLMGeneration
from trl.trainer.utils import add_fused_lm_head

import benchmarks.laboratory.paper_rows  # noqa: F401  (registers rows)
from arpo_env import ToolEnv
from arpo_env.event_loop import run
from arpo_trainer import ARPOTrainer
from arpo_trainer.backends.base import GenerationError
from arpo_trainer.backends.full_copy import FullCopyBackend, drop, fill, structure, whole_weights
from arpo_trainer.rollout.engine import play_groups, this_rank
from arpo_trainer.training.policy_backend import SyncedBackend, push_weights
from tests import ready_processes
from tests.arpo_trainer.rollout.test_distributed import OneAtATime, trees
from tests.arpo_trainer.training.fsdp_on_cpu import fsdp
from tests.arpo_trainer.training.test_trainer import config, listener

GROUP, GROUPS, MICRO = 4, 2, 2
STEPS = 2
ROOT = Path(__file__).parents[3]
# `prepare` of igpo goes through the model, too, which every process has to take part in
RUNS: dict[str, dict[str, Any]] = {
    "flat": {"packing": False, "attribution": "soft"},
    "lora": {"packing": True, "attribution": "igpo", "lora": True},
}


def varied(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """A reward that differs within every group."""
    return [sum(ids) % 97 / 97 for ids in completion_ids]


def experiment(policy: Path, folder: Path, name: str, sharded: bool, **settings: Any) -> dict[str, Any]:
    """Roll out, take steps, and say what came of it; every rank does. The checkpoint and the weights are in `folder`.

    The rollout of the second step shows whether the copy has the weights of after the first.
    """
    kind = RUNS[name]
    tokenizer = AutoTokenizer.from_pretrained(policy, padding_side="left")
    env = ToolEnv("arpo/Arithmetic-v0", level=3)
    rounds = GROUP * GROUPS // MICRO // int(os.environ.get("WORLD_SIZE", 1))
    size = {"num_generations": GROUP, "initial_rollouts": 2, "per_device_train_batch_size": MICRO}
    size |= {"packing": kind["packing"], "attribution": kind["attribution"], "gradient_accumulation_steps": rounds}
    size |= {"max_steps": STEPS, "optim": "sgd", "learning_rate": 1.0, "lr_scheduler_type": "constant"}
    size |= {"max_turn_length": 32, "max_completion_length": 80, "save_strategy": "steps", "save_steps": STEPS}
    args = config(folder, **size, **settings)
    model = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32)
    if not hasattr(model.lm_head.weight, "ds_id"):  # ZeRO-3 shards what it loads, and a copy would be empty
        model = copy.deepcopy(model)  # see test_distributed
    kept: list[list[str]] = []
    adapters = _lora() if kind.get("lora") else None
    trainer = ARPOTrainer(model, env, varied, args, processing_class=tokenizer, peft_config=adapters)
    if sharded:
        assert isinstance(trainer.backend, FullCopyBackend)
        trainer.backend.backend = OneAtATime(trainer.backend.model, tokenizer)
    else:
        trainer.engine.backend = OneAtATime(trainer.accelerator.unwrap_model(trainer.model), tokenizer)
    _keep(trainer.model, folder / "start.pt")
    before = play_groups(trainer.engine, [env.tasks.task(0)], 7)[0]
    play = trainer.play
    trainer.play = lambda rows: (play(rows), kept.append([tree.to_json() for tree in trainer.trees]))[0]
    shared: list[bool] = []  # whether the gradients are there between micro-batches; whole ones FSDP2 keeps to itself

    def between(*_: Any, model: Any = None, **__: Any) -> None:
        shared.append(all(p.grad is not None for p in model.parameters() if p.requires_grad))

    trainer.add_callback(listener(on_substep_end=between))
    trainer.train()
    _keep(trainer.model, folder / "end.pt")
    held = sum(value.numel() for value in trainer.backend.model.parameters()) if sharded else 0
    return {
        "before": [tree.to_json() for tree in before],
        "steps": kept,
        "shared": shared,
        "held": held,
        "shards": sorted({"ZeRO-3" if hasattr(p, "ds_id") else type(p).__name__ for p in trainer.model.parameters()}),
    }


def _keep(model: Any, file: Path) -> None:
    weights = {key: value.clone() for key, value in whole_weights(model, torch.device("cpu"))}
    if this_rank() == 0:
        torch.save(weights, file)


def outputs_in_bf16(policy: Path, folder: Path, **more: Any) -> dict[str, Any]:
    """Take a step with `bf16`, and say in which precision the outputs of the sharded model reach the loss."""
    settings = {"bf16": True, "max_steps": 1, "model_init_kwargs": {"dtype": "float32"}, "packing": True, **more}
    settings |= {"num_generations": 2, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 1}
    args = config(folder, max_turn_length=6, max_completion_length=12, **settings)
    tokenizer = AutoTokenizer.from_pretrained(policy, padding_side="left")
    env = ToolEnv("arpo/Arithmetic-v0", level=3)
    trainer: Any = ARPOTrainer(str(policy), env, varied, args, processing_class=tokenizer)
    found = defaultdict[str, list[Any]](list)

    def see(module: Any, inputs: Any, output: Any) -> None:
        for key, value in output.items():
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                value = value[value != 0]  # all that a micro-batch of equal rewards has are zeros
                rounded = bool(len(value) and (value == value.bfloat16().float()).all())
                found[key].append((str(value.dtype), rounded))

    loss = trainer.compute_loss

    def watched(model: Any, *args: Any, **kwargs: Any) -> Any:
        hook = model.register_forward_hook(see)
        try:
            return loss(model, *args, **kwargs)
        finally:
            hook.remove()

    trainer.compute_loss = watched
    trainer.train()
    fsdp = getattr(trainer.accelerator.state, "fsdp_plugin", None)
    kept = fsdp and fsdp.mixed_precision_policy
    weights = sorted({str(value.dtype) for value in trainer.model.parameters()})
    return {"outputs": found, "fsdp": kept and [str(kept.param_dtype), str(kept.reduce_dtype)], "weights": weights}


def gather_fsdp1(policy: Path) -> dict[str, bool]:
    """Shard a model with FSDP 1, whose units are its layers, and gather it into a copy.

    There is no training with it here: accelerate names the device cpu:0, which FSDP 1 takes for another than cpu.
    """
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    model = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32)
    whole, made = copy.deepcopy(model), structure(model, torch.device("cpu"))
    how = {"auto_wrap_policy": ModuleWrapPolicy({LlamaDecoderLayer}), "device_id": torch.device("cpu")}
    how |= {"sharding_strategy": ShardingStrategy.FULL_SHARD, "use_orig_params": True}
    sharded = FullyShardedDataParallel(model, **how)
    fill(made, sharded)
    expected = dict(whole.named_parameters())
    return {
        "sharded": sum(value.numel() for value in sharded.parameters()) < sum(v.numel() for v in expected.values()),
        "equal": all(torch.equal(value, expected[key]) for key, value in made.named_parameters()),
    }


def push_adapters(policy: Path) -> list[Any]:
    """Shard adapted models with FSDP 2 and push them; return what became of base and engine, and of DoRA."""
    from peft import get_peft_model
    from torch.distributed.fsdp import fully_shard

    def pushed(**options: Any) -> list[bool]:
        model = get_peft_model(AutoModelForCausalLM.from_pretrained(policy, dtype=torch.bfloat16), _lora(**options))
        whole = copy.deepcopy(model)
        for layer in model.base_model.model.model.layers:
            fully_shard(layer)
        fully_shard(model)
        trainer, loaded = _with_engine(model)
        for _ in range(3):
            push_weights(trainer)
        expected = dict(whole.named_parameters())
        kept = all(torch.equal(value.full_tensor(), expected[name]) for name, value in model.named_parameters())
        whole.base_model.model.float()  # the sum is formed in float32, and rounded once
        merged = dict(whole.merge_and_unload().bfloat16().named_parameters())
        return [
            kept,
            loaded.keys() == merged.keys() and all(torch.equal(loaded[name], merged[name]) for name in merged),
        ]

    torch.manual_seed(0)  # of the adapters
    found: list[Any] = pushed()
    with pytest.raises(GenerationError) as refused:
        pushed(use_dora=True)
    return [*found, str(refused.value).partition(" (")[0]]


def _with_engine(model: Any) -> tuple[Any, dict[str, torch.Tensor]]:
    """Return as much of a trainer under FSDP 2 as pushes weights, and what its engine, a double, is given."""
    loaded: dict[str, torch.Tensor] = {}
    host = object.__new__(VLLMGeneration)
    host.model, host.mode, host.enable_sleep_mode, host.tensor_parallel_size = model, "colocate", False, 1
    host._dist = object.__new__(DistributedBackend)
    host._dist.zero_stage, host._dist.fsdp_version = 0, 2
    host.llm = mock.MagicMock()
    host.llm.llm_engine.model_executor.driver_worker.model_runner.model.load_weights = loaded.update
    host.accelerator = SimpleNamespace(device=torch.device("cpu"))
    parts = {"vllm_generation": host, "model": model, "accelerator": host.accelerator, "is_fsdp_enabled": True}
    when = {"state": SimpleNamespace(global_step=0), "_last_loaded_step": -1, "is_in_train": False}
    return SimpleNamespace(**parts, **when), loaded


def _lora(**options: Any) -> Any:
    from peft import LoraConfig

    aimed = {"r": 4, "target_modules": ["q_proj", "down_proj"], "task_type": "CAUSAL_LM", "init_lora_weights": False}
    return LoraConfig(**aimed, **options)


@pytest.fixture(scope="module")
def ran(tiny_policy: Path, isolation: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Path]:
    """By name of the run: what one process found, and each of two; and the folder."""
    pytest.importorskip("peft")
    folder = tmp_path_factory.mktemp("sharded")
    ready_processes.run_ranks(__name__, str(tiny_policy), str(folder), folder=ROOT, said=folder)
    return compared(tiny_policy, folder)


def compared(policy: Path, folder: Path) -> tuple[Any, Any, Path]:
    """Do in this process what two have done, and read what these have found."""
    one = {}
    for name in RUNS:
        (folder / f"alone-{name}").mkdir()
        torch.manual_seed(0)  # of the adapters
        one[name] = experiment(policy, folder / f"alone-{name}", name, sharded=False)
    both = [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]
    return one, both, folder


@pytest.mark.parametrize("name", RUNS)
def test_trees_are_those_of_one_process_also_after_an_update(ran: Any, name: str) -> None:
    one, both, _ = ran
    for rank in both:
        assert trees(rank[name]["before"]) == trees(one[name]["before"])
        assert len(rank[name]["steps"]) == STEPS
        for found, expected in zip(rank[name]["steps"], one[name]["steps"], strict=True):
            assert _tokens(found) == _tokens(expected)


@pytest.mark.parametrize("name", RUNS)
def test_the_update_is_that_of_one_process(ran: Any, name: str) -> None:
    """Up to rounding: the difference is at most 1e-3 of the update's norm."""
    _, _, folder = ran
    start, found = (torch.load(folder / name / f"{which}.pt") for which in ("start", "end"))
    expected = torch.load(folder / f"alone-{name}/end.pt")
    assert found.keys() == expected.keys()
    moved = torch.cat([(expected[key] - start[key]).flatten() for key in start]).norm()
    apart = torch.cat([(found[key] - expected[key]).flatten() for key in start]).norm()
    assert moved > 0
    assert apart < 1e-3 * moved


def test_what_the_loss_reads_is_not_rounded_to_bfloat16(ran: Any) -> None:
    """Log-probabilities whose last 16 bits are lost have ratios of 1 where the step is small."""
    _, both, _ = ran
    for rank in both:
        assert rank["bf16"]["fsdp"] in (None, ["torch.bfloat16", "torch.float32"])
        outputs = rank["bf16"]["outputs"]
        assert {dtype for values in outputs.values() for dtype, _ in values} == {"torch.float32"}
        assert not any(rounded for _, rounded in outputs["log_probs"] + outputs.get("entropy", []))


@pytest.mark.parametrize("name", RUNS)
def test_a_checkpoint_is_an_ordinary_folder(ran: Any, name: str, tiny_model: Any) -> None:
    from peft import PeftModel

    checkpoint, weights = ran[2] / name / "checkpoint-2", torch.load(ran[2] / name / "end.pt")
    if name == "lora":
        loaded = PeftModel.from_pretrained(tiny_model, checkpoint)
    else:
        loaded = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    learnt = {key: value for key, value in loaded.named_parameters() if name == "flat" or "lora" in key}
    assert learnt
    assert all(torch.equal(value, weights[key]) for key, value in learnt.items())


def test_weights_and_gradients_were_sharded_and_the_copy_is_empty_between_rollouts(ran: Any) -> None:
    """Gradients after each micro-batch: else each GPU keeps those of all weights, as if nothing was sharded."""
    _, both, _ = ran
    for rank in both:
        assert [rank[name]["held"] for name in RUNS] == [0] * len(RUNS)
        assert [rank[name]["shared"] for name in RUNS] == [[True] * STEPS] * len(RUNS)
        assert rank["flat"]["shards"] == ["DTensor"]
    assert [rank["fsdp1"] for rank in both] == [{"sharded": True, "equal": True}] * 2  # they are gathered again


def test_a_copy_computes_what_the_model_does_and_leaves_it_alone(tiny_model: Any) -> None:
    add_fused_lm_head(tiny_model)
    made = structure(tiny_model, torch.device("cpu"))
    fill(made, tiny_model)
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        expected = tiny_model(ids).logits
        assert torch.equal(made(ids).logits, expected)
        drop(made)
        assert torch.equal(tiny_model(ids).logits, expected)
    tiny_model.is_quantized = True
    with pytest.raises(ValueError, match="DDP or ZeRO-2, or generate with vLLM"):
        structure(tiny_model, torch.device("cpu"))


def test_vllm_gets_the_weights_before_they_are_sharded(tiny_model: Any) -> None:
    """TRL's own walk, which asks every parameter for its shards under FSDP."""
    trainer, loaded = _with_engine(tiny_model)
    backend = SyncedBackend(mock.AsyncMock(), trainer)
    run(backend.begin())
    expected = dict(tiny_model.named_parameters())
    assert loaded.keys() == expected.keys()
    assert all(torch.equal(value, expected[name]) for name, value in loaded.items())
    assert trainer.vllm_generation._dist.is_fsdp


def test_vllm_gets_sharded_weights_with_their_adapters(ran: Any) -> None:
    _, both, _ = ran
    refused = "vLLM cannot be given sharded weights with other adapters than plain LoRA"
    assert [rank["pushed"] for rank in both] == [[True, True, refused]] * 2


def _tokens(lines: list[str]) -> list[list[list[int]]]:
    return [[span.ids for span in tree.spans] for tree in trees(lines)]


if __name__ == "__main__":
    torch.set_num_threads(1)
    policy, top = map(Path, sys.argv[1:])
    found = {}
    for name in RUNS:
        own = top / name
        own.mkdir(exist_ok=True)
        torch.manual_seed(0)  # of the adapters
        with fsdp(2):
            found[name] = experiment(policy, own, name, sharded=True)
    with fsdp(2):
        found["bf16"] = outputs_in_bf16(policy, top / "bf16")
    (top / f"rank{this_rank()}.json").write_text(
        json.dumps(found | {"fsdp1": gather_fsdp1(policy), "pushed": push_adapters(policy)})
    )
