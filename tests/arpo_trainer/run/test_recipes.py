"""Every recipe: it is read, makes a config with the numbers it promises, and builds its trainer on a tiny model."""

import importlib.resources
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    Qwen3_5Config,
    Qwen3_5ForConditionalGeneration,
    Qwen3_5MoeConfig,
    Qwen3_5MoeForConditionalGeneration,
)

from arpo_trainer import ARPOConfig
from arpo_trainer.algorithms.registry import ALGORITHMS
from arpo_trainer.run.arguments import RunArguments, batch_settings, save_adapters, split_settings
from arpo_trainer.run.recipes import RECIPES, read_settings
from arpo_trainer.run.train import TrainingRun
from envs_registry import get_spec
from envs_registry.generated.multihop import MultiHopSource
from tests.conftest import tiny_llama
from tests.envs_registry.datasets.sample_rows import ROWS, sample_file

NAMES = sorted(path.stem for path in RECIPES.glob("*.yaml"))
ON_CPU = ("arithmetic-cpu", "multihop-cpu")
# recipes with the model's own calls, and TRL's name of the chat template that writes them
TINY = {"arpo-qwen3.5-4b-math-lora": "qwen3_5_think", "arpo-qwen3.6-35b-a3b-multihop": "qwen3_6"}
OURS = (
    *TINY,
    "arpo-qwen2.5-3b-math-lora",
    "arpo-qwen3-8b-multihop-lora",
    "toolpo-qwq-32b-toolworld",
    "tree-grpo-qwen2.5-7b-reasoning",
)
# name: processes, algorithm, M, prompts a rollout, prompts an update, tokens, tool calls, epochs
PUBLISHED: dict[str, tuple[int, str, int, int, int, int, int, int]] = {
    "arpo-qwen2.5-3b-reasoning": (8, "arpo", 16, 128, 16, 4096, 3, 2),
    "arpo-qwen2.5-7b-reasoning": (8, "arpo", 16, 128, 16, 4096, 3, 2),
    "arpo-llama3.1-8b-reasoning": (8, "arpo", 16, 128, 16, 4096, 3, 2),
    "arpo-qwen3-8b-deepsearch": (8, "arpo", 16, 128, 16, 8192, 6, 5),
    "arpo-qwen3-14b-deepsearch": (16, "arpo", 16, 64, 8, 8192, 6, 5),
    "arpo-qwq-32b-deepsearch": (16, "arpo", 16, 64, 8, 8192, 6, 5),
    "aepo-qwen2.5-7b-reasoning": (8, "aepo", 16, 128, 16, 4096, 6, 2),
    "aepo-qwen3-8b-deepsearch": (8, "aepo", 16, 128, 16, 8192, 6, 5),
    "aepo-qwen3-14b-deepsearch": (16, "aepo", 12, 64, 8, 6192, 6, 5),
    "aepo-qwq-32b-deepsearch": (16, "aepo", 12, 64, 8, 6192, 6, 5),
    "grpo-qwen2.5-7b-reasoning": (8, "grpo", 16, 128, 16, 4096, 3, 2),
    "dapo-qwen2.5-7b-reasoning": (8, "dapo", 16, 128, 16, 4096, 3, 2),
    "reinforce++-qwen2.5-7b-reasoning": (8, "reinforce++", 16, 128, 16, 4096, 3, 2),
    "tool-star-qwen2.5-3b": (8, "grpo", 8, 128, 16, 4096, 3, 2),
}


@pytest.fixture(scope="module")
def folder(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with random weights, a corpus, and rows for each data set."""
    made = tmp_path_factory.mktemp("recipes")
    tiny_llama(len(tokenizer)).save_pretrained(made / "model")
    tokenizer.save_pretrained(made / "model")
    (made / "corpus.jsonl").write_text(json.dumps({"id": "1", "title": "Ober", "text": "Ober is invented."}) + "\n")
    return made


@pytest.fixture(scope="module")
def native_models(folder: Path, tokenizer: Any) -> Path:
    """Tiny models of the kinds that the recipes with native calls train, by the recipe's name."""
    templates = importlib.resources.files("trl") / "chat_templates"
    text = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 1}
    text |= {"head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 16}
    text |= {"linear_value_head_dim": 16, "vocab_size": len(tokenizer), "bos_token_id": None}
    text |= {"eos_token_id": 2, "pad_token_id": 2}
    vision = {"depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 32}
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    dense = Qwen3_5Config(text_config={**text, "intermediate_size": 64}, vision_config=vision)
    mixture = Qwen3_5MoeConfig(
        text_config={**text, **experts, "shared_expert_intermediate_size": 16}, vision_config=vision
    )
    models = (Qwen3_5ForConditionalGeneration(dense), Qwen3_5MoeForConditionalGeneration(mixture))
    for (name, template), model in zip(TINY.items(), models, strict=True):
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
        written = (templates / f"{template}.jinja").read_text(encoding="utf-8")
        (folder / name / "chat_template.jinja").write_text(written, encoding="utf-8")
    return folder


def config_for(name: str, processes: int, monkeypatch: pytest.MonkeyPatch) -> tuple[RunArguments, ARPOConfig]:
    """A recipe's settings as one of so many processes would have them; vLLM, which is not here, is left out."""
    monkeypatch.setattr("arpo_trainer.run.arguments.process_count", lambda: processes)
    monkeypatch.setattr(ARPOConfig, "world_size", property(lambda self: processes), raising=False)
    run, values = split_settings(read_settings(name, []))
    assert values.get("use_vllm", False) == (name not in ON_CPU)
    return run, ARPOConfig(**{**values, "use_vllm": False, "use_cpu": True})


def local(env_id: str, options: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Options for an environment whose data or search would have to come from somewhere else."""
    here: dict[str, Any] = {"cache": str(folder / "cache.sqlite")} if "cache" in options else {}
    if env_id in ROWS:
        here["data"] = str(sample_file(env_id, folder))
        if "search" in get_spec(env_id).tools:
            here["search"] = str(folder / "corpus.jsonl")
    return {**options, **here}


def run_for(name: str, folder: Path, *overrides: str) -> TrainingRun:
    model = folder / (name if name in TINY else "model")
    settings = read_settings(name, [f"model={model}", "cold_start_examples=0", "use_vllm=false", *overrides])
    run, values = split_settings(settings)
    run.env_kwargs = local(run.env, run.env_kwargs, folder)
    run.eval_env_kwargs = local(run.eval_env or run.env, run.eval_env_kwargs, folder)
    args = ARPOConfig(**{**values, "use_cpu": True, "output_dir": str(folder / "out"), "report_to": []})
    return TrainingRun(run, args, settings)


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_has_its_batch_on_any_number_of_processes(name: str, monkeypatch: Any, caplog: Any) -> None:
    written_for = split_settings(read_settings(name, []))[0].processes or 1
    for processes in {1, written_for}:
        run, config = config_for(name, processes, monkeypatch)
        micro = config.per_device_train_batch_size * processes
        rows_per_update = micro * config.gradient_accumulation_steps
        assert config.generation_batch_size == micro * config.steps_per_generation
        assert config.generation_batch_size // processes % config.num_generations == 0, "a group is torn apart"
        if run.prompts_per_rollout:
            assert config.generation_batch_size == run.prompts_per_rollout * config.num_generations
            assert rows_per_update == (run.prompts_per_update or 0) * config.num_generations
        else:
            assert config.generation_batch_size == rows_per_update
    assert "changes nothing here" not in caplog.text
    assert "written for" not in caplog.text


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_run_has_its_numbers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    processes = PUBLISHED[name][0]
    run, config = config_for(name, processes, monkeypatch)
    batch = (config.num_generations, run.prompts_per_rollout, run.prompts_per_update)
    limits = (config.max_completion_length, run.env_kwargs["max_tool_calls"], config.num_train_epochs)
    assert (run.processes, config.algorithm, *batch, *limits) == PUBLISHED[name]
    assert config.steps_per_generation / config.gradient_accumulation_steps == 8  # updates a rollout
    assert (config.learning_rate, config.beta, config.epsilon, config.loss_type) == (1e-6, 0.0, 0.2, "dapo")
    row = ALGORITHMS[config.algorithm]
    of_config = (config.advantage, config.policy_loss, config.entropy_weight)
    assert of_config == (row.advantage, row.loss, row.entropy_weight)
    assert config.token_loss().high == (0.28 if config.algorithm == "dapo" else 0.2)
    first = config.num_generations if row.budget == "grpo" else config.num_generations / 2
    assert config.initial_rollouts == first


# the others differ from one of these in numbers alone, which the tests above read
BUILT = (*ON_CPU, *OURS, "arpo-qwen3-14b-deepsearch", "dapo-qwen2.5-7b-reasoning")


@pytest.mark.parametrize("name", BUILT)
def test_a_recipe_builds_its_environments_and_its_trainer(name: str, native_models: Path, isolation: str) -> None:
    training = run_for(name, native_models)
    run, args, env = training.arguments, training.args, training.environments.train
    trainer = training.make_trainer()
    assert trainer.eval_env.env_spec.id == (run.eval_env or run.env)
    assert trainer.eval_tasks[0].question
    assert env.budget.calls == run.env_kwargs.get("max_tool_calls", env.env_spec.max_tool_calls)
    assert trainer.engine.settings == args.rollout_settings()
    assert (env.budget.tokens or args.max_completion_length) >= args.max_completion_length
    assert {p.dtype for n, p in trainer.model.named_parameters() if "lora" not in n} == {getattr(torch, run.dtype)}
    trained = {n for n, p in trainer.model.named_parameters() if p.requires_grad}
    if run.lora_rank:
        assert trained == {n for n, _ in trainer.model.named_parameters() if "lora_" in n}
        assert trainer.model.peft_config["default"].r == run.lora_rank
    else:
        assert len(trained) == len(list(trainer.model.parameters()))


SMALL = (
    *("num_generations=4", "initial_rollouts=2", "prompts_per_rollout=1", "prompts_per_update=1", "max_steps=1"),
    *("per_device_train_batch_size=4", "max_completion_length=32", "eval_tasks=0", "eval_strategy=no"),
    "save_strategy=no",
)


@pytest.mark.parametrize("name", TINY)
@pytest.mark.usefixtures("isolation")
def test_a_recipe_with_native_calls_trains_its_kind_of_model(name: str, native_models: Path, tmp_path: Path) -> None:
    """One step: rollouts in padded batches, and rows that cannot be packed."""
    training = run_for(name, native_models, *SMALL)
    training.args.output_dir = str(tmp_path)
    trainer = training.make_trainer()
    adapted = [name for name, weight in trainer.model.named_parameters() if "lora_" in name and weight.requires_grad]
    assert not [name for name in adapted if "visual" in name]
    assert (trainer.packs, trainer.env.protocol.name) == (False, "native")
    trainer.train()
    assert trainer.state.global_step == 1
    assert all(torch.isfinite(weight).all() for weight in trainer.model.parameters())


def test_adapters_are_saved_alone_and_merged(folder: Path, isolation: str, tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    training = run_for("arithmetic-cpu", folder, "lora_rank=4", "lora_target_modules=[q_proj, v_proj]")
    trainer = training.make_trainer()
    for name, weight in trainer.model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight)
    ids = torch.tensor([[5, 6, 7, 8]])
    base = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
    with torch.no_grad():
        before = base(ids).logits
        trained = trainer.model(input_ids=ids).logits
        save_adapters(trainer, tmp_path)
        merged = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)(ids).logits
        on_base = PeftModel.from_pretrained(base, tmp_path / "adapter")(ids).logits
    assert not torch.allclose(before, trained, atol=1e-2)
    torch.testing.assert_close(merged, trained, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(on_base, trained, atol=1e-4, rtol=1e-4)
    assert len(AutoTokenizer.from_pretrained(tmp_path / "model")) == base.config.vocab_size


@pytest.mark.parametrize("name", ["multihop-cpu", "arpo-qwen3-8b-multihop-lora"])
def test_multihop_is_evaluated_in_another_world(name: str) -> None:
    settings = read_settings(name)
    options = settings["env_kwargs"]
    trained = {key: options[key] for key in ("level", "world_size", "seed") if key in options}
    held_out = {key: value for key, value in settings["eval_env_kwargs"].items() if key in ("seed", "split", "level")}
    worlds = [MultiHopSource(**trained).world, MultiHopSource(**{**trained, **held_out}).world]
    names = [{name.casefold() for thing in world.things for name in thing.names} for world in worlds]
    assert not names[0] & names[1]


def test_a_batch_that_cannot_be_divided_names_what_fits_and_is_given_in_one_way() -> None:
    for batch, cure in (
        ((100, 16, 16, 2, 8), r"prompts_per_rollout \(100\) must be a multiple of prompts_per_update \(16\)"),
        ((128, 16, 16, 3, 8), "With 8 processes take per_device_train_batch_size 1, 2, 4, 8"),
        ((128, 16, 16, 2, 6), "6 processes cannot share the rows evenly: start 4, or change prompts_per_update"),
    ):
        with pytest.raises(ValueError, match=cure):
            batch_settings(*batch)
    with pytest.raises(ValueError, match="gradient_accumulation_steps and prompts_per_rollout set the same thing"):
        split_settings({"prompts_per_rollout": 8, "gradient_accumulation_steps": 4})


def test_a_file_builds_on_a_recipe(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("base: aepo-qwen2.5-7b-reasoning\nmodel: /my/cold-start\nenv_kwargs: {search: serper}\n")
    settings = read_settings(str(mine), [], ["max_turns=9"])
    assert (settings["model"], settings["algorithm"], settings["num_train_epochs"]) == ("/my/cold-start", "aepo", 2)
    options = settings["env_kwargs"]
    assert (options["search"], options["max_turns"], options["max_tool_calls"]) == ("serper", 9, 6)
    assert "base" not in settings
    mine.write_text(f"base: {mine}\n")
    with pytest.raises(ValueError, match=r"is its own base: mine -> mine"):
        read_settings(str(mine), [])
