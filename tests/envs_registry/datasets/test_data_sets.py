"""Data sets from invented rows with the hub's columns: what becomes of a row, options, local files, the hub."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from envs_registry import DataFileError, HubError, get_spec
from envs_registry.datasets.loading import DataSetSource, load
from envs_registry.datasets.question_sets import QUESTION_SETS
from tests.envs_registry.datasets.sample_rows import ROWS, sample_file

BY_NAME = {data_set.name: data_set for data_set in QUESTION_SETS}


def rows_of(name: str) -> list[dict[str, Any]]:
    return ROWS[f"arpo/{name}-v0"]


def load_rows(folder: Path, name: str, rows: list[dict[str, Any]], **options: Any) -> DataSetSource:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return load(BY_NAME[name], data=path, **options)


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("ARPO_DATA")]:
        monkeypatch.delenv(name)


# rows


@pytest.mark.parametrize(
    ("name", "answers", "kinds"),
    [
        *(("AIME24", ["007"] * 3, {"math"}), ("MATH", ["\\frac{12}{2}"] * 3, {"math"})),
        *(("GSM8K", ["1000", "2000", "3000"], {"math"}), ("2Wiki", ["New Ford"] * 3, {"qa"})),
        *(("HLE", ["the zorb", "the zorb", "B"], {"qa", "mcq"}), ("xBench", ["100米", "200米", "300米"], {"qa"})),
        ("Reasoning10K", ["40", "Ada Nowhere", "Ada Nowhere"], {"math", "qa"}),
    ],
)
def test_answers_and_kinds(name: str, answers: list[str], kinds: set[str], tmp_path: Path) -> None:
    tasks = load(BY_NAME[name], data=sample_file(f"arpo/{name}-v0", tmp_path)).tasks
    assert [task.answers[0] for task in tasks] == answers
    assert {task.kind for task in tasks} == kinds


def test_aliases_of_all_columns_are_put_together_and_what_has_no_answer_or_an_image_is_left_out(tmp_path: Path) -> None:
    row = {"question": "Who?", "answer": "Li Ye", "answer_aliases": ["Ye Li", "Li Ye", ""], "answerable": True}
    source = load_rows(tmp_path, "MuSiQue", [row, {**row, "question": "What?", "answerable": False}])
    assert [task.answers for task in source.tasks] == [("Li Ye", "Ye Li")]
    assert source.repairs == {"blank alias": 1, "repeated alias": 1, "left out: not answerable": 1}
    rows = [*rows_of("HLE"), {**rows_of("HLE")[0], "id": "i", "image": "data:image/png;base64,AA"}]
    assert load_rows(tmp_path, "HLE", rows).repairs == {"left out: image": 1}


def test_gaia_s_attached_files_are_left_out_and_the_columns_of_both_publishers_read(tmp_path: Path) -> None:
    plain = {"id": 3, "task_id": "p", "Question": "Plain?", "answer": "5", "Level": "2", "Annotator_Metadata": {}}
    rows = [*rows_of("GAIA"), {**rows_of("GAIA")[0], "task_id": "x", "file_name": "x.xlsx"}, plain]
    source = load_rows(tmp_path, "GAIA", rows)
    assert [task.id for task in source.tasks][-2:] == ["gaia-validation-gaia-3", "gaia-validation-p"]
    assert source.repairs["left out: attached file"] == 1


def test_xbench_is_decrypted_and_plain_rows_pass(tmp_path: Path) -> None:
    plain = [{"question": "哪一年？", "answer": ["2001"]}, {"prompt": "plain?", "answer": "1", "canary": "left here"}]
    source = load_rows(tmp_path, "xBench", [*rows_of("xBench"), *plain])
    seen = [(task.question, task.language) for task in source.tasks[2:]]
    assert seen == [("虚构城市第3座桥有多长？", "zh"), ("哪一年？", "zh"), ("plain?", "en")]
    assert source.repairs["decrypted"] == 3
    assert get_spec("arpo/xBench-v0").language == "zh"


def test_training_sets_drop_what_cannot_be_learned_from(tmp_path: Path) -> None:
    good = rows_of("Reasoning10K")
    bad = [json.loads(json.dumps(good[number])) for number in (0, 0, 1)]
    for row, gold, index in zip(bad, ("1}^N", " ", "x"), (7, 8, 9), strict=True):
        row["reward_model"]["ground_truth"], row["extra_info"]["index"] = gold, index
    source = load_rows(tmp_path, "Reasoning10K", [*good, *bad])
    assert [task.id for task in source.tasks] == [f"reasoning10k-train-{n}" for n in range(3)]
    assert source.rows == 6
    for why in ("cut-off answer", "no answer", "duplicate question"):
        assert source.repairs[f"left out: {why}"] == 1
    with pytest.raises(DataFileError, match=r"rows\.jsonl, line 2, column 'answer'.*holds no answer"):
        load_rows(tmp_path, "Bamboogle", [{"question": "a?", "answer": ["x"]}, {"question": "b?", "answer": [" "]}])


def test_ids_stay_unique_where_files_of_several_parts_count_anew(tmp_path: Path) -> None:
    for part in range(2):
        row = {"question": f"{part}?", "answer": "#### 1", "idx": 0}
        (tmp_path / f"train-{part}-of-2.jsonl").write_text(json.dumps(row))
    ids = [task.id for task in load(BY_NAME["GSM8K"], data=tmp_path).tasks]
    assert ids == ["gsm8k-train-0", "gsm8k-train-0-row1"]


@pytest.mark.parametrize(
    ("question", "language"),
    [
        ("设 x_1 均是正整数，则 \\frac{1}{2}=__________.", "zh"),
        ("H3C 100W充电器满足哪些国际认证?", "zh"),
        ('How many articles are in the section "新闻与评论" of the site?', "en"),
    ],
)
def test_language(tmp_path: Path, question: str, language: str) -> None:
    [task] = load_rows(tmp_path, "Bamboogle", [{"question": question, "answer": ["1"]}]).tasks
    assert task.language == language


# options


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("AIME24", {"level": 1}, r"AIME24 has the levels \(none\); not '1'"),
        ("GSM8K", {"kind": "qa"}, "GSM8K has the kinds math; not 'qa'"),
        ("GSM8K", {"split": "dev"}, "GSM8K has the splits train, test; not 'dev'"),
        ("HLE", {"files": True}, "HLE has no option 'files'; its options are split, data, level, kind, revision"),
    ],
)
def test_what_a_set_has_not_is_refused(name: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        load(BY_NAME[name], **options)


def test_tasks_are_of_one_level_or_kind(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no row of level 5; column 'level' has .*Leave `level` out"):
        load_rows(tmp_path, "MATH500", [{"question": "a?", "answer": "1"}], level=5)
    rows = [{"question": f"{kind}?", "answer": "1", "ability": kind} for kind in ("math", "qa", "math")]
    assert [task.kind for task in load_rows(tmp_path, "Reasoning10K", rows, kind="qa").tasks] == ["qa"]
    with pytest.raises(ValueError, match="no row of kind 'qa'"):
        load_rows(tmp_path, "Reasoning10K", rows[:1], kind="qa")


# local files


def gsm8k(path: Path, question: str = "how many?") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"question": question, "answer": "#### 1"}))
    return path


def questions(**options: Any) -> list[str]:
    return [task.question for task in load(BY_NAME["GSM8K"], **options).tasks]


def test_a_folder_s_files_are_chosen_by_the_split(tmp_path: Path) -> None:
    for name in ("train-1.jsonl", "train-0.jsonl", "test.jsonl", "notes.json"):
        gsm8k(tmp_path / "main" / name, name)
    (tmp_path / "README.md").write_text("no data")
    assert questions(data=tmp_path) == ["train-0.jsonl", "train-1.jsonl"]
    assert questions(data=tmp_path, split="test") == ["test.jsonl"]


def test_a_variable_names_a_folder_for_all_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gsm8k(tmp_path / "all/GSM8K/train.jsonl", "of the folder")
    (tmp_path / "all" / "gsm8k.zip").write_text("an archive is passed over")
    monkeypatch.setenv("ARPO_DATA", str(tmp_path / "all"))
    assert questions() == ["of the folder"]
    assert questions(data=gsm8k(tmp_path / "given.jsonl", "given")) == ["given"]


@pytest.mark.parametrize(
    ("file", "given", "split"),
    [("Test-00000-of-00001.jsonl", None, "test"), ("test.jsonl", "train", "train"), ("tested.jsonl", None, "train")],
)
def test_a_file_says_its_split_by_its_name(file: str, given: str | None, split: str, tmp_path: Path) -> None:
    source = load(BY_NAME["GSM8K"], data=gsm8k(tmp_path / file), split=given)
    assert source.tasks[0].id == f"gsm8k-{split}-0"
    with pytest.raises(ValueError, match=r"named validation, and the set has train, test: .* split="):
        load(BY_NAME["GSM8K"], data=gsm8k(tmp_path / "dev.jsonl"))


# the hub


@pytest.fixture
def datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    library = pytest.importorskip("datasets")
    monkeypatch.setattr(library.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    library.disable_progress_bars()
    return library


def hub_folder(folder: Path, split: str, configs: dict[str, list[dict[str, Any]]]) -> Path:
    """A folder that `datasets` loads like a repository: a file and an entry of the card for each configuration."""
    for config, rows in configs.items():
        (folder / config).mkdir(parents=True, exist_ok=True)
        (folder / config / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    card = [
        {"config_name": config, "data_files": [{"split": split, "path": f"{config}/{split}.jsonl"}]}
        for config in configs
    ]
    (folder / "README.md").write_text(f"---\nconfigs: {json.dumps(card)}\n---\n")
    return folder


def test_several_configurations_of_the_hub_are_read_one_after_the_other(tmp_path: Path, datasets: Any) -> None:
    math, rows = BY_NAME["MATH"], rows_of("MATH")
    folder = hub_folder(tmp_path, "test", {config: [rows[n % 3]] for n, config in enumerate(math.configs)})
    tasks = load(dataclasses.replace(math, hub=str(folder)), split="test").tasks
    assert [task.level for task in tasks] == ["1", "2", "3", "1", "2", "3", "1"]
    assert len({task.id for task in tasks}) == 7


def test_the_commit_that_the_hub_has_sent_is_kept(tmp_path: Path, datasets: Any, monkeypatch: Any) -> None:
    """`datasets` names the folder of what it has read by the commit, whether a revision was asked for or not."""
    folder = hub_folder(tmp_path, "train", {"main": rows_of("GSM8K")})
    table, asked = datasets.load_dataset(str(folder), "main", split="train"), []
    monkeypatch.setattr(type(table), "cache_files", [{"filename": f"/cache/owner___name/0.0.0/{'b' * 40}/x.arrow"}])
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **options: asked.append(options["revision"]) or table)
    monkeypatch.setattr("envs_registry.datasets.hub.offline", lambda: "")
    for revision in (None, "v2"):
        assert load(BY_NAME["GSM8K"], revision=revision).revision == "b" * 40
    assert asked == [None, "v2"]
    with pytest.raises(ValueError, match="revision='v2' is of the hub, but GSM8K is read from"):
        load(BY_NAME["GSM8K"], revision="v2", data=folder / "main")


@pytest.mark.parametrize("name", ["GSM8K", "HLE"])
def test_without_the_hub_a_set_says_how_to_give_a_file(name: str, datasets: Any) -> None:
    with pytest.raises(HubError, match=f"data='{name.lower()}.*ARPO_DATA") as caught:  # tests run with HF_HUB_OFFLINE
        load(BY_NAME[name])
    assert bool(BY_NAME[name].gated) == ("HF_TOKEN" in str(caught.value))


def test_a_gated_set_names_the_page_and_the_token(datasets: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub.errors import GatedRepoError

    def refuse(*_: Any, **__: Any) -> None:
        # `datasets` raises an error of its own around that of the hub client
        raise RuntimeError("cannot be loaded") from GatedRepoError("restricted", response=Mock())

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    page = "https://huggingface.co/datasets/gaia-benchmark/GAIA"
    with pytest.raises(HubError, match=f"GAIA is gated: accept its terms at {page}, then set HF_TOKEN"):
        load(BY_NAME["GAIA"])
