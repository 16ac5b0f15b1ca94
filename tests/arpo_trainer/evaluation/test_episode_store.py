"""The stored episodes of an evaluation: appended at once, repaired after any cut, one writer."""

import json
from pathlib import Path

import pytest

from arpo_trainer.evaluation.episode_store import EpisodeStore, UnitKey, load_eval_run
from arpo_trainer.tree import RolloutTree, Trajectory

FACTS = {"kind": "eval", "models": {"b": {}, "a": {}}, "environments": {"X-v0": {}}, "status": "running"}


def tree(text: str = "12", reward: float | None = 1.0, error: str | None = None) -> RolloutTree:
    grown = RolloutTree([1, 2], task={"id": "t", "question": "6 + 6?", "answers": ["12"], "level": "1"})
    first = grown.add_span(None, "model", [3, 4], logprobs=[0, 0], entropies=[0, 0], text="call")
    result = grown.add_span(first.index, "environment", [5], text="r", tool={"name": "python", "status": "ok"})
    leaf = grown.add_span(result.index, "model", [6], logprobs=[0], entropies=[0], text=text)
    grown.trajectories.append(Trajectory(leaf.index, reward=reward, answer=text, error=error, outcome="answered"))
    return grown


def fill(folder: Path, models: str = "ab", tasks: int = 3) -> None:
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps(FACTS))
    with EpisodeStore(folder) as store:
        for number in range(tasks):
            for model in models:
                store.add(UnitKey(model, "X-v0", f"t{number}"), number, tree(f"é{model}{number}"))


def test_what_was_added_is_read_in_canonical_order_with_its_tree(tmp_path: Path) -> None:
    fill(tmp_path / "run")
    run = load_eval_run(tmp_path / "run")
    assert [(row.model, row.task) for row in run.rows] == [(m, f"t{n}") for m in "ba" for n in range(3)]
    for row in run.rows:
        read = run.tree(row)
        assert read.spans[-1].text == row.episodes[0].answer == f"é{row.model}{row.index}"
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
        (folder / "run.json").write_text(json.dumps(FACTS))
        (folder / "episodes.jsonl").write_bytes(rows[:cut])
        (folder / "traces.jsonl").write_bytes(traces[:half])
        assert load_eval_run(folder).attempts == whole[:kept]
        with EpisodeStore(folder) as store:
            assert list(store.rows.values()) == whole[:kept]
            for row in whole[kept:]:
                store.add(row.key, row.index, tree(row.episodes[0].answer or ""))
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
        file.write(tree("a long answer" * 500).to_json().encode() + b"\n")
    with EpisodeStore(tmp_path / "run") as store:
        assert [key.task for key in store.rows] == ["t0"]
        assert store.add(UnitKey("a", "X-v0", "t1"), 1, tree("again")).attempt == 1
    run = load_eval_run(tmp_path / "run")
    assert [(row.task, run.tree(row).spans[-1].text) for row in run.rows] == [("t0", "éa0"), ("t1", "again")]


def test_the_last_attempt_counts_and_what_broke_is_named(tmp_path: Path) -> None:
    fill(tmp_path / "run", "a", 1)
    with EpisodeStore(tmp_path / "run") as store:
        row = store.add(UnitKey("a", "X-v0", "t0"), 0, tree(reward=None, error="SandboxFull: no session"))
        assert row.attempt == 2
        assert row.broken
        assert row.episodes[0].cause == "sandbox"
        with pytest.raises(BlockingIOError, match="another process is writing"):
            EpisodeStore(tmp_path / "run")
    run = load_eval_run(tmp_path / "run")
    assert [row.attempt for row in run.attempts] == [1, 2]
    assert [row.attempt for row in run.rows] == [2]


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
