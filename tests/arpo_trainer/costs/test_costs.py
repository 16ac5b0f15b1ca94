"""What a run costs, before it is started: numbers by hand, against TRL's own loop, fake tensors and a real run."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from arpo_env import ToolEnv
from arpo_trainer import ARPOConfig
from arpo_trainer.cli.arpo_command import main
from arpo_trainer.costs.estimate import assumed_tokens, episode_limits, estimate, service_use, step_schedule
from arpo_trainer.costs.memory import (
    ModelShape,
    ProcessLayout,
    memory,
    model_shape,
    prompts_computed,
    shape_of,
    will_pack,
)
from arpo_trainer.run.arguments import RunArguments
from arpo_trainer.run.dry_run import plan_run
from arpo_trainer.run.launch import config_file
from arpo_trainer.run.train import train
from arpo_trainer.training.devices import planning
from benchmarks.memory import CASES, measure
from tests.arpo_trainer.quick_settings import ON_CPU, QUICK
from tests.conftest import tiny_llama

SMALL = ModelShape(
    parameters=1000, trained=1000, largest=300, layers=2, hidden=8, inner=16, queries=8, keys=4, vocabulary=10
)


def config(folder: Path | str = "out", **settings: Any) -> ARPOConfig:
    values = {"output_dir": str(folder), "num_generations": 4, "per_device_train_batch_size": 4}
    values |= {"gradient_accumulation_steps": 2, "max_steps": 3, "max_completion_length": 100}
    return ARPOConfig(**ON_CPU | values | settings)


# schedule


def test_a_schedule_counted_by_hand() -> None:
    plan = step_schedule(config(num_iterations=2, steps_per_generation=4, max_steps=-1, num_train_epochs=1.5), 14)
    # 16 rows a rollout are 4 prompts; 14 tasks fill 3 rollouts, each used for 8 micro-batches: 24 a pass, 12 steps
    assert (plan.updates, plan.uses, plan.trained_rows, plan.tasks_played) == (4.0, 2, 144, 12)
    with planning(8):  # more processes play more prompts a rollout
        plan = step_schedule(config(num_generations=16), None)
    assert (plan.processes, plan.trajectories, plan.prompts, plan.rollouts) == (8, 64, 4, 3)
    assert plan.trained_rows == 3 * 64


def test_a_schedule_needs_tasks_or_an_end() -> None:
    with pytest.raises(ValueError, match="a rollout plays 2 prompts, but there are only 1 tasks"):
        step_schedule(config(), 1)
    assert step_schedule(config(), None).rollouts == 3
    with pytest.raises(ValueError, match="set max_steps"):
        step_schedule(config(max_steps=-1), None)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_steps": -1, "num_train_epochs": 1.5, "steps_per_generation": 3, "num_iterations": 2},
        {"max_steps": 5, "gradient_accumulation_steps": 3, "steps_per_generation": 2},  # a pass ends within a step
        {"max_steps": 4, "gradient_accumulation_steps": 5, "steps_per_generation": 1},  # several rollouts a step
    ],
    ids=lambda settings: ",".join(f"{name}={value}" for name, value in settings.items()),
)
def test_a_schedule_is_what_trl_does(settings: dict[str, Any], tokenizer: Any, tmp_path: Path) -> None:
    from datasets import Dataset
    from trl import GRPOTrainer

    counted = {"rollouts": 0, "rows": 0, "micro_batches": 0}

    def play(prompts: list[Any], trainer: Any) -> dict[str, list[Any]]:
        counted["rollouts"] += 1
        counted["rows"] += len(prompts)
        count = len(prompts)
        return {"prompt_ids": [[5, 6]] * count, "completion_ids": [[7, 8]] * count, "logprobs": [[-1.0, -1.0]] * count}

    class Counting(GRPOTrainer):  # type: ignore[misc]  # trl is untyped
        def training_step(self, *args: Any, **kwargs: Any) -> Any:
            counted["micro_batches"] += 1
            return super().training_step(*args, **kwargs)

    def reward(completions: list[Any], **_: Any) -> list[float]:
        return [0.0] * len(completions)

    args = config(tmp_path, num_generations=2, per_device_train_batch_size=2, algorithm="grpo", **settings)
    tasks = Dataset.from_list([{"prompt": f"{number}"} for number in range(11)])
    parts = {"train_dataset": tasks, "processing_class": tokenizer, "rollout_func": play}
    trainer = Counting(tiny_llama(len(tokenizer)), reward, args=args, **parts)
    trainer.train()
    plan = step_schedule(args, len(tasks))
    assert trainer.state.global_step == plan.steps
    assert (counted["rollouts"], counted["micro_batches"]) == (plan.rollouts, plan.micro_batches)
    assert counted["rows"] == plan.rollouts * plan.trajectories


# tokens, calls, services


def test_the_limits_of_an_episode() -> None:
    env = ToolEnv("arpo/MultiHop-v0", max_turns=4, max_tool_calls=9, max_tokens=90, search_results=1)
    episode = episode_limits(env, config(max_turn_length=20))
    # nothing may follow the last turn, so a call in it does not run
    assert (episode.turns, episode.room, episode.sampled, episode.calls) == (4, 90, 80, 3)
    env = ToolEnv("arpo/MultiHop-v0", max_turns=9, max_tool_calls=5, tool_limits={"search": 2})
    assert episode_limits(env, config()).calls == 2


def test_tokens_of_a_group_with_and_without_branches() -> None:
    env = ToolEnv("arpo/Arithmetic-v0")
    episode = episode_limits(env, config())
    assert assumed_tokens(episode, config(algorithm="grpo")) == (200, 200)
    # three branches write half of what a root writes
    assert assumed_tokens(episode, config(algorithm="arpo", initial_rollouts=1)) == (50 + 3 * 25, 200)
    assert assumed_tokens(episode, config(algorithm="aepo", num_iterations=2)) == (2 * 50 + 2 * 25, 200)


def test_searches_have_the_price_of_their_provider(tmp_path: Path) -> None:
    (tmp_path / "test.jsonl").write_text('{"question": "Who?", "answer": ["Ada"]}\n')
    asked: dict[str, Any] = {"search": "tavily", "tools": ["search"], "pages": "passages"}
    web = ToolEnv("arpo/Bamboogle-v0", data=str(tmp_path / "test.jsonl"), max_turns=9, max_tool_calls=3, **asked)
    limits = episode_limits(web, config())
    found = service_use(web, limits)
    assert (found.backend, found.searches, found.usd, found.pages) == ("tavily", 3, 8.0, 15)
    assert service_use(web, limits, 2.5).usd == 2.5
    unknown = ToolEnv("arpo/Bamboogle-v0", data=str(tmp_path / "test.jsonl"), search="serpapi")
    assert service_use(unknown, limits).usd is None
    assert service_use(ToolEnv("arpo/MultiHop-v0"), limits).usd == 0


def test_the_price_of_a_run_has_its_evaluation_in_it(tmp_path: Path) -> None:
    (tmp_path / "test.jsonl").write_text('{"question": "Who?", "answer": ["Ada"]}\n' * 3)
    env = ToolEnv("arpo/Bamboogle-v0", data=str(tmp_path / "test.jsonl"), search="serper", max_tool_calls=2)
    costs = estimate(RunArguments(eval_tasks=100, search_price=10.0), config(), env, env, 3)
    size = env.tasks.size
    assert costs.evaluations.answers == 2 * size
    assert costs.searches == (3 * 8 + 2 * size) * 2
    assert costs.search_usd == pytest.approx(costs.searches / 100)


# memory


@pytest.mark.parametrize(
    ("settings", "shape", "packs"),
    [
        ({}, {"proven": True}, True),
        ({}, {}, False),
        ({"packing": True}, {}, True),
        ({"packing": True}, {"packable": False}, False),
        ({"packing": False}, {"proven": True}, False),
        ({"model_init_kwargs": {"attn_implementation": "eager"}}, {"proven": True}, False),
    ],
)
def test_a_run_packs_where_its_trainer_would(settings: dict[str, Any], shape: dict[str, Any], packs: bool) -> None:
    assert will_pack(config(**settings), replace(SMALL, **shape)) == packs


@pytest.mark.parametrize(
    ("rows", "group", "steps", "prompts"),
    [(4, 4, 2, 1), (8, 4, 1, 2), (3, 6, 2, 1), (4, 6, 3, 2), (5, 4, 4, 2), (1, 4, 4, 1)],
)
def test_prompts_in_a_micro_batch(rows: int, group: int, steps: int, prompts: int) -> None:
    args: Any = SimpleNamespace(per_device_train_batch_size=rows, num_generations=group, steps_per_generation=steps)
    assert prompts_computed(args, packs=True) == prompts
    assert prompts_computed(args, packs=False) == rows


def test_a_rollout_beside_the_update_needs_its_memory_at_the_same_time() -> None:
    settings = [config(max_staleness=most, prefix_tokens=50, max_rows=2) for most in (0, 1)]
    plain, beside = (memory(SMALL, each, ProcessLayout(), prompt=10, room=20, on_cpu=True) for each in settings)
    assert plain.rollout["keys and values of kept prefixes"] == 50 * 2 * 4 * 8
    layer = 24 * 8 + 16 * 8 + 16 * 16  # bytes that a layer keeps for a token, in 32 bits; a CPU keeps scores, too
    assert plain.training["activations of a micro-batch"] == 4 * 30 * 2 * layer + 4 * 20 * 20 * 8
    assert plain.training["logits of a tile"] == 8 * 120 * 10 * 4
    assert beside.rollout == {}
    parts = [*plain.kept.values(), *plain.training.values(), *plain.rollout.values()]
    assert beside.peak == sum(parts) + SMALL.parameters * 4  # a whole copy of the weights


def test_the_launchers_environment_and_files_say_how_it_is_sharded() -> None:
    deepspeed = {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3"}
    deepspeed |= {"ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE": "cpu"}
    launch = ProcessLayout.of(8, environ=deepspeed)
    assert (launch.sharding, launch.share("weights"), launch.share("optimizer")) == ("zero3", 1 / 8, 0)
    assert ProcessLayout.of(8, environ={"ACCELERATE_USE_FSDP": "true"}).sharding == "fsdp"
    for name, sharding in (("ddp", "ddp"), ("zero2", "zero2"), ("zero3", "zero3"), ("fsdp2", "fsdp")):
        assert ProcessLayout.of_file(8, config_file(name)) == ProcessLayout(8, sharding)


def test_parameters_are_counted_without_weights(tiny_policy: Path, tiny_model: Any) -> None:
    shape = model_shape(str(tiny_policy))
    assert shape == shape_of(tiny_model)
    assert (shape.proven, shape.packable) == (True, True)
    assert shape.parameters == sum(parameter.numel() for parameter in tiny_model.parameters())


# kind: settings beside those of a small decoder; of its 8 experts, 16 wide, a token uses 2
MIXTURES: dict[str, dict[str, Any]] = {
    "qwen3_moe": {"num_experts": 8, "moe_intermediate_size": 16},
    "qwen3_5_moe_text": {"num_experts": 8, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16},
    "gpt_oss": {"num_local_experts": 8, "intermediate_size": 16},
    "glm4_moe": {"n_routed_experts": 8, "moe_intermediate_size": 16, "n_shared_experts": 1, "first_k_dense_replace": 0},
}


@pytest.mark.parametrize("kind", MIXTURES)
def test_a_mixture_has_all_its_experts_and_computes_the_used_ones(kind: str, tmp_path: Path) -> None:
    given = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    more = {"head_dim": 16, "vocab_size": 100, "num_experts_per_tok": 2, "model_type": kind, **MIXTURES[kind]}
    (tmp_path / "config.json").write_text(json.dumps({**given, **more}))
    shape = model_shape(tmp_path)
    # three matrices of an expert, and in gpt-oss their biases
    expert = 3 * 32 * 16 + (2 * 16 + 32) * (kind == "gpt_oss")
    assert shape.parameters - shape.active == 2 * 6 * expert
    assert shape.inner == 16 * (2 + (kind in ("qwen3_5_moe_text", "glm4_moe")))
    assert shape.largest > 8 * expert


def test_adapters_are_counted_as_peft_makes_them(tiny_policy: Path, tiny_model: Any) -> None:
    peft = pytest.importorskip("peft")
    lora = peft.LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
    shape = model_shape(str(tiny_policy), lora)
    adapted = peft.get_peft_model(tiny_model, lora)
    assert shape.trained == adapted.get_nb_trainable_parameters()[0]
    assert shape.parameters == shape_of(adapted.unload()).parameters


# the whole report


def small_run(tiny_policy: Path, folder: Path, **settings: Any) -> dict[str, Any]:
    run = {"model": str(tiny_policy), "output_dir": str(folder), "env": "arpo/Arithmetic-v0", "branch_alpha": 0.6}
    run |= {"env_kwargs": {"level": 3}, "eval_tasks": 2, "save_final_model": False, "max_steps": 2}
    run |= {"num_generations": 4, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
    return QUICK | run | {"max_completion_length": 120, "max_turn_length": 40} | settings


def test_a_real_run_keeps_within_its_estimate(tiny_policy: Path, tmp_path: Path, isolation: str) -> None:
    settings = small_run(tiny_policy, tmp_path / "run")
    plan = plan_run(settings)
    planned = plan.costs
    assert not plan.missing
    assert not (tmp_path / "run").exists()
    folder = train(settings)
    facts = json.loads((folder / "run.json").read_text())
    most, spent = facts["estimate"], facts["spent"]
    assert most["sampled"] == planned.sampled
    steps = [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert steps == list(range(1, planned.schedule.steps + 1))
    assert (spent["rollouts"], spent["trajectories"]) == (planned.schedule.rollouts, planned.trajectories)
    assert 0 < spent["sampled"] <= most["sampled"]
    assert 0 < spent["calls"] <= most["calls"]
    assert (folder / "traces.jsonl").stat().st_size < 4 * planned.trace_bytes


def test_a_dry_run_loads_no_weights_and_prints_the_table(
    tiny_policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import transformers

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("weights are loaded")

    monkeypatch.setattr(transformers.PreTrainedModel, "from_pretrained", refuse)
    monkeypatch.setattr("sandbox.default_sandbox", refuse)
    path = tmp_path / "my.yaml"
    path.write_text(json.dumps(small_run(tiny_policy, tmp_path / "run")))
    two = ["--accelerate_config", "zero2", "--num_processes", "2"]
    assert main(["train", "--config", str(path), "--dry-run", *two]) == 0
    shown = capsys.readouterr().out
    assert all(words in shown for words in ("optimizer steps", "2 processes", "zero2"))
    assert not (tmp_path / "run").exists()


MEASURED = ("3b, one GPU", "8b, LoRA", "7b, FSDP2 x 8, packed", "14b, FSDP2 x 16", "1.5b, no checkpointing, packed")


@pytest.mark.parametrize("name", [*MEASURED, "7b, rollout"])
def test_the_estimate_is_near_what_tensors_need(name: str) -> None:
    """All sizes but the number of layers are real; `python -m benchmarks.memory` takes all layers and more cases."""
    found, estimate = measure(replace(CASES[name], layers=2))
    assert 0.9 < estimate / found < 1.2


@pytest.mark.parametrize(
    ("sharding", "weights", "gradients", "optimizer"),
    [("ddp", 4000, 4000, 8000), ("zero2", 4000, 1000, 2000), ("zero3", 1000, 1000, 2000), ("fsdp", 1000, 1000, 2000)],
)
def test_sharded_parts_are_divided(sharding: str, weights: int, gradients: int, optimizer: int) -> None:
    needs = memory(SMALL, config(), ProcessLayout(4, sharding), prompt=10, room=20)
    parts = (needs.kept["weights"], needs.training["gradients"], needs.kept["optimizer"])
    assert parts == (weights, gradients, optimizer)
