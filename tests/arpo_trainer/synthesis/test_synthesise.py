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


def at(address: str, model: Path) -> list[str]:
    return ["--model", str(model), "--endpoint", address, "--endpoint-model", "teacher"]


@pytest.fixture(scope="module")
def made(served_model: Path, isolation: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("synth") / "whole"
    with chat_server(Teacher(questions())) as server:
        assert main(command(folder, *at(server.address, served_model))) == 0
    return folder


def report(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "report.json").read_text())


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
    kept = Counter(json.loads(line)["stage"] for line in (made / "sft.jsonl").read_text().splitlines())
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
    with chat_server(Teacher(questions())) as server:
        monkeypatch.setattr(EpisodeStore, "add", until_full(16))  # in the second of three rounds
        assert main(command(tmp_path, *at(server.address, served_model), "--concurrency", "2")) == 1
        monkeypatch.undo()
        with (tmp_path / "traces.jsonl").open("ab") as file:
            file.write(b'{"prompt_ids": [1, 2')  # what a kill leaves behind
        assert main(["synth", "--resume", "--output", str(tmp_path)]) == 0
    one, two = (list(rows_of(folder / "episodes.jsonl")) for folder in (made, tmp_path))
    assert {row.key for row in one} == {row.key for row in two}
    assert set(Counter(row.key for row in two).values()) == {1}
    for name in ("sft.jsonl", "hard/Arithmetic-v0.jsonl", "report.json"):
        assert (made / name).read_bytes() == (tmp_path / name).read_bytes()


def test_the_shards_are_the_whole(made: Path, served_model: Path, tmp_path: Path, capsys: Any) -> None:
    folder = tmp_path / "whole"  # a name is in dataset_info.json
    with chat_server(Teacher(questions())) as server:
        for index in range(2):
            asked = command(folder, *at(server.address, served_model), "--shard", f"{index}/2")
            assert main(asked) == 0
    shard = folder / "shard-1-of-2"
    facts = json.loads((shard / "run.json").read_text())
    (shard / "run.json").write_text(json.dumps({**facts, "status": "interrupted"}))
    assert main(["eval", "merge", str(folder)]) == 1
    assert "lacks samples, since it is not finished" in capsys.readouterr().err
    assert main(["synth", "--resume", "--output", str(shard)]) == 0  # it goes on as the shard it is
    assert len(list(rows_of(shard / "episodes.jsonl"))) < len(list(rows_of(made / "episodes.jsonl")))
    assert main(["eval", "merge", str(folder)]) == 0
    assert "arpo synth --resume --output" in capsys.readouterr().out
    assert main(["synth", "--resume", "--output", str(folder)]) == 0  # the teacher is gone, and is not asked
    for name in ("sft.jsonl", "hard/Arithmetic-v0.jsonl", "report.json", "dataset_info.json"):
        assert (made / name).read_bytes() == (folder / name).read_bytes()


def test_limits_may_change_without_sampling_again(made: Path, tmp_path: Path) -> None:
    folder = copied(made, tmp_path)
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
    folder, held_out = copied(made, tmp_path), tmp_path / "held-out.jsonl"
    text = next(iter(questions()))
    held_out.write_text(json.dumps({"question": text.upper(), "answer": "#### 1"}))
    assert main(["synth", "--resume", "--output", str(folder), "--against", f"arpo/GSM8K-v0={held_out}"]) == 0
    found = report(folder)
    assert found["against"] == {"arpo/GSM8K-v0:test": {"same": 1, "similar": 0}}
    assert (found["questions"]["contaminated"], found["samples"]["dropped"]["contaminated"]) == (1, 1)
    assert text not in (folder / "sft.jsonl").read_text()


def test_a_teacher_of_no_use_is_an_error_that_says_why(
    served_model: Path, tmp_path: Path, isolation: str, capsys: pytest.CaptureFixture[str]
) -> None:
    known = dict(list(questions().items())[:2])
    with chat_server(Teacher(known, dict.fromkeys(known, "refusing"))) as server:
        assert main(command(tmp_path / "x", *at(server.address, served_model), "other", "--tasks", "2")) == 1
    assert {body["model"] for body in server.bodies} == {"teacher", "other"}  # both are sampled
    told, found = capsys.readouterr(), report(tmp_path / "x")
    assert "nothing is left to train on: all 12 samples were dropped" in told.err
    assert "QUESTIONS" in told.out
    assert found["questions"]["unanswered"] == 2  # not hard: nothing is known about them
    assert not (tmp_path / "x" / "sft.jsonl").exists()
    assert not list((tmp_path / "x" / "hard").glob("*"))


def test_what_broke_is_counted_apart_and_sampled_again(
    made: Path, served_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    teacher, broken = Teacher(questions()), list(questions())[1]

    def failing(body: dict[str, Any]) -> tuple[int, Any]:
        return (400, {"error": "no"}) if body["messages"][1]["content"] == broken else teacher(body)

    with chat_server(failing) as server:
        assert main(command(tmp_path, *at(server.address, served_model))) == 1
    found = report(tmp_path)
    assert (found["samples"]["dropped"]["broken"], found["questions"]["broken"]) == (3, 1)
    assert "--resume --retry" in capsys.readouterr().err
    with chat_server(teacher) as server:
        line = ["--endpoint", server.address, "--endpoint-model", "teacher", "--model", str(served_model)]
        assert main(["synth", "--resume", "--retry", "--output", str(tmp_path), *line]) == 0
    assert (tmp_path / "sft.jsonl").read_bytes() == (made / "sft.jsonl").read_bytes()
    assert (tmp_path / "report.json").read_bytes() == (made / "report.json").read_bytes()


def test_without_a_reward_for_the_format_thoughts_are_not_asked_for_and_tasks_may_share_a_question(
    served_model: Path, tmp_path: Path
) -> None:
    source: Any = load_source("bifurcation")
    doors = source.solution(0)  # the same in all tasks, unlike the key

    def say(body: dict[str, Any]) -> tuple[int, Any]:
        shown = [message["content"] for message in body["messages"] if message["role"] == "user"][1:]
        key = shown[-1].partition("key ")[2].split() if shown else []
        return 200, reply(f"<answer>\\boxed{{{key[0]}}}</answer>" if key else f"<go>{doors[len(shown)]}</go>")

    line = ["synth", "arpo/Bifurcation-v0", "--tasks", "12", "--direct", "0", "--tir", "1", "--hints"]
    with chat_server(say) as server:
        assert main([*line, "--output", str(tmp_path), *at(server.address, served_model)]) == 0
    rows = [json.loads(row) for row in (tmp_path / "sft.jsonl").read_text().splitlines()]
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
    with chat_server(say) as server:
        assert main([*line, *at(server.address, served_model)]) == 0
        assert main([*line, *at(server.address, served_model), "--resume", "--opening", "<python>"]) == 1
    assert "begin with '<think>" in capsys.readouterr().err
    rows = [json.loads(row) for row in (tmp_path / "sft.jsonl").read_text().splitlines()]
    with_tools = [row["conversations"][1]["value"] for row in rows if row["stage"] == "tir"]
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
    with chat_server(say) as server:
        asked = [*line, "--direct", "1", "--tir", "1", "--output", str(tmp_path), *at(server.address, model_folder)]
        assert main(asked) == 0
    data = read_trace_files([tmp_path / "sft.jsonl"], TraceSettings(protocol="native"))
    assert not data.dropped
    called = [make_protocol("native").read_calls(trace.turns[0].text) for trace in data.traces]  # type: ignore[union-attr, attr-defined]
    assert called == [
        ("<think>I compute.</think>", [("python", {"code": f"print({known[trace.question]!r})"})])
        for trace in data.traces
    ]
    assert len(called) == 2


def copied(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "copy"))
