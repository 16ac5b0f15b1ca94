"""Trackers, which log a run beside its output folder: W&B, trackio, TensorBoard, MLflow and others.

`report_to` names them, and callbacks of transformers log the numbers. Here a tracker that is not installed is refused
before a model is loaded, and `TrackerCallback` adds the rest: where the run is logged, and the rollout trees.
"""

from __future__ import annotations

import importlib
import logging
import re
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.integrations import get_reporting_integration_callbacks, integration_utils

from arpo_trainer.report.html_report import tree_svg
from arpo_trainer.training.devices import planned_processes
from arpo_trainer.tree import RolloutTree
from arpo_trainer.validation import check_name

logger = logging.getLogger(__name__)
TITLES = {"wandb": "W&B", "trackio": "trackio", "tensorboard": "TensorBoard", "mlflow": "MLflow"}  # by package
# a tracker that cannot begin ends the run, which has cost nothing yet; in all later events it may fail
_LATER = {name for name in vars(TrainerCallback) if name.startswith("on_")} - {"on_init_end", "on_train_begin"}


def check_trackers(report_to: Sequence[str]) -> None:
    """Refuse trackers before a model is loaded: unknown ones, and what is not installed except in a dry run.

    Raises:
        ValueError: says what to install.
    """
    for name in report_to:
        check_name("report_to", name, integration_utils.INTEGRATION_TO_CALLBACK)
    if (missing := missing_trackers(report_to)) and not planned_processes():
        raise ValueError(missing[0])


def missing_trackers(report_to: Sequence[str]) -> list[str]:
    """Return what to install for trackers that are not here, as one line if there are any."""
    there = {name: getattr(integration_utils, f"is_{name}_available", lambda: True) for name in report_to}
    missing = [name for name, is_there in there.items() if not is_there()]
    return [f"report_to names what is not installed: pip install {' '.join(missing)}"] if missing else []


class TrackerCallback(TrainerCallback):  # type: ignore[misc]  # transformers is untyped
    """Says where a run is logged, logs its trees with `log_completions`, and lets the run outlive a tracker that fails.

    `ARPOTrainer` has one where `report_to` names a tracker. The main process alone logs.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer, self._failed = trainer, set[str]()
        self._batch: Any = None  # the last rollout, until its trees are logged

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note where the run is logged; the trackers' own callbacks come earlier and have begun."""
        if not state.is_world_process_zero:
            return
        places: dict[str, str] = {}
        for name, kind in zip(args.report_to, get_reporting_integration_callbacks(args.report_to), strict=True):
            for callback in self._trainer.callback_handler.callbacks:
                if isinstance(callback, kind):
                    for event in _LATER:
                        setattr(callback, event, partial(self._try, name, getattr(callback, event)))
                    places |= self._try(name, _place, name, callback, args) or {}
        logger.info("logging to %s", ", ".join(": ".join(filter(None, pair)) for pair in places.items()))
        if self._trainer.recorder:
            self._trainer.recorder.write_facts(trackers=places)

    def on_rollout(self, trees: list[RolloutTree]) -> None:
        """Keep the rollout, which is not scored yet."""
        self._batch = self._trainer.rollout_batch

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Log the trees of the last rollout, when TRL logs its table of completions."""
        if not (args.log_completions and self._batch and "loss" in (logs or ())):
            return
        trees, self._batch = self._batch.scored_trees(), None
        for name in ("wandb", "trackio"):
            if name in args.report_to:
                self._try(name, _log_trees, name, trees, state.global_step)

    def _try(self, name: str, act: Any, *given: Any, **kwargs: Any) -> Any:
        try:
            return act(*given, **kwargs)
        except Exception as error:  # trackers raise many types
            if name not in self._failed:
                told = TITLES.get(name, name), type(error).__name__, error
                logger.warning("%s has failed (%s: %s); training goes on, and its output folder has all numbers", *told)
            self._failed.add(name)
            return None


def _place(name: str, callback: Any, args: Any) -> dict[str, str]:
    """Return the title of a tracker and the address or folder that it logs to, "" where that is not known."""
    title, place = TITLES.get(name, name), ""
    if name == "wandb":
        run = importlib.import_module(name).run
        # asked for the address of an offline run, W&B would warn
        title, place = (f"{title} (offline)", str(Path(run.dir).parent)) if run.offline else (title, run.url or "")
    elif name == "trackio":
        server = importlib.import_module("trackio.context_vars").current_server.get()
        folder = importlib.import_module("trackio.utils").TRACKIO_DIR
        space = callback._space_id and f"https://huggingface.co/spaces/{callback._space_id}"
        place = space or _without_secrets(server or "") or f"{folder}, project {args.project}"
    elif name == "tensorboard":
        place = callback.logging_dir
    elif name == "mlflow":
        mlflow = importlib.import_module(name)
        run, place = mlflow.active_run().info, _without_secrets(mlflow.get_tracking_uri())
        page = f"/#/experiments/{run.experiment_id}/runs/" if place.startswith("http") else ", run "
        place += page + run.run_id
    return {title: place}


def _without_secrets(address: str) -> str:
    """Return an address without login and query, since run.json and the report are shown to others."""
    return re.sub(r"(?<=://)[^/].*@|[?].*", "", address)


def _log_trees(name: str, trees: list[RolloutTree], step: int) -> None:
    """Log trees as a table with pictures (W&B), or as traces, whose spans have parents as those of a tree (trackio)."""
    tracker: Any = importlib.import_module(name)
    if name == "wandb":
        rows = [{**_summary(tree), "tree": tracker.Html(tree_svg(tree))} for tree in trees]
        logged = tracker.Table(columns=list(rows[0]), data=[list(row.values()) for row in rows])
    else:
        asked = [[{"role": "user", "content": tree.prompt}] for tree in trees]
        logged = [tracker.Trace(prompt, _summary(t), _spans(t)) for prompt, t in zip(asked, trees, strict=True)]
    # the step that transformers' callbacks log, too: both trackers count their own
    tracker.log({"trees": logged, "train/global_step": step})


def _summary(tree: RolloutTree) -> dict[str, Any]:
    rewards = [one.reward for one in tree.trajectories if one.reward is not None]
    known = {"group": tree.meta.get("group"), "question": str(tree.task.get("question", ""))}
    return known | {"trajectories": len(tree.trajectories), "reward": statistics.fmean(rewards) if rewards else None}


def _spans(tree: RolloutTree) -> list[dict[str, Any]]:
    """Return the spans of a tree as trackio reads them, and below each leaf one for its trajectory."""
    found: list[dict[str, Any]] = []
    for span in tree.spans:
        tool, more = span.tool or {}, span.decision.as_dict() if span.decision else {}
        entry: dict[str, Any] = {"id": str(span.index), "kind": "tool", "output": span.text}
        entry |= {"name": tool.get("name", span.kind), "status": tool.get("status")}
        entry |= {"duration_ms": 1000 * tool["seconds"]} if "seconds" in tool else {}
        if span.kind == "model":
            more = {"entropy": statistics.fmean(span.entropies), "finish": span.finish}
            entry |= {"kind": "generation", "usage": {"output_tokens": len(span.ids)}}
        found.append(entry | {"parent_id": None if span.parent is None else str(span.parent), "metadata": more})
    for number, one in enumerate(tree.trajectories, start=1):
        name = f"trajectory {number}, {one.origin}: {'no reward' if one.reward is None else f'reward {one.reward:g}'}"
        entry = {"id": name, "parent_id": str(one.leaf), "kind": "span", "name": name, "output": one.answer}
        found.append(entry | {"error": one.error, "metadata": asdict(one)})
    return found
