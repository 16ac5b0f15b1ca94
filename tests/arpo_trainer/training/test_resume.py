"""A run that was killed and goes on from a checkpoint becomes, bit by bit, the run that was never stopped."""

import dataclasses
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOTrainer

from arpo_env import ToolEnv
from arpo_trainer import ARPOConfig, ARPOTrainer
from arpo_trainer.training.evaluation import Evaluation
from arpo_trainer.training.recorder import RunRecorder
from arpo_trainer.training.resume import ResumableTrainer, find_checkpoint, fingerprint
from tests import ready_processes
from tests.arpo_trainer.byte_policy import letter_reward
from tests.arpo_trainer.quick_settings import ON_CPU, QUICK
from tests.arpo_trainer.training.test_trainer import config

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
    half = folder / "parts" / "checkpoint-9"
    half.mkdir(parents=True)
    (half / "trainer_state.json").write_text('{"global_step": 9, "ep')
    common = ["--config", str(recipe), "--set"]
    go_on = ["--set", "resume_from_checkpoint=last"]
    jobs: list[dict[str, Any]] = [
        {"arguments": [*common, f"output_dir={folder / 'whole'}"], "kill": None},
        {"arguments": [*common, f"output_dir={folder / 'parts'}"], "kill": 3},
        {"arguments": [*common, f"output_dir={folder / 'parts'}", *go_on], "kill": 4},
        {"arguments": [*common, f"output_dir={folder / 'parts'}", *go_on], "kill": None},
    ]
    (folder / "jobs.json").write_text(json.dumps(jobs))
    files = [str(folder / name) for name in ("jobs.json", "ends.json")]
    said = folder / "jobs.out"
    ready_processes.run("tests.arpo_trainer.training.resume_runs", *files, folder=Path.cwd(), said=said)
    errors = said.with_suffix(".err").read_text()
    assert json.loads((folder / "ends.json").read_text()) == [0, -9, -9, 0], errors
    assert f"{half} is not complete" in errors
    return folder


def differing(a: Any, b: Any, path: str = "") -> list[str]:
    """Return where two nests of tensors and plain data are not the same."""
    if isinstance(a, torch.Tensor):
        return [] if torch.equal(a, b) else [path]
    if isinstance(a, dict):
        inner = [place for key in a.keys() & b.keys() for place in differing(a[key], b[key], f"{path}/{key}")]
        return inner + [f"{path}/{key}" for key in a.keys() ^ b.keys()]
    if isinstance(a, (list, tuple)):
        inner = [place for i, (x, y) in enumerate(zip(a, b, strict=False)) for place in differing(x, y, f"{path}/{i}")]
        return inner + ([f"{path}: length"] if len(a) != len(b) else [])
    return [] if a == b else [f"{path}: {a} != {b}"]


def timeless(value: Any) -> Any:
    """Return plain data without what a clock has measured."""
    clocks = ("seconds", "time", "wait", "model_idle", "tokens_per_second", "timeline", "throughput")
    if isinstance(value, dict):
        return {k: timeless(v) for k, v in value.items() if not any(clock in k for clock in clocks)}
    return [timeless(inner) for inner in value] if isinstance(value, list) else value


def rows(file: Path) -> list[Any]:
    return [timeless(json.loads(line)) for line in file.read_text().splitlines()]


@pytest.mark.parametrize("step", [3, 4])
def test_weights_optimizer_and_random_states_are_bit_equal(runs: Path, step: int) -> None:
    """Those of step 3 are from the process that began at a rollout's border, those of 4 from the one amid it."""
    whole, parts = (runs / name / f"checkpoint-{step}" for name in ("whole", "parts"))
    assert not differing(load_file(whole / "model.safetensors"), load_file(parts / "model.safetensors"))
    for name in ("optimizer.pt", "scheduler.pt"):
        assert not differing(*(torch.load(run / name, weights_only=True) for run in (whole, parts)))
    states = [torch.load(run / "rng_state.pth", weights_only=False) for run in (whole, parts)]
    assert not differing(states[0]["python"], states[1]["python"])
    assert torch.equal(states[0]["cpu"], states[1]["cpu"])
    kept = [torch.load(run / "rollout_0.pt", weights_only=True) for run in (whole, parts)]
    assert (kept[0]["rollout"] is not None) == (step == 3)
    assert not differing(timeless(kept[0]), timeless(kept[1]))


def test_records_are_those_of_the_whole_run_and_written_once(runs: Path) -> None:
    """A row of metrics is the mean of two steps, and both kills fell between two rows."""
    found = {}
    for name in ("traces", "metrics", "eval"):
        whole, found[name] = (rows(runs / run / f"{name}.jsonl") for run in ("whole", "parts"))
        assert not differing(whole, found[name])
    assert [tree["meta"]["step"] for tree in found["traces"]] == [1, 3]
    assert [row["step"] for row in found["metrics"]] == [2, 4]
    assert [row["name"] for row in found["eval"]] == ["before", "after"]
    logs = [json.loads((runs / name / "checkpoint-4/trainer_state.json").read_text()) for name in ("whole", "parts")]
    assert not differing(*(timeless(log["log_history"]) for log in logs))
    assert json.loads((runs / "parts/run.json").read_text())["resumed_from"] == str(runs / "parts/checkpoint-3")


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
    trainer = trainer_for(runs, tiny_model, tokenizer)
    kept = runs / "parts" / "checkpoint-3"
    trainer.args.model_init_kwargs = {"dtype": "float32"}  # as a run from a file has it
    trainer.check_state(kept, trainer._load_state(kept))
    assert not caplog.text
    trainer.args.seed, trainer.args.algorithm = 7, "grpo"
    trainer.env.budget = dataclasses.replace(trainer.env.budget, calls=1)
    trainer.check_state(kept, trainer._load_state(kept))
    assert "from step 3 with other settings" in caplog.text
    assert "seed: 42 -> 7" in caplog.text
    assert "algorithm: 'aepo' -> 'grpo'" in caplog.text
    assert re.search(r"env: \{.*'calls': \d+, .*\} -> \{.*'calls': 1,", caplog.text)


def checkpoint(folder: Path, step: int, state: str | None = None) -> Path:
    made = folder / f"checkpoint-{step}"
    made.mkdir(parents=True)
    (made / "trainer_state.json").write_text(state or json.dumps({"global_step": step, "epoch": 0.5}))
    return made


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
    trainer = bare_trainer(tmp_path, step=4)
    with pytest.raises(KeyboardInterrupt):
        trainer._save_checkpoint(None, None)
    assert written.is_dir()
    assert find_checkpoint("last", tmp_path) == kept


def bare_trainer(folder: Path, step: int = 0) -> Any:
    """A trainer without a model: what it does with folders needs none."""
    trainer: Any = object.__new__(ResumableTrainer)
    trainer.args = SimpleNamespace(output_dir=str(folder), should_save=True)
    trainer.state, trainer.hp_search_backend = SimpleNamespace(global_step=step), None
    return trainer


def test_a_checkpoint_that_is_not_there_or_half_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no complete checkpoint in .*save_strategy: steps"):
        find_checkpoint("last", tmp_path)
    checkpoint(tmp_path, 2)
    half = checkpoint(tmp_path, 4, "{}")
    with pytest.raises(FileNotFoundError, match=r"cannot be read .* complete ones: .*checkpoint-2$"):
        find_checkpoint(str(half), tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no such folder; complete ones: .*checkpoint-2$"):
        find_checkpoint(str(tmp_path / "checkpoint-3"), tmp_path)
    with pytest.raises(FileNotFoundError, match=r"complete ones: .*checkpoint-2$"):
        find_checkpoint(str(tmp_path), "elsewhere")


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
    cure = "add --resume .in Python resume_from_checkpoint='last'. to go on with it, or "
    cure = cure if "point" in left else "without a checkpoint there is nothing to --resume; "
    before = {path: path.read_bytes() for path in folder.rglob("*.json*")}
    with (
        pytest.raises(FileExistsError, match=rf"run' holds a run \({left}\): {cure}give another folder"),
        RunRecorder(folder).recording({}, made),
    ):
        pass
    assert {path: path.read_bytes() for path in folder.rglob("*.json*")} == before


def test_evaluations_around_the_training_are_recorded(tmp_path: Path) -> None:
    """Before it nothing is written, since there may be no run; after it the report shows them, too."""
    recorder = RunRecorder(tmp_path / "run")
    one = Evaluation("step 0", 0, 1, *[0.5] * 7, invalid=0)
    recorder.on_evaluation(one)
    assert not (tmp_path / "run").exists()
    with pytest.raises(KeyboardInterrupt), recorder.recording({"name": "mine"}):
        raise KeyboardInterrupt
    recorder.on_evaluation(dataclasses.replace(one, name="afterwards"))
    assert [row["name"] for row in rows(tmp_path / "run" / "eval.jsonl")] == ["step 0", "afterwards"]
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "interrupted"
    assert "afterwards" in (tmp_path / "run" / "report.html").read_text()


def test_rollouts_are_counted_on(tmp_path: Path) -> None:
    """Of every second rollout the trees are written, also after a resume; what they took is counted on, too."""
    state = SimpleNamespace(stateful_callbacks={})
    recorder = RunRecorder(tmp_path, trace_every=2)
    recorder.on_train_begin(None, state, None)
    recorder.on_rollout([])
    recorder.on_step_end(None, state, None)
    again = RunRecorder(tmp_path, trace_every=2)
    again.begin({}, checkpoint(tmp_path, 1))
    kept = json.loads(json.dumps(state.stateful_callbacks))
    again.on_train_begin(None, SimpleNamespace(stateful_callbacks=kept), None)
    assert again.spent.counts["rollouts"] == 1
    (tmp_path / "traces.jsonl").unlink(missing_ok=True)
    again.on_rollout([])
    assert not (tmp_path / "traces.jsonl").exists()
    again.on_rollout([])
    assert (tmp_path / "traces.jsonl").exists()


def byte_trainer(byte_lm: Path, folder: Path, adapter: bool = False, **settings: Any) -> ARPOTrainer:
    """A trainer on four tasks, two a step: a pass has two steps."""
    values = {"output_dir": str(folder), "algorithm": "grpo", "num_generations": 4, "per_device_train_batch_size": 8}
    values |= {"gradient_accumulation_steps": 1, "max_steps": 4, "learning_rate": 1e-2, "max_completion_length": 12}
    values |= {"max_turn_length": 8, "save_strategy": "steps", "save_steps": 1, "max_rows": 1}
    lora = None
    if adapter:
        peft = pytest.importorskip("peft")
        lora = peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    model = AutoModelForCausalLM.from_pretrained(byte_lm, dtype=torch.float32)
    env, args = ToolEnv("arpo/Arithmetic-v0", level=1, limit=4), ARPOConfig(**ON_CPU | values | settings)
    parts = {"processing_class": AutoTokenizer.from_pretrained(byte_lm), "peft_config": lora}
    return ARPOTrainer(model, env, letter_reward, args, **parts)


def weights(trainer: ARPOTrainer) -> dict[str, torch.Tensor]:
    return {n: p.detach().clone() for n, p in trainer.accelerator.unwrap_model(trainer.model).named_parameters()}


def test_the_checkpoint_of_the_settings_is_taken(byte_lm: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="resume_from_checkpoint='last': no complete checkpoint"):
        byte_trainer(byte_lm, tmp_path, resume_from_checkpoint="last").train()


@pytest.mark.parametrize("adapter", [False, True])
def test_a_later_pass_over_the_tasks_goes_on(byte_lm: Path, tmp_path: Path, adapter: bool) -> None:
    """From the middle of the second pass, whose order is another one; with packed trees, a reference and an adapter."""
    settings: dict[str, Any] = {"packing": True, "beta": 0.1} if adapter else {}
    whole = byte_trainer(byte_lm, tmp_path, adapter, **settings)
    adapters = fingerprint(whole)["adapters"]
    assert adapters.get("default.r") == (4 if adapter else None)
    assert bool(adapters) == adapter
    whole.train()
    again = byte_trainer(byte_lm, tmp_path, adapter, **settings)
    again.train(tmp_path / "checkpoint-3")
    assert again.trees == whole.trees
    assert not differing(weights(whole), weights(again))
    with pytest.raises(ValueError, match=r"checkpoint-3 has adapters of another shape \(default.r: "):
        byte_trainer(byte_lm, tmp_path, not adapter, **settings).train(tmp_path / "checkpoint-3")
    kept = [timeless(trainer.state.log_history[:4]) for trainer in (whole, again)]
    assert not differing(*kept)


def test_a_finished_run_stays_as_it_is_and_goes_on_with_more_steps(byte_lm: Path, tmp_path: Path, caplog: Any) -> None:
    first = byte_trainer(byte_lm, tmp_path, max_steps=1)
    first.train()
    again = byte_trainer(byte_lm, tmp_path, max_steps=1)
    again.train("last")
    assert again.state.global_step == 1
    assert not differing(weights(first), weights(again))
    more = byte_trainer(byte_lm, tmp_path, max_steps=2)
    more.train("last")
    assert more.state.global_step == 2
    assert "max_steps: 1 -> 2" in caplog.text


def test_later_passes_over_the_tasks_have_their_own_order(tiny_model: Any, tokenizer: Any, tmp_path: Path) -> None:
    trainer = trainer_for(tmp_path, tiny_model, tokenizer, max_steps=40)
    sampler = trainer._get_train_sampler()
    passes = [list(sampler) for _ in range(3)]
    trainer._passes = 2
    assert list(trainer._get_train_sampler()) == passes[2] != passes[0]


def test_groups_of_a_step_are_numbered_on(tiny_model: Any, tokenizer: Any, tmp_path: Path) -> None:
    """Where accumulation takes several rollouts for a step."""
    trainer = trainer_for(tmp_path, tiny_model, tokenizer)
    assert [trainer.number_groups(2), trainer.number_groups(2)] == [0, 2]
    trainer.state.global_step += 1
    assert trainer.number_groups(2) == 0


def test_a_run_that_ends_before_its_first_rollout_has_no_report(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"), pytest.raises(OSError, match="no such model"), RunRecorder(tmp_path).recording({}):
        raise OSError("no such model")
    assert json.loads((tmp_path / "run.json").read_text())["status"] == "failed"
    assert not (tmp_path / "report.html").exists()
    assert not caplog.messages
