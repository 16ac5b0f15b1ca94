"""Environments of one's own: registered by a public function, and found by `module:id` wherever an id is taken."""

import functools
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import arpo_env
from arpo_env import ToolEnv
from envs_registry import Task, UnknownEnvError, get_spec, resolve_id
from envs_registry.sources import ListSource

pytestmark = pytest.mark.usefixtures("own_names")

ONE, TWO = Task("one", "What is 1?", ("1",)), Task("two", "What is 2?", ("2",))
MODULE = """
import arpo_env
from envs_registry import Task

def shout(text: str) -> str:
    '''Say it louder.'''
    return text.upper() + "!"

arpo_env.register("mine/Shout-v0", [Task("t", "Shout a.", ("A!",))], tools=[shout], scorer="qa")
"""


def question(env_id: str, **options: Any) -> str:
    env: Any = gym.make(env_id, **options)
    return env.reset(options={"index": 0})[0]


def tasks_of_a_level(level: int = 1) -> list[Task]:
    return [Task("t", f"Level {level}?", ("1",))]


class Endless:
    """Numbers without end, other ones for another seed."""

    size = None

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def task(self, index: int) -> Task:
        return Task(f"{self.seed}/{index}", f"{self.seed} + {index}?", (str(self.seed + index),), kind="math")


@pytest.mark.parametrize(
    ("tasks", "options", "shown"),
    [
        ([ONE, TWO], {}, "What is 1?"),
        ((task for task in (ONE, TWO)), {}, "What is 1?"),
        (ListSource([TWO]), {}, "What is 2?"),
        (tasks_of_a_level, {"level": 3}, "Level 3?"),
        (functools.partial(tasks_of_a_level, level=7), {}, "Level 7?"),
        (Endless, {"seed": 5}, "5 + 0?"),
        ({"train": [ONE], "test": [TWO]}, {}, "What is 1?"),
        ({"train": [ONE], "test": Endless}, {"split": "test"}, "0 + 0?"),
    ],
    ids=["list", "generator", "source", "function", "partial", "generated", "first-split", "split"],
)
def test_tasks_come_in_many_forms(tasks: Any, options: dict[str, Any], shown: str) -> None:
    arpo_env.register("mine/Forms-v0", tasks)
    assert question("mine/Forms-v0", **options) == shown


def test_tasks_come_out_of_files(tmp_path: Path) -> None:
    rows = {
        "train": {"question": "1 + 1?", "answer": "2", "level": "easy", "category": "sums"},
        "test": {"question": "Who?", "answer": "I"},
    }
    for split, row in rows.items():
        (tmp_path / f"{split}.jsonl").write_text(json.dumps(row), encoding="utf-8")
    arpo_env.register("mine/File-v0", tmp_path / "train.jsonl", scorer="math", levels=("easy", "hard"))
    assert question("mine/File-v0", level="easy") == "1 + 1?"
    first = ToolEnv("mine/File-v0").tasks.task(0)
    assert (first.kind, first.category) == ("math", "sums")
    assert question("mine/File-v0", data=tmp_path / "test.jsonl") == "Who?"
    with pytest.raises(ValueError, match="no row of level hard"):
        ToolEnv("mine/File-v0", level="hard")
    assert arpo_env.register("mine/Folder-v0", str(tmp_path)).splits == ("train", "validation", "test")
    assert question("mine/Folder-v0", split="test") == "Who?"


def test_another_environment_s_tasks_can_be_played_otherwise() -> None:
    spec = arpo_env.register("mine/Hard-v0", source="arithmetic", tools=[], max_turns=2, tool_limits={"python": 1})
    assert (spec.tools, spec.tool_limits) == ((), (("python", 1),))
    assert question("mine/Hard-v0", level=2) == question("arpo/Arithmetic-v0", level=2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("mine/Bad-v0",), "no tasks: give tasks="),
        *((("mine/Bad-v0", none), "an empty list") for none in ([], {})),
        (("mine/Bad-v0", ["1 + 1?"]), r"hold '1 \+ 1\?': give a list of Task"),
        (("mine/Bad-v0", 5), "hold 5: give a list of Task"),
        (("my_envs:mine/Bad-v0", [ONE]), "register 'mine/Bad-v0'"),
        (("CartPole-v1", [ONE]), "already registered"),
    ],
)
def test_what_cannot_be_registered_is_refused(arguments: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        arpo_env.register(*arguments)
    assert "mine/Bad-v0" not in gym.registry


@pytest.mark.parametrize(
    ("tasks", "options", "words"),
    [
        ([ONE], {"split": "test"}, r"has no splits: leave split='test' out, or register its tasks by split"),
        ([ONE], {"data": "x.jsonl"}, "reads no data file"),
        ([ONE], {"level": 2}, "has no option 'level'"),
        ({"train": [ONE]}, {"split": "test"}, "has the splits train; not 'test'"),
        (lambda: 5, {}, "hold 5: give a list of Task"),
    ],
)
def test_what_the_tasks_do_not_have_is_refused(tasks: Any, options: dict[str, Any], words: str) -> None:
    arpo_env.register("mine/Few-v0", tasks)
    with pytest.raises(ValueError, match=words):
        ToolEnv("mine/Few-v0", **options)


def test_a_module_may_register_its_own_ids_again_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "own_shout.py"
    path.write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    module = importlib.import_module("own_shout")
    path.write_text(MODULE.replace('"!"', '"?"'), encoding="utf-8")
    importlib.reload(module)
    exec(compile(path.read_text(), path, "exec"), {"__name__": "__main__", "__file__": str(path)})
    name = "mine/Shout-v0"
    for taken in (name, "arpo/GSM8K-v0"):
        with pytest.raises(ValueError, match=r"already registered, and not by this module: .*overwrite=True"):
            arpo_env.register(taken, [TWO])
    arpo_env.register(name, [TWO], tools=[], overwrite=True)
    assert question(name) == "What is 2?"


def test_an_id_names_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_shout.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [part for part in sys.path if part])  # as a console script has it
    with pytest.raises(UnknownEnvError, match="name your own environment with its module"):
        get_spec("mine/Shout-v0")
    assert ToolEnv("own_shout:mine/Shout-v0").env_spec.id == "mine/Shout-v0"
    assert gym.make("own_shout:mine/Shout-v0").reset()[0] == "Shout a."
    assert resolve_id("own_shout:mine/Shout-v0") == "mine/Shout-v0"
    with pytest.raises(UnknownEnvError, match=r"mean: mine/Shout-v0.*The module 'own_shout' has to register it"):
        get_spec("own_shout:mine/Shut-v0")
