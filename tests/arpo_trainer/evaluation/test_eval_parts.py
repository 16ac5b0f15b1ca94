"""Parts of an evaluation: models and their labels, settings, and what is planned."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arpo_trainer.evaluation.eval_session import plan_environments
from arpo_trainer.evaluation.eval_settings import EvalModel, EvalSettings, checkpoints, labelled, refuse_other_settings
from arpo_trainer.evaluation.suites import environment_rows

NAMES = st.sampled_from(["a", "b", "checkpoint-1", "checkpoint-2"])


@given(st.lists(st.tuples(NAMES, NAMES, NAMES).map("/".join), min_size=1, max_size=6, unique=True))
def test_labels_differ_and_begin_with_the_last_part(paths: list[str]) -> None:
    found = labelled([EvalModel(path.rpartition("/")[2], "transformers", path) for path in paths])
    assert len({model.label for model in found}) == len(paths)
    assert [model.model_id for model in found] == paths
    for model in found:
        assert model.label.rpartition("/")[2].partition("#")[0] == model.model_id.rpartition("/")[2]


def test_one_model_on_two_servers_is_two_models() -> None:
    twice = [EvalModel("m", "vllm-server", "x/m", (url,)) for url in ("http://a", "http://b")]
    assert [model.label for model in labelled(twice)] == ["x/m#1", "x/m#2"]
    with pytest.raises(ValueError, match="'m' is given twice"):
        labelled([twice[0], twice[0]])


def test_a_run_stands_for_its_checkpoints_by_step(tmp_path: Path) -> None:
    for name in ("checkpoint-20", "checkpoint-3", "checkpoint-100", "checkpoint-best", "logs"):
        (tmp_path / name).mkdir()
    assert [path.rpartition("-")[2] for path in checkpoints(str(tmp_path))] == ["3", "20", "100"]
    (tmp_path / "config.json").touch()
    assert checkpoints(str(tmp_path)) == [str(tmp_path)]
    assert checkpoints("owner/name") == ["owner/name"]
    with pytest.raises(FileNotFoundError, match="neither a model"):
        checkpoints(str(tmp_path / "logs"))


@pytest.mark.parametrize(("context", "room"), [(None, 28_672), (131_072, 28_672), (8192, 4096), (2048, 1024)])
def test_lengths_are_the_papers_within_the_model_s_context(context: int | None, room: int) -> None:
    settings = EvalSettings(("arpo/GSM8K-v0",)).rollout_settings(context)
    assert (settings.max_completion_length, settings.max_turn_length) == (room, min(4096, room))
    assert (settings.temperature, settings.top_p, settings.repetition_penalty) == (0.6, 0.95, 1.1)
    assert (settings.num_generations, settings.algorithm) == (1, "grpo")
    assert EvalSettings(("arpo/GSM8K-v0",)).rollout_settings(context, endpoint=True).repetition_penalty == 1.0
    asked = EvalSettings(("arpo/GSM8K-v0",), rollout={"repetition_penalty": 1.2})
    assert asked.rollout_settings(context, endpoint=True).repetition_penalty == 1.2


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"samples": 0}, "samples must be at least 1"),
        ({"max_broken": 2.0}, "a share of the episodes"),
        ({"rollout": {"temprature": 1}}, "temperature"),
        ({"rollout": {"temperature": -1}}, "temperature"),
        ({"algorithm": "arpo", "samples": 2}, "num_generations"),
        ({"rollout": {"num_generations": 4}}, "are set with samples"),
    ],
)
def test_settings_that_cannot_work_name_the_cure(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        EvalSettings(("arpo/GSM8K-v0",), **changed)


def test_a_resumed_run_may_only_play_more_and_faster() -> None:
    model = EvalModel("m", "endpoint", "x/y", ("http://one",), "m").facts()
    tools = {"debugger": 1, "model": "h", "url": "http://helper"}
    played = {"environments": ("arpo/GSM8K-v0",), "rollout": {"temperature": 0.0}}
    stored = EvalSettings(**played, models={"m": model}, inference=tools)
    moved = {"models": {"m": {**model, "urls": ["http://two"]}}, "inference": {**tools, "url": "http://other"}}
    more = EvalSettings(**played, **moved, samples=4, tasks=9, concurrency=2)
    refuse_other_settings(stored.as_dict(), more)
    assert EvalSettings.from_dict(more.as_dict()) == more
    for other in ({"seed": 1}, {"rollout": {}}, {"env_options": {"split": "train"}}, {"models": {}}, {"inference": {}}):
        changed = EvalSettings.from_dict({**stored.as_dict(), **other})
        with pytest.raises(ValueError, match=next(iter(other))):
            refuse_other_settings(stored.as_dict(), changed)


def test_single_environments_have_all_tasks_of_the_split_for_evaluation() -> None:
    rows = environment_rows(["deepsearch", "arpo/GAIA-v0", "arpo/GSM8K-v0", "arpo/MultiHop-v0"])
    assert [one.env for one in rows].count("arpo/GAIA-v0") == 1
    assert {one.env: one.tasks for one in rows}["arpo/GAIA-v0"] == 103
    single = {one.env: one for one in rows[-2:]}
    assert (single["arpo/GSM8K-v0"].tasks, single["arpo/GSM8K-v0"].options["split"]) == (None, "test")
    assert single["arpo/MultiHop-v0"].options == {"split": "test"}


def test_a_mixed_suite_gives_search_and_judge_to_the_sets_that_use_them(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("ARPO_CACHE", str(tmp_path))
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    for name in ("corpus", "SimpleQA"):
        (tmp_path / f"{name}.jsonl").write_text('{"title": "t", "text": "x", "problem": "a?", "answer": "b"}\n')
    monkeypatch.setenv("ARPO_DATA", str(tmp_path))
    options = {"search": str(tmp_path / "corpus.jsonl"), "judge_model": "j"}
    names = ("arpo/Arithmetic-v0", "arpo/MultiHop-v0", "arpo/SimpleQA-v0")
    with plan_environments(EvalSettings(names, options, tasks=1)) as planned:
        given = [{name for name in options if name in one.options} for one in planned]
    assert given == [set(), {"search"}, {"search", "judge_model"}]
    wrong = plan_environments(EvalSettings(names[:1], options, tasks=1))
    with pytest.raises(ValueError, match="there is no tool search"), wrong:
        pass
