"""Re-scoring of stored answers: resumable, with judges over HTTP that answer nonsense, and rewards of stored trees."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from arpo_env.chat_model import ChatModel
from arpo_env.errors import GradingError
from arpo_env.grading import Score, make_grader
from arpo_env.rewards import Rewards
from arpo_trainer.evaluation.episode_store import load_eval_run
from arpo_trainer.evaluation.rescoring import (
    GIVE_UP,
    Rescored,
    Scorer,
    function_scorer,
    read_reward,
    rescore,
    reward_scorer,
    stored_episodes,
    write_rescored,
)
from envs_registry import Task
from envs_registry.spec import load_object
from tests.arpo_env.chat_server import chat_server, reply
from tests.arpo_trainer.evaluation.made_rows import play

ANSWERS: dict[str, list[tuple[str | None, float | None]]] = {
    "t0": [("12", 1.0), ("the number twelve", 0.0)],  # a judge accepts both
    "t1": [("13", 0.0), (None, 0.0)],
    "t2": [("12 apples", 1.0), ("twelve", None)],  # the judge of the run failed on the last one
    "t3": [(None, None)],  # nothing to grade
}


def score(folder: Path, scorer: Scorer, name: str = "s", **options: Any) -> Rescored:
    about = options.pop("about", {"scorer": name})
    return asyncio.run(rescore(load_eval_run(folder), name, scorer, about, **options))


def judging(prompt: str) -> str:
    """What a judge would say about these answers."""
    answer = prompt.rpartition("Predicted answer:")[2]
    return json.dumps({"verdict": "CORRECT" if "12" in answer or "twelve" in answer else "INCORRECT"})


def test_a_judge_over_http_grades_what_is_stored_and_agreement_is_counted(tmp_path: Path) -> None:
    run = play(tmp_path / "run", ANSWERS)
    with chat_server(lambda body: (200, reply(judging(body["messages"][-1]["content"])))) as server:
        judge = make_grader("judge", chat=ChatModel("m", server.address))
        found = score(run, function_scorer(judge.grade))
        asked = len(server.bodies)
    # "12" equals the gold answer, and what is missing needs no judge: four answers were sent
    assert (asked, found.answers, found.broken) == (4, 6, {})
    [each] = found.scores
    assert (each["accuracy"]["samples"], each["accuracy"]["mean"]) == (6, pytest.approx(4 / 6, abs=1e-6))
    assert found.agreement is not None
    # five answers had a score before, and one verdict differs; by hand: chance is 2/5 * 3/5 + 3/5 * 2/5
    assert (found.agreement.answers, found.agreement.share) == (5, 0.8)
    assert found.agreement.kappa == pytest.approx((0.8 - 0.48) / (1 - 0.48))
    write_rescored(found)
    [line] = (run / "scores" / "s.disagreements.jsonl").read_text().splitlines()
    read = json.loads(line)
    assert (read["question"], read["answers"], read["answer"]) == ("What is t0?", ["12"], "the number twelve")
    assert (read["before"], read["now"]) == (0.0, 1.0)


def test_a_run_that_was_cut_anywhere_goes_on_and_ends_the_same(tmp_path: Path) -> None:
    run = play(tmp_path / "run", ANSWERS)
    graded: list[str] = []

    def right(answer: str, task: Task) -> bool:
        graded.append(answer)
        return answer == task.answers[0]

    whole = score(run, function_scorer(right), concurrency=1)
    path = run / "scores" / "s.jsonl"
    written = path.read_bytes()
    for cut in range(0, len(written), 37):
        path.write_bytes(written[:cut])
        graded.clear()
        # lines of unanswered episodes are graded without the function
        kept = written[:cut].count(b"\n")
        found = score(run, function_scorer(right), concurrency=1)
        assert (found.scores, found.disagreements, path.read_bytes()) == (whole.scores, whole.disagreements, written)
        assert len(graded) <= 7 - max(kept, 1)


def test_the_file_belongs_to_one_scorer_and_bad_lines_are_named(tmp_path: Path) -> None:
    run = play(tmp_path / "run", ANSWERS)
    score(run, function_scorer(lambda answer, task: 1))
    with pytest.raises(ValueError, match=r"written by another scorer.*give another --name"):
        score(run, function_scorer(lambda answer, task: 0), about={"scorer": "other"})
    path = run / "scores" / "s.jsonl"
    path.write_text(path.read_text() + "{}\n")
    with pytest.raises(ValueError, match=r"s\.jsonl, line 8: not a verdict"):
        score(run, function_scorer(lambda answer, task: 1))


def test_an_episode_that_was_played_again_is_graded_again(tmp_path: Path) -> None:
    for answer in ("13", "14"):
        run = play(tmp_path / "run", {"t0": [(answer, 0.0)]})
        found = score(run, function_scorer(lambda answer, task: float(answer)))
        assert (found.answers, found.scores[0]["value"]["mean"]) == (1, float(answer))


def test_a_scorer_that_only_fails_stops_early_and_one_bad_answer_does_not(tmp_path: Path) -> None:
    run = play(tmp_path / "run", {f"t{n}": [("12", 1.0)] for n in range(GIVE_UP + 10)})
    calls: list[str] = []

    async def failing(answer: str, task: Task) -> float:
        calls.append(answer)
        raise GradingError("no server")

    with pytest.raises(RuntimeError, match="could not be graded; the last error: GradingError: no server"):
        score(run, function_scorer(failing), concurrency=4)
    assert len(calls) < GIVE_UP + 5
    none = {"t3": float("nan"), "t4": Score(float("nan"))}
    found = score(run, function_scorer(lambda answer, task: none.get(task.id, True)), name="other")
    assert (found.broken, found.scores[0]["value"]["mean"]) == ({"GradingError": 2}, 1.0)


def test_rewards_are_computed_from_the_stored_tree(tmp_path: Path) -> None:
    run = play(tmp_path / "run", ANSWERS)
    episode = next(stored_episodes(load_eval_run(run))).episode()
    assert [(call.name, call.status) for turn in episode.turns for call in turn.calls] == [("python", "ok")]
    assert episode.transcript.startswith("<think>I compute.")
    assert episode.transcript.endswith("</answer>")
    assert (episode.answer, episode.outcome, episode.tools_used) == ("12", "answered", ["python"])

    rewards = Rewards.of({"accuracy": 1.0, "few": (lambda episode: 1.0 - 0.25 * len(episode.tools_used), 0.5)})
    found = score(run, reward_scorer(rewards), about={"reward": "own"})
    [each] = found.scores
    assert each["accuracy"] is None
    # five graded episodes, two of them right; the sixth was never graded and is counted apart
    assert each["value"]["mean"] == pytest.approx(2 / 5 + 0.375)
    assert found.broken == {"GradingError": 1}
    same = score(run, reward_scorer(read_reward("{accuracy: 1}")), name="same", about={"reward": "accuracy"})
    assert (same.agreement.share, same.disagreements) == (1.0, [])


def test_objects_and_rewards_of_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_graders_here.py").write_text(
        "def lenient(answer, task):\n    return 1\n\ndef short(episode):\n    return 1\n\nweights = {'accuracy': 2}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert load_object("own_graders_here:lenient", "--function")("x", None) == 1
    assert [term.name for term in read_reward("own_graders_here:short").terms] == ["short"]
    assert [term.weight for term in read_reward("own_graders_here:weights").terms] == [2.0]
    for words, said in {
        "own_graders_here:lenent": "has no 'lenent'; did you mean 'lenient'",
        "own_nowhere:x": "no module 'own_nowhere'",
        "lenient": "write MODULE:NAME",
    }.items():
        with pytest.raises(ValueError, match=said):
            load_object(words, "--function")
    with pytest.raises(ValueError, match="compares the arguments of calls"):
        read_reward("deepagent")


def test_answers_of_unfinished_runs_and_empty_ones(tmp_path: Path) -> None:
    run = play(tmp_path / "run", {"t0": [(None, None)]})
    with pytest.raises(ValueError, match="has no answer to grade"):
        score(run, function_scorer(lambda answer, task: 1))
    play(run, {"t1": [("12", 1.0)]})
    (run / "traces.jsonl").unlink()
    with pytest.raises(ValueError, match=r"has no traces\.jsonl"):
        score(run, function_scorer(lambda answer, task: Score(1.0)))
