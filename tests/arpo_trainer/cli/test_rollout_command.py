"""`arpo rollout`: trees of a real model and a summary of them; what actions of `arpo eval` print and return."""

import json
from pathlib import Path
from typing import Any

import pytest

from arpo_trainer.cli.arpo_command import main
from arpo_trainer.cli.play_commands import Played, _facts, evaluate, given_settings
from arpo_trainer.evaluation.eval_settings import EvalModel
from arpo_trainer.tree import read_traces
from tests.arpo_env.chat_server import chat_server, saying
from tests.arpo_trainer.evaluation.made_rows import play

ENV = ["rollout", "arpo/Arithmetic-v0", "--env-set", "level=3"]
QUICK = ["--tasks", "2", "--set", "max_turn_length=48", "max_completion_length=160"]


def test_trees_are_written_down_and_summed_up(tiny_policy: Path, tmp_path: Path, capsys: Any) -> None:
    model, output = ["--model", str(tiny_policy)], tmp_path / "out"
    asked = ["--num-generations", "4", "--algorithm", "random", "--limit", "python=1", "--output", str(output)]
    assert main([*ENV, *model, *QUICK, *asked]) == 0
    out = capsys.readouterr().out
    assert "2, 8 trajectories" in out
    assert f"arpo view timeline {output}" in out
    trees = list(read_traces(output / "traces.jsonl"))
    assert [len(tree.trajectories) for tree in trees] == [4, 4]
    assert {tree.meta["algorithm"] for tree in trees} == {"random"}
    assert json.loads((output / "run.json").read_text(encoding="utf-8"))["status"] == "finished"


def test_one_greedy_trajectory_a_task_is_an_evaluation(tiny_policy: Path, tmp_path: Path, capsys: Any) -> None:
    asked = ["--num-generations", "1", "--temperature", "0", "--output", str(tmp_path)]
    assert main([*ENV, "--model", str(tiny_policy), *QUICK, *asked]) == 0
    [found] = map(json.loads, (tmp_path / "eval.jsonl").read_text().splitlines())
    assert found["n"] == 2
    interval = f"[{found['accuracy_low']:.3f}, {found['accuracy_high']:.3f}], 95 % over tasks"
    assert f"{found['accuracy']:.3f} {interval}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--endpoint", "http://127.0.0.1:1"], "--endpoint URL and --endpoint-model NAME go together"),
        (["--tasks", "0"], "--tasks must be at least 1"),
        (["--limit", "python=many"], "write a whole number, such as python=8"),
        (["--set", "branch_alfa=1"], "there is branch_alpha"),
        (["--set", "branch_width=wide"], "branch_width must be a whole number, got 'wide'"),
        (["--set", "seed=1", "--seed", "1"], "--set seed and --seed set the same"),
        (["--endpoint", "http://127.0.0.1:1/v1", "--endpoint-model", "m", "--algorithm", "aepo"], "take grpo, random"),
    ],
)
def test_errors_come_before_anything_is_written(arguments: list[str], said: str, tmp_path: Path, capsys: Any) -> None:
    output = tmp_path / "out"
    assert main([*ENV, "--model", "smollm2-135m", *arguments, "--output", str(output)]) == 1
    assert said in capsys.readouterr().err
    assert not output.exists()


def test_no_password_of_an_address_is_written_down(tmp_path: Path) -> None:
    options = {"data": "https://me:hush@host/a?key=hush"}
    model = EvalModel("m", "vllm-server", "m", ("http://me:hush@host:8000",))
    facts = json.dumps(_facts(ENV[1], options, 1, tmp_path, model, given_settings({}, ()), {}), default=str)
    assert "hush" not in facts
    assert "host:8000" in facts


def test_the_folder_of_a_training_run_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.json").write_text('{"name": "a training run"}', encoding="utf-8")
    assert main([*ENV, "--model", "smollm2-135m", "--output", str(tmp_path)]) == 1
    assert "holds another run (run.json); give another folder with --output" in capsys.readouterr().err


def act(*argv: object) -> int:
    command, bound, _ = evaluate.parse_args([str(word) for word in argv], exit_on_error=False, print_error=False)
    return command(*bound.args, **bound.kwargs) or 0


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    one = play(tmp_path / "one", {f"t{n}": [("12" if n % 2 else "13", float(n % 2))] for n in range(24)})
    two = play(tmp_path / "two", {f"t{n}": [("12", 1.0)] for n in range(24)})
    return one, two


def test_compare_prints_a_table_and_the_tasks(runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert act("compare", *runs) == 0
    shown = capsys.readouterr().out
    assert all(text in shown for text in ("0.500  1.000   +0.500", "tasks gained: 12", "and 2 more: --all lists"))
    assert act("compare", *runs, "--all") == 0
    assert capsys.readouterr().out.count("0.00 -> 1.00") == 12


def test_what_models_and_tasks_say_cannot_control_the_terminal(tmp_path: Path, capsys: Any) -> None:
    one, two = (play(tmp_path / f"{score:.0f}", {"t\x1b[31m": [("12\x9b2J\u202e", score)]}) for score in (0.0, 1.0))
    assert act("compare", one, two, "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["overall"]["low"] is None  # of one task; JSON has no infinity
    assert act("compare", one, two) == 0
    assert act("score", two, "--scorer", "em") == 0
    shown = capsys.readouterr().out
    assert "t\\x1b[31m" in shown
    assert not {"\x1b", "\x9b", "\u202e"} & set(shown)


def test_a_judge_without_verdicts_ends_with_an_error_status(runs: Any, monkeypatch: Any, capsys: Any) -> None:
    judge = ("--scorer", "judge", "--judge-model", "org/m", "--max-broken")
    with chat_server(saying("no idea")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.address)
        # 12 answers equal the gold one and need no judge
        assert act("score", runs[0], *judge, 0.4) == 1
        assert "12 of 24 answers have no verdict (GradingError 12)" in capsys.readouterr().err
        assert act("score", runs[0], *judge, 0.5) == 0
    with chat_server(saying('{"verdict": "INCORRECT"}')) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.address)
        assert act("score", runs[0], *judge, 0) == 0
        assert len(server.bodies) == 12  # what has no verdict is asked for again
    assert (runs[0] / "scores" / "judge-org-m.json").is_file()


def test_wrong_options_of_score_name_the_cure(runs: tuple[Path, Path]) -> None:
    for options, message in (
        (("--scorer", "judge"), "--judge-model NAME go together"),
        (("--scorer", "gaya"), "unknown grader 'gaya'.*did you mean 'gaia'"),
        (("--scorer", "em", "--name", "../x"), "use letters, digits"),
        (("--scorer", "em", "--max-broken", "2"), "share between 0 and 1"),
    ):
        with pytest.raises(ValueError, match=message):
            act("score", runs[0], *options)
    assert not (runs[0] / "scores").exists()


def test_arguments_of_the_chat_template_are_settings_of_an_evaluation() -> None:
    given = Played().deciding({}, {"top_p": 1.0, "chat_template_kwargs": {"enable_thinking": False}})
    assert given == {"env_options": {}, "rollout": {"top_p": 1.0}, "chat_template_kwargs": {"enable_thinking": False}}
    with pytest.raises(ValueError, match="names and values, as in"):
        Played().deciding({}, {"chat_template_kwargs": "enable_thinking"})
