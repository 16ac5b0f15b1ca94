"""`arpo synth`: what is sampled, what is dropped and why, killed and resumed; its files are read by what trains."""

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from arpo_env.protocols import make_protocol
from arpo_trainer.cli.arpo_command import main
from arpo_trainer.evaluation.episode_store import EpisodeStore, rows_of
from arpo_trainer.sft.trace_data import TraceSettings, read_trace_files
from arpo_trainer.synthesis.sample_checks import CAUSES, CLASSES
from envs_registry import load_source
from tests.arpo_env.chat_server import chat_server, reply
from tests.arpo_trainer.evaluation.made_rows import until_full
from tests.arpo_trainer.synthesis.scripted_teacher import WAYS, Teacher

TASKS = len(WAYS)


def questions(count: int = TASKS) -> dict[str, str]:
    source = load_source("arithmetic", level=1)
    return {task.question: task.answers[0] for task in map(source.task, range(count))}


def command(folder: Path, *more: str) -> list[str]:
    asked = ["synth", "arpo/Arithmetic-v0", "--env-set", "level=1", "--tasks", str(TASKS), "--output", str(folder)]
    return [*asked, "--direct", "1", "--tir", "2", "--max-calls", "2", *more]


def asked(teacher: Any, model: Path, line: list[str], *more: str) -> tuple[int, list[dict[str, Any]]]:
    """Let the command ask this teacher: its exit status, and the requests."""
    with chat_server(teacher) as server:
        given = ["--model", str(model), "--endpoint", server.address, "--endpoint-model", "teacher", *more]
        return main([*line, *given]), server.bodies


@pytest.fixture(scope="module")
def made(served_model: Path, isolation: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("synth") / "whole"
    assert asked(Teacher(questions()), served_model, command(folder))[0] == 0
    return folder


def report(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "report.json").read_text())


def training_rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "sft.jsonl").read_text().splitlines()]


def same_files(one: Path, other: Path, *names: str) -> bool:
    return all(
        (one / name).read_bytes() == (other / name).read_bytes() for name in ("sft.jsonl", "report.json", *names)
    )


def test_every_sample_and_every_question_is_counted_once(made: Path) -> None:
    found = report(made)
    rows = list(rows_of(made / "episodes.jsonl"))
    samples = found["samples"]
    assert samples["played"] == len(rows) == samples["kept"] + sum(samples["dropped"].values())
    assert found["questions"]["all"] == TASKS == sum(found["questions"][name] for name in CLASSES)
    for name, stage in found["stages"].items():
        played = sum(row.env.endswith(f"/{name}") for row in rows)
        assert stage["played"] == played == stage["kept"] + sum(stage["dropped"].values())
    assert set(samples["dropped"]) <= set(CAUSES)


def test_each_way_of_the_teacher_is_found_out_and_what_is_kept_is_read(made: Path) -> None:
    found = report(made)
    dropped = set(found["samples"]["dropped"])
    assert {"too many calls", "repeated call", "last code fails", "no call", "refusal", "wrong answer"} <= dropped
    classes = {name: count for name, count in found["questions"].items() if count and name != "all"}
    assert classes == {"direct": 1, "tir": 6, "hard": 1, "unanswered": 2}
    kept = Counter(row["stage"] for row in training_rows(made))
    assert kept["direct"] == 1
    assert kept["tir"] >= 2
    assert min(kept["verify"], kept["reflect"]) >= 1
    data = read_trace_files([made / "sft.jsonl"], TraceSettings())  # as `arpo sft` does
    assert not data.dropped
    assert len(data.traces) == found["files"]["sft.jsonl"]


def test_killed_and_resumed_it_is_the_unbroken_run(
    made: Path, served_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `EpisodeStore` is tested with processes that are killed in fact
    with monkeypatch.context() as patch:
        patch.setattr(EpisodeStore, "add", until_full(16))  # in the second of three rounds
        assert asked(Teacher(questions()), served_model, command(tmp_path), "--concurrency", "2")[0] == 1
    with (tmp_path / "traces.jsonl").open("ab") as file:
        file.write(b'{"prompt_ids": [1, 2')  # what a kill leaves behind
    assert asked(Teacher(questions()), served_model, ["synth", "--resume", "--output", str(tmp_path)])[0] == 0
    one, two = (sorted(str(row.key) for row in rows_of(folder / "episodes.jsonl")) for folder in (made, tmp_path))
    assert one == two
    assert same_files(made, tmp_path, "hard/Arithmetic-v0.jsonl")


def test_the_shards_are_the_whole(made: Path, served_model: Path, tmp_path: Path, capsys: Any) -> None:
    folder = tmp_path / "whole"  # a name is in dataset_info.json
    for index in range(2):
        assert asked(Teacher(questions()), served_model, command(folder, "--shard", f"{index}/2"))[0] == 0
    shard = folder / "shard-1-of-2"
    facts = json.loads((shard / "run.json").read_text())
    (shard / "run.json").write_text(json.dumps({**facts, "status": "interrupted"}))
    assert main(["eval", "merge", str(folder)]) == 1
    assert "lacks samples, since it is not finished" in capsys.readouterr().err
    assert main(["synth", "--resume", "--output", str(shard)]) == 0  # it goes on as the shard it is
    assert main(["eval", "merge", str(folder)]) == 0
    assert "arpo synth --resume --output" in capsys.readouterr().out
    assert main(["synth", "--resume", "--output", str(folder)]) == 0  # the teacher is gone, and is not asked
    assert same_files(made, folder, "hard/Arithmetic-v0.jsonl", "dataset_info.json")


def test_limits_may_change_without_sampling_again(made: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(made, tmp_path / "copy"))
    rows = (folder / "episodes.jsonl").read_bytes()
    line = ["synth", "--resume", "--output", str(folder), "--format", "alpaca", "--max-calls", "5", "--easy", "0.9"]
    assert main([*line, "--max-failed", "0"]) == 0  # the teacher is gone, and is not asked
    found = report(folder)
    assert (folder / "episodes.jsonl").read_bytes() == rows
    assert "too many calls" not in found["samples"]["dropped"]
    assert found["samples"]["dropped"]["failed calls"]
    data = read_trace_files([folder / "sft.jsonl"], TraceSettings(data_format="alpaca"))
    assert len(data.traces) == found["samples"]["kept"]
    info = json.loads((folder / "dataset_info.json").read_text())["copy"]
    assert (info["formatting"], info["file_name"]) == ("alpaca", "sft.jsonl")


def test_questions_of_evaluation_sets_are_left_out(made: Path, tmp_path: Path) -> None:
    folder, held_out = Path(shutil.copytree(made, tmp_path / "copy")), tmp_path / "held-out.jsonl"
    text = next(iter(questions()))
    held_out.write_text(json.dumps({"question": text.upper(), "answer": "#### 1"}))
    assert main(["synth", "--resume", "--output", str(folder), "--against", f"arpo/GSM8K-v0={held_out}"]) == 0
    found = report(folder)
    assert found["against"] == {"arpo/GSM8K-v0:test": {"same": 1, "similar": 0}}
    assert (found["questions"]["contaminated"], found["samples"]["dropped"]["contaminated"]) == (1, 1)
    assert text not in (folder / "sft.jsonl").read_text()


@pytest.mark.usefixtures("isolation")
def test_a_teacher_of_no_use_is_an_error_that_says_why(served_model: Path, tmp_path: Path, capsys: Any) -> None:
    known = dict(list(questions().items())[:2])
    status, bodies = asked(Teacher(known, "refusing"), served_model, command(tmp_path / "x"), "other", "--tasks", "2")
    assert status == 1
    assert {body["model"] for body in bodies} == {"teacher", "other"}  # both are sampled
    told, found = capsys.readouterr(), report(tmp_path / "x")
    assert "nothing is left to train on: all 12 samples were dropped" in told.err
    assert found["questions"]["unanswered"] == 2  # not hard: nothing is known about them
    assert not (tmp_path / "x" / "sft.jsonl").exists()
    assert not list((tmp_path / "x" / "hard").glob("*"))


def test_what_broke_is_sampled_again(made: Path, served_model: Path, tmp_path: Path, capsys: Any) -> None:
    teacher, broken = Teacher(questions()), list(questions())[1]

    def failing(body: dict[str, Any]) -> tuple[int, Any]:
        return (400, {"error": "no"}) if body["messages"][1]["content"] == broken else teacher(body)

    assert asked(failing, served_model, command(tmp_path))[0] == 1
    found = report(tmp_path)
    assert (found["samples"]["dropped"]["broken"], found["questions"]["broken"]) == (3, 1)
    assert "--resume --retry" in capsys.readouterr().err
    assert asked(teacher, served_model, ["synth", "--resume", "--retry", "--output", str(tmp_path)])[0] == 0
    assert same_files(made, tmp_path)


def test_thoughts_are_not_asked_for_where_no_reward_does(served_model: Path, tmp_path: Path) -> None:
    """And tasks may share a question."""
    source: Any = load_source("bifurcation")
    doors = source.solution(0)  # the same in all tasks, unlike the key

    def say(body: dict[str, Any]) -> tuple[int, Any]:
        shown = [message["content"] for message in body["messages"] if message["role"] == "user"][1:]
        key = shown[-1].partition("key ")[2].split() if shown else []
        return 200, reply(f"<answer>\\boxed{{{key[0]}}}</answer>" if key else f"<go>{doors[len(shown)]}</go>")

    line = ["synth", "arpo/Bifurcation-v0", "--tasks", "12", "--direct", "0", "--tir", "1", "--hints"]
    assert asked(say, served_model, [*line, "--output", str(tmp_path)])[0] == 0
    rows = training_rows(tmp_path)
    assert len({row["id"] for row in rows}) == 12
    assert len({row["conversations"][0]["value"] for row in rows}) < 12
    assert "<think>" not in "".join(row["conversations"][1]["value"] for row in rows)


@pytest.mark.usefixtures("isolation")
def test_an_opening_makes_a_teacher_call_tools(served_model: Path, tmp_path: Path, capsys: Any) -> None:
    known, opening = questions(2), "<think>I compute this.</think><python>"

    def say(body: dict[str, Any]) -> tuple[int, Any]:
        right = known[body["messages"][1]["content"]]
        if body["messages"][-1] == {"role": "assistant", "content": opening}:
            return 200, reply(f"print({right!r})</python>")
        return 200, reply(f"<think>So it is.</think><answer>\\boxed{{{right}}}</answer>")

    line = ["synth", "arpo/Arithmetic-v0", "--env-set", "level=1", "--tasks", "2", "--direct", "1", "--tir", "1"]
    line += ["--easy", "0", "--hints", "--opening", opening, "--output", str(tmp_path)]
    assert asked(say, served_model, line)[0] == 0
    assert asked(say, served_model, line, "--resume", "--opening", "<python>")[0] == 1
    assert "begin with '<think>" in capsys.readouterr().err
    with_tools = [row["conversations"][1]["value"] for row in training_rows(tmp_path) if row["stage"] == "tir"]
    assert len(with_tools) == 2
    assert all(text.startswith(f"{opening}print(") for text in with_tools)


@pytest.mark.usefixtures("isolation")
def test_a_teacher_with_tool_calls_of_its_own(model_folder: Path, tmp_path: Path) -> None:
    known = questions(2)

    def say(body: dict[str, Any]) -> tuple[int, Any]:
        question, *turns = body["messages"][1:]
        right = known[question["content"]]
        if not body.get("tools"):
            return 200, reply("\\boxed{wrong}", reasoning="I guess.")
        if not any(turn["role"] == "tool" for turn in turns):
            function = {"name": "python", "arguments": json.dumps({"code": f"print({right!r})"})}
            call = {"id": "a", "type": "function", "function": function}
            return 200, reply(None, reasoning="I compute.", tool_calls=[call], finish_reason="tool_calls")
        assert turns[-2]["reasoning"] == "I compute."
        return 200, reply(f"\\boxed{{{right}}}", reasoning="So it is.")

    line = ["synth", "arpo/Arithmetic-v0", "--env-set", "level=1", "protocol=native", "--tasks", "2", "--hints"]
    assert asked(say, model_folder, [*line, "--direct", "1", "--tir", "1", "--output", str(tmp_path)])[0] == 0
    data = read_trace_files([tmp_path / "sft.jsonl"], TraceSettings(protocol="native"))
    assert not data.dropped
    assert len(data.traces) == 2
    native: Any = make_protocol("native")
    for trace in data.traces:
        thought, calls = native.read_calls(trace.turns[0].text)  # type: ignore[union-attr]
        assert thought == "<think>I compute.</think>"
        assert calls == [("python", {"code": f"print({known[trace.question]!r})"})]
