"""The stored episodes of an evaluation: appended at once, repaired after any cut, exported, and scored as trees."""

import json
import math
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from arpo_trainer.backends.base import Generation, Request
from arpo_trainer.cli.play_commands import summary_table
from arpo_trainer.evaluation.episode_store import EpisodeStore, UnitKey, load_eval_run
from arpo_trainer.evaluation.eval_metrics import results, values_of
from arpo_trainer.evaluation.log_formats import export_run, exported_sets
from arpo_trainer.rollout.metrics import rollout_metrics
from arpo_trainer.tree import Stopwatch
from benchmarks.laboratory.training_run import root_success
from tests.arpo_trainer import folding_policy
from tests.arpo_trainer.evaluation.made_rows import FACTS, play, tree
from tests.arpo_trainer.text_policy import TextPolicy

RUNNING = {"kind": "eval", "models": {"b": {}, "a": {}}, "environments": {"X-v0": {}}}


def fill(folder: Path, models: str = "ab", tasks: int = 3) -> None:
    for model in models:
        answers = {f"t{number}": [(f"é{model}{number}", 1.0)] for number in range(tasks)}
        play(folder, answers, env="X-v0", model=model, facts=RUNNING)


def test_what_was_added_is_read_in_canonical_order_with_its_tree(tmp_path: Path) -> None:
    fill(tmp_path / "run")
    run = load_eval_run(tmp_path / "run")
    assert [(row.model, row.task) for row in run.rows] == [(m, f"t{n}") for m in "ba" for n in range(3)]
    for row in run.rows:
        read = run.tree(row)
        assert read.trajectories[0].answer == row.episodes[0].answer == f"é{row.model}{row.index}"
        assert read.meta["unit"] == {"env": "X-v0", "model": row.model, "sample": 0, "attempt": 1}
        assert (row.generated, row.episodes[0].turns, row.episodes[0].calls) == (3, 2, {"python": 1})


def test_a_folder_cut_at_any_byte_keeps_every_episode_before_the_cut(tmp_path: Path) -> None:
    """A killed process leaves a prefix of the rows, and of the traces at least what those rows need."""
    fill(tmp_path / "run")
    rows, traces = ((tmp_path / "run" / name).read_bytes() for name in ("episodes.jsonl", "traces.jsonl"))
    whole = load_eval_run(tmp_path / "run").attempts
    ends = [position + 1 for position, byte in enumerate(rows) if byte == ord("\n")]
    for cut in range(0, len(rows) + 1, 23):
        kept = sum(end <= cut for end in ends)
        begun = sum(whole[kept - 1].trace) if kept else 0
        half = min(len(traces), begun + cut % 50)  # of the tree whose row is missing
        folder = tmp_path / "cut"
        folder.mkdir(exist_ok=True)
        (folder / "run.json").write_text(json.dumps(RUNNING))
        (folder / "episodes.jsonl").write_bytes(rows[:cut])
        (folder / "traces.jsonl").write_bytes(traces[:half])
        assert load_eval_run(folder).attempts == whole[:kept]
        with EpisodeStore(folder) as store:
            assert list(store.rows.values()) == whole[:kept]
            for row in whole[kept:]:
                store.add(row.key, row.index, tree(row.task, row.episodes[0].answer, 1.0))
        assert (folder / "episodes.jsonl").read_bytes() == rows
        assert (folder / "traces.jsonl").read_bytes() == traces


def test_lost_trees_stay_lost_when_the_trace_grows_and_the_process_is_killed(tmp_path: Path) -> None:
    """As after a copy of a folder that was being written: its rows are newer than its trace."""
    fill(tmp_path / "run", "a")
    traces = tmp_path / "run" / "traces.jsonl"
    whole = traces.read_bytes()
    traces.write_bytes(whole[: whole.index(b"\n") + 1])
    with EpisodeStore(tmp_path / "run") as store:
        assert [key.task for key in store.rows] == ["t0"]
    with traces.open("ab") as file:  # a tree without its row: killed in between
        file.write(tree("t1", "a long answer" * 500, 1.0).to_json().encode() + b"\n")
    with EpisodeStore(tmp_path / "run") as store:
        assert [key.task for key in store.rows] == ["t0"]
        assert store.add(UnitKey("a", "X-v0", "t1"), 1, tree("t1", "again", 1.0)).attempt == 1
    run = load_eval_run(tmp_path / "run")
    assert [(row.task, run.tree(row).trajectories[0].answer) for row in run.rows] == [("t0", "éa0"), ("t1", "again")]


def test_the_last_attempt_counts_and_what_broke_is_named(tmp_path: Path) -> None:
    fill(tmp_path / "run", "a", 1)
    with EpisodeStore(tmp_path / "run") as store:
        row = store.add(UnitKey("a", "X-v0", "t0"), 0, tree("t0", "12", None))
        assert (row.attempt, row.broken, row.episodes[0].cause) == (2, True, "judge")
        with pytest.raises(BlockingIOError, match="another process is writing"):
            EpisodeStore(tmp_path / "run")
    assert [row.attempt for row in load_eval_run(tmp_path / "run").rows] == [2]


def test_bad_files_name_the_line(tmp_path: Path) -> None:
    fill(tmp_path / "run")
    path = tmp_path / "run" / "episodes.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], b'{"task": 3}\n', *lines[1:]]))
    with pytest.raises(ValueError, match=r"episodes.jsonl, line 2: not an episode"):
        EpisodeStore(tmp_path / "run")
    assert len(path.read_bytes().splitlines()) == len(lines) + 1
    (tmp_path / "run" / "run.json").write_text('{"kind": "rollout"}')
    with pytest.raises(FileNotFoundError, match="holds no evaluation, but a rollout"):
        load_eval_run(tmp_path / "run")
    with pytest.raises(FileNotFoundError, match="no evaluation in"):
        load_eval_run(tmp_path)


MODEL = "org/model"
ABOUT = {
    **FACTS,
    "started": "2026-11-22T10:00:00+00:00",
    "models": {MODEL: {}},
    "environments": {**FACTS["environments"], "HotpotQA": {"id": "arpo/HotpotQA-v0", "metric": "em"}},
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    answers: dict[str, list[tuple[str | None, float | None]]] = {
        "t0": [("12", 1.0), ("13", 0.0)],
        "t1": [("\\frac{24}{2} \ud83d", 1.0), (None, 0.0)],  # half of a surrogate pair
        "t2": [("12", None), ("12", 1.0)],
    }
    play(tmp_path / "run", answers, model=MODEL, facts=ABOUT)
    return play(tmp_path / "run", {"t0": [("12", 1.0)]}, env="HotpotQA", model=MODEL, facts=ABOUT)


def exported(run: Path, form: str) -> dict[str, Any]:
    files = export_run(load_eval_run(run), form, run.parent / form)
    texts = {str(path.relative_to(run.parent / form)): path.read_text(encoding="utf-8") for path in files}
    again = export_run(load_eval_run(run), form, run.parent / "again")
    assert [path.read_text(encoding="utf-8") for path in again] == list(texts.values())
    return {
        name: [json.loads(line) for line in text.splitlines()] if name.endswith("jsonl") else json.loads(text)
        for name, text in texts.items()
    }


def test_the_papers_files(run: Path) -> None:
    files = exported(run, "papers")
    assert list(files) == [
        "org__model/gsm8k/gsm8k_output_1.json",
        "org__model/gsm8k/gsm8k_output_2.json",
        "org__model/hotpotqa/hotpotqa_output_1.json",
    ]
    first, second = (files[f"org__model/gsm8k/gsm8k_output_{turn}.json"] for turn in (1, 2))
    assert [item["input"] for item in first] == ["What is t0?", "What is t1?"]  # the one that broke is left out
    assert [item["prediction"] for item in second] == ["13", "", "12"]
    assert {"instruction", "search_query_history"} <= set(first[0])
    assert first[0]["answer"] == "12"
    assert first[0]["output"] == "".join(first[0]["logs"])


def test_the_files_of_lm_eval(run: Path) -> None:
    files = exported(run, "lm-eval")
    about = files["org__model/results_2026-11-22T10-00-00+00-00.json"]
    assert about["results"]["GSM8K"]["accuracy,none"] == pytest.approx(3 / 5)
    assert about["results"]["GSM8K"]["accuracy_stderr,none"] > 0
    assert about["results"]["HotpotQA"]["em_stderr,none"] == "N/A"
    assert set(about["configs"]) == set(about["n-samples"]) == {"GSM8K", "HotpotQA"}
    lines = files["org__model/samples_GSM8K_2026-11-22T10-00-00+00-00.jsonl"]
    assert [(line["doc"]["id"], line["accuracy"]) for line in lines] == [("t0", 0.5), ("t1", 0.5), ("t2", 1.0)]
    assert [len(line["resps"][0]) for line in lines] == [2, 2, 1]


def test_inspects_logs(run: Path) -> None:
    files = exported(run, "inspect")
    log = files["org__model/GSM8K.json"]
    assert Counter("error" in sample for sample in log["samples"]) == {False: 5, True: 1}
    assert [(sample["id"], sample["epoch"]) for sample in log["samples"]] == [
        (f"t{t}", e) for t in range(3) for e in (1, 2)
    ]
    assert [message["role"] for message in log["samples"][0]["messages"]] == ["user", "assistant", "tool", "assistant"]
    [score] = log["results"]["scores"]
    assert score["metrics"]["accuracy"]["value"] == pytest.approx(3 / 5)
    assert (score["scored_samples"], score["unscored_samples"]) == (5, 1)


def test_inspect_reads_its_logs(run: Path) -> None:
    log = pytest.importorskip("inspect_ai.log", reason="inspect-ai is not installed")
    for path in export_run(load_eval_run(run), "inspect", run.parent / "out"):
        assert log.read_eval_log(str(path)).samples[0].scores["arpo"].value == 1.0


CALL = "<think>s</think><search>x</search>"


@dataclass
class Coin(TextPolicy):
    """Calls or answers by chance, and is less sure after a call, which forks there."""

    tokenizer: Any
    gold: str
    time: Stopwatch = field(default_factory=Stopwatch)

    async def generate(self, request: Request, on_window: Any = None) -> Generation:
        called = "<result>\n" in self.tokenizer.decode(request.ids)
        rng = random.Random(request.seed)
        answer = self.gold if rng.random() < (0.8 if called else 0.2) else "unknown"
        text = f"<think>d</think><answer>\\boxed{{{answer}}}</answer>" if called or rng.random() < 0.5 else CALL
        return self.said(request, text, 2.0 if called else 0.1, on_window)


@pytest.mark.parametrize(("algorithm", "tasks", "planned"), [("arpo", 200, 4), ("aepo", 80, 1)])
def test_every_number_of_a_tree_is_the_policy_s(
    algorithm: str, tasks: int, planned: int, tokenizer: Any, tmp_path: Path
) -> None:
    env, [task], _ = folding_policy.multihop(0, count=1, search_results=1)
    chosen = {"algorithm": algorithm, "num_generations": 8, "initial_rollouts": 4}
    trees = folding_policy.play(Coin(tokenizer, task.answers[0]), env, [task] * tasks, 4000, **chosen)
    with EpisodeStore(tmp_path) as store:
        for number, tree in enumerate(trees):
            store.add(UnitKey("a", "MultiHop", f"t{number}", 0), number, tree)
    (tmp_path / "run.json").write_text(json.dumps({"kind": "eval"}))
    run = load_eval_run(tmp_path)
    [found] = results(run.rows, run.facts)["scores"]
    samples = tasks * planned
    near = 3 * 0.5 / math.sqrt(samples)
    exported = [each.entry.reward for one in exported_sets(run, "a") for each in one.episodes()]
    by_task = [value for each in values_of(run.rows).values() for value in each]
    metrics = rollout_metrics(trees)
    shares = {
        "results.json": found["score"]["mean"],
        "pages": sum(by_task) / samples,
        "exports": sum(each or 0.0 for each in exported) / samples,
        "training": metrics["accuracy"],
        "training's calls": metrics["tool_calls"],
        "laboratory": root_success(trees)[0],
        "arpo rollout": float(dict(summary_table(trees))["ACCURACY"].split()[0]),
    }
    assert shares == {name: pytest.approx(0.5, abs=near) for name in shares}
    assert metrics["reward"] == pytest.approx(metrics["accuracy"])
    pairs = {"pass@2": 0.75, "pass^2": 0.25} if planned > 1 else {}
    assert found["pass"] == pytest.approx(found["pass"] | pairs, abs=1.5 * near)
    # what forked is there and counted apart
    assert (found["score"]["samples"], found["episodes"], len(exported)) == (samples, 8 * tasks, samples)
    leaves = [each.components["accuracy"] for tree in trees for each in tree.trajectories]
    assert metrics["accuracy_leaves"] == pytest.approx(sum(leaves) / len(leaves))
