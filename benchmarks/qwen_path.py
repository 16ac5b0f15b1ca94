"""The papers' path with real models on two cores: does Qwen2.5-Coder-0.5B learn to compute, and do trees help?

    python -m benchmarks.qwen_path [--seeds 4 5] [--folder runs/qwen]      # hours; goes on where it was interrupted
    python -m benchmarks.qwen_path --collect                               # what is there by now

Seed 4 is the recipe `path-gsm8k-qwen-cpu` of `arpo run`. The others train again from its cold start, with other
questions and samples, also beside it in a process of their own (`--seeds 5`). Beside each, GRPO with groups of 4 trains
on the same questions from the same cold start, until it has sampled as many tokens as ARPO and executed as many calls;
the model at either point is evaluated; all its checkpoints stay, 0.2 GB each. Written to
benchmarks/results/real_models.json after each evaluation, and what that file has is not computed again: without the run
folders the cold start is trained once more, on the stored samples of the teacher (remove
benchmarks/results/qwen_samples.jsonl to draw others).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from arpo_env.grading.math_grader import MathGrader
from arpo_env.protocols.protocol import last_boxed
from arpo_trainer.evaluation.episode_store import EvalRun, UnitRow, load_eval_run
from arpo_trainer.evaluation.eval_metrics import interval_data, interval_of
from arpo_trainer.run.arguments import configure
from arpo_trainer.run.pipeline import Pipeline, Stage, run_command
from arpo_trainer.run.train import TrainingRun
from arpo_trainer.training.recorder import RunRecorder, versions
from arpo_trainer.training.resume import newer

ROOT = Path(__file__).resolve().parents[1]
RECIPE = "path-gsm8k-qwen-cpu"
RESULTS = ROOT / "benchmarks" / "results" / "real_models.json"
SAMPLES = ROOT / "benchmarks" / "results" / "qwen_samples.jsonl"
BUDGETS = {"sampled": "tokens", "calls": "calls"}  # what a run has spent, and the name of the model that has, too
STEP = (  # of metrics.jsonl
    *("step", "accuracy", "reward", "completions/mean_length", "completions/clipped_ratio", "frac_reward_zero_std"),
    *("branches", "fork_contrast", "tool_calls", "entropy", "seconds_step"),
    *(f"sampling/importance_sampling_ratio/{name}" for name in ("min", "mean", "max")),  # with vLLM
)
PROSE = "Solve the question step by step. Give the final result in \\boxed{}."  # what the base model is used to
SCORE = ("score", "calls", "outcomes", "tasks_with_tools", "tokens")  # of results.json
RECOVERS = "recovers from an error"
FIRST = 4  # the recipe's seed, which is that of the cold start
MOST_STEPS = 500  # GRPO ends long before, when both budgets are spent


class Budgets(TrainerCallback):  # type: ignore[misc]  # transformers is untyped
    """Ends a training when it has sampled as many tokens and executed as many calls as another run."""

    def __init__(self, recorder: RunRecorder, most: dict[str, int]) -> None:
        self.recorder, self.most = recorder, most

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Compare what all steps have spent with the budgets."""
        spent = self.recorder.spent.as_dict()
        control.should_training_stop |= all(spent[name] >= self.most[name] for name in BUDGETS)


class BudgetedRun(TrainingRun):
    """A training run that ends where another one's budgets are spent."""

    most: dict[str, int]

    def make_trainer(self, recorder: RunRecorder | None = None) -> Any:
        """Return the trainer."""
        trainer = super().make_trainer(recorder)
        assert recorder is not None
        trainer.add_callback(Budgets(recorder, self.most))
        return trainer


def grpo(folder: Path, settings: dict[str, Any], most: dict[str, int]) -> None:
    """Train with GRPO from the same model on the same questions, as far as the budgets of an ARPO run go."""
    plain = {name: value for name, value in settings.items() if not name.startswith("branch_")}
    prompts = plain["prompts_per_rollout"] * plain["num_generations"] // 4  # as many trajectories a step
    plain |= {"algorithm": "grpo", "num_generations": 4, "initial_rollouts": 4, "prompts_per_rollout": prompts}
    plain |= {"output_dir": str(folder), "max_steps": MOST_STEPS, "save_final_model": False}
    plain |= {"save_strategy": "steps", "save_steps": 1, "save_total_limit": None}  # `at_budgets` chooses among them
    plain |= {"resume_from_checkpoint": "last"} if newer(folder, 0) else {}
    run = BudgetedRun(*configure(plain), plain)
    run.most = most
    run.run()


def at_budgets(folder: Path, most: dict[str, int]) -> dict[str, Path]:
    """Return the first checkpoint at which a run has spent each of the budgets, by the names of the models."""
    found: dict[str, Path] = {}
    for checkpoint in newer(folder, 0):
        spent = spent_at(checkpoint)
        for name, word in BUDGETS.items():
            if spent[name] >= most[name]:
                found.setdefault(word, checkpoint)
    return found


def spent_at(checkpoint: Path) -> dict[str, int]:
    """Return the step of a checkpoint, and what the run had spent."""
    state = read(checkpoint / "trainer_state.json")
    spent = state["stateful_callbacks"]["arpo_recorder"]["spent"]
    return {"step": state["global_step"], **{name: spent[name] for name in BUDGETS}}


def evaluate(stage: Stage) -> None:
    """Evaluate a model as the recipe does, and on a quarter as many tasks of MATH500, as far as that was not done."""
    few = {"environments": ["arpo/MATH500-v0"], "tasks": max(1, stage.settings["tasks"] // 4)}
    for one in (stage, with_settings(stage, **few, output_dir=str(on_math500(stage.folder)))):
        if not (one.folder / "results.json").is_file() and run_command(one.command()):
            raise SystemExit(f"the evaluation in {one.folder} failed; call again to go on")


def on_math500(folder: Path) -> Path:
    """Return the folder of the evaluation on MATH500 beside one on GSM8K."""
    return folder.with_name(f"{folder.name}-math500")


def models_of(seed: int) -> dict[str, str]:
    """Return the evaluated models of a seed, each with its folder below the one of all runs."""
    return {
        f"arpo-{seed}": f"arpo-{seed}/eval-train",
        **{f"grpo-{seed}-{name}": f"eval-grpo-{seed}-{name}" for name in BUDGETS.values()},
    }


def stages_of(folder: Path, seed: int, more: list[str]) -> dict[str, Stage]:
    """Return the stages of a seed, by the names of the evaluated models, or their own."""
    own = folder / f"arpo-{seed}"
    given = [f"output_dir={own}", f"sft.seed={FIRST}", f"synth.seed={FIRST}", f"train.seed={seed}", *more]
    stages = {stage.name: stage for stage in Pipeline.read(RECIPE, given).stages}
    if SAMPLES.is_file() and not stages["synth"].folder.exists():
        del stages["synth"]
        stages["sft"] = with_settings(stages["sft"], data=[str(SAMPLES)])
    start = stages["eval-start"].settings
    whole = {**start["settings"], "max_turn_length": start["settings"]["max_completion_length"]}
    at_once = {**start["env_settings"], "tools": [], "prompt": PROSE}
    prose = with_settings(
        stages["eval-start"], output_dir=str(own / "eval-prose"), env_settings=at_once, settings=whole
    )
    stages = {"eval-prose": replace(prose, name="eval-prose"), **stages}
    if seed != FIRST:
        model = str(folder / f"arpo-{FIRST}" / "sft" / "model")
        stages = {"train": with_settings(stages["train"], model=model), "eval-train": stages["eval-train"]}
    return stages


def play_seed(folder: Path, seed: int, more: list[str], seen: Collection[str]) -> Iterator[None]:
    """Train and evaluate what is missing of a seed, except the models that were seen; yields after each evaluation."""
    stages = stages_of(folder, seed, more)
    names = {
        "eval-prose": "prose",
        "eval-start": "start",
        "eval-sft": "sft",
        "train": f"arpo-{seed}",
        "eval-train": f"arpo-{seed}",
    }
    train, last = stages["train"], stages["eval-train"]
    kept = [stage for name, stage in stages.items() if names.get(name) not in seen]
    for number, stage in enumerate(kept, start=1):
        if stage.kind == "eval":
            Pipeline(tuple(kept[:number])).run(run_command)
            evaluate(stage)
            yield
    Pipeline(tuple(kept)).run(run_command)
    if all(f"grpo-{seed}-{name}" in seen for name in BUDGETS.values()):
        return
    run = read(train.folder / "run.json") if train.status == "done" else {}
    spent = run.get("spent") or stored()["spent"][f"arpo-{seed}"]
    control = folder / f"grpo-{seed}"
    if len(at_budgets(control, spent)) < len(BUDGETS):
        asked = folder / f"grpo-{seed}.json"
        asked.write_text(json.dumps({"settings": train.settings, "most": spent}), encoding="utf-8")
        line = [sys.executable, "-m", "benchmarks.qwen_path", "--folder", str(control), "--grpo", str(asked)]
        subprocess.run(line, check=True, cwd=ROOT)  # a process of its own frees its memory at the end
    for name, checkpoint in at_budgets(control, spent).items():
        model = merged(checkpoint, control / f"model-{name}")
        evaluate(with_settings(last, model=str(model), output_dir=str(folder / f"eval-grpo-{seed}-{name}")))
        yield


def merged(checkpoint: Path, model: Path) -> Path:
    """Write the model of a checkpoint with its adapters merged, if it is not there, and return its folder."""
    if not model.exists() and run_command(["export", str(checkpoint), "--output", str(model)]):
        raise SystemExit(f"{model} was not written")
    return model


def with_settings(stage: Stage, **settings: Any) -> Stage:
    """Return a stage with other settings."""
    return replace(stage, settings={**stage.settings, **settings})


def stored() -> dict[str, Any]:
    """Return the results of the path that are stored."""
    found: dict[str, Any] = read(RESULTS)["path"] if RESULTS.is_file() else {}
    return found


def collect(folder: Path, seeds: list[int], found: dict[str, Any]) -> dict[str, Any]:
    """Return what was found with what is there by now: scores, what models were trained on, some whole episodes."""
    first = folder / f"arpo-{FIRST}"
    seeds = sorted({*seeds, *(int(name.split("-")[1]) for name in found.get("evaluations", {}) if "-" in name)})
    found |= {"versions": versions()} | {
        key: found.get(key, {}) for key in ("evaluations", "math500", "spent", "steps", "seconds")
    }
    if (report := first / "synth" / "report.json").is_file():
        samples = read(report)["samples"]
        found["synth"] = {"played": samples["played"], "rows": samples["kept"], "dropped": samples["dropped"]}
        shutil.copyfile(first / "synth" / "sft.jsonl", SAMPLES)
    runs = {"synth": first / "synth", "sft": first / "sft"}
    for seed in seeds:
        runs |= {f"arpo-{seed}": folder / f"arpo-{seed}" / "train", f"grpo-{seed}": folder / f"grpo-{seed}"}
    for name, place in runs.items():
        if taken := seconds_of(place):
            found["seconds"][name] = taken
        if taken and (metrics := place / "metrics.jsonl").is_file():
            rows = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
            shares = group_shares(place / "traces.jsonl")
            found["steps"][name] = [{key: row[key] for key in STEP if key in row} | shares[row["step"]] for row in rows]
            found["seconds"][name] = round(sum(row["seconds_step"] for row in rows), 1)  # of all parts of the run
    for seed in seeds:
        train = folder / f"arpo-{seed}" / "train"
        if (train / "stage.json").is_file() and read(train / "stage.json")["status"] == "done":
            found["spent"][f"arpo-{seed}"] = read(train / "run.json")["spent"]
        if (most := found["spent"].get(f"arpo-{seed}")) and (folder / f"grpo-{seed}").is_dir():
            points = at_budgets(folder / f"grpo-{seed}", most)
            found["spent"] |= {f"grpo-{seed}-{name}": spent_at(point) for name, point in points.items()}
    places = {"prose": first / "eval-prose", "start": first / "eval-start", "sft": first / "eval-sft"}
    places |= {name: folder / place for seed in seeds for name, place in models_of(seed).items()}
    made = {name: place for name, place in places.items() if (place / "results.json").is_file()}
    for name, place in made.items():
        found["evaluations"][name] = scores_of(place)
    for name, place in places.items():
        if (on_math500(place) / "results.json").is_file():
            found["math500"][name] = scores_of(on_math500(place))
    for kind in ("evaluations", "math500"):
        found[kind] = {name: found[kind][name] for name in places if name in found[kind]}
    trained = next((made[name] for name in (f"arpo-{FIRST}", "sft") if name in made), None)
    if trained is not None and "start" in made:
        found["episodes"] = whole_episodes(made["start"], trained)
    if "sft" in made and RECOVERS not in found.setdefault("episodes", {}):
        run = load_eval_run(made["sft"])
        rows = sorted(run.rows, key=lambda row: row.index)
        if row := next((row for row in rows if recovers(run, row)), None):
            found["episodes"][RECOVERS] = shown(run, row)
    return found


def scores_of(folder: Path) -> dict[str, Any]:
    """Return what is stored of an evaluation."""
    (score,) = read(folder / "results.json")["scores"]
    run = load_eval_run(folder)
    said = interval_data(interval_of({row.task: [float(says_it(run, row))] for row in run.rows}))
    right = sorted(int(row.task.rpartition("-")[2]) for row in run.rows if row.episodes[0].components["accuracy"])
    failed = [results for row in run.rows if "Traceback" in (results := results_of(run, row))[0]]
    again = {"code failed": len(failed), "tried again": sum(len(results) > 1 for results in failed)}
    return {**{key: score[key] for key in SCORE}, "said": said, "right": right, **again}


def group_shares(traces: Path) -> dict[int, dict[str, float]]:
    """Return for each step the share of groups whose trajectories are all wrong, and all right."""
    groups: dict[int, list[list[bool]]] = {}
    with traces.open(encoding="utf-8") as file:
        for tree in map(json.loads, file):
            right = [one["components"].get("accuracy") == 1 for one in tree["trajectories"]]
            groups.setdefault(tree["meta"]["step"], []).append(right)
    return {
        step: {
            "all_wrong": sum(not any(one) for one in found) / len(found),
            "all_right": sum(map(all, found)) / len(found),
        }
        for step, found in groups.items()
    }


def seconds_of(folder: Path) -> float | None:
    """Return the wall time that a run recorded, else that between its settings and its stamp; None before its end."""
    if (record := folder / "run.json").is_file():
        facts = read(record)
        return float(facts["seconds"]) if facts["status"] == "finished" else None
    asked, stamp = folder.with_name(f"{folder.name}.yaml"), folder / "stage.json"
    if not (asked.is_file() and stamp.is_file() and read(stamp)["status"] == "done"):
        return None
    return round(stamp.stat().st_mtime - asked.stat().st_mtime, 1)


def whole_episodes(start: Path, trained: Path) -> dict[str, dict[str, Any]]:
    """Return the first episode, in the order of the tasks, of each kind that the page shows."""
    runs = [load_eval_run(folder) for folder in (start, trained)]
    rows = [{row.task: row for row in sorted(run.rows, key=lambda row: row.index)} for run in runs]
    found: dict[str, dict[str, Any]] = {}
    for task, row in rows[1].items():
        before, after = rows[0][task].episodes[0], row.episodes[0]
        right = after.reward == 1
        kinds = {
            "computes instead of guessing": right and after.calls and not before.calls and before.reward != 1,
            RECOVERS: recovers(runs[1], row),
            "fails": not right and after.outcome == "answered",
        }
        for kind in (kind for kind, holds in kinds.items() if holds and kind not in found):
            found[kind] = {**shown(runs[1], row), "before": text_of(runs[0], rows[0][task])}
    return found


def shown(run: EvalRun, row: UnitRow) -> dict[str, Any]:
    """Return what the page shows of an episode."""
    return {"task": row.task, "question": row.question, "answers": row.answers, "text": text_of(run, row)}


def recovers(run: EvalRun, row: UnitRow) -> bool:
    """Return whether the first call failed, the last one did not, and the answer was right."""
    results = results_of(run, row)
    return bool(row.episodes[0].components["accuracy"]) and "Error" in results[0] and "Error" not in results[-1]


def results_of(run: EvalRun, row: UnitRow) -> list[str]:
    """Return what the calls of the first episode of a unit gave; one empty text if there were none."""
    return re.findall(r"<result>(.*?)</result>", text_of(run, row), re.DOTALL) or [""]


def says_it(run: EvalRun, row: UnitRow) -> bool:
    """Return whether the last turn says the answer in any format: in its last box, else as its last number."""
    text = next((span.text for span in reversed(run.tree(row).path(0)) if span.kind == "model"), "")
    boxed = last_boxed(text)
    numbers = re.findall(r"-?\d+(?:\.\d+)?", (boxed or text).replace(",", ""))
    if row.env == "GSM8K":
        return bool(numbers) and float(numbers[-1]) == float(row.answers[0].replace(",", ""))
    said = boxed or (numbers or [""])[-1]
    return bool(said) and asyncio.run(MathGrader().equal(said, row.answers[0], row.question))


def text_of(run: EvalRun, row: UnitRow) -> str:
    """Return what follows the prompt in the first episode of a unit."""
    return "".join(span.text for span in run.tree(row).path(0))


def read(file: Path) -> dict[str, Any]:
    """Return the contents of a JSON file."""
    data: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return data


def main() -> None:
    """Play what is missing, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[4, 5])
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "qwen")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="more settings, to try; not stored")
    parser.add_argument("--collect", action="store_true", help="only write the results of what is there")
    parser.add_argument("--grpo", type=Path, help=argparse.SUPPRESS)  # settings and budgets, of the ARPO run beside it
    given = parser.parse_args()
    if given.grpo:
        grpo(given.folder, **read(given.grpo))
        return
    if given.collect:
        store(collect(given.folder, given.seeds, stored()))
        return
    seen = stored().get("evaluations", {}) if not given.set else {}
    lacking = {seed: not seen.keys() >= models_of(seed).keys() for seed in given.seeds}
    if FIRST in lacking:  # which makes the cold start of all
        lacking[FIRST] = any(lacking.values()) or not seen.keys() >= {"prose", "start", "sft"}
    for seed in (seed for seed in given.seeds if lacking[seed]):
        for _ in play_seed(given.folder, seed, given.set, seen):
            if not given.set:
                store(collect(given.folder, [seed], stored()))


def store(found: dict[str, Any]) -> None:
    """Write the results beside those of `real_models.py`."""
    data = read(RESULTS) if RESULTS.is_file() else {}
    RESULTS.write_text(json.dumps({**data, "path": found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
