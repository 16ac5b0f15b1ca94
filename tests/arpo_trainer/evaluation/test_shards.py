"""`arpo eval --shard` and `arpo eval merge`: the shards together are the whole, and nothing else is joined."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arpo_trainer.cli.arpo_command import main
from arpo_trainer.evaluation.episode_store import EvalRun, load_eval_run
from arpo_trainer.evaluation.eval_shard import EvalShard, merge_shards, read_shard
from tests.arpo_env.chat_server import chat_server, reply

TASKS, SAMPLES = 5, 2
UNITS = 2 * TASKS * SAMPLES


def searches(body: dict[str, Any]) -> tuple[int, Any]:
    """A model that searches in some episodes, and guesses."""
    luck = int(hashlib.sha256((json.dumps(body["messages"]) + str(body["seed"])).encode()).hexdigest(), 16) % 4
    if len(body["messages"]) == 2 and luck < 2:
        return 200, reply("<think>look</think><search>the capital</search>")
    return 200, reply(f"<think>so</think><answer>\\boxed{{{luck}}}</answer>")


@pytest.fixture(scope="module")
def asked(served_model: Path) -> Iterator[list[str]]:
    """The command that all shards share."""
    with chat_server(searches) as server:
        model = ["--model", str(served_model), "--endpoint", server.address, "--endpoint-model", "stub"]
        names = ["arpo/MultiHop-v0", "arpo/Arithmetic-v0"]
        yield ["eval", *names, "--tasks", str(TASKS), "-n", str(SAMPLES), *model]


@pytest.fixture(scope="module")
def shards(asked: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three shards that were played to the end."""
    folder = tmp_path_factory.mktemp("evals")
    for index in range(3):
        assert main([*asked, "--shard", f"{index}/3", "--output", str(folder)]) == 0
    return folder


@pytest.fixture
def copies(shards: Path, tmp_path: Path) -> Path:
    """A copy of the shards that a test may change."""
    return shutil.copytree(shards, tmp_path / "copies")


def played(run: EvalRun) -> list[Any]:
    """What the episodes did, and their tokens; results.json has all the numbers."""
    did = ([(each.answer, each.reward, each.calls) for each in row.episodes] for row in run.rows)
    return [(row.key, one, [span.ids for span in run.tree(row).spans]) for row, one in zip(run.rows, did, strict=True)]


def test_the_shards_are_the_whole(asked: list[str], copies: Path, tmp_path: Path) -> None:
    assert main([*asked, "--output", str(tmp_path / "whole")]) == 0
    assert main(["eval", "merge", str(copies)]) == 0
    whole, joined = load_eval_run(tmp_path / "whole"), load_eval_run(copies)
    assert len(joined.rows) == UNITS
    assert played(joined) == played(whole)
    assert any(entry.calls for row in joined.rows for entry in row.episodes)
    assert (copies / "results.json").read_bytes() == (tmp_path / "whole" / "results.json").read_bytes()
    assert joined.facts["status"] == "finished"
    assert all(joined.facts["usage"][name] == whole.facts["usage"][name] for name in ("episodes", "generated", "calls"))
    assert main(["eval", "--resume", "--output", str(copies)]) == 0  # it is an evaluation like any other
    assert len(load_eval_run(copies).attempts) == UNITS


def test_a_killed_shard_is_named_and_resumed(asked: list[str], copies: Path, caplog: pytest.LogCaptureFixture) -> None:
    killed = copies / "shard-1-of-3"
    rows = (killed / "episodes.jsonl").read_bytes().splitlines(keepends=True)
    (killed / "episodes.jsonl").write_bytes(b"".join(rows[:2]) + rows[2][:30])  # as a kill leaves it
    with pytest.raises(ValueError, match=r"shard 1/3 \(.*shard-1-of-3'\) lacks 5 of 7 units of stub.*--partial"):
        merge_shards([copies])
    part = merge_shards([copies], copies.parent / "part", partial=True)
    assert (part.facts["status"], len(part.rows)) == ("stopped", UNITS - 5)
    assert "lacks 5 of 7 units" in caplog.text
    assert main([*asked, "--shard", "1/3", "--resume", "--output", str(copies)]) == 0
    assert main(["eval", "merge", str(copies)]) == 0
    assert len(load_eval_run(copies).attempts) == UNITS


def test_a_missing_shard_and_one_that_is_there_twice_are_named(copies: Path, tmp_path: Path) -> None:
    shutil.copytree(copies / "shard-0-of-3", tmp_path / "again")
    with pytest.raises(ValueError, match=r"shard 0/3 is there twice: .*shard-0-of-3.* and .*again"):
        merge_shards([copies, tmp_path / "again"], tmp_path / "joined")
    shutil.rmtree(copies / "shard-2-of-3")
    shutil.rmtree(copies / "shard-1-of-3")
    with pytest.raises(ValueError, match="missing shards 1/3, 2/3"):
        merge_shards([copies])
    with pytest.raises(FileNotFoundError, match=r"no shards in .*--shard i/n"):
        merge_shards([tmp_path / "nothing"])
    assert not (copies / "run.json").exists()


def test_shards_of_other_settings_are_refused(asked: list[str], copies: Path) -> None:
    shutil.rmtree(copies / "shard-1-of-3")
    assert main([*asked, "-n", "3", "--shard", "1/3", "--output", str(copies)]) == 0
    with pytest.raises(ValueError, match=r"shard-0-of-3' and .*shard-1-of-3' have other settings: .*samples was 2 and"):
        merge_shards([copies])


def test_shards_of_another_number_and_a_whole_are_refused(asked: list[str], copies: Path, capsys: Any) -> None:
    assert main([*asked, "--shard", "0/4", "--output", str(copies)]) == 1
    assert "is one of 3 shards, and 0/4 one of 4" in capsys.readouterr().err
    assert main([*asked, "--shard", "2/3", "--resume", "--output", str(copies / "shard-0-of-3")]) == 1
    assert "holds an evaluation; give shards another folder" in capsys.readouterr().err


def test_a_merge_that_was_killed_is_done_again(copies: Path) -> None:
    merged = merge_shards([copies])
    before = {name: (copies / name).read_bytes() for name in ("traces.jsonl", "episodes.jsonl", "results.json")}
    with pytest.raises(FileExistsError, match="holds an evaluation"):
        merge_shards([copies])
    (copies / "run.json").unlink()  # killed before it was written
    with pytest.raises(FileExistsError, match=r"if a killed merge left them, delete episodes\.jsonl and traces\.jsonl"):
        merge_shards([copies])
    for name in ("traces.jsonl", "episodes.jsonl"):
        (copies / name).unlink()
    assert merge_shards([copies]).rows == merged.rows
    assert before == {name: (copies / name).read_bytes() for name in before}


def test_a_shard_without_a_unit_is_joined(asked: list[str], tmp_path: Path) -> None:
    for index in range(3):
        assert main([*asked, "--tasks", "1", "-n", "1", "--shard", f"{index}/3", "--output", str(tmp_path)]) == 0
    assert len(merge_shards([tmp_path]).rows) == 2


def test_a_tree_that_is_cut_off_is_not_joined(copies: Path) -> None:
    traces = copies / "shard-1-of-3" / "traces.jsonl"
    traces.write_bytes(traces.read_bytes()[:-40])
    with pytest.raises(ValueError, match=r"is cut off in .*shard-1-of-3/traces\.jsonl"):
        merge_shards([copies])
    assert not (copies / "run.json").exists()


ARRAY = {"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_COUNT": "8", "SLURM_ARRAY_TASK_MIN": "0"}


@pytest.mark.parametrize(
    ("text", "environ", "read"),
    [
        ("0/1", {}, EvalShard(0, 1)),
        ("auto", {**ARRAY, "SLURM_ARRAY_TASK_MAX": "7"}, EvalShard(3, 8)),
        ("auto/16", {**ARRAY, "SLURM_ARRAY_TASK_MAX": "9"}, EvalShard(3, 16)),
        ("auto/4", {"JOB_COMPLETION_INDEX": "2"}, EvalShard(2, 4)),
        ("3", {}, "write i/n with i from 0"),
        ("8/8", {}, "0 to 7.*--array=0-7"),
        ("auto/8", {}, "neither is set"),
        ("auto/8", {**ARRAY, "JOB_COMPLETION_INDEX": "2"}, "both are set"),
        ("auto", {**ARRAY, "SLURM_ARRAY_TASK_MAX": "9"}, "8 tasks from 0 to 9.*auto/8"),
        ("auto/8", {"SLURM_ARRAY_TASK_ID": "x"}, "it is 'x'"),
    ],
)
def test_a_shard_is_read_or_refused_with_the_cure(text: str, environ: dict[str, str], read: EvalShard | str) -> None:
    if isinstance(read, EvalShard):
        assert read_shard(text, environ) == read
    else:
        with pytest.raises(ValueError, match=read):
            read_shard(text, environ)
