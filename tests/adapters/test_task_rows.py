"""Rows of tasks, read as each framework reads them: a row leads back to the task that it was made of."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from arpo_env import EnvFactory, register
from arpo_env.adapters.task_rows import FORMATS, find_task, task_rows, write_rows
from arpo_trainer.cli.arpo_command import main
from envs_registry import Task

from .scripts import SETS, sets

ROWS = 5


# how a framework reads a row: what it shows, what names the task, the gold answers that it wants (but we do not need)
READERS: dict[str, Callable[[dict[str, Any]], tuple[Any, Any, list[str]]]] = {
    "trl": lambda row: (row["prompt"], row, []),
    "verl": lambda row: (row["prompt"], row["extra_info"], row.pop("reward_model")["ground_truth"]),
    "skyrl": lambda row: (row["prompt"], row["extra_info"], row.pop("reward_spec")["ground_truth"]),
    "openrlhf": lambda row: (row["input"], row["label"], []),
    "jsonl": lambda row: (row["prompt"], row["extra_info"], []),
}
COLUMNS = {"verl": {"agent_name": "arpo_agent"}, "skyrl": {"env_class": "arpo"}}
KINDS = [(name, suffix) for name, one in FORMATS.items() for suffix in one.suffixes]


@pytest.mark.parametrize(("format", "suffix"), KINDS)
@pytest.mark.parametrize("env_id", sets())
def test_a_row_leads_back_to_its_task(env_id: str, format: str, suffix: str, tmp_path: Path) -> None:
    """By the command and by the reader that TRL, verl and SkyRL use; no row shows the model its answer."""
    datasets = pytest.importorskip("datasets")
    _, options = SETS[env_id]
    path = tmp_path / "new folder" / f"rows{suffix}"
    given = [f"{key}={value}" for key, value in options.items()]
    words = [env_id, "--format", format, "--output", str(path), "--limit", str(ROWS)]
    assert main(["data", "export", *words, *(["--env-set", *given] if given else [])]) == 0
    kind = {".jsonl": "json", ".parquet": "parquet"}[suffix]
    rows = datasets.load_dataset(kind, data_files=str(path), cache_dir=str(tmp_path / "cache"))["train"]
    assert len(rows) == ROWS
    for index, row in enumerate(rows):
        assert row.get("reward_model", {"style": "rule"})["style"] == "rule"
        messages, reference, gold = READERS[format](row)
        assert COLUMNS.get(format, {}).items() <= row.items()
        assert isinstance(reference, str) == (format == "openrlhf")
        factory, task = find_task(reference)
        env = EnvFactory(env_id, **{"protocol": factory().protocol.name, **options})()
        assert task == env.tasks.task(index)
        assert messages == env.messages(task)
        assert gold in ([], list(task.answers))
        shown = json.dumps(row, ensure_ascii=False).replace(task.question, "")
        assert not any(answer in shown for answer in task.answers if len(answer) > 3)
    assert sorted(path.parent.iterdir()) == [path]


def test_relative_data_and_text_in_any_language_travel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    line = {"question": "首都？ \u2028 <image>", "answer": "北京"}
    Path("own.jsonl").write_text(json.dumps(line), encoding="utf-8")
    words = ["arpo/HotpotQA-v0", "--format", "skyrl", "--output", "rows.jsonl", "--env-set", "data=own.jsonl"]
    assert main(["data", "export", *words]) == 0
    [row] = [json.loads(each) for each in Path("rows.jsonl").read_text(encoding="utf-8").split("\n") if each]
    monkeypatch.chdir("/")
    assert find_task(row["extra_info"])[1].question.startswith("首都？")
    assert row["reward_spec"]["ground_truth"] == ["北京"]


@pytest.mark.parametrize(
    ("words", "cure"),
    [
        (["arpo/Arithmetic-v0", "--format", "vrl", "--output", "new.parquet"], "did you mean 'verl'"),
        (["arpo/Arithmetic-v0", "--format", "verl", "--output", "new.parquet"], "--limit"),
        (["arpo/Arithmetic-v0", "--format", "openrlhf", "--output", "new.parquet", "--limit", "1"], ".jsonl"),
        (["arpo/Arithmetic-v0", "--format", "verl", "--output", "there.parquet", "--limit", "1"], "--overwrite"),
    ],
)
def test_bad_input_names_the_cure_and_writes_nothing(
    words: list[str], cure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there.parquet").write_text("precious")
    assert main(["data", "export", *words]) == 1
    assert cure in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["there.parquet"]
    assert Path("there.parquet").read_text() == "precious"


def test_a_failed_export_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("old")

    def broken() -> Any:
        yield {"prompt": []}
        raise RuntimeError("the source ended early")

    with pytest.raises(RuntimeError, match="ended early"):
        write_rows(path, broken(), overwrite=True)
    assert [each.read_text() for each in tmp_path.iterdir()] == ["old"]


def test_options_that_no_row_can_hold_are_named() -> None:
    def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    with pytest.raises(ValueError, match=r"option tools= .*list"):
        task_rows(EnvFactory("arpo/Arithmetic-v0", tools=[double]), "verl", limit=1)


def test_a_row_whose_task_has_changed_is_refused(own_names: None) -> None:
    tasks = [Task("a", "One?", ("1",)), Task("b", "Two?", ("2",))]
    register("tests/Changing-v0", tasks, tools=())
    rows = list(task_rows(EnvFactory("tests/Changing-v0"), "verl"))
    assert [find_task(row["extra_info"])[1].id for row in rows] == ["a", "b"]
    register("tests/Changing-v0", tasks[::-1], tools=(), overwrite=True)
    with pytest.raises(ValueError, match="but was 'a' with another id"):
        find_task(rows[0]["extra_info"])
    with pytest.raises(ValueError, match=r"options, index, id missing.*arpo data export"):
        find_task({"env_id": "tests/Changing-v0"})
