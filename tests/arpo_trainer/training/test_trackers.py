"""`report_to`: numbers and trees of a run reach a real tracker without a network, and one that fails ends no run."""

import importlib
import json
import logging
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from transformers.integrations import integration_utils

from arpo_env import ToolEnv
from arpo_trainer import ARPOConfig, ARPOTrainer
from arpo_trainer.run.arguments import configure_sft
from arpo_trainer.training.trackers import TrackerCallback
from arpo_trainer.tree import read_traces
from tests.arpo_trainer.byte_policy import letter_reward
from tests.arpo_trainer.quick_settings import QUICK

STEPS = 2
TRACKERS = ("tensorboard", "wandb", "trackio", "mlflow")


@pytest.fixture(params=TRACKERS)
def tracker(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a tracker that is installed, which needs no network and writes into `tmp_path`."""
    return installed(request.param, tmp_path, monkeypatch)


@pytest.fixture(autouse=True)
def _no_run_is_left() -> Iterator[None]:
    yield
    end_wandb()
    if "mlflow" in sys.modules:
        sys.modules["mlflow"].end_run()


def end_wandb() -> None:
    """Wait until all is written, and let the next run read the variables again."""
    if wandb := sys.modules.get("wandb"):
        wandb.finish()
        wandb.teardown()


def installed(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if not getattr(integration_utils, f"is_{name}_available")():
        pytest.skip(f"{name} is not installed: pip install {name}")
    monkeypatch.chdir(folder)
    places = {"WANDB_DIR": folder, "WANDB_DATA_DIR": folder / "data", "TENSORBOARD_LOGGING_DIR": folder / "board"}
    settings = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "MLFLOW_ALLOW_FILE_STORE": "true"}
    for variable, value in {**places, **settings, "MLFLOW_TRACKING_URI": (folder / "mlruns").as_uri()}.items():
        monkeypatch.setenv(variable, str(value))
    for module in list(sys.modules.values()) if name == "trackio" else ():
        if module.__name__.startswith("trackio") and hasattr(module, "TRACKIO_DIR"):  # read when it was imported
            monkeypatch.setattr(module, "TRACKIO_DIR", folder / "trackio")
    return name


def trainer_of(byte_lm: Path, folder: Path, callbacks: Any = (), **settings: Any) -> ARPOTrainer:
    values = {"output_dir": str(folder / "run"), "use_cpu": True, "max_steps": STEPS, "num_generations": 4}
    values |= {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 1, "run_name": "tracked"}
    values |= {"max_completion_length": 24, "max_turn_length": 16, "num_completions_to_print": 0}
    model = AutoModelForCausalLM.from_pretrained(byte_lm, dtype=torch.float32)
    env, args = ToolEnv("arpo/Arithmetic-v0", level=1), ARPOConfig(**QUICK | values | settings)
    parts = {"processing_class": AutoTokenizer.from_pretrained(byte_lm), "callbacks": list(callbacks)}
    return ARPOTrainer(model, env, letter_reward, args, **parts)


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]


def test_a_run_says_where_it_is_logged(byte_lm: Path, tmp_path: Path, tracker: str, caplog: Any) -> None:
    caplog.set_level(logging.INFO, "arpo_trainer")
    trainer_of(byte_lm, tmp_path, report_to=tracker).train()
    [(title, place)] = json.loads((tmp_path / "run" / "run.json").read_text())["trackers"].items()
    assert f"logging to {title}: {place}" in caplog.messages
    assert place in (tmp_path / "run" / "report.html").read_text()
    assert Path(place.removeprefix("file://").split(",")[0]).exists()
    if tracker == "tensorboard":
        [events] = (tmp_path / "board").glob("events*")
        # in the event's protocol buffer the tag is followed by a float: field 2 of four bytes
        [reward] = struct.unpack("<f", events.read_bytes().rpartition(b"train/reward\x15")[2][:4])
        assert reward == pytest.approx(metrics(tmp_path)[-1]["reward"])


def test_trees_are_tables_with_pictures_in_wandb(byte_lm: Path, tmp_path: Path, monkeypatch: Any) -> None:
    name = installed("wandb", tmp_path, monkeypatch)
    trainer_of(byte_lm, tmp_path, report_to=name, log_completions=True).train()
    end_wandb()
    trees = list(read_traces(tmp_path / "run" / "traces.jsonl"))
    tables = [json.loads(path.read_text()) for path in tmp_path.rglob("media/table/trees_*")]
    assert {(row[1], row[2]) for table in tables for row in table["data"]} == {(t.task["question"], 4) for t in trees}
    # the pictures wait to be sent with an artifact, as those of any table do
    drawn = [path.read_text() for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert sum(text.count('<rect class="') for text in drawn) == sum(len(tree.spans) for tree in trees)
    assert len(list(tmp_path.rglob("media/table/completions_*"))) >= STEPS  # TRL's own


def test_trees_are_traces_in_trackio(byte_lm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = installed("trackio", tmp_path, monkeypatch)
    trainer = trainer_of(byte_lm, tmp_path, report_to=name, log_completions=True)
    trainer.train()
    [tree] = trainer.rollout_batch.scored_trees()
    store = importlib.import_module("trackio.sqlite_storage").SQLiteStorage
    found = store.get_traces("huggingface", "tracked")
    assert len(found) == STEPS
    [spans] = [trace["spans"] for trace in found if trace["metadata"]["question"] == tree.task["question"]]
    parents = [span.parent for span in tree.spans] + [trajectory.leaf for trajectory in tree.trajectories]
    assert [span["parent_id"] for span in spans] == [None if parent is None else str(parent) for parent in parents]
    nodes, ends = spans[: len(tree.spans)], spans[len(tree.spans) :]
    assert [node["output"] for node in nodes] == [span.text for span in tree.spans]
    # the reward function's, not the environment's
    assert [end["metadata"]["reward"] for end in ends] == [trajectory.reward for trajectory in tree.trajectories]


class Breaks(TrainerCallback):  # type: ignore[misc]  # transformers is untyped
    """Lets a tracker fail after the first step."""

    def __init__(self, act: Any) -> None:
        self.act = act

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 1:
            self.act()


def test_a_tracker_that_fails_ends_no_run(byte_lm: Path, tmp_path: Path, tracker: str, caplog: Any) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    def break_it() -> None:
        [callback] = [each for each in trainer.callback_handler.callbacks if type(each) is kind]
        if tracker == "tensorboard":
            callback.tb_writer.add_scalar = fail
        elif tracker == "mlflow":
            callback._ml_flow.end_run()
            callback._ml_flow.set_tracking_uri("file:///proc/nowhere")
        else:
            importlib.import_module(tracker).finish()

    [kind] = integration_utils.get_reporting_integration_callbacks([tracker])
    trainer = trainer_of(byte_lm, tmp_path, [Breaks(break_it)], report_to=tracker, log_completions=True)
    trainer.train()
    assert [row["step"] for row in metrics(tmp_path)] == [1, 2]
    assert all(trajectory.valid for tree in trainer.trees for trajectory in tree.trajectories)
    assert sum("has failed" in message for message in caplog.messages) == 1


@pytest.mark.parametrize("name", TRACKERS)
def test_a_tracker_that_is_not_here_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(integration_utils, f"is_{name}_available", lambda: False)
    for made in (
        lambda: ARPOConfig(str(tmp_path), use_cpu=True, report_to=name),
        lambda: configure_sft({"report_to": name}),
    ):
        with pytest.raises(ValueError, match=f"report_to .*: pip install {name}"):
            made()
    with pytest.raises(ValueError, match=r"must be one of .*; not 'wandbb'; did you mean 'wandb'"):
        ARPOConfig(str(tmp_path), use_cpu=True, report_to="wandbb")


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("https://me:hunter2@mlflow.example:5000", "https://mlflow.example:5000/#/experiments/1/runs/2"),
        ("postgresql://me:hun/ter2@host/runs?sslkey=hunter2", "postgresql://host/runs, run 2"),
        ("file:///data/me@work/mlruns", "file:///data/me@work/mlruns, run 2"),
    ],
)
def test_no_password_gets_into_the_records_of_a_run(uri: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    active = SimpleNamespace(info=SimpleNamespace(experiment_id="1", run_id="2"))
    server = SimpleNamespace(active_run=lambda: active, get_tracking_uri=lambda: uri)
    monkeypatch.setitem(sys.modules, "mlflow", server)
    facts: dict[str, Any] = {}
    callback = object.__new__(integration_utils.MLflowCallback)
    callback._auto_end_run = False
    handler, recorder = SimpleNamespace(callbacks=[callback]), SimpleNamespace(write_facts=facts.update)
    trainer = SimpleNamespace(callback_handler=handler, recorder=recorder)
    args, state = SimpleNamespace(report_to=["mlflow"]), SimpleNamespace(is_world_process_zero=True)
    TrackerCallback(trainer).on_train_begin(args, state, None)
    assert facts == {"trackers": {"MLflow": shown}}
