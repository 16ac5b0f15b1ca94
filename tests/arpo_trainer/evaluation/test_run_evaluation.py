"""`arpo eval`: killed and resumed, repeated from a recording, broken and retried, as users run it."""

import hashlib
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from arpo_trainer.cli.arpo_command import main
from arpo_trainer.evaluation.episode_store import load_eval_run, rows_of
from arpo_trainer.evaluation.eval_session import warn_of_new_weights
from arpo_trainer.evaluation.eval_settings import EvalModel
from benchmarks.ray_world import without_times
from tests import ready_processes
from tests.arpo_env.chat_server import chat_server, reply
from tests.waiting import wait_for

pytestmark = pytest.mark.usefixtures("isolation")
TASKS, SAMPLES = 12, 2
BRIEF = ["eval", "arpo/Arithmetic-v0", "--tasks", "1", "--model", "M", "--output", "X"]


def play(folder: Path, *more: str) -> list[str]:
    plan = ["--env-set", "level=3", "--tasks", str(TASKS), "--output", str(folder)]
    return ["eval", "arpo/Arithmetic-v0", *plan, *more]


def guesses(body: dict[str, Any]) -> tuple[int, Any]:
    """A model that computes some tasks with the tool, guesses others, and forgets to answer the rest."""
    said = json.dumps(body["messages"]) + str(body["seed"])
    luck = int(hashlib.sha256(said.encode()).hexdigest(), 16) % 4
    if len(body["messages"]) == 2 and luck < 3:
        return 200, reply("<think>compute</think><python>print(6 * 7)</python>")
    text = "<think>so</think>" if luck == 3 else f"<think>so</think><answer>\\boxed{{{luck}}}</answer>"
    return 200, reply(text)


def at(address: str, served_model: Path) -> list[str]:
    return ["--model", str(served_model), "--endpoint", address, "--endpoint-model", "stub"]


def kill_after(command: list[str], rows: int, episodes: Path) -> None:
    """Start a command, and kill it when that many rows are there."""
    said = episodes.parent.with_suffix(".out")
    process = ready_processes.start("arpo_trainer.cli", *command, folder=Path.cwd(), said=said)
    there = lambda: episodes.is_file() and episodes.read_bytes().count(b"\n") >= rows  # noqa: E731
    wait_for(lambda: there() or not process.is_alive(), 120)
    assert process.is_alive(), ready_processes.errors_of(said)
    process.kill()
    process.join()


def test_killed_twice_and_resumed_it_is_the_unbroken_run(served_model: Path, tmp_path: Path, capsys: Any) -> None:
    with chat_server(guesses, seconds=0.02) as server:
        asked = ["-n", str(SAMPLES), "--concurrency", "4", *at(server.address, served_model)]
        assert main(play(tmp_path / "whole", *asked)) == 0
        broken, episodes = tmp_path / "broken", tmp_path / "broken" / "episodes.jsonl"
        for rows in (3, 16):
            kill_after(play(broken, *asked, "--resume"), rows, episodes)
        assert load_eval_run(broken).facts["status"] == "stopped"
        assert main(["eval", "--resume", "--output", str(broken), *at(server.address, served_model)]) == 0
    keys = Counter(row.key for row in rows_of(episodes))
    assert len(keys) == TASKS * SAMPLES
    assert set(keys.values()) == {1}
    assert (broken / "results.json").read_bytes() == (tmp_path / "whole" / "results.json").read_bytes()
    one, two = (load_eval_run(tmp_path / name) for name in ("whole", "broken"))
    for left, right in zip(one.rows, two.rows, strict=True):
        assert [(s.ids, s.text) for s in one.tree(left).spans] == [(s.ids, s.text) for s in two.tree(right).spans]
    assert two.facts["sittings"] == 3
    assert "accuracy" in capsys.readouterr().out
    assert not any("repetition_penalty" in body for body in server.bodies)  # OpenAI's endpoint refuses it


def test_a_replay_needs_no_weights_and_writes_the_same_bytes(tiny_policy: Path, tmp_path: Path) -> None:
    short = ["--set", "max_turn_length=48", "max_completion_length=160", "-n", "2", "--tasks", "4"]
    asked = [*short, "--cache", str(tmp_path / "record.sqlite")]
    model = tmp_path / "tiny"
    model.symlink_to(tiny_policy)
    assert main(play(tmp_path / "one", *asked, "--model", str(model))) == 0
    model.unlink()
    model.mkdir()
    for file in tiny_policy.iterdir():
        if "safetensors" not in file.name:
            (model / file.name).symlink_to(file)
    replay = [*asked, "--cache-mode", "replay", "--model", str(model)]
    assert main(play(tmp_path / "two", *replay)) == 0
    assert (tmp_path / "one" / "results.json").read_bytes() == (tmp_path / "two" / "results.json").read_bytes()
    one, two = (load_eval_run(tmp_path / name) for name in ("one", "two"))
    assert [without_times(one.tree(row)) for row in one.rows] == [without_times(two.tree(row)) for row in two.rows]
    assert main(play(tmp_path / "three", *replay, "--seed", "1")) == 1  # all broke: they were not recorded


def test_what_broke_is_counted_apart_and_retried(served_model: Path, tmp_path: Path, caplog: Any) -> None:
    down = [True]

    def sometimes(body: dict[str, Any]) -> tuple[int, Any]:
        return (400, {"error": "no"}) if down[0] and body["seed"] % 3 == 0 else guesses(body)

    folder = tmp_path / "run"
    with chat_server(sometimes) as server:
        assert main(play(folder, "-n", str(SAMPLES), *at(server.address, served_model))) == 1
        run = load_eval_run(folder)
        broken = [row.key for row in run.rows if row.broken]
        assert len(run.rows) == TASKS * SAMPLES
        assert 0 < len(broken) < TASKS * SAMPLES
        score = json.loads((folder / "results.json").read_text())["scores"][0]
        assert score["broken"] == {"model": len(broken)}
        assert score["score"]["samples"] == TASKS * SAMPLES - len(broken)
        assert main(["eval", "--resume", "--output", str(folder)]) == 1
        assert f"{len(broken)} broken ones are not played again: arpo eval retry {folder}" in caplog.text
        down[0] = False
        before = len(run.attempts)
        assert main(["eval", "retry", str(folder)]) == 0
        again = load_eval_run(folder)
        assert sorted(row.key for row in again.attempts[before:]) == sorted(broken)
        assert not any(row.broken for row in again.rows)


def test_weights_that_were_written_since_a_run_began_are_named(tmp_path: Path, caplog: Any) -> None:
    weights = tmp_path / "model.safetensors"
    weights.touch()
    for when, count in ((1_000_000, 0), (2_000_000, 1)):
        os.utime(weights, (when, when))
        for kind, urls in (("transformers", ()), ("endpoint", ("http://127.0.0.1:1/v1",))):
            model = EvalModel("m", kind, str(tmp_path), urls, "m" * bool(urls))
            warn_of_new_weights([model], "1970-01-18T00:00:00+00:00")
        assert caplog.text.count(f"the weights in {tmp_path} were written after this run began") == count


@pytest.mark.parametrize(
    ("path", "name", "mended"),
    [("/wrong", "stub", ["--endpoint", "ADDRESS"]), ("", "stab", ["--endpoint-model", "stub"])],
)
@pytest.mark.parametrize("how", ["resume", "retry", "again"])
def test_a_wrong_address_or_name_leaves_the_folder_to_the_right_command(
    path: str, name: str, mended: list[str], how: str, served_model: Path, tmp_path: Path, capsys: Any
) -> None:
    def served(body: dict[str, Any]) -> tuple[int, Any]:
        return guesses(body) if body["model"] == "stub" else (404, {"error": "no such model"})

    with chat_server(served) as server:
        wrong = ["--tasks", "3", "--model", str(served_model), "--endpoint", server.address + path]
        assert main(play(tmp_path, *wrong, "--endpoint-model", name)) == 1
        said = capsys.readouterr().err
        assert f"the model {name} failed in all 3 units" in said
        assert "The address (--endpoint, " in said
        assert "Nothing is stored: mend the cause, and give the command again" in said
        mended = [server.address if word == "ADDRESS" else word for word in mended]
        commands = {
            "resume": ["eval", "--resume", "--output", str(tmp_path), *mended],
            "retry": ["eval", "retry", str(tmp_path), *mended],
            "again": play(tmp_path, "--tasks", "3", *at(server.address, served_model)),
        }
        assert main(commands[how]) == 0
    run = load_eval_run(tmp_path)
    assert [row.model for row in run.attempts] == list(run.facts["models"]) * 3 == ["stub"] * 3


def test_a_model_that_is_down_stops_the_run_and_loses_nothing(served_model: Path, tmp_path: Path, capsys: Any) -> None:
    left = [10]

    def dies(body: dict[str, Any]) -> tuple[int, Any]:
        left[0] -= 1
        return guesses(body) if left[0] >= 0 else (400, {"error": "gone"})

    with chat_server(dies) as server:
        asked = ["-n", "3", "--concurrency", "1", *at(server.address, served_model)]
        assert main(play(tmp_path, *asked)) == 1
        assert "failed 20 times in a row" in capsys.readouterr().err
        run = load_eval_run(tmp_path)
        assert run.facts["status"] == "failed"
        assert 0 < len(run.rows) < 36
        left[0] = 10_000
        assert main(["eval", "--resume", "--output", str(tmp_path)]) == 0
    assert len(load_eval_run(tmp_path).rows) == 36


def test_a_resumed_run_takes_what_is_given_and_refuses_what_it_cannot(
    served_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    resume = ["eval", "--resume", "--output", str(tmp_path)]
    with chat_server(guesses) as server:
        command = play(tmp_path, "--tasks", "2", *at(server.address, served_model))
        assert main(command) == 0
        assert main(command) == 1
        assert "add --resume to go on with it" in capsys.readouterr().err
    with chat_server(guesses) as server:  # at another address
        assert main([*resume, "-n", "2", "--endpoint", server.address, "--price", "1", "2"]) == 0
    facts = load_eval_run(tmp_path).facts
    assert facts["models"]["stub"]["urls"] == [server.address]
    assert facts["usage"]["usd"] > 0
    capsys.readouterr()
    # the default is no other setting; fewer tasks than are stored are nothing to play
    assert main([*resume, "--temperature", "0.6", "--tasks", "1"]) == 0
    assert not capsys.readouterr().err
    # of another model these would be other episodes
    assert main([*resume, "--endpoint-model", "other"]) == 1
    assert "the run has other settings: models was" in capsys.readouterr().err
    assert main([*resume, "--vllm"]) == 1
    assert "the run has other settings" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["eval", "arpo/Arithmetic-v0", "--model", "smollm2-135m", "--output", "X"], "--tasks 100"),
        (["eval", "arpo/Arithmetic-v0", "--output", "X"], "--model"),
        (["eval", "arpo/Arithmetic-v0", "--model", "M"], "--output"),
        # it is named before another is played
        ([*BRIEF[:-2], "nothing", "--output", "X"], "nothing' does not exist. Give a folder with a config.json"),
        ([*BRIEF, "--model", "http://a:1/v1"], "--endpoint http://a:1/v1 --endpoint-model NAME"),
        ([*BRIEF, "--price", "1"], "two or three"),
        ([*BRIEF, "--cache-mode", "replay", "--cache", "nowhere.sqlite"], "no recording 'nowhere.sqlite'"),
        (["eval", "--resume", "--output", "X"], "no evaluation in"),
    ],
)
def test_bad_commands_name_the_cure(
    command: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], served_model: Path
) -> None:
    there = {"X": str(tmp_path / "x"), "M": str(served_model)}
    assert main([there.get(word, word) for word in command]) == 1
    assert words in capsys.readouterr().err
    stored = tmp_path / "x" / "episodes.jsonl"
    assert not stored.exists() or not stored.read_bytes()
