"""The actions of `arpo eval` on stored runs: what they print, and with which status they end."""

import json
from pathlib import Path
from typing import Any

import pytest

from arpo_trainer.cli.play_commands import Played, evaluate
from tests.arpo_env.chat_server import chat_server, saying
from tests.arpo_trainer.evaluation.made_rows import play


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
    assert "accuracy: one: a -> two: a" in shown
    assert "0.500  1.000   +0.500" in shown
    assert "tasks gained: 12" in shown
    assert "What is t0?" in shown
    assert "and 2 more: --all lists them" in shown
    assert act("compare", *runs, "--all") == 0
    assert capsys.readouterr().out.count("0.00 -> 1.00") == 12
    assert act("compare", *runs, "--json") == 0
    [found] = json.loads(capsys.readouterr().out)
    assert (found["overall"]["difference"], len(found["gained"])) == (0.5, 12)


def test_what_models_and_tasks_say_cannot_control_the_terminal(tmp_path: Path, capsys: Any) -> None:
    one, two = (
        play(tmp_path / name, {"t\x1b[31m": [("12\x9b2J\u202e", score)]})
        for name, score in (("one", 0.0), ("two", 1.0))
    )
    assert act("compare", one, two) == 0
    assert act("score", two, "--scorer", "em") == 0
    shown = capsys.readouterr().out
    assert "t\\x1b[31m" in shown
    assert not {"\x1b", "\x9b", "\u202e"} & set(shown)


def test_compare_of_one_task_is_json_without_infinite_bounds(tmp_path: Path, capsys: Any) -> None:
    one, two = (play(tmp_path / name, {"t0": [("12", 1.0)]}) for name in ("one", "two"))
    assert act("compare", one, two, "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["overall"]["low"] is None


def test_score_prints_scores_agreement_and_where_the_rest_is(runs: tuple[Path, Path], capsys: Any) -> None:
    assert act("score", runs[0], "--scorer", "em") == 0
    shown = capsys.readouterr().out
    assert "0 of 24 answers that both graded have another verdict than in the run" in shown
    assert (runs[0] / "scores" / "em.jsonl").is_file()
    agreement = json.loads((runs[0] / "scores" / "em.json").read_text())["agreement"]
    assert agreement == {"answers": 24, "kappa": 1.0, "share": 1.0}


def test_a_judge_without_verdicts_ends_with_an_error_status(
    runs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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
        assert len(server.bodies) == 12
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
