"""Attached files of data sets: found beside a local data file or in the repository's layout, and missing ones named."""

import json
from pathlib import Path
from typing import Any

import pytest

from envs_registry import DataFileError, Task, load_source

ROW = {"task_id": "1", "Question": "How many?", "Final answer": "3", "Level": "1", "file_name": "a b.xlsx"}


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_folder_with_the_layout_of_the_repository(tmp_path: Path) -> None:
    row = {**ROW, "file_path": "2023/validation/a b.xlsx"}
    for name in ("metadata.jsonl", "metadata.level1.jsonl"):
        table = write(tmp_path / "2023" / "validation" / name, row)
    write(tmp_path / "2023" / "test" / "metadata.jsonl", {**row, "Question": "Another?"})
    (table.parent / "a b.xlsx").write_bytes(b"x")
    (table.parent / "other.csv").write_text("a,b\n1,2\n")  # an attached file that could be a data file
    for place in (tmp_path, table.parent, table.parent / "metadata.jsonl"):
        [task] = load_source("gaia", data=place, files=True).tasks  # type: ignore[attr-defined]
        assert task.files == (str(table.parent / "a b.xlsx"),)
        assert task.question == "How many?\n\nAttached file: a b.xlsx"
    assert load_source("gaia", data=tmp_path).size == 0


def test_a_missing_file_is_named_with_the_cure(tmp_path: Path) -> None:
    with pytest.raises(
        DataFileError, match=r"gaia\.jsonl, line 1: the attached file 'a b\.xlsx' was not found in .*--local"
    ):
        load_source("gaia", data=write(tmp_path / "gaia.jsonl", ROW), files=True)


@pytest.mark.parametrize("name", ["../secret.txt", "/etc/passwd", "x/../../secret.txt", "n" * 300])
def test_a_data_file_names_no_files_outside_its_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret.txt").write_text("s")
    (tmp_path / "inner" / "x").mkdir(parents=True)
    with pytest.raises(DataFileError, match="was not found"):
        load_source("gaia", data=write(tmp_path / "inner" / "g.jsonl", {**ROW, "file_name": name}), files=True)


def test_attached_files_of_the_hub_are_downloaded_once_and_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def download(repository: str, **options: Any) -> str:
        asked.append((repository, options))
        (tmp_path / "2023").mkdir(exist_ok=True)
        (tmp_path / "2023" / "a [b].xlsx").write_bytes(b"x")
        return str(tmp_path)

    rows = [("row 1", {**ROW, "file_path": "2023/a [b].xlsx"}), ("row 2", {**ROW, "task_id": "2", "file_name": ""})]
    monkeypatch.setattr("envs_registry.datasets.loading.hub_rows", lambda *_: (rows, "a" * 40))
    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    first, second = load_source("gaia", files=True).tasks  # type: ignore[attr-defined]
    assert first.files == (str(tmp_path / "2023" / "a [b].xlsx"),)
    assert second.files == ()
    patterns = {
        "repo_type": "dataset",
        "allow_patterns": ["2023/a [[]b].xlsx"],  # as a pattern, in which brackets are escaped
        "revision": "a" * 40,  # that of the rows
    }
    assert asked == [("gaia-benchmark/GAIA", patterns)]


def test_a_task_names_its_files_and_travels_as_json() -> None:
    task = Task("1", "What is in a.csv?", ("3",), files=("/data/a.csv", "/data/b.csv"), start_url="https://x.org")
    assert task.question == "What is in a.csv?\n\nAttached file: b.csv"
    assert Task.from_dict(json.loads(json.dumps(task.as_dict()))) == task
    near = Task("1", "What is in data.csv?", ("3",), files=("/x/a.csv", "/x/data.csv"))
    assert near.question.endswith("\n\nAttached file: a.csv")
    assert Task.from_dict(near.as_dict()) == near
    assert not {"files", "start_url"} & Task("1", "q", ("3",)).as_dict().keys()
    with pytest.raises(ValueError, match=r"two files have the name 'a\.csv'"):
        Task("1", "q", ("3",), files=("/x/a.csv", "/y/a.csv"))
    for name in ("a\nb.csv", "\udcff.csv"):  # the question is text for a model
        with pytest.raises(ValueError, match="plain text on one line"):
            Task("1", "q", ("3",), files=(f"/x/{name}",))
