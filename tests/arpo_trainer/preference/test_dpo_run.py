"""`arpo dpo`: sampled, killed and resumed, trained with and without adapters, skipped, and refused."""

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from arpo_trainer.cli.arpo_command import main
from arpo_trainer.evaluation.episode_store import EpisodeStore, rows_of
from arpo_trainer.preference.dpo_run import configure_dpo
from arpo_trainer.preference.pairs import read_pairs
from arpo_trainer.run.recipes import read_settings
from tests.arpo_trainer.byte_policy import write_byte_policy
from tests.arpo_trainer.evaluation.made_rows import until_full

# the tiny policy answers in the format or not: that is what can be preferred
QUICK = ["tasks=4", "chosen_reward=0", "max_turn_length=48", "max_completion_length=160"]
QUICK += ["threads=1", "gradient_checkpointing=false", "disable_tqdm=true", "save_strategy='no'", "learning_rate=1e-3"]
PAIR = {"task": "t", "prompt_ids": [5, 6], "shared": 0, "chosen_ids": [7, 8], "chosen_mask": [1, 0]}
PAIR |= {"rejected_ids": [9], "rejected_mask": [1], "chosen_reward": 1.0, "rejected_reward": 0.0}


def command(model: Path, folder: Path, *more: str) -> list[str]:
    return ["dpo", "--env-set", "level=3", "--set", f"model={model}", f"output_dir={folder}", *QUICK, *more]


def facts(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "dpo.json").read_text())


def test_a_round_that_was_killed_is_the_unbroken_one(tiny_policy: Path, tmp_path: Path, monkeypatch: Any) -> None:
    # a seed with which a pair of the trees shares turns
    given = ("samples=4", "algorithm=random", "seed=3", "max_steps=2", "per_device_train_batch_size=2")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert main(command(tiny_policy, whole, *given)) == 0
    monkeypatch.setattr(EpisodeStore, "add", until_full(2))
    assert main(command(tiny_policy, killed, *given)) == 1
    monkeypatch.undo()
    with (killed / "samples" / "traces.jsonl").open("ab") as file:
        file.write(b'{"prompt_ids": [1, 2')  # what a kill leaves behind
    assert main(command(tiny_policy, killed, *given)) == 1  # not without --resume
    assert main([*command(tiny_policy, killed, *given), "--resume"]) == 0
    keys = Counter(row.key for row in rows_of(killed / "samples" / "episodes.jsonl"))
    assert set(keys.values()) == {1}
    assert len(keys) == 4
    pairs = read_pairs(whole / "pairs.jsonl")
    assert any(one.shared for one in pairs)
    assert (killed / "pairs.jsonl").read_bytes() == (whole / "pairs.jsonl").read_bytes()
    one, two = (load_file(folder / "model" / "model.safetensors") for folder in (whole, killed))
    assert all(bool((one[name] == two[name]).all()) for name in one)
    found = facts(killed)
    assert (found["status"], found["steps"], found["data"]) == ("finished", 2, facts(whole)["data"])


@pytest.mark.usefixtures("isolation")
def test_adapters_learn_from_a_file_of_pairs(tiny_policy: Path, tmp_path: Path, capsys: Any) -> None:
    path, folder = tmp_path / "mine.jsonl", tmp_path / "out"
    path.write_text(json.dumps(PAIR) + "\n")
    given = ("lora_rank=2", "num_train_epochs=4", "save_strategy=steps", "save_steps=3")
    assert main([*command(tiny_policy, folder, *given), "--pairs", str(path)]) == 0
    assert (folder / "adapter" / "adapter_config.json").is_file()
    assert not (folder / "samples").exists()
    log = facts(folder)["log"]["loss"]
    assert log[0] == pytest.approx(0.6931, abs=1e-3)  # the reference is the model without adapters
    assert log[-1] < log[0]
    before, after = (load_file(place / "model.safetensors") for place in (tiny_policy, folder / "model"))
    assert any(bool((before[name] != after[name]).any()) for name in after)
    record = (folder / "dpo.json").read_bytes()
    other = shutil.copytree(tiny_policy, tmp_path / "other")  # it would be the reference, and the adapters' base
    changed = command(other, folder, *given, "beta=0.5", "lora_rank=4")
    assert main([*changed, "--pairs", str(path), "--resume"]) == 1
    told = capsys.readouterr().err
    assert "beta: 0.1 -> 0.5" in told
    assert "'default.r': 4" in told
    assert f"{str(tiny_policy)!r} -> {str(other)!r}" in told
    assert (folder / "dpo.json").read_bytes() == record


@pytest.mark.usefixtures("isolation")
def test_a_round_without_pairs_is_an_error_or_skipped(tmp_path: Path, capsys: Any, caplog: Any) -> None:
    model = write_byte_policy(tmp_path / "model")
    given = ("samples=2", "tasks=2", "max_completion_length=64", "max_turn_length=16")
    assert main(command(model, tmp_path / "one", *given, "chosen_reward=1")) == 1
    told = capsys.readouterr().err
    assert "nothing to learn from: 0 pairs of 2 tasks: 2 all wrong" in told
    assert "no_pairs=skip" in told
    assert main(command(model, tmp_path / "two", *given, "chosen_reward=-9", "no_pairs=skip")) == 0
    assert "round skipped, and the policy is unchanged: 0 pairs of 2 tasks: 2 all right" in caplog.text
    assert facts(tmp_path / "two")["status"] == "skipped"
    before = {file.name: file.read_bytes() for file in model.iterdir()}
    assert {file.name: file.read_bytes() for file in (tmp_path / "two" / "model").iterdir()} == before
    # a round there that learns, from given pairs, does not write into files that it shares with the policy
    (tmp_path / "pairs.jsonl").write_text(json.dumps(PAIR) + "\n")
    assert main([*command(model, tmp_path / "two", "max_steps=1"), "--pairs", str(tmp_path / "pairs.jsonl")]) == 0
    assert (tmp_path / "two" / "model" / "config.json").read_bytes() != before["config.json"]
    assert {file.name: file.read_bytes() for file in model.iterdir()} == before


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["env=arpo/Arithmetik-v0"], "arpo/Arithmetic-v0"),
        (["samples=1"], "samples must be at least 2"),
        (["generation=endpoint"], "not 'endpoint'"),
        (["generation=vllm-server"], "vllm_server: [URL] go together"),
        (["remove_unused_columns=true"], "would remove the masks"),
        (["model=./nowhere"], "model folder './nowhere' does not exist"),
        (["pairs=nowhere.jsonl"], "no file of pairs 'nowhere.jsonl'"),
        (["output_dir={folder}"], "over the one that it starts from"),
    ],
)
def test_settings_that_cannot_work_are_named(given: list[str], words: str, tmp_path: Path, capsys: Any) -> None:
    model = write_byte_policy(tmp_path / "model")
    given = [text.format(folder=tmp_path) if "folder" in text else text for text in given]
    assert main(["dpo", "--set", f"model={model}", f"output_dir={tmp_path / 'out'}", "threads=1", *given]) == 1
    assert words in capsys.readouterr().err
    assert not list((tmp_path / "out").glob("[!.]*"))


def test_the_recipe_has_the_published_settings_and_a_dry_run(tmp_path: Path, capsys: Any) -> None:
    settings = read_settings("dpo-tool-star-qwen2.5-3b", command="dpo")
    run, args = configure_dpo({**settings, "bf16": False, "use_cpu": True})
    assert (run.lora_rank, args.beta, args.learning_rate, args.loss_type) == (8, 0.1, 5e-6, ["sigmoid"])
    assert (args.num_train_epochs, args.lr_scheduler_type, args.warmup_steps) == (3, "cosine", 0.1)
    model = write_byte_policy(tmp_path / "model")
    shown = ["--dry-run", "--tflops", "1", "--set", f"model={model}", "env_kwargs={}", "processes=0"]
    assert main(["dpo", "--recipe", "dpo-tool-star-qwen2.5-3b", *shown]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "TRAJECTORIES 8,000" in told
    assert " hours " in told
