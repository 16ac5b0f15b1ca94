"""One training run from a settings file: load, perhaps a cold start, evaluate, train, evaluate, report.

arpo train --recipe arithmetic-cpu            # one that comes with the package: `arpo recipes`
arpo train --recipe arithmetic-cpu --dry-run  # what it will cost; see `costs`
arpo train --config my.yaml --set max_steps=3
torchrun --nproc_per_node 2 -m arpo_trainer.cli train --config my.yaml      # two processes; or accelerate launch -m
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import logging
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arpo_trainer.models import check_model_folder, ensure_model
from sandbox.cache import cache_directory

if TYPE_CHECKING:
    from arpo_trainer.config import ARPOConfig

logger = logging.getLogger(__name__)

RECIPES = Path(__file__).parent / "recipes"
DEMO_MODEL = "smollm2-135m-instruct"
OVERLAP = ("refuse", "drop", "allow")


@dataclass
class RunArguments:
    """What a run needs beside `ARPOConfig`.

    Attributes:
        model: a hub id, a folder, or "smollm2-135m-instruct" for the model that needs no hub.
        env: environment id.
        env_kwargs: its options, for training.
        eval_env_kwargs: its options for evaluation, on top of `env_kwargs`.
        eval_tasks: tasks answered before and after training; 0 leaves evaluation out.
        overlap: what becomes of training tasks that are evaluation tasks too: "refuse" to train, "drop" them and those
            that are similar, or "allow" them.
        cold_start_examples: scripted demonstrations shown before training; 0 leaves the cold start out.
        cold_start_env_kwargs: the environment's options for them, on top of `env_kwargs`.
        cold_start_epochs: passes over them.
        cold_start_learning_rate: of the cold start.
        cold_start_tool_share: share of them that calls the tool.
        cold_start_seed: of the cold start; None takes `seed`. Runs that are compared start from the same model with it.
        search_price: US dollars for 1,000 searches, for the report on costs; None is the provider's list price, where
            one is known.
        save_final_model: write the trained model into the output folder.
        threads: CPU threads for PyTorch; 0 takes as many as there are idle cores.
    """

    model: str = DEMO_MODEL
    env: str = "arpo/Arithmetic-v0"
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    eval_env_kwargs: dict[str, Any] = field(default_factory=lambda: {"split": "test"})
    eval_tasks: int = 100
    overlap: str = "refuse"
    cold_start_examples: int = 0
    cold_start_env_kwargs: dict[str, Any] = field(default_factory=dict)
    cold_start_epochs: int = 2
    cold_start_learning_rate: float = 5e-5
    cold_start_tool_share: float = 0.5
    cold_start_seed: int | None = None
    search_price: float | None = None
    save_final_model: bool = True
    threads: int = 0

    def __post_init__(self) -> None:
        for name in ("eval_tasks", "cold_start_examples", "threads"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if self.search_price is not None and self.search_price < 0:
            raise ValueError(f"search_price must not be negative, got {self.search_price}")
        if self.overlap not in OVERLAP:
            raise ValueError(f"overlap must be {', '.join(map(repr, OVERLAP))}; not {self.overlap!r}")


def read_settings(config: str, overrides: list[str]) -> dict[str, Any]:
    """Return the settings of a YAML file, or of a recipe by its name, with `key=value` overrides applied.

    Raises:
        FileNotFoundError: neither a file nor a recipe; names the recipes.
        ValueError: the file is no mapping, is broken (line and column), or an override has no "=".
    """
    import yaml

    path = Path(config) if Path(config).is_file() else RECIPES / f"{config}.yaml"
    if not path.is_file():
        names = sorted(recipe.stem for recipe in RECIPES.glob("*.yaml"))
        raise FileNotFoundError(f"no settings file {config!r}, and no recipe of that name; recipes: {', '.join(names)}")
    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ValueError(f"{path}{where}: {error.problem}") from error
    if not isinstance(settings, dict):
        raise ValueError(f"{path}: expected `name: value` lines")
    for override in overrides:
        key, sign, value = override.partition("=")
        if not sign:
            raise ValueError(f"--set {override!r}: write name=value")
        settings[key.strip()] = yaml.safe_load(value)
    return {name: _number(value) for name, value in settings.items()}


def _number(value: Any) -> Any:
    """Read 1e-5 as the number it is meant to be: YAML 1.1 takes it for text."""
    return float(value) if isinstance(value, str) and re.fullmatch(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+", value) else value


def split_settings(settings: dict[str, Any]) -> tuple[RunArguments, dict[str, Any]]:
    """Divide settings into run arguments and those of `ARPOConfig`.

    Raises:
        ValueError: a name that is neither; names the nearest ones.
    """
    from arpo_trainer.config import ARPOConfig

    ours = {entry.name for entry in dataclasses.fields(RunArguments)}
    theirs = {entry.name for entry in dataclasses.fields(ARPOConfig) if entry.init}
    for name in settings:
        if name not in ours | theirs:
            near = difflib.get_close_matches(name, ours | theirs, n=3) or ["see the recipes for examples"]
            raise ValueError(f"no setting {name!r}. Did you mean: {', '.join(near)}?")
    run = RunArguments(**{name: value for name, value in settings.items() if name in ours})
    return run, {name: value for name, value in settings.items() if name in theirs}


def idle_threads() -> int:
    """Return this process's share of the cores that are idle now, at least 1: threads on one core wait in turn."""
    import psutil

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", 1))  # set by the launcher, if there is one
    return max(1, round(cores * (1 - psutil.cpu_percent(interval=1.0) / 100) / processes))


def train(settings: dict[str, Any], reward_funcs: Any = None) -> Path:
    """Run the whole thing and return the folder with the model and the report.

    Args:
        settings: of `RunArguments` and `ARPOConfig`, by name.
        reward_funcs: TRL reward functions instead of the environment's reward.

    Raises:
        ValueError: settings that cannot work; nothing has been loaded then.
        FileNotFoundError: the model's folder is missing.
    """
    import torch

    run, args = configure(settings)
    torch.set_num_threads(run.threads or idle_threads())
    from arpo_trainer.session import Session

    return Session(run, args, settings, reward_funcs).play()


def configure(settings: dict[str, Any]) -> tuple[RunArguments, ARPOConfig]:
    """Return run arguments and config; nothing is loaded.

    Raises:
        ValueError: settings that cannot work.
        FileNotFoundError: the model's folder is missing.
    """
    import torch

    from arpo_trainer.config import ARPOConfig

    run, values = split_settings(settings)
    if not torch.cuda.is_available():
        values.setdefault("use_cpu", True)
    values.setdefault("report_to", [])
    args = ARPOConfig(**values)
    if run.model != DEMO_MODEL:
        check_model_folder(run.model)
    return run, args


def cold_start_folder(run: RunArguments, model: str, prompt: str, seed: int) -> Path:
    """Return where the cold-started model for exactly these settings is kept."""
    cold = [entry.name for entry in dataclasses.fields(run) if entry.name[:4] == "cold"]
    names = ("env", "env_kwargs", *(name for name in cold if name != "cold_start_seed"))
    facts = {name: getattr(run, name) for name in names} | {"model": model, "prompt": prompt, "seed": seed}
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]
    return cache_directory() / "cold-starts" / digest


def resolve_model(model: str) -> str:
    """Return what transformers can load: the demo model's folder, or the name as it is."""
    return str(ensure_model()) if model == DEMO_MODEL else model
