"""Episodes with attached files: GAIA-like tasks of each type, and forks."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import arpo_env
from arpo_env import ToolEnv
from envs_registry import Task
from sandbox import Limits, Sandbox
from tests.arpo_env.task_files.sample_files import FILES, locked_pdf

# file -> question, what `read_file` gets, and where the answer is in its result
SOLVED: dict[str, tuple[str, dict[str, Any], str]] = {
    "report.pdf": ("How long is the bridge, in metres?", {"part": "2"}, r"bridge is (81) metres"),
    "rows.csv": ("How old is Bob?", {}, r"Bob,(44)"),
    "notes.txt": ("Unter welchem Gegenstand liegt der Schlüssel?", {}, r"unter der (Matte)"),
    "box.zip": ("What is the word?", {"inside": "/deep/inner.txt"}, r"word is (marzipan)"),
}


def row(number: int, name: str, question: str, answer: str) -> dict[str, Any]:
    place = {"file_name": name, "file_path": f"2023/validation/{name}" if name else ""}
    return {"task_id": str(number), "Question": question, "Level": "1", "Final answer": answer, **place}


@pytest.fixture(scope="module")
def gaia(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of GAIA's repository with invented tasks: the metadata as Parquet, attached files beside it."""
    import pyarrow
    import pyarrow.parquet

    folder = tmp_path_factory.mktemp("gaia")
    place = folder / "2023" / "validation"
    place.mkdir(parents=True)
    answers = {name: pattern[pattern.index("(") + 1 : pattern.index(")")] for name, (_, _, pattern) in SOLVED.items()}
    rows = [row(n, name, SOLVED[name][0], answers[name]) for n, name in enumerate(SOLVED)]
    rows.append(row(99, "", "What is 1 + 1?", "2"))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), place / "metadata.parquet")
    for name, content in FILES.items():
        (place / name).write_bytes(content)
    return folder


@pytest.fixture(scope="module")
def env(gaia: Path, isolation: str) -> Iterator[Any]:
    made = gym.make("arpo/GAIA-v0", data=str(gaia), files=True)
    yield made
    made.close()


def python(code: str) -> str:
    return f"<think>c</think><python>{code}</python>"


def read(name: str, **arguments: Any) -> str:
    return f"<think>r</think><read_file>{json.dumps({'file': name, **arguments})}</read_file>"


def answer(text: str) -> str:
    return f"<think>a</think><answer>\\boxed{{{text}}}</answer>"


@pytest.mark.parametrize("name", SOLVED)
def test_a_task_of_each_type_is_solved(env: Any, name: str) -> None:
    asked, given, pattern = SOLVED[name]
    question, info = env.reset(options={"index": list(SOLVED).index(name)})
    assert question == f"{asked}\n\nAttached file: {name}" == info["messages"][1]["content"]
    size = env.step(python(f"import os; os.path.getsize({name!r})"))[0]
    assert f"\n{len(FILES[name])}\n" in size
    arguments = dict(given)
    result = env.step(read(name + arguments.pop("inside", ""), **arguments))[0]
    found = re.search(pattern, result)
    assert found is not None, result
    _, reward, terminated, _, _ = env.step(answer(found[1]))
    assert (reward, terminated) == (1.0, True)


def test_forks_and_sessions_that_are_opened_again_have_the_files_and_a_task_without_files_has_none(env: Any) -> None:
    env.reset(options={"index": list(SOLVED).index("rows.csv")})
    env.step(python("open('rows.csv', 'a').write('Cid,5\\n')"))
    twin = env.fork()
    env.step(python("open('rows.csv', 'w').close()"))
    assert "Cid,5" in twin.step(python("print(open('rows.csv').read())"))[0]
    assert "Bob,44" in twin.step(read("rows.csv"))[0]
    twin.close()
    env.reset(options={"index": len(SOLVED)})
    assert "Error: no file is attached" in env.step(read("rows.csv"))[0]
    assert "\n[]\n" in env.step(python("import os; os.listdir()"))[0]
    env.reset(options={"index": list(SOLVED).index("notes.txt")})
    assert "restarted" in env.step(python("import os; os._exit(1)"))[0]
    assert "Matte" in env.step(python("print(open('notes.txt').read())"))[0]


def test_own_tasks_carry_files_too(tmp_path: Path, isolation: str, own_names: None) -> None:
    (tmp_path / "a.csv").write_text("x,y\n3,4\n")
    (tmp_path / "locked.pdf").write_bytes(locked_pdf("pw"))
    (tmp_path / "tasks.jsonl").write_text(
        json.dumps({"question": "What is y?", "answer": "4", "files": ["a.csv", "locked.pdf"]}) + "\n"
    )
    arpo_env.register("mine/Files-v0", tmp_path / "tasks.jsonl", tools=["python"], scorer="em")
    env = gym.make("mine/Files-v0")
    question, _ = env.reset(seed=0)
    assert question.endswith("Attached files: a.csv, locked.pdf")
    assert "locked with a password" in env.step(read("locked.pdf"))[0]
    assert "3,4" in env.step(read("a.csv"))[0]
    assert env.step(answer("4"))[1] == 1.0
    (tmp_path / "a.csv").unlink()
    with pytest.raises(FileNotFoundError, match=r"its file '.*a\.csv' does not exist on this machine; put it there"):
        env.reset(seed=0)
    env.close()


def test_a_file_that_the_sandbox_cannot_take_is_named_to_the_model(tmp_path: Path) -> None:
    (tmp_path / "big.bin").write_bytes(bytes(5000))
    (tmp_path / "small.txt").write_text("small")
    box = Sandbox.open_sync("unsafe_local", limits=Limits(file_size=4096))
    task = Task("t", "q?", ("1",), files=(str(tmp_path / "big.bin"), str(tmp_path / "small.txt")))
    env = ToolEnv("arpo/Arithmetic-v0", sandbox=box)
    env.reset(options={"task": task})
    result = env.step(python("import os; os.listdir()"))[0]
    assert "['small.txt']\n(too large for the working directory, and not in it: big.bin (5,000 bytes))" in result
    assert "too large" not in env.step(python("1"))[0]
    env.close()
    box.close_sync()
