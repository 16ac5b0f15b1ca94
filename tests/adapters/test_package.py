"""`arpo data package`: what is refused before anything is written, and what the folder holds.

That frameworks take the folders is tested with the frameworks: test_verifiers.py, test_openenv.py.
"""

import ast
import tomllib
from pathlib import Path

import pytest

from arpo_env import EnvFactory
from arpo_env.adapters.package import FORMATS, write_package
from arpo_trainer.cli.arpo_command import main

ENV = "arpo/Arithmetic-v0"


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
    assert '1.00 on average for the accepted answer, given at once; 0.00 for the answer "none of' in code["README.md"]
    assert main(command) == 1
    assert "is not empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (words(Path("new"), env="arpo/Arithmatic-v0"), "arpo/Arithmetic-v0"),
        (words(Path("new"), format="verifier"), "did you mean 'verifiers'"),
        (words(Path("new"), "--env-set", "lvl=2"), "level"),
        (words(Path("new"), "--env-set", "folds=1"), "Leave folds out"),
        (
            words(Path("new"), "--env-set", "search=my/corpus.jsonl", env="arpo/MultiHop-v0"),
            "no corpus at my/corpus.jsonl",
        ),
        (words(Path("file")), "is not empty"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(
    command: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    assert main(command) == 1
    assert said in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_option_that_is_no_plain_value_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="tools="):
        write_package(tmp_path / "new", EnvFactory(ENV, tools=[write_package]), "verifiers")
