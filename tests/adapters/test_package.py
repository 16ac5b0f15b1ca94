"""`arpo data package`: what is refused before anything is written, and what the folder holds.

That frameworks take the folders is tested with the frameworks: test_verifiers.py, test_openenv.py.
"""

import ast
import errno
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from arpo_env import EnvFactory, register
from arpo_env.adapters.package import FORMATS, write_package
from arpo_trainer.cli.arpo_command import main
from envs_registry import Task

ENV, GAIA = "arpo/Arithmetic-v0", "arpo/GAIA-v0"


def words(folder: Path, *more: str, env: str = ENV, format: str = "verifiers") -> list[str]:
    return ["data", "package", env, "--format", format, "--output", str(folder), *more]


@pytest.mark.parametrize("format", FORMATS)
def test_a_package_is_written_into_a_new_folder_only(
    format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = words(tmp_path / "new", "--env-set", "level=2", format=format)
    assert main(command) == 0
    written = {path for path in (tmp_path / "new").rglob("*") if path.is_file()}
    assert set(capsys.readouterr().out.split()) == {str(path) for path in written}
    code = {path.name: path.read_text() for path in written}
    project = tomllib.loads(code["pyproject.toml"])["project"]
    assert project["name"].endswith("arpo-arithmetic-v0")
    assert [each.partition("[")[0].partition("~")[0] for each in project["dependencies"]] == ["arpo-gym", format]
    assert all(ast.parse(text) for name, text in code.items() if name.endswith(".py"))
    assert sum("{'level': 2}" in text for text in code.values()) == 1
    assert "of the split `train` unless the option `split` says another (train, test)" in code["README.md"]
    assert '1.00 on average for the accepted answer, given at once; 0.00 for the answer "none of' in code["README.md"]
    assert main(command) == 1
    assert "is not empty" in capsys.readouterr().err


def test_a_requirement_says_where_users_get_this_library(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for given, written in (
        ("arpo-gym @ git+https://h/o/r@ab1", "[data,math,search] @"),
        ("arpo-gym[mcp] >=2", "[mcp] >"),
    ):
        assert main(words(tmp_path / written, "--requirement", given)) == 0
        project = tomllib.loads((tmp_path / written / "pyproject.toml").read_text())
        assert project["project"]["dependencies"][0].startswith(f"arpo-gym{written}")
        assert project["tool"]["hatch"]["metadata"]["allow-direct-references"]
        assert ("CLONE" in (tmp_path / written / "README.md").read_text()) == ("@" not in given)
    for given, said in (("verl>=1", "is not of arpo-gym"), ("arpo-gym @ git+https://hunter2@h/o/r", "a login")):
        assert main(words(tmp_path / "refused", "--requirement", given)) == 1
        assert said in (error := capsys.readouterr().err)
        assert "hunter2" not in error
    assert not (tmp_path / "refused").exists()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Questions and a corpus, a link as in a hub's cache, a secret, a folder named like a provider."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SERPER_API_KEY", "k")
    sums = "".join(json.dumps({"question": f"{n} + 1?", "answer": f"#### {n + 1}"}) + "\n" for n in range(3))
    gaia = {"Question": "Who?", "Final answer": "Me", "task_id": "1", "Level": "1", "file_name": "a.txt"}
    texts = {
        "blobs/1f": sums,
        "own/.env": "KEY=k",
        "own/test.jsonl": sums,
        "corpus.jsonl": json.dumps({"id": 1, "title": "Oslo", "text": "A town."}) + "\n",
        "serper/notes": "private",
        "gaia/rows.jsonl": json.dumps(gaia) + "\n",
        "gaia/a.txt": "text",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "train.jsonl").symlink_to("blobs/1f")
    return tmp_path


@pytest.mark.parametrize(
    ("options", "copied"),
    [
        ({"data": "train.jsonl", "tools": ["search"], "search": "local:corpus.jsonl"}, ["train", "corpus"]),
        ({"data": "own", "split": "test", "tools": ["search"], "search": "serper"}, ["test"]),
    ],
)
def test_what_options_name_is_copied_under_its_own_name(options: dict[str, Any], copied: list[str], here: Path) -> None:
    written = write_package(here / "new", EnvFactory("arpo/GSM8K-v0", **options), "verifiers")
    assert sorted(path.stem for path in written) == sorted(["README", "pyproject", "__init__", *copied])
    code = (here / "new" / "arpo_gsm8k_v0" / "__init__.py").read_text()
    assert code.count("str(HERE / ") == len(copied)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (words(Path("new"), env="arpo/Arithmatic-v0"), "arpo/Arithmetic-v0"),
        (words(Path("new"), format="verifier"), "did you mean 'verifiers'"),
        (words(Path("new"), "--env-set", "folds=1"), "Leave folds out"),
        (words(Path("new"), "--env-set", "search=my/c.jsonl", env="arpo/MultiHop-v0"), "no corpus at my/c.jsonl"),
        (words(Path("train.jsonl")), "is not empty"),
        (words(Path("own/new"), "--env-set", "data=own", env="arpo/GSM8K-v0"), "name a folder elsewhere"),
        (
            words(Path("new"), "--env-set", "search=search-r1:http://me:hunter2@host:1", env="arpo/MultiHop-v0"),
            "the option search= has an address",
        ),
        (
            words(Path("new"), "--env-set", *["data=gaia/rows.jsonl", "files=true", "search=corpus.jsonl"], env=GAIA),
            "give data=FOLDER",
        ),
        (words(Path("new"), env="任务"), "does not begin with a letter"),
    ],
)
def test_what_cannot_work_or_be_shared_is_refused_before_anything_is_written(
    command: list[str], said: str, here: Path, own_names: None, capsys: pytest.CaptureFixture[str]
) -> None:
    register("任务", [Task("1", "1 + 1?", ("2",), kind="math")])
    before = sorted(here.rglob("*"))
    assert main(command) == 1
    assert said in (error := capsys.readouterr().err)
    assert "hunter2" not in error
    assert sorted(here.rglob("*")) == before


def test_a_full_disk_leaves_an_empty_folder_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Path.write_text

    def full(self: Path, *given: Any, **options: Any) -> int:
        if self.name == "pyproject.toml":
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(self, *given, **options)

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        write_package(tmp_path, EnvFactory("arpo/MultiHop-v0"), "verifiers")
    assert list(tmp_path.iterdir()) == []
