"""`report_to`: a run reaches TensorBoard and stand-ins of other trackers, and one that fails ends no run."""

import json
import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers.integrations import integration_utils

from arpo_trainer import ARPOConfig
from arpo_trainer.run.arguments import configure_sft
from arpo_trainer.training.trackers import TrackerCallback
from tests.arpo_trainer.test_tree import small_tree
from tests.arpo_trainer.training.test_trainer import listener
from tests.arpo_trainer.training.test_trl_options import made


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of TensorBoard."""
    if not integration_utils.is_tensorboard_available():
        pytest.skip("TensorBoard is not installed: pip install tensorboardX")
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "board"))
    return tmp_path / "board"


def test_a_run_says_where_it_is_logged(byte_lm: Path, tmp_path: Path, board: Path, caplog: Any) -> None:
    caplog.set_level(logging.INFO, "arpo_trainer")
    trainer, _ = made(byte_lm, tmp_path, report_to="tensorboard", output_dir=str(tmp_path / "run"))
    trainer.train()
    assert json.loads((tmp_path / "run" / "run.json").read_text())["trackers"] == {"TensorBoard": str(board)}
    assert f"logging to TensorBoard: {board}" in caplog.messages
    assert str(board) in (tmp_path / "run" / "report.html").read_text()
    [events] = board.glob("events*")
    assert b"train/reward" in events.read_bytes()


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_trees_are_tables_with_pictures_or_traces(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the last rollout, once, with the rewards that are learned from."""
    tree, logged = small_tree(), list[dict[str, Any]]()
    made: dict[str, Any] = {"Html": str, "Trace": lambda *given: given}
    made["Table"] = lambda columns, data: [dict(zip(columns, row, strict=True)) for row in data]
    monkeypatch.setitem(sys.modules, name, SimpleNamespace(**made, log=logged.append))
    callback = TrackerCallback(SimpleNamespace(rollout_batch=SimpleNamespace(scored_trees=lambda: [tree])))
    args, state = SimpleNamespace(log_completions=True, report_to=[name]), SimpleNamespace(global_step=7)
    callback.on_rollout([tree])
    for logs in ({"eval_reward": 1.0}, {"loss": 0.0}, {"loss": 0.0}):
        callback.on_log(args, state, None, logs)
    [row] = logged
    assert row["train/global_step"] == 7
    if name == "wandb":
        [summary] = row["trees"]
        assert summary["question"] == tree.task["question"]
        assert summary["tree"].count('<rect class="') == len(tree.spans)
        return
    [(_, summary, spans)] = row["trees"]
    assert summary["question"] == tree.task["question"]
    nodes, ends = spans[: len(tree.spans)], spans[len(tree.spans) :]
    assert [(node["id"], node["parent_id"], node["output"]) for node in nodes] == [
        (str(span.index), None if span.parent is None else str(span.parent), span.text) for span in tree.spans
    ]
    leaves = [(str(trajectory.leaf), trajectory.reward) for trajectory in tree.trajectories]
    assert [(end["parent_id"], end["metadata"]["reward"]) for end in ends] == leaves


def test_a_tracker_that_fails_ends_no_run(byte_lm: Path, tmp_path: Path, board: Path, caplog: Any) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    def break_it(args: Any, state: Any, control: Any, **_: Any) -> None:
        for each in trainer.callback_handler.callbacks if state.global_step == 1 else ():
            if isinstance(each, integration_utils.TensorBoardCallback):
                each.tb_writer.add_scalar = fail

    settings = {"log_completions": True, "num_completions_to_print": 0, "max_steps": 2}
    trainer, watching = made(byte_lm, tmp_path, report_to="tensorboard", **settings)
    trainer.add_callback(listener(on_step_begin=break_it))
    trainer.train()
    assert len(watching.logs) == 2 + 1  # and a summary
    assert all(trajectory.valid for tree in trainer.trees for trajectory in tree.trajectories)
    assert sum("has failed" in message for message in caplog.messages) == 1


def test_a_tracker_that_is_not_here_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integration_utils, "is_mlflow_available", lambda: False)
    for configured in (lambda given: ARPOConfig(str(tmp_path), use_cpu=True, **given), configure_sft):
        with pytest.raises(ValueError, match="pip install mlflow"):
            configured({"report_to": "mlflow"})
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
