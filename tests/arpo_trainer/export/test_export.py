"""Exports of every kind of checkpoint: the logits are those of the trained model, and the card can be read."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from arpo_trainer.cli.arpo_command import main
from arpo_trainer.export.export_model import export_model, find_checkpoint_files, load_model
from arpo_trainer.rollout.model_protocol import learnt_protocol
from tests.arpo_trainer.byte_policy import write_byte_policy
from tests.arpo_trainer.rollout.test_model_protocol import TRAINED
from tests.arpo_trainer.training.test_resume import byte_trainer, checkpoint

IDS = torch.tensor([[5, 6, 7, 8, 9]])


def evaluation(name: str, step: int, accuracy: float) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "step": step, "n": 100, "tool_calls": 1.5, "invalid": 2}
    for what in ("accuracy", "reward"):
        row |= {what: accuracy, f"{what}_low": accuracy - 0.1, f"{what}_high": accuracy + 0.1}
    return row


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_byte_policy(tmp_path_factory.mktemp("bytes"))
    GenerationConfig(eos_token_id=256, pad_token_id=257, max_new_tokens=77).save_pretrained(folder)
    return folder


@pytest.fixture
def run(base: Path, tmp_path: Path) -> Path:
    """The folder of a run with its records and without weights."""
    folder = tmp_path / "mine"
    folder.mkdir()
    settings = {"learning_rate": 1e-6, "model": str(base), "hub_token": "hunter2", "max_tokens": 99}
    settings |= {"output_dir": str(folder), "vllm_server_base_url": "http://somewhere:8000"}
    settings |= {"eval_env": "/home/alice/tasks.py:Mine-v0", "note": "with sk-abcdefghijklmnop0123"}
    options = {"Authorization": "Basic hunter3", "search": "tool --index /home/alice/wiki/index --k 3"}
    settings["env_kwargs"] = options
    facts = {"name": "mine", "algorithm": "arpo", "env": {"id": "arpo/GSM8K-v0", "kwargs": {}}, "model": str(base)}
    facts |= {"seed": 3, "status": "finished", "settings": settings, "versions": {"torch": "2", "trl": "1"}}
    (folder / "run.json").write_text(json.dumps(facts))
    rows = [evaluation("before", 0, 0.2), evaluation("eval", 4, 0.5), evaluation("after", 8, 0.6)]
    (folder / "eval.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"name": "cut o')
    return folder


def trained(base: Path) -> Any:
    """A model that differs from the base."""
    model = AutoModelForCausalLM.from_pretrained(base)
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.05 * torch.randn_like(weight))
    return model.eval()


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        got: torch.Tensor = model(IDS).logits
    return got


def same_model(folder: Path, want: torch.Tensor) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    torch.testing.assert_close(logits(model), want, atol=1e-5, rtol=1e-4)
    assert AutoTokenizer.from_pretrained(folder).chat_template
    assert model.generation_config.max_new_tokens == 77
    assert model.config.use_cache


def test_a_plain_checkpoint_of_another_step_than_the_evaluated_ones(base: Path, run: Path, tmp_path: Path) -> None:
    facts = json.loads((run / "run.json").read_text()) | {"env": {"id": "/home/alice/tasks.py:Mine-v0"}}
    (run / "run.json").write_text(json.dumps(facts))
    model, folder = trained(base), checkpoint(run, 6)
    model.config.use_cache = False
    model.save_pretrained(folder)
    assert export_model(folder, tmp_path / "out") == tmp_path / "out"
    same_model(tmp_path / "out", logits(model))
    card = ModelCard.load(tmp_path / "out" / "README.md")
    assert card.data.eval_results is None
    assert "| training steps | 6 |" in card.text
    assert "alice" not in card.content
    # the checkpoint has no tokenizer, and its run's record no protocol: an earlier release trained with tags
    assert learnt_protocol(AutoTokenizer.from_pretrained(tmp_path / "out")) == ("arpo-tags", TRAINED)
    assert not (tmp_path / "out.unfinished").exists()


@pytest.mark.parametrize("adapter", [False, True])
def test_checkpoints_of_the_trainer(adapter: bool, base: Path, isolation: str, tmp_path: Path) -> None:
    """Each step of a run has a checkpoint; that of the last step is the trained model."""
    trainer = byte_trainer(base, tmp_path / "run", adapter=adapter, max_steps=2)
    trainer.train()
    want = logits(trainer.model.eval())
    assert not torch.allclose(want, logits(AutoModelForCausalLM.from_pretrained(base).eval()), atol=1e-3)
    found = find_checkpoint_files(tmp_path / "run")
    assert (found.kind, found.folder.name, found.step) == ("adapter" if adapter else "plain", "checkpoint-2", 2)
    export_model(tmp_path / "run", tmp_path / "out", base=str(base))
    made = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    torch.testing.assert_close(logits(made), want, atol=1e-5, rtol=1e-4)
    assert not adapter or made.generation_config.max_new_tokens == 77  # of the base
    assert "| environment | arpo/Arithmetic-v0 |" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize("kind", ["fsdp", "fsdp-full"])
def test_shards_of_fsdp_are_put_together(kind: str, base: Path, run: Path, tmp_path: Path) -> None:
    from torch.distributed.checkpoint.filesystem import FileSystemWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    model, folder = trained(base), checkpoint(run, 8)
    if kind == "fsdp":
        writer = FileSystemWriter(folder / "pytorch_model_fsdp_0")
        save({"model": model.state_dict()}, storage_writer=writer, no_dist=True)
    else:
        wrapped = {f"_orig_mod.{name}": value for name, value in model.state_dict().items()}
        torch.save(wrapped, folder / "pytorch_model_fsdp.bin")
    assert find_checkpoint_files(folder).kind == kind
    export_model(folder, tmp_path / "out")
    same_model(tmp_path / "out", logits(model))


def test_shards_of_zero_need_deepspeed(base: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, folder = trained(base), checkpoint(run, 8)
    (folder / "latest").write_text("global_step8")
    (folder / "global_step8").mkdir()
    if "deepspeed" not in sys.modules:
        with pytest.raises(ModuleNotFoundError, match="pip install deepspeed"):
            export_model(folder, tmp_path / "out")
    # DeepSpeed's own function is called with the folder; it is not installed here, so a stand-in answers
    weights = {str(folder): {f"module.{name}": value for name, value in model.state_dict().items()}}
    put_together = SimpleNamespace(get_fp32_state_dict_from_zero_checkpoint=weights.__getitem__)
    for name in ("deepspeed", "deepspeed.utils"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(__path__=[]))
    monkeypatch.setitem(sys.modules, "deepspeed.utils.zero_to_fp32", put_together)
    made, _ = load_model(find_checkpoint_files(folder))
    torch.testing.assert_close(logits(made), logits(model))


def test_the_card_states_what_the_run_recorded(base: Path, run: Path, tmp_path: Path, capsys: Any) -> None:
    trained(base).save_pretrained(checkpoint(run, 4))
    made = tmp_path / "mine-3b"
    arguments = ["export", str(run / "checkpoint-4"), "--output", str(made), "--dtype", "bfloat16"]
    assert main([*arguments, "--licence", "apache-2.0"]) == 0
    assert capsys.readouterr().out.strip() == str(made)
    assert AutoModelForCausalLM.from_pretrained(made).dtype == torch.bfloat16

    card = ModelCard.load(made / "README.md")
    data = card.data
    assert (data.library_name, data.license, data.datasets) == ("transformers", "apache-2.0", ["openai/gsm8k"])
    assert {"arpo", "tool-use"} <= set(data.tags)
    assert data.base_model is None  # a folder of this machine says nothing to others
    [result] = data.eval_results
    assert (result.metric_value, result.metric_args) == (0.5, {"tasks": 100, "interval_95": [0.4, 0.6]})
    assert "| before | 0 | 100 | 0.200 [0.100, 0.300]" in card.text
    assert "after" not in card.text  # it is of later weights
    for text in ("learning_rate: 1.0e-06", "max_tokens: 99", "torch 2, trl 1", "tool --index index --k 3"):
        assert text in card.text
    for private in (str(tmp_path), str(base), "hunter2", "somewhere", "alice", "hunter3", "abcdefghijklmnop0123"):
        assert private not in card.content


def test_what_cannot_be_exported_is_named(base: Path, run: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="holds no weights"):
        export_model(run, tmp_path / "out")
    model, folder = trained(base), checkpoint(run, 4)
    model.save_pretrained(folder)
    (tmp_path / "taken").mkdir()
    with pytest.raises(FileExistsError, match="exists already"):
        export_model(folder, tmp_path / "taken")
    (folder / "trainer_state.json").unlink()
    with pytest.raises(ValueError, match="not a complete checkpoint"):
        export_model(folder, tmp_path / "out")

    with torch.no_grad():
        model.lm_head.weight[3, 3] = torch.nan
    model.save_pretrained(broken := checkpoint(run, 5))
    with pytest.raises(ValueError, match="holds NaN or infinity"):
        export_model(broken, tmp_path / "out")
    torch.save({"other.weight": torch.ones(2)}, (other := checkpoint(run, 7)) / "pytorch_model_fsdp.bin")
    with pytest.raises(ValueError, match="not of the structure"):
        export_model(other, tmp_path / "out")
    with pytest.raises(ValueError, match="dtype must be one of"):
        export_model(folder, tmp_path / "out", dtype="int8")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("change", ["missing", "renamed", "adapters"])
def test_weights_that_the_model_did_not_get_are_refused(change: str, base: Path, run: Path, tmp_path: Path) -> None:
    """transformers and PEFT only warn, and the export would hold random numbers or the base."""
    from peft import LoraConfig, get_peft_model
    from safetensors.torch import load_file, save_file

    model, folder = AutoModelForCausalLM.from_pretrained(base), checkpoint(run, 4)
    if change == "adapters":
        model = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"))
    model.save_pretrained(folder)
    (file,) = folder.glob("*model.safetensors")
    weights = load_file(file)
    if change == "missing":
        weights = {name: value for name, value in weights.items() if "layers.0.mlp" not in name}
    else:
        weights = {name.replace("layers.", "blocks."): value for name, value in weights.items()}
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"missing.*--base MODEL"):
        export_model(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_card_of_a_supervised_run_says_what_was_learnt(base: Path, tmp_path: Path) -> None:
    run = tmp_path / "cold"
    AutoModelForCausalLM.from_pretrained(base).save_pretrained(run / "model")
    AutoTokenizer.from_pretrained(base).save_pretrained(run / "model")
    settings = {"model": "Qwen/Qwen2.5-3B-Instruct", "data": ["dongguanting/ARPO-SFT-54K/x.jsonl"], "lora_rank": 8}
    facts = {"kind": "sft", "settings": settings, "rows": 1000, "kept": 990, "tokens": 5000, "learnt_tokens": 2000}
    (run / "sft.json").write_text(json.dumps({**facts, "status": "finished", "steps": 30}))
    card = ModelCard.load(export_model(run, tmp_path / "out") / "README.md")
    assert card.data.base_model == "Qwen/Qwen2.5-3B-Instruct"
    assert card.data.datasets == ["dongguanting/ARPO-SFT-54K"]
    assert "reinforcement-learning" not in card.data.tags
    assert "LoRA adapters were trained" in card.text  # the model is merged already
    assert "| rows | 990 of 1,000 kept; 2,000 of 5,000 tokens learnt |" in card.text
    assert "| training steps | 30 |" in card.text
