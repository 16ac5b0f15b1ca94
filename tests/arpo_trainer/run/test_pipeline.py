"""`arpo run`: stages in order, each from the output of the one before; skipped, resumed, refused or redone."""

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from arpo_trainer.cli.arpo_command import main
from arpo_trainer.run import pipeline as pipeline_module
from arpo_trainer.run.pipeline import Pipeline, StageError
from arpo_trainer.run.recipes import recipe_names
from tests.arpo_trainer.byte_policy import write_byte_policy


class Commands:
    """Stands for `arpo COMMAND` in processes of their own: keeps the command lines, and fails where it is told to."""

    def __init__(self, *failing: str) -> None:
        self.lines: list[list[str]] = []
        self.failing = set(failing)

    def __call__(self, line: list[str]) -> int:
        self.lines.append(line)
        return int(line[0] in self.failing)

    @property
    def names(self) -> list[str]:
        return [line[0] for line in self.lines]


SECTIONS: dict[str, Any] = {
    "sft": {"base": "sft-qwen2.5-3b", "data": ["rows.jsonl"], "accelerate_config": "zero3"},
    "train": {"base": "arithmetic-cpu", "env_kwargs.level": 2},
    "eval": {"environments": ["arpo/Arithmetic-v0"], "tasks": 5, "samples": 2, "settings": {"temperature": 0.6}},
}
SYNTH = {"environments": ["arpo/Arithmetic-v0"], "tasks": 5, "model": "teacher"}


def written(tmp_path: Path, sections: dict[str, Any]) -> str:
    path = tmp_path / "path.yaml"
    path.write_text(yaml.safe_dump({"output_dir": str(tmp_path / "out"), **sections}))
    return str(path)


def settings(tmp_path: Path, *stages: str) -> list[Any]:
    """What the stages' commands read."""
    return [yaml.safe_load((tmp_path / "out" / f"{stage}.yaml").read_text()) for stage in stages]


@pytest.fixture
def file(tmp_path: Path) -> str:
    return written(tmp_path, SECTIONS)


def test_an_evaluation_has_its_tools_at_inference_time(tmp_path: Path) -> None:
    helped = {"algorithm": "arpo", "with": ["debugger", "refiner=2"], "with_model": "m", "with_price": [1, 2]}
    helped |= {"vllm": True, "concurrency": 256}
    file = written(tmp_path, {"eval": {"environments": "arpo/Arithmetic-v0", "model": "x", **helped}})
    Pipeline.read(file).run(commands := Commands())
    expected = "--algorithm arpo --concurrency 256 --vllm --with debugger,refiner=2 --with-model m --with-price 1 2"
    assert commands.lines[0][-len(expected.split()) :] == expected.split()
    Pipeline.read(file, ["eval.concurrency=8", "eval.vllm=false"]).run(Commands("eval"))  # speed: nothing is redone


def test_each_stage_takes_the_model_of_the_one_before(file: str, tmp_path: Path) -> None:
    commands, out = Commands(), tmp_path / "out"
    Pipeline.read(file, ["train.max_steps=3"]).run(commands)
    assert commands.names == ["sft", "train", "eval"]
    assert commands.lines[0][-3:] == ["--resume", "--accelerate-config", "zero3"]
    sft, train = settings(tmp_path, "sft", "train")
    assert (sft["model"], sft["output_dir"]) == ("Qwen/Qwen2.5-3B-Instruct", str(out / "sft"))
    assert "accelerate_config" not in sft
    assert (train["model"], train["max_steps"]) == (str(out / "sft" / "model"), 3)
    assert train["env_kwargs"] == {"level": 2}
    expected = ["eval", "arpo/Arithmetic-v0", "--model", str(out / "train" / "model"), "--output", str(out / "eval")]
    assert commands.lines[2] == [*expected, "--tasks", "5", "-n", "2", "--set", "temperature=0.6"]


def test_the_rows_of_synth_are_those_of_sft(tmp_path: Path) -> None:
    commands, out = Commands(), tmp_path / "out"
    path = written(tmp_path, {"synth": SYNTH, "sft": {"model": "student"}, "train": {"base": "arithmetic-cpu"}})
    with pytest.raises(StageError, match="stage synth"):  # nothing was left: its limits may change
        Pipeline.read(path, ["synth.min_score=1"]).run(Commands("synth"))
    Pipeline.read(path).run(commands)
    assert commands.lines[0] == ["synth", "--config", str(out / "synth.yaml"), "--resume", "--retry"]
    synth, sft, train = settings(tmp_path, "synth", "sft", "train")
    assert (synth["model"], synth["output_dir"]) == ("teacher", str(out / "synth"))
    assert (sft["model"], sft["data"]) == ("student", [str(out / "synth" / "sft.jsonl")])
    assert train["model"] == str(out / "sft" / "model")


def test_after_each_evaluates_the_model_before_training_and_that_of_each_stage(tmp_path: Path) -> None:
    out, evaluation = tmp_path / "out", SECTIONS["eval"] | {"after": "each"}
    commands, sections = Commands(), SECTIONS | {"synth": SYNTH}
    pipeline = Pipeline.read(written(tmp_path, sections | {"eval": evaluation}))
    pipeline.run(commands)
    names = ["synth", "eval-start", "sft", "eval-sft", "train", "eval-train"]
    assert [stage.name for stage in pipeline.stages] == names
    evaluated = [line[line.index("--model") + 1] for line in commands.lines if line[0] == "eval"]
    assert evaluated == ["Qwen/Qwen2.5-3B-Instruct", str(out / "sft" / "model"), str(out / "train" / "model")]
    assert settings(tmp_path, "train")[0]["model"] == str(out / "sft" / "model")


def test_what_is_done_is_skipped_and_what_failed_is_resumed(file: str, tmp_path: Path) -> None:
    first = Commands("train")
    with pytest.raises(StageError, match="stage train ended with exit status 1; run the same command again"):
        Pipeline.read(file).run(first)
    with pytest.raises(StageError):  # without a checkpoint it begins anew, and what there was is kept
        Pipeline.read(file).run(Commands("train"))
    assert (tmp_path / "out" / "train.1").is_dir()
    checkpoint = tmp_path / "out" / "train" / "checkpoint-4"
    checkpoint.mkdir()
    (checkpoint / "trainer_state.json").write_text('{"global_step": 4}')
    second, third = Commands(), Commands()
    Pipeline.read(file).run(second)
    assert (first.names, second.names) == (["sft", "train"], ["train", "eval"])
    assert not (tmp_path / "out" / "train.2").exists()
    Pipeline.read(file).run(third)
    assert third.names == []
    shutil.rmtree(tmp_path / "out" / "sft")  # by hand, or by a kill in the middle of --from
    Pipeline.read(file).run(third)
    assert third.names == ["sft", "train", "eval"]  # what follows is not taken for done
    assert (tmp_path / "out" / "train.2" / "stage.json").is_file()  # and is kept


def test_changed_settings_are_refused_and_from_redoes(file: str, tmp_path: Path) -> None:
    Pipeline.read(file).run(Commands())
    (tmp_path / "out" / "train" / "kept.txt").write_text("old")
    changed, commands = Pipeline.read(file, ["train.learning_rate=1e-3"]), Commands()
    with pytest.raises(ValueError, match=r"learning_rate: 2e-05 -> 0.001.*--from train"):
        changed.run(commands)
    assert commands.names == []
    changed.run(commands, "train")
    assert commands.names == ["train", "eval"]
    assert (tmp_path / "out" / "train.1" / "kept.txt").read_text() == "old"
    with pytest.raises(ValueError, match="--from must be one of"):
        changed.run(commands, "evaluate")
    with pytest.raises(ValueError, match="Redo it and what follows with --from sft"):
        Pipeline.read(file, ["train.learning_rate=1e-3", "sft.learning_rate=1e-3"]).run(commands, "eval")
    assert (tmp_path / "out" / "eval" / "stage.json").is_file()  # a refused command puts nothing aside


def test_rounds_repeat_train_and_dpo_with_other_tasks(tmp_path: Path) -> None:
    out, commands = tmp_path / "out", Commands()
    rounds = {"train": SECTIONS["train"] | {"cold_start_examples": 50, "seed": 5}, "rounds": 2}
    file = written(tmp_path, SECTIONS | rounds | {"dpo": {"env": "arpo/Arithmetic-v0", "tasks": 10}})
    Pipeline.read(file).run(commands)
    assert commands.names == ["sft", "train", "dpo", "train", "dpo", "eval"]
    assert commands.lines[2] == ["dpo", "--config", str(out / "dpo-1.yaml"), "--resume"]
    order = ["sft", "train-1", "dpo-1", "train-2", "dpo-2", "eval"]
    stages = {stage.name: stage.settings for stage in Pipeline.read(file).stages}
    assert list(stages) == order
    for before, after in itertools.pairwise(order):
        assert stages[after]["model"] == str(out / before / "model")
    assert [stages[name]["seed"] for name in ("train-1", "train-2")] == [5, 6]
    assert [stages[name]["cold_start_examples"] for name in ("train-1", "train-2")] == [50, 0]
    assert [stages[name]["first_task"] for name in ("dpo-1", "dpo-2")] == [0, 10]
    assert stages["dpo-1"]["no_pairs"] == "skip"
    again = Commands()
    Pipeline.read(file).run(again, "dpo-2")
    assert again.names == ["dpo", "eval"]


def test_an_evaluation_of_which_too_much_broke_is_repeated(file: str, tmp_path: Path) -> None:
    facts = tmp_path / "out" / "eval" / "run.json"
    with pytest.raises(StageError, match="stage eval"):
        Pipeline.read(file).run(Commands("eval"))
    faster = ["eval", "retry", str(facts.parent), "--concurrency", "9", "--vllm"]
    for status, words in (("interrupted", ["--resume"]), ("finished", faster)):
        facts.write_text(json.dumps({"status": status}))
        again = Commands("eval")
        with pytest.raises(StageError):
            Pipeline.read(file, ["eval.concurrency=9", "eval.vllm=true"]).run(again)
        assert again.lines[0][-len(words) :] == words


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        (SECTIONS | {"eval": SECTIONS["eval"] | {"after": "all"}}, "must be one of 'last', 'each'"),
        (SECTIONS | {"eval": SECTIONS["eval"] | {"after": "each", "model": "mine"}}, "leave out model"),
        ({}, "no stage"),
        ({"trian": {}}, "did you mean 'train'"),
        ({"sft": 3}, "must hold settings"),
        ({"rounds": 2, "sft": {}}, "there is neither"),
        ({"sft": {"base": "arithmetic-cpu"}}, "no settings file 'arithmetic-cpu'"),
        ({"eval": {"tasks": 3}}, "needs environments"),
        ({"eval": {"environments": "a", "model": "m", "with_model": "m"}}, "has with_model and no tools"),
        ({"eval": {"environments": "a", "model": "m", "task": 1}}, "did you mean 'tasks'"),
        ({"eval": {"environments": "a", "model": "m", "concurrency": 0}}, "concurrency must be at least 1"),
        ({"eval": {"environments": "a", "model": "m", "vllm": "no"}}, "vllm must be true or false, got 'no'"),
    ],
)
def test_bad_files_are_refused(sections: Any, words: str, tmp_path: Path, capsys: Any) -> None:
    assert main(["run", "--config", written(tmp_path, sections)]) == 1
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("name", recipe_names("run"))
def test_every_pipeline_is_read(name: str) -> None:
    stages = {stage.name: stage for stage in Pipeline.read(name).stages}
    assert {stage.kind for stage in stages.values()} >= {"sft", "train", "eval"}
    model = stages["sft"].settings["model"]
    for stage in stages.values():
        if stage.kind != "synth":  # its model is the teacher
            assert stage.settings["model"] == model
        if stage.kind not in ("synth", "eval"):
            model = str(stage.folder / "model")


def test_the_stages_run_in_fact(isolation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """The CPU pipeline on a tiny model, but for `arpo eval`: demonstrations are learnt, then one step of ARPO."""
    commands = Commands()
    monkeypatch.setattr(
        pipeline_module, "run_command", lambda line: commands(line) or (line[0] != "eval" and main(line))
    )
    model = write_byte_policy(tmp_path / "model")
    given = [f"sft.model={model}", "sft.demonstrations.count=8", "sft.threads=1", "train.max_steps=1"]
    given += ["train.threads=1", "train.gradient_accumulation_steps=1", f"output_dir={tmp_path / 'out'}"]
    command = ["run", "--recipe", "arithmetic-cpu", "--set", *given]
    assert main([*command, "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert all(f"STAGE {name}" in shown for name in ("sft", "train", "eval"))
    assert not (tmp_path / "out").exists()
    assert main(command) == 0
    assert commands.names == ["sft", "train", "eval"]
    facts = json.loads((tmp_path / "out" / "sft" / "sft.json").read_text())
    assert (facts["status"], facts["rows"], facts["kept"]) == ("finished", 8, 8)
    assert (tmp_path / "out" / "train" / "model" / "config.json").is_file()
    assert main(command) == 0
    assert len(commands.lines) == 3
