"""Data files: what can be read is read and mended, what is broken or missing is named; what real files hold."""

import json
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from envs_registry import DataFileError, EnvSpec, Task, load_source
from envs_registry.contamination import overlap
from envs_registry.datasets.loading import DataSetSource, answers, clean, cut_off, row_reader
from envs_registry.datasets.rows import column, read_rows

ROWS = [{"question": "a?", "answer": "1"}, {"question": "b, c?", "answer": "2"}]
FIRST, SECOND = map(json.dumps, ROWS)


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("a.jsonl", f"{FIRST}\n\n{SECOND}\n"), ("lines.json", f"{FIRST}\n{SECOND}\n")),
        *(("a.json", f"[{FIRST}, {SECOND}]"), ("a.csv", 'question,answer\na?,1\n"b, c?",2\n')),
    ],
)
def test_every_text_format_gives_the_same_rows(tmp_path: Path, name: str, text: str) -> None:
    assert [row for _, row in read_rows(write(tmp_path, name, text))] == ROWS


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.jsonl", '{"q": 1}\n{"q": }\n', "line 2, column 7"),
        ("a.jsonl", '{"q": 1}\n[1]\n', "line 2, column 1: expected an object, got list"),
        ("a.json", '[{"q": 1},\n {"q" 2}]', "line 2, column 7"),
        ("a.csv", "question,answer\na?,1,2\n", "line 2, column 3: expected 2 columns"),
        ("a.jsonl", b'{"q": "a"}\n{"q": "\xff"}', "line 2: not UTF-8"),
        *(("a.jsonl", "\n", "holds no rows"), ("a.txt", "x", "cannot read .txt")),
    ],
)
def test_broken_files_are_named_by_line_and_column(tmp_path: Path, name: str, text: str | bytes, words: str) -> None:
    with pytest.raises(DataFileError, match=rf"(?s){name}.*{words}"):
        read_rows(write(tmp_path, name, text))


def test_a_missing_file_and_a_missing_or_blank_column_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"give a \.jsonl"):
        read_rows(tmp_path / "none.jsonl")
    with pytest.raises(DataFileError, match=r"row 3: no column 'question'; it has 'q'"):
        column({"q": "x"}, ("question",), "row 3")
    with pytest.raises(DataFileError, match=r"column 'q': is blank"):
        column({"q": " "}, ("q",), "row 3")


@pytest.mark.parametrize(
    "text",
    [
        r"so \boxed{3}, \beta, \binom{4}{2}",
        r"\frac{m}{n} for all \forall x",
        r"\triangle ABC, 3 \times 4, \theta, \text{cm}, \tfrac12",
        r"\left( 1 \right) \rangle, \vec v, \varphi",
        r"a \neq b, x \notin S, \nabla f",
        r"\alpha and \angle ABC",
    ],
)
def test_latex_whose_backslash_was_read_as_an_escape_comes_back(text: str) -> None:
    read = text
    for letter, control in zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True):
        read = read.replace(f"\\{letter}", control)
    repairs: Counter[str] = Counter()
    assert read != text
    assert clean(read, repairs) == text
    assert repairs["backslash read as a control character"] == 1


def test_other_faults_of_a_text_are_mended_and_counted_and_ordinary_white_space_stays() -> None:
    repairs: Counter[str] = Counter()
    for text in ("first line\nequal parts", "a\tperimeter\tan apple", "line\n\n    not code", "x < y"):
        assert clean(text, repairs) == text
    assert not +repairs
    assert clean(" di\vffer\ud83dence\u200b:<br/>one\r\ntwo ", repairs) == "difference:\none\ntwo"
    assert +repairs == {
        "control character": 1,
        "half of a surrogate pair": 1,
        "invisible character": 1,
        "<br> for a new line": 1,
        "carriage return": 1,
        "white space around a text": 1,
    }


@pytest.mark.parametrize(
    ("values", "kind", "wanted"),
    [
        *(([70.0], "math", ("70",)), (["[4,\\infty)"], "math", ("[4,\\infty)",)), ([None, " "], "qa", ())),
        *((["['Paris', 'Paname']"], "qa", ("Paris", "Paname")), (["$268 million"], "qa", ("$268 million",))),
        ([["Li Ye", " Li Ye ", "", "Ye"], ["Ye", "Y."]], "qa", ("Li Ye", "Ye", "Y.")),
        (["The final answer is \\(\\boxed{D}\\)."], "math", ("D",)),
        (["24 * 17 = 408\n#### 408"], "math", ("408",)),
        (["a\n#### b\n"], "qa", ("a\n#### b",)),
        *((["$-\\frac{5}{2}$"], "math", ("-\\frac{5}{2}",)), (["$5$ or $6$"], "math", ("$5$ or $6$",))),
    ],
)
def test_answers_of_all_forms(values: list[object], kind: str, wanted: tuple[str, ...]) -> None:
    assert answers(values, kind, Counter()) == wanted


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            {"question": "Who?", "answers": {"text": ["I"], "answer_start": [0]}},
            "an answer is .'text': .* write a text",
        ),
        ({"question": "Who?", "answer": [{"value": "I"}]}, "an answer is .'value': 'I'.: write a text"),
        ({"question": {"0": "Who?"}, "answer": "I"}, "the question .'0': 'Who.'. is neither a text nor one message"),
        (
            {"problem": [{"role": "system", "content": "Be brief."}], "answer": "I"},
            ".*leave the messages of the system",
        ),
    ],
)
def test_an_object_is_no_text(tmp_path: Path, row: dict[str, Any], words: str) -> None:
    read = row_reader(EnvSpec("mine/Own-v0", "own", ""))
    with pytest.raises(DataFileError, match=f"row 0, {words}"):
        read(row, 0, "row 0")


def test_a_question_is_one_message_and_a_blank_kind_is_that_of_the_scorer() -> None:
    read = row_reader(EnvSpec("mine/Own-v0", "own", "", scorer="math"))
    task = read({"question": [{"role": "user", "content": "1 + 1?"}], "answer": "2", "kind": ""}, 0, "row 0")
    assert task is not None
    assert (task.question, task.kind) == ("1 + 1?", "math")


def test_a_cut_formula_is_told_from_a_whole_one() -> None:
    assert all(map(cut_off, ["1}^N", "(37", "36\\}", "-5\\right\\}", "2)"]))
    assert not any(map(cut_off, ["[1, 2)", "\\left( 3, \\frac{\\pi}{2} \\right]", "\\{1, 2\\}", "x^{2}"]))


ROW = {"task_id": "1", "Question": "How many?", "Final answer": "3", "Level": "1", "file_name": "a b.xlsx"}


def write_rows(path: Path, *rows: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return write(path.parent, path.name, "".join(json.dumps(row) + "\n" for row in rows))


def test_a_folder_with_the_layout_of_the_repository(tmp_path: Path) -> None:
    row, folder = {**ROW, "file_path": "2023/validation/a b.xlsx"}, tmp_path / "2023" / "validation"
    for name in ("metadata.jsonl", "metadata.level1.jsonl"):
        write_rows(folder / name, row)
    write_rows(tmp_path / "2023" / "test" / "metadata.jsonl", {**row, "Question": "Another?"})
    write(folder, "a b.xlsx", "x")
    write(folder, "other.csv", "a,b\n1,2\n")  # an attached file that could be a data file
    for place in (tmp_path, folder, folder / "metadata.jsonl"):
        [task] = load_source("gaia", data=place, files=True).tasks  # type: ignore[attr-defined]
        assert task.files == (str(folder / "a b.xlsx"),)
        assert task.question == "How many?\n\nAttached file: a b.xlsx"
    assert load_source("gaia", data=tmp_path).size == 0


@pytest.mark.parametrize("name", ["absent.txt", "../secret.txt", "/etc/passwd", "x/../../secret.txt", "n" * 300])
def test_a_data_file_names_no_missing_files_and_none_outside_its_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret.txt").write_text("s")
    (tmp_path / "inner" / "x").mkdir(parents=True)
    with pytest.raises(DataFileError, match=r"g\.jsonl, line 1: the attached file .* was not found in .*--local"):
        load_source("gaia", data=write_rows(tmp_path / "inner" / "g.jsonl", {**ROW, "file_name": name}), files=True)


def test_attached_files_of_the_hub_are_downloaded_once_and_by_name(tmp_path: Path, monkeypatch: Any) -> None:
    write(tmp_path, "a [b].xlsx", "x")
    download = Mock(return_value=str(tmp_path))
    rows = [("row 1", {**ROW, "file_path": "a [b].xlsx"}), ("row 2", {**ROW, "task_id": "2", "file_name": ""})]
    monkeypatch.setattr("envs_registry.datasets.loading.hub_rows", lambda *_: (rows, "a" * 40))
    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    tasks = load_source("gaia", files=True).tasks  # type: ignore[attr-defined]
    assert [task.files for task in tasks] == [(str(tmp_path / "a [b].xlsx"),), ()]
    # as a pattern, in which brackets are escaped; the revision is that of the rows
    options = {"repo_type": "dataset", "allow_patterns": ["a [[]b].xlsx"], "revision": "a" * 40}
    download.assert_called_once_with("gaia-benchmark/GAIA", **options)


@pytest.mark.parametrize(
    ("asked", "files", "attached"), [("a.csv", "ab", "b.csv"), ("data.csv", ["a", "data"], "a.csv")]
)
def test_a_task_names_its_files_and_travels_as_json(asked: str, files: Any, attached: str) -> None:
    paths = tuple(f"/data/{name}.csv" for name in files)
    task = Task("1", f"What is in {asked}?", ("3",), files=paths, start_url="https://x.org")
    assert task.question == f"What is in {asked}?\n\nAttached file: {attached}"
    assert Task.from_dict(json.loads(json.dumps(task.as_dict()))) == task
    assert not {"files", "start_url"} & Task("1", "q", ("3",)).as_dict().keys()


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (("/x/a.csv", "/y/a.csv"), r"two files have the name 'a\.csv'"),
        *(((f"/x/{n}.csv",), "plain text") for n in "\n\udcff"),
        ("a.csv", r"files is a tuple, as in \('a\.csv',\)"),
    ],
)
def test_files_whose_names_no_question_can_hold_are_refused(files: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Task("1", "q", ("3",), files=files)


@pytest.fixture
def files(shared: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of training files; `ARPO_DATA` names that of the evaluation files."""
    monkeypatch.setenv("ARPO_DATA", str(shared / "data/arpo/eval"))
    return shared / "data/arpo/rl"


def source_of(name: str, path: Path | None = None, split: str = "test") -> DataSetSource:
    source = load_source(name, split=split, data=path)
    assert isinstance(source, DataSetSource)
    return source


def test_reasoning10k(files: Path) -> None:
    source = source_of("reasoning10k", files / "train_10k.parquet", "train")
    out = {name: count for name, count in source.repairs.items() if name.startswith("left out")}
    assert source.rows == 10_000
    assert out == {"left out: cut-off answer": 10, "left out: duplicate question": 45, "left out: no answer": 1}
    assert source.size == 10_000 - 56
    assert Counter(task.kind for task in source.tasks) == {"math": 4953, "qa": 4991}
    assert not any("helpful assistant" in task.question for task in source.tasks)


def test_known_contamination(files: Path) -> None:
    reasoning = source_of("reasoning10k", files / "train_10k.parquet", "train")
    search = source_of("deepsearch1k", files / "hard_search_1k.parquet", "train")
    valid = source_of("reasoning10k", files / "valid.parquet", "validation")
    hotpot, musique = (source_of(name, split="validation") for name in ("hotpotqa", "musique"))
    pairs = (reasoning, source_of("simpleqa")), (search, hotpot), (valid, source_of("math500")), (valid, musique)
    assert [overlap(*pair).count for pair in pairs] == [14, 15, 30, 1]
