"""`arpo sft`: the loss falls in each format, masked tokens get no gradient, and a killed run resumes exactly."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from arpo_trainer.cli.arpo_command import main
from arpo_trainer.run.arguments import configure_sft
from arpo_trainer.run.recipes import read_settings, recipe_names
from arpo_trainer.run.sft_run import sft
from arpo_trainer.sft.sft_trainer import make_trainer
from arpo_trainer.sft.trace_data import IGNORED
from tests import ready_processes
from tests.arpo_trainer.sft.rows import FORMATS, encoding, tree
from tests.conftest import tiny_llama
from tests.waiting import wait_for

QUICK = {"threads": 1, "logging_steps": 5, "save_strategy": "no", "gradient_checkpointing": False, "disable_tqdm": True}


def rows_file(form: str, folder: Path, tokenizer: Any, count: int) -> Path:
    rng, encode = random.Random(7), encoding(tokenizer)
    rows = (tree(rng, encode) if form == "traces" else FORMATS[form](rng) for _ in range(count))
    path = folder / f"{form}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(("form", "rows"), [("sharegpt", 200), ("traces", 100)])
def test_the_loss_falls(form: str, rows: int, byte_lm: Path, byte_tokenizer: Any, tmp_path: Path) -> None:
    path = rows_file(form, tmp_path, byte_tokenizer, rows)
    settings = {"model": str(byte_lm), "data": str(path), "output_dir": str(tmp_path / "out"), "max_steps": 15}
    settings |= {"per_device_train_batch_size": 8, "learning_rate": 1e-2, **QUICK}
    facts = json.loads((sft(settings) / "sft.json").read_text())
    assert facts["status"] == "finished"
    assert facts["rows"] == rows * (2 if form == "traces" else 1)
    assert facts["kept"] + sum(facts["dropped"].values()) == facts["rows"]
    assert facts["kept"] > rows / 2
    assert facts["log"]["loss"][-1] < 0.7 * facts["log"]["loss"][0]
    assert (tmp_path / "out" / "model" / "config.json").is_file()


@pytest.mark.parametrize("form", ["whole", "shared", "packed"])
def test_masked_tokens_get_no_gradient(form: str, byte_tokenizer: Any, tmp_path: Path) -> None:
    """The loss has no gradient with respect to what the model predicts for a token of the environment."""
    shared = list(range(40, 60))
    examples = [
        {
            "input_ids": [*shared[: 20 - n], 5 + n, 6, 7, 300, 301, *[8] * (1 + 2 * n)],
            "labels": [IGNORED] * (20 - n) + [5 + n, 6, 7, IGNORED, IGNORED, *[8] * (1 + 2 * n)],
        }
        for n in range(3)
    ]
    options = {"packing": True, "max_length": 64} if form == "packed" else {"max_length": None}
    args = configure_sft({"output_dir": str(tmp_path), "max_steps": 1, **QUICK, **options})[1]
    trainer = make_trainer(
        tiny_llama(400), byte_tokenizer, examples, args, share_beginnings="auto" if form == "shared" else False
    )
    assert trainer.shares == (form == "shared")
    batch = next(iter(trainer.get_train_dataloader()))
    (gradient,) = torch.autograd.grad(trainer.compute_loss(trainer.model, batch), trainer.model.lm_head.weight)
    model = tiny_llama(400)
    expected = torch.zeros_like(gradient)
    total = sum(label != IGNORED for example in examples for label in example["labels"])
    for example in examples:
        ids = torch.tensor([example["input_ids"]])
        with torch.no_grad():
            hidden = model.model(ids).last_hidden_state[0]
        for position in (place for place, label in enumerate(example["labels"]) if label != IGNORED):
            chances = torch.softmax(hidden[position - 1] @ model.lm_head.weight.T, -1)
            chances[example["labels"][position]] -= 1
            expected += torch.outer(chances.detach(), hidden[position - 1]) / total
    torch.testing.assert_close(gradient, expected, atol=1e-6, rtol=1e-3)


RESUMED = ["num_train_epochs=3", "per_device_train_batch_size=4", "learning_rate=5e-3", "threads=1", "save_steps=4"]
RESUMED += ["logging_steps=3", "gradient_checkpointing=false", "disable_tqdm=true", "seed=3", "lora_dropout=0.1"]


def test_a_killed_run_goes_on_as_if_nothing_had_happened(byte_lm: Path, byte_tokenizer: Any, tmp_path: Path) -> None:
    path = rows_file("sharegpt", tmp_path, byte_tokenizer, 40)

    def command(folder: str) -> list[str]:
        more = ("lora_rank=4", f"model={byte_lm}", f"output_dir={tmp_path / folder}")
        return ["sft", "--data", str(path), "--resume", "--set", *RESUMED, *more]

    assert main(command("unbroken")) == 0
    killed = tmp_path / "killed"
    _kill_after_a_checkpoint(command("killed"), killed)
    assert main(command("killed")) == 0
    whole, resumed = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("unbroken", "killed"))
    assert whole.keys() == resumed.keys()
    assert [name for name, value in whole.items() if not torch.equal(value, resumed[name])] == []
    assert len(before := _history(tmp_path / "unbroken")) > 5
    assert before == _history(killed)


def _kill_after_a_checkpoint(command: list[str], folder: Path) -> None:
    said = folder.with_suffix(".out")
    run = ready_processes.start("arpo_trainer.cli", *command, folder=Path.cwd(), said=said)
    wait_for(lambda: list(folder.glob("checkpoint-*/trainer_state.json")) or not run.is_alive(), 240)
    assert run.is_alive(), f"it ended before a checkpoint: {ready_processes.errors_of(said)}"
    run.kill()
    run.join()
    for later in folder.glob("checkpoint-*"):  # a quick run may have gone on for some steps
        if later.name != "checkpoint-4":
            shutil.rmtree(later)


def _history(folder: Path) -> list[tuple[int, float, float]]:
    last = max(folder.glob("checkpoint-*"), key=lambda path: int(path.name.partition("-")[2]))
    logs = json.loads((last / "trainer_state.json").read_text())["log_history"]
    return [(entry["step"], entry["loss"], entry.get("num_tokens", 0)) for entry in logs]


def test_every_recipe_is_read_and_names_its_batch() -> None:
    for name in (names := recipe_names("sft")):
        run, args = configure_sft({**read_settings(name, command="sft"), "bf16": False, "use_cpu": True})
        assert (args.learning_rate, args.num_train_epochs, args.lr_scheduler_type) == (7e-6, 3, "cosine")
        assert args.gradient_accumulation_steps * args.per_device_train_batch_size == run.rows_per_update
        assert (run.rows_per_update, args.weight_decay) == ((32, 0.0) if "tool-star" in name else (128, 0.1))
    assert len(names) >= 5


def test_dry_run_counts_rows_tokens_and_steps(byte_lm: Path, byte_tokenizer: Any, tmp_path: Path, capsys: Any) -> None:
    path = rows_file("sharegpt", tmp_path, byte_tokenizer, 30)
    with path.open("a") as file:
        file.write('{"conversations": [{"from": "boss", "value": "x"}]}\n')
    shown = f"--set model={byte_lm} rows_per_update=8 num_train_epochs=2 --tflops 1 --hour-price 2".split()
    assert main(["sft", "--data", str(path), "--dry-run", *shown]) == 0
    table = {line[:26].strip(): line[26:].split()[0] for line in capsys.readouterr().out.splitlines()}
    assert (table["ROWS"], table["kept"], table["dropped: unknown role"]) == ("31", "30", "1")
    assert table["optimizer steps"] == "8"
    assert {"tokens", "tokens computed", "hours", "price"} <= table.keys()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sft", "--recipe", "arithmetic-cpu"], "`arpo train`: arpo train --recipe arithmetic-cpu"),
        (["sft", "--dry-run"], "no data: give files"),
        (["sft", "--data", "nothing.jsonl", "--dry-run"], "does not exist here"),
        (["sft", "--set", "lernrate=1"], "no setting 'lernrate'"),
        (["sft", "--set", "packing=true"], "packing=true needs max_length"),
        (["sft", "--set", "packing=true", "max_length=99", "packing_strategy=wrapped"], "take bfd"),
        (["sft", "--set", "rows_per_update=9", "per_device_train_batch_size=4"], "is not a multiple"),
    ],
)
def test_bad_input_is_one_line_with_the_cure(arguments: list[str], words: str, capsys: Any) -> None:
    assert main(arguments) == 1
    assert words in capsys.readouterr().err


def test_runs_are_not_mixed_in_one_folder(byte_lm: Path, byte_tokenizer: Any, tmp_path: Path, capsys: Any) -> None:
    rows, others = (rows_file(form, tmp_path, byte_tokenizer, 8) for form in ("sharegpt", "tool-star"))
    settings = ["threads=1", "save_steps=1", "max_steps=1", "gradient_checkpointing=false", f"model={byte_lm}"]
    command = ["sft", "--set", *settings, f"output_dir={tmp_path / 'run'}"]
    assert main([*command, "--data", str(rows)]) == 0
    assert main([*command, "--data", str(rows)]) == 1
    assert "add --resume" in capsys.readouterr().err
    text = others.read_text().replace("What is", "How much is")
    others.write_text(text)
    assert main([*command, "max_steps=2", "--data", str(others), "--resume"]) == 1
    assert "was trained on other rows" in capsys.readouterr().err
    assert json.loads((tmp_path / "run" / "sft.json").read_text())["status"] == "finished"
    assert main([*command, "max_steps=2", "dataset_num_proc=1", "--data", str(rows), "--resume"]) == 0
    assert json.loads((tmp_path / "run" / "sft.json").read_text())["steps"] == 2
