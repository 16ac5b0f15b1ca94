"""The whole path from one file, `arpo run`: data, supervised training, reinforcement learning, DPO, evaluation.

A pipeline has sections `synth`, `sft`, `train`, `dpo` and `eval`, each with the settings of its command; `base: NAME`
in a section is a recipe of that command. The model of a stage is the output of the stage before it, unless its section
names one; after `synth` the stage `sft` takes its rows. Each stage is a command and a process of its own, and leaves a
stamp with its settings in its folder:

    OUTPUT/synth    OUTPUT/sft    OUTPUT/train    OUTPUT/dpo    OUTPUT/eval        each with stage.json

A stage that is done is skipped, and one that was interrupted is resumed; of an evaluation, what broke is played again.
Where a stage runs, what later stages made before is put aside under another name. Settings that differ from the stamp's
are refused. `rounds`, `after: each` and `--from` are described in docs/how-to/self-critic.md and cold-start.md.

    pipeline = Pipeline.read("arithmetic-cpu", ["train.max_steps=3"])
    pipeline.run(run_command)
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import yaml

from arpo_trainer.algorithms.registry import get_algorithm
from arpo_trainer.costs.compute_speed import PASS, PASS_AND_BACK, ComputeSpeed, Line
from arpo_trainer.costs.estimate import cost_rows
from arpo_trainer.costs.memory import model_shape
from arpo_trainer.inference_tools import read_tools
from arpo_trainer.make_env import make_env
from arpo_trainer.models import resolve_model
from arpo_trainer.report.run_data import read_facts, write_whole
from arpo_trainer.run.dry_run import Placement, plan_run, published_size
from arpo_trainer.run.recipes import read_section, read_settings
from arpo_trainer.run.sft_run import sft_dry_run
from arpo_trainer.training.resume import newer
from arpo_trainer.validation import check_lowest, check_name, check_types
from envs_registry.datasets.hub import HubError
from envs_registry.spec import UnknownEnvError

logger = logging.getLogger(__name__)
STAMP = "stage.json"
STAGES = ("synth", "sft", "train", "dpo", "eval")
ROUND = ("train", "dpo")  # stages that `rounds` repeats
LAUNCH = ("accelerate_config", "num_processes")  # keys of a section that are flags of its command
DPO_TASKS, TRL_SEED = 64, 42  # defaults of `DPOArguments.tasks` and of TRL's `seed`
SPEED = ("with_url", "vllm", "concurrency")  # where models run, and how fast: the commands let these change, too
# tools at inference time: options of `arpo eval`
WITH = ("with", "with_model", "with_url", "with_price", "refine_above")
NUMBERS = ("tasks", "samples", "concurrency")
EVAL = (*NUMBERS, "environments", "algorithm", "model", "output_dir", "settings", "env_settings", "vllm", *WITH)
PAPER_TOKENS = 4096  # tokens of one answer of the papers' evaluation, per call of the model
_PR_SET_PDEATHSIG = 1  # of prctl(2)
Command = Callable[[list[str]], int]
Plan = Callable[[Sequence[str]], Sequence[Any]]  # rows with env, options and tasks, as of a suite
DryRun = Callable[[dict[str, Any], int | None, ComputeSpeed], tuple[list[Line], list[str]]]


@dataclass(frozen=True)
class Stage:
    """One stage of a pipeline."""

    name: str  # synth, sft, train, dpo or eval; with several rounds also train-2 and the like
    settings: dict[str, Any]  # its settings, complete, with model and folder
    flags: tuple[str, ...] = ()  # flags of the launcher

    @property
    def kind(self) -> str:
        """The command: synth, sft, train, dpo or eval."""
        return self.name.partition("-")[0]

    @property
    def folder(self) -> Path:
        """The output folder."""
        return Path(self.settings["output_dir"])

    @property
    def stamp(self) -> dict[str, Any] | None:
        """What the stage left behind, its settings and status; None if it has not begun."""
        return _read(self.folder / STAMP)

    @property
    def status(self) -> str:
        """How far the stage is: "new", "begun" or "done"."""
        return "new" if self.stamp is None else str(self.stamp["status"])

    def differences(self) -> list[str]:
        """Return the settings that differ from those of the stamp, such as "max_steps: 8 -> 3"."""
        if self.kind == "synth" and self.status == "begun":
            return []  # the command takes other limits, and refuses other sampling itself
        before, now = (self.stamp or {}).get("settings", self._plain()), self._plain()
        names = sorted(name for name in {*before, *now}.difference(SPEED) if before.get(name) != now.get(name))
        return [f"{name}: {before.get(name)!r} -> {now.get(name)!r}" for name in names]

    def write_stamp(self, status: str) -> None:
        """Write the stamp."""
        self.folder.mkdir(parents=True, exist_ok=True)
        facts = {"stage": self.name, "status": status, "settings": self._plain()}
        write_whole(self.folder / STAMP, json.dumps(facts, indent=1, ensure_ascii=False))

    def put_aside(self) -> None:
        """Rename the folder, so that the stage begins anew and nothing is lost."""
        if self.folder.exists():
            number = next(n for n in range(1, 10_000) if not self.folder.with_name(f"{self.folder.name}.{n}").exists())
            self.folder.rename(self.folder.with_name(f"{self.folder.name}.{number}"))

    def command(self) -> list[str]:
        """Return the command line of the stage, after `arpo`; an interrupted one is resumed."""
        if self.kind == "eval":
            return self._eval_command()
        # outside of the stage's folder: a trainer may want it empty
        file = self.folder.with_name(f"{self.name}.yaml")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump(self._plain(), sort_keys=False, allow_unicode=True), encoding="utf-8")
        if self.kind == "synth":
            return ["synth", "--config", str(file), "--resume", "--retry"]
        if self.kind == "train" and self.status == "begun" and not newer(self.folder, 0):
            self.put_aside()  # an interrupted run that cannot go on: no other begins in its folder
        return [self.kind, "--config", str(file), "--resume", *self.flags]

    def _eval_command(self) -> list[str]:
        given = self.settings
        # all episodes are played: if the command failed all the same, too many of them broke
        if (_read(self.folder / "run.json") or {}).get("status") == "finished":
            speed = [text for key in ("with_url", "concurrency") if given.get(key)
                     for text in (f"--{key.replace('_', '-')}", str(given[key]))]  # fmt: skip
            return ["eval", "retry", str(self.folder), *speed, *(["--vllm"] if given.get("vllm") else [])]
        names = given.get("environments") or []
        line = ["eval", *words(names), "--model", str(given["model"]), "--output", str(self.folder)]
        flags = {"--tasks": "tasks", "-n": "samples", "--algorithm": "algorithm", "--concurrency": "concurrency"}
        for flag, key in flags.items():
            line += [flag, str(given[key])] if key in given else []
        line += ["--vllm"] if given.get("vllm") else []
        for key in WITH:
            if given.get(key):
                values = words(given[key])
                line += [f"--{key.replace('_', '-')}", *([",".join(values)] if key == "with" else values)]
        for flag, key in (("--set", "settings"), ("--env-set", "env_settings")):
            if given.get(key):
                line += [flag, *(f"{name}={json.dumps(value)}" for name, value in given[key].items())]
        return [*line, *(["--resume"] if (self.folder / "run.json").is_file() else [])]

    def _plain(self) -> dict[str, Any]:
        # through JSON, so that it compares equal to what a stamp holds
        plain: dict[str, Any] = json.loads(json.dumps(self.settings, default=str))
        return plain


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return read_facts(path)
    except (OSError, ValueError):
        return None


def words(value: Any) -> list[str]:
    """Return a setting that is one value or a list as a list of words."""
    return [str(one) for one in value] if isinstance(value, list | tuple) else [str(value)]


class StageError(RuntimeError):
    """Raised when a stage fails; the pipeline can be run again and goes on there."""


@dataclass(frozen=True)
class Pipeline:
    """The stages of a pipeline, in order."""

    stages: tuple[Stage, ...]  # the stages that the file has

    @classmethod
    def read(cls, config: str, overrides: Sequence[str] = (), flags: Sequence[str] = ()) -> Pipeline:
        """Return the pipeline of a recipe or a file.

        Args:
            config: a file, or the name of a recipe of `arpo run`.
            overrides: `stage.name=value` texts with values in YAML, `rounds=N`, or `output_dir=FOLDER`.
            flags: flags of the launcher for the stages that train, in place of those of their sections.

        Raises:
            FileNotFoundError: there is no such file or recipe.
            ValueError: it has no stage, or a section or a setting of it is unknown.
        """
        sections = read_settings(config, overrides, command="run")
        folder = Path(str(sections.pop("output_dir", f"runs/{Path(config).stem}")))
        rounds = sections.pop("rounds", 1)
        for name in sections:
            check_name("a pipeline's sections", name, STAGES)
        if not sections:
            raise ValueError(f"{config}: no stage; write a section synth, sft, train, dpo or eval")
        if type(rounds) is not int or rounds < 1:
            raise ValueError(f"rounds must be a whole number of at least 1, got {rounds!r}")
        if rounds > 1 and not set(ROUND) & set(sections):
            raise ValueError(f"rounds: {rounds} repeats the sections train and dpo, and there is neither")
        each = _evaluates_each(sections)
        repeated = [(kind, number) for number in range(1, rounds + 1) for kind in ROUND]
        made: list[Stage] = []
        for kind, number in [("synth", 0), ("sft", 0), *repeated, ("eval", 0)]:
            if kind in sections:
                name = f"{kind}-{number}" if number and rounds > 1 else kind
                before = made[-1] if made else None
                made.append(_stage(name, sections[kind], folder, before, tuple(flags), number or 1))
        return cls(tuple(_with_evaluations(made, sections["eval"], folder) if each else made))

    def run(self, command: Command, begin: str | None = None) -> Path:
        """Run the stages that are not done, or those from `begin` on, and return the folder of the last one."""
        kept = self.stages
        if begin is not None:
            names = [stage.name for stage in self.stages]
            check_name("--from", begin, names)
            kept = self.stages[: names.index(begin)]
        for stage in kept:  # all are checked before anything runs or is put aside
            if stage.stamp is not None and (differences := stage.differences()):
                raise ValueError(
                    f"{stage.folder} was made with other settings: {'; '.join(differences)}. Redo it and what "
                    f"follows with --from {stage.name}, or give another folder with --set output_dir=FOLDER"
                )
        _put_aside(self.stages[len(kept) :])
        for number, stage in enumerate(self.stages):
            if stage.status == "done":
                logger.info("%s: done already, in %s", stage.name, stage.folder)
                continue
            # what a later stage made came from an earlier output of this one
            _put_aside(later for later in self.stages[number + 1 :] if later.stamp is not None)
            line = stage.command()
            stage.write_stamp("begun")
            logger.info("%s: arpo %s", stage.name, " ".join(line))
            if status := command(line):
                raise StageError(
                    f"stage {stage.name} ended with exit status {status}; run the same command again to go on there"
                )
            stage.write_stamp("done")
        return self.stages[-1].folder


def _put_aside(stages: Iterable[Stage]) -> None:
    for stage in reversed(list(stages)):  # the last first: a kill in between leaves nothing that seems to be done
        stage.put_aside()


def _evaluates_each(sections: dict[str, Any]) -> bool:
    """Return whether the model of each stage is evaluated; the setting that says so is removed from the section."""
    section = sections.get("eval")
    if not isinstance(section, dict) or "after" not in section:
        return False
    sections["eval"] = {name: value for name, value in section.items() if name != "after"}
    check_name("the section eval's after", section["after"], ("last", "each"))
    if section["after"] == "each" and "model" in section:
        raise ValueError(f"after: each evaluates the stages' models: leave out model: {section['model']}")
    return bool(section["after"] == "each")


def _with_evaluations(made: Sequence[Stage], section: dict[str, Any], folder: Path) -> Iterator[Stage]:
    """Yield the stages with an evaluation before the first that trains and after each, in place of one at the end."""
    started = False
    for stage in made:
        if stage.kind == "synth":
            yield stage
        elif stage.kind != "eval":
            if not started and "model" in stage.settings:
                yield _stage("eval-start", {**section, "model": stage.settings["model"]}, folder, None, ())
            started = True
            yield stage
            yield _stage(f"eval-{stage.name}", section, folder, stage, ())


def _stage(
    name: str, section: Any, folder: Path, before: Stage | None, flags: tuple[str, ...], number: int = 1
) -> Stage:  # fmt: skip
    kind = name.partition("-")[0]
    if not isinstance(section, dict):
        raise ValueError(f"the section {kind} must hold settings, as in {{base: NAME}}; got {section!r}")
    settings = read_section(section, kind)
    own = [text for key in LAUNCH if key in settings
           for text in (f"--{key.replace('_', '-')}", str(settings.pop(key)))]  # fmt: skip
    given = section.get("output_dir")  # each round has its own
    settings["output_dir"] = str(folder / name) if given is None else f"{given}{name.removeprefix(kind)}"
    if before is not None and before.kind == "synth":
        if kind == "sft" and "data" not in section:
            settings["data"] = [str(before.folder / "sft.jsonl")]
    elif before is not None and (number > 1 or "model" not in section):
        settings["model"] = str(before.folder / "model")
    if kind == "eval":
        _check_eval(settings)
    elif kind == "dpo":  # later rounds see other tasks, and have no cold start of their own
        tasks, first = settings.get("tasks", DPO_TASKS), settings.get("first_task", 0)
        settings = {"no_pairs": "skip", **settings, "first_task": first + (number - 1) * tasks}
    elif kind == "train" and number > 1:
        settings |= {"seed": settings.get("seed", TRL_SEED) + number - 1, "cold_start_examples": 0}
    return Stage(name, settings, () if kind == "eval" else flags or tuple(own))


def _check_eval(settings: dict[str, Any]) -> None:
    for key in settings:
        check_name("the section eval's settings", key, EVAL)
    if "model" not in settings or not settings.get("environments"):
        raise ValueError("the section eval needs environments, and a model if no stage comes before it")
    if "algorithm" in settings:
        get_algorithm(settings["algorithm"])
    asked = SimpleNamespace(**{**dict.fromkeys(NUMBERS), "vllm": False, **settings})
    check_types(asked, {**dict.fromkeys(NUMBERS, "int | None"), "vllm": "bool"})
    check_lowest(asked, dict.fromkeys(NUMBERS, 1))
    if not read_tools(",".join(words(settings.get("with") or []))) and (given := set(WITH[1:]) & set(settings)):
        raise ValueError(f"the section eval has {', '.join(sorted(given))} and no tools: name them, with: [debugger]")


def run_command(line: list[str]) -> int:
    """Run a command line of `arpo` in a process of its own, which frees its memory at the end; return its status.

    Linux ends that process when this one is killed, so that no stage goes on unseen while it is started again.
    """
    end_with_parent = _end_with_parent if sys.platform == "linux" else None
    program = [sys.executable, "-m", "arpo_trainer.cli", *line]
    return subprocess.run(program, check=False, preexec_fn=end_with_parent).returncode


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


# The dry run. A stage whose model is the output of an earlier one is estimated on the model that the earlier stage
# starts from, which has the same shape.


def pipeline_dry_run(
    pipeline: Pipeline, speed: ComputeSpeed, processes: int | None, plan: Plan, dpo: DryRun
) -> tuple[list[Line], list[str]]:
    """Return a table with a part for each stage, and what this machine lacks."""
    rows: list[Line] = []
    missing: list[str] = []
    model, folders = "", {str(stage.folder / "model") for stage in pipeline.stages}
    made = {str(stage.folder / "sft.jsonl") for stage in pipeline.stages if stage.kind == "synth"}
    for stage in pipeline.stages:
        given = str(stage.settings.get("model") or "")
        model = model if given in folders else given
        settings = {**stage.settings, **({"model": model} if model else {})}
        rows.append((f"STAGE {stage.name}", stage.status, str(stage.folder)))
        lacks: list[str] = []
        if stage.kind == "eval":
            part, lacks = _eval(settings, speed, plan)
        elif stage.kind == "synth":
            part = [("samples, at most", _samples(settings), "of each environment and model")]
        elif stage.kind == "dpo":
            part, lacks = dpo(settings, processes, speed)
        elif stage.kind == "train":
            part, lacks = _train(settings, speed, processes)
        elif any(str(file) in made and not Path(file).is_file() for file in settings.get("data") or ()):
            part = [("ROWS", "not known", "the stage synth makes them")]
        else:
            part, lacks = sft_dry_run(settings, processes, speed)
        rows += part
        missing += [f"{stage.name}: {lack}" for lack in lacks]
    return rows, missing


def _train(settings: dict[str, Any], speed: ComputeSpeed, processes: int | None) -> Any:
    planned = plan_run(settings, processes)
    costs, missing = planned.costs, planned.missing
    # its headings stand between the stages otherwise
    rows = [row for row in (*cost_rows(costs), *Placement(planned).rows()) if row[1]]
    if costs.shape is None:
        return rows, missing
    on_cpu = not torch.cuda.is_available() and costs.layout.processes == 1
    # waiting for tools and for memory takes longer than is counted
    seen = costs.sampled * (1 + costs.passes) + costs.groups * costs.prompts.mean
    operations = costs.shape.active * (PASS_AND_BACK * costs.computed + PASS * seen)
    return [*rows, *speed.rows(operations, costs.layout.processes, on_cpu)], missing


def _samples(settings: Mapping[str, Any]) -> str:
    """Return how many samples a synthesis plays, if no question is answered without tools."""
    direct, tir = int(settings.get("direct", 2)), int(settings.get("tir", 3))
    tasks = settings.get("tasks")
    each = tir + direct * (1 + len(settings.get("hints", ("verify", "reflect"))))
    return f"{int(tasks) * each:,}" if tasks else f"{each} per question"


def _eval(settings: dict[str, Any], speed: ComputeSpeed, plan: Plan) -> Any:
    counted, unknown = 0, []
    for played in plan(words(settings["environments"])):
        tasks = _tasks(played, settings)
        counted += tasks or 0
        unknown += [] if tasks else [played.env]
    samples = int(settings.get("samples", 1))
    answers = counted * samples
    room = int((settings.get("settings") or {}).get("max_completion_length", PAPER_TOKENS))
    left_out = f"; not counted: {', '.join(unknown)}" if unknown else ""
    rows: list[Line] = [("answers", f"{answers:,}" if counted else "not known", f"{samples} per task{left_out}")]
    if not counted:
        return rows, []
    rows.append(("tokens sampled, at most", f"{answers * room:,}", f"{room:,} per answer"))
    if not settings.get("model"):
        return rows, []
    try:
        shape = model_shape(resolve_model(str(settings["model"]), download=False))
    except (OSError, ValueError) as error:
        return rows, [f"configuration of {settings['model']}, so hours are left out ({str(error).splitlines()[0]})"]
    return [*rows, *speed.rows(PASS * shape.active * answers * room, 1, not torch.cuda.is_available())], []


def _tasks(played: Any, settings: dict[str, Any]) -> int | None:
    """Return the number of tasks of an environment; None for a suite, or tasks that are not here."""
    limit = min(filter(None, (settings.get("tasks"), played.tasks)), default=None)
    options = {**played.options, **(settings.get("env_settings") or {})}
    try:
        with contextlib.closing(make_env(played.env, options)) as env:
            size = env.tasks.size
    except UnknownEnvError:
        return None
    except (HubError, OSError, ValueError):  # its tasks are not here
        size = published_size(played.env, options)
    return limit if size is None else min(size, limit or size)
