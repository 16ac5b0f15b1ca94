"""A run that was killed and goes on from a checkpoint becomes, bit by bit, the run that was never stopped."""

import dataclasses
import hashlib
import json
import os
import re
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from trl import GRPOTrainer

from arpo_env import ToolEnv
from arpo_trainer import ARPOTrainer, RolloutTree
from arpo_trainer.cli.arpo_command import main
from arpo_trainer.training.evaluation import Evaluation
from arpo_trainer.training.recorder import RunRecorder
from arpo_trainer.training.resume import ResumableTrainer, find_checkpoint, fingerprint
from tests import ready_processes
from tests.arpo_trainer.quick_settings import QUICK
from tests.arpo_trainer.training.test_trainer import config
from tests.arpo_trainer.training.test_trl_options import made, weights

# two steps a rollout: a checkpoint after step 3 lies in the middle of one. One request at a time: its numbers do not
# depend on which others happened to be computed with it
SETTINGS = QUICK | {"env_kwargs": {"level": 3}, "eval_tasks": 1, "save_final_model": False, "threads": 1}
SETTINGS |= {"max_steps": 4, "algorithm": "aepo", "num_iterations": 2, "max_rows": 1, "branch_alpha": 0.6}
SETTINGS |= {"num_generations": 4, "initial_rollouts": 2, "per_device_train_batch_size": 4}
SETTINGS |= {"gradient_accumulation_steps": 1, "max_completion_length": 80, "max_turn_length": 28}
SETTINGS |= {"learning_rate": 1e-3, "weight_decay": 0.1, "logging_steps": 2, "save_strategy": "steps", "save_steps": 1}


@pytest.fixture(scope="module")
def runs(tiny_policy: Path, isolation: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs in a folder: "whole", and "parts": killed in steps 3 and 4, and gone on with each time."""
    folder = tmp_path_factory.mktemp("resume")
    recipe = folder / "run.yaml"  # JSON is YAML
    recipe.write_text(json.dumps(SETTINGS | {"model": str(tiny_policy)}))
    half = checkpoint(folder / "parts", 9, '{"global_step": 9, "ep')
    whole, parts = (["--config", str(recipe), "--set", f"output_dir={folder / name}"] for name in ("whole", "parts"))
    go_on = [*parts, "--set", "resume_from_checkpoint=last"]
    jobs = [(whole, None), (parts, 3), (go_on, 4), (go_on, None)]
    (folder / "jobs.json").write_text(json.dumps(jobs))
    files = [str(folder / name) for name in ("jobs.json", "ends.json")]
    said = folder / "jobs.out"
    ready_processes.run(__name__, *files, folder=Path.cwd(), said=said)
    errors = said.with_suffix(".err").read_text()
    assert json.loads((folder / "ends.json").read_text()) == [0, -9, -9, 0], errors
    assert f"{half} is not complete" in errors
    return folder


CLOCKS = ("seconds", "time", "wait", "model_idle", "tokens_per_second", "timeline", "throughput")


def plain(value: Any) -> Any:
    """Return a nest that is equal to another if all its bits are, without what a clock has measured."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), value.shape, hashlib.sha256(value.detach().numpy().tobytes()).hexdigest()
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items() if not any(clock in str(key) for clock in CLOCKS)}
    return [plain(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def rows(file: Path) -> list[Any]:
    return [plain(json.loads(line)) for line in file.read_text().splitlines()]


@pytest.mark.parametrize("step", [3, 4])
def test_weights_optimizer_and_random_states_are_bit_equal(runs: Path, step: int) -> None:
    """Those of step 3 are from the process that began at a rollout's border, those of 4 from the one amid it."""
    whole, parts = (runs / name / f"checkpoint-{step}" for name in ("whole", "parts"))
    assert plain(load_file(whole / "model.safetensors")) == plain(load_file(parts / "model.safetensors"))
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "rollout_0.pt"):
        states = [torch.load(run / name, weights_only=name != "rng_state.pth") for run in (whole, parts)]
        if name == "rng_state.pth":
            states = [{key: state[key] for key in ("python", "cpu")} for state in states]
        assert plain(states[0]) == plain(states[1])
    assert (states[0]["rollout"] is not None) == (step == 3)


def test_records_are_those_of_the_whole_run_and_written_once(runs: Path) -> None:
    """A row of metrics is the mean of two steps, and both kills fell between two rows."""
    found = {}
    for name in ("traces", "metrics", "eval"):
        whole, found[name] = (rows(runs / run / f"{name}.jsonl") for run in ("whole", "parts"))
        assert whole == found[name]
    assert [tree["meta"]["step"] for tree in found["traces"]] == [1, 3]
    assert [row["step"] for row in found["metrics"]] == [2, 4]
    assert [row["name"] for row in found["eval"]] == ["before", "after"]
    logs = [json.loads((runs / name / "checkpoint-4/trainer_state.json").read_text()) for name in ("whole", "parts")]
    assert plain(logs[0]["log_history"]) == plain(logs[1]["log_history"])
    assert json.loads((runs / "parts/run.json").read_text())["resumed_from"] == str(runs / "parts/checkpoint-3")


def checkpoint(folder: Path, step: int, state: str | None = None) -> Path:
    made = folder / f"checkpoint-{step}"
    made.mkdir(parents=True)
    (made / "trainer_state.json").write_text(state or json.dumps({"global_step": step, "epoch": 0.5}))
    return made


def trainer_for(runs: Path, model: Any, tokenizer: Any, **settings: Any) -> ARPOTrainer:
    of_run = ("env_kwargs", "eval_tasks", "save_final_model", "threads")
    fitting = {name: value for name, value in SETTINGS.items() if name not in of_run}
    args = config(runs / "parts", **{**fitting, "attribution": "soft", **settings})
    return ARPOTrainer(model, ToolEnv("arpo/Arithmetic-v0", level=3), args=args, processing_class=tokenizer)


def test_a_rollout_cannot_go_on_with_other_sizes(runs: Path, tiny_model: Any, tokenizer: Any) -> None:
    trainer = trainer_for(runs, tiny_model, tokenizer, num_generations=2, initial_rollouts=1)
    with pytest.raises(ValueError, match=r"checkpoint-3 .*num_generations: 4 -> 2\. Set them back, or start a new run"):
        trainer.train(runs / "parts" / "checkpoint-3")


def test_other_settings_are_named(runs: Path, tiny_model: Any, tokenizer: Any, caplog: Any) -> None:
    trainer, kept = trainer_for(runs, tiny_model, tokenizer), runs / "parts" / "checkpoint-3"
    trainer.args.model_init_kwargs = {"dtype": "float32"}  # as a run from a file has it
    trainer.check_state(kept, trainer._load_state(kept))
    assert not caplog.text
    trainer.args.seed, trainer.args.algorithm = 7, "grpo"
    trainer.env.budget = dataclasses.replace(trainer.env.budget, calls=1)
    trainer.check_state(kept, trainer._load_state(kept))
    for change in ("seed: 42 -> 7", "algorithm: 'aepo' -> 'grpo'", r"env: \{.*'calls': \d+, .*\} -> \{.*'calls': 1,"):
        assert re.search(change, caplog.text)


def test_the_newest_complete_checkpoint_is_found(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for step in (2, 10, 9):
        checkpoint(tmp_path, step)
    assert find_checkpoint("last", tmp_path) == find_checkpoint(True, tmp_path) == tmp_path / "checkpoint-10"
    assert not caplog.text
    checkpoint(tmp_path, 12, '{"global_')
    (tmp_path / "checkpoint-14").mkdir()
    assert find_checkpoint("last", tmp_path) == tmp_path / "checkpoint-10"
    assert "checkpoint-14 is not complete (it has no trainer_state.json" in caplog.text
    assert find_checkpoint(None, tmp_path) is find_checkpoint(False, tmp_path) is None


def test_a_checkpoint_is_not_complete_while_it_is_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(GRPOTrainer, "_save_checkpoint", killed)
    kept, written = checkpoint(tmp_path, 2), checkpoint(tmp_path, 4)
    trainer: Any = object.__new__(ResumableTrainer)
    trainer.args = SimpleNamespace(output_dir=str(tmp_path), should_save=True)
    trainer.state, trainer.hp_search_backend = SimpleNamespace(global_step=4), None
    with pytest.raises(KeyboardInterrupt):
        trainer._save_checkpoint(None, None)
    assert written.is_dir()
    assert find_checkpoint("last", tmp_path) == kept


def test_a_checkpoint_that_is_not_there_or_half_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no complete checkpoint in .*save_strategy: steps"):
        find_checkpoint("last", tmp_path)
    checkpoint(tmp_path, 2)
    half = checkpoint(tmp_path, 4, "{}")
    wrong = {half: "cannot be read .*", tmp_path / "checkpoint-3": "no such folder", tmp_path: ""}
    for given, reason in wrong.items():
        with pytest.raises(FileNotFoundError, match=rf"{reason}; complete ones: .*checkpoint-2$"):
            find_checkpoint(str(given), tmp_path if reason else "elsewhere")


def test_records_after_the_checkpoint_are_left_out(tmp_path: Path) -> None:
    made = checkpoint(tmp_path, 2)
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"st')
    (tmp_path / "traces.jsonl").write_text('{"meta": {"step": 2}}\n{"meta": {"step": 3}}\n')
    (tmp_path / "eval.jsonl").write_text('{"name": "before", "step": 0}\n{"name": "after", "step": 2}\n')
    recorder = RunRecorder(tmp_path)
    recorder.begin({}, made)
    assert recorder.has_evaluation("after")  # until it is known that the run can go on
    recorder.on_train_begin(None, SimpleNamespace(stateful_callbacks={}), None)
    assert [row["step"] for row in rows(tmp_path / "metrics.jsonl")] == [1, 2]
    assert rows(tmp_path / "traces.jsonl") == [{"meta": {"step": 2}}]
    assert recorder.has_evaluation("before")
    assert not recorder.has_evaluation("after")


@pytest.mark.parametrize("left", ["metrics.jsonl", "traces.jsonl", "eval.jsonl", "run.json", "checkpoint-1"])
@pytest.mark.parametrize("resume", [None, "elsewhere"])
def test_a_run_begins_in_no_folder_of_another(tmp_path: Path, left: str, resume: str | None) -> None:
    """Nor does one that goes on from a checkpoint of another folder; what is there stays as it is."""
    folder = tmp_path / "run"
    made = checkpoint(tmp_path / resume, 2) if resume else None
    if left.startswith("checkpoint"):
        checkpoint(folder, 1)
    else:
        folder.mkdir()
        (folder / left).write_text('{"step": 1, "kind": "evaluation"}\n')
    cure = "add --resume" if "point" in left else "nothing to --resume"
    before = {path: path.read_bytes() for path in folder.rglob("*.json*")}
    recording = RunRecorder(folder).recording({}, made)
    with pytest.raises(FileExistsError, match=rf"run' holds a run \({left}\): .*{cure}"), recording:
        pass
    assert {path: path.read_bytes() for path in folder.rglob("*.json*")} == before


def test_evaluations_around_the_training_are_recorded(tmp_path: Path) -> None:
    """Before it nothing is written, since there may be no run; after it the report shows them, too.

    A run that ends before it has played or evaluated anything has no report.
    """
    folder, one = tmp_path / "run", Evaluation("step 0", 0, 1, *[0.5] * 7, invalid=0)
    for error, status in ((OSError, "failed"), (KeyboardInterrupt, "interrupted")):
        recorder = RunRecorder(folder)
        if error is KeyboardInterrupt:
            recorder.on_evaluation(one)
            assert not (folder / "eval.jsonl").exists()
        with pytest.raises(error), recorder.recording({"name": "mine"}):
            raise error
        assert json.loads((folder / "run.json").read_text())["status"] == status
        assert (folder / "report.html").exists() == (error is KeyboardInterrupt)
    recorder.on_evaluation(dataclasses.replace(one, name="afterwards"))
    assert [row["name"] for row in rows(folder / "eval.jsonl")] == ["step 0", "afterwards"]
    assert "afterwards" in (folder / "report.html").read_text()


def test_half_of_a_surrogate_pair_in_a_result_ends_no_run(tmp_path: Path) -> None:
    tree, shown = RolloutTree([1]), "half \ud83d of a pair"
    tree.add_span(None, "environment", [2], text=shown)
    recorder = RunRecorder(tmp_path)
    with recorder.recording({}):
        recorder.on_rollout([tree])
        recorder.on_evaluation(Evaluation("step 0", 0, 1, *[0.5] * 7, invalid=0, samples=[{"text": shown}]))
    assert [tree["spans"][0]["text"] for tree in rows(tmp_path / "traces.jsonl")] == ["half ? of a pair"]
    assert rows(tmp_path / "eval.jsonl")[0]["samples"] == [{"text": "half ? of a pair"}]


def test_rollouts_are_counted_on(tmp_path: Path) -> None:
    """Of every second rollout the trees are written, also after a resume; what they took is counted on, too."""
    kept: dict[str, Any] = {}
    for number in range(4):
        recorder, state = RunRecorder(tmp_path, trace_every=2), SimpleNamespace(stateful_callbacks=kept)
        recorder.on_train_begin(None, state, None)
        assert recorder.spent.counts["rollouts"] == number
        recorder.on_rollout([])
        assert (tmp_path / "traces.jsonl").exists() == (number % 2 == 0)
        (tmp_path / "traces.jsonl").unlink(missing_ok=True)
        recorder.on_step_end(None, state, None)
        kept = json.loads(json.dumps(state.stateful_callbacks))


def byte_trainer(byte_lm: Path, folder: Path, adapter: bool = False, **settings: Any) -> ARPOTrainer:
    """A trainer on four tasks, two a step: a pass has two steps."""
    values = {"output_dir": str(folder), "max_steps": 4, "max_completion_length": 12, "max_turn_length": 8}
    values |= {"save_strategy": "steps", "save_steps": 1, "max_rows": 1}
    lora = None
    if adapter:
        peft = pytest.importorskip("peft")
        lora = peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    return made(byte_lm, folder, lora, ToolEnv("arpo/Arithmetic-v0", level=1, limit=4), **values | settings)[0]


@pytest.mark.parametrize("adapter", [False, True])
def test_a_later_pass_over_the_tasks_goes_on(byte_lm: Path, tmp_path: Path, adapter: bool) -> None:
    """From the middle of the second pass, whose order is another one; with packed trees, a reference and an adapter."""
    settings: dict[str, Any] = {"packing": True, "beta": 0.1} if adapter else {}
    whole = byte_trainer(byte_lm, tmp_path, adapter, **settings)
    adapters = fingerprint(whole)["adapters"]
    assert adapters.get("default.r") == (4 if adapter else None)
    whole.train()
    again = byte_trainer(byte_lm, tmp_path, adapter, **settings)
    again.train(tmp_path / "checkpoint-3")
    assert again.trees == whole.trees
    assert plain(weights(whole)) == plain(weights(again))
    with pytest.raises(ValueError, match=r"checkpoint-3 has adapters of another shape \(default.r: "):
        byte_trainer(byte_lm, tmp_path, not adapter, **settings).train(tmp_path / "checkpoint-3")
    kept = [plain(trainer.state.log_history[:4]) for trainer in (whole, again)]
    assert kept[0] == kept[1]


def test_a_finished_run_stays_as_it_is_and_goes_on_with_more_steps(byte_lm: Path, tmp_path: Path, caplog: Any) -> None:
    first = byte_trainer(byte_lm, tmp_path, max_steps=1)
    first.train()
    again = byte_trainer(byte_lm, tmp_path, max_steps=1)
    again.train("last")
    assert again.state.global_step == 1
    assert plain(weights(first)) == plain(weights(again))
    more = byte_trainer(byte_lm, tmp_path, max_steps=2)
    more.train("last")
    assert more.state.global_step == 2
    assert "max_steps: 1 -> 2" in caplog.text


def run(arguments: list[str], kill: int | None) -> int:
    """Do `arpo train`, killed in a step, in a fork of this process; return how it ended, a signal as a negative number.

    Importing takes longer than a run of a tiny model, so that it is done once.
    """
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    ordinary = ARPOTrainer._compute_loss

    def killing(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.state.global_step + 1 == kill:
            os.kill(os.getpid(), signal.SIGKILL)
        return ordinary(self, *args, **kwargs)

    ARPOTrainer._compute_loss = killing  # type: ignore[method-assign]
    os._exit(main(["--traceback", "train", *arguments]))


if __name__ == "__main__":
    ends = [run(*job) for job in json.loads(Path(sys.argv[1]).read_text())]
    Path(sys.argv[2]).write_text(json.dumps(ends))
