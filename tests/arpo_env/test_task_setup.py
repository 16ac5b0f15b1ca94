"""What a policy can learn from a task's setup: nothing but what it defines, and never the answer as it was written."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from arpo_env import ToolEnv
from envs_registry import EnvSpec, Task, register, register_source, spec

LEAKY = Task("leaky", "What is the capital?", ("Paris",), setup="answer = 'Paris'\ndel answer")
CLEAN = Task("clean", "What is 6 * n?", ("4218",), kind="math", setup="# marker, it is 4218\nn = 700 + 3")


@dataclass
class Tasks:
    """A finite source."""

    tasks: list[Task]

    @property
    def size(self) -> int:
        return len(self.tasks)

    def task(self, index: int) -> Task:
        return self.tasks[index]


@pytest.fixture
def own() -> Iterator[list[Task]]:
    """The tasks of an environment `arpo/Own-v0`."""
    tasks: list[Task] = []
    register_source("own", lambda **_: Tasks(tasks))
    register([EnvSpec("arpo/Own-v0", "own", "tasks of a test")])
    yield tasks
    del spec._SPECS["arpo/Own-v0"]


def test_a_task_whose_setup_holds_its_answer_is_refused_at_reset(own: list[Task]) -> None:
    own.append(CLEAN)
    env = ToolEnv("arpo/Own-v0")
    with pytest.raises(ValueError, match=r"task 'leaky': line 1 of its setup holds the gold answer 'Paris'"):
        env.reset(options={"task": LEAKY})
    assert env.reset(options={"task": CLEAN})[0] == CLEAN.question


def test_a_finite_set_is_looked_through_when_the_environment_is_built(own: list[Task]) -> None:
    own += [CLEAN, LEAKY]
    with pytest.raises(ValueError, match=r"task 'leaky'.*or remove it"):
        ToolEnv("arpo/Own-v0")


def test_a_policy_does_not_find_the_text_of_a_setup(own: list[Task], isolation: str) -> None:
    own.append(CLEAN)
    env = ToolEnv("arpo/Own-v0")
    env.reset(options={"index": 0})
    look = "import linecache, gc\nprint([name for name in linecache.cache if 'setup' in name], n)"
    twin = env.fork()
    for one in (env, twin):
        result, *_ = one.step(f"<think>t</think><python>{look}</python>")
        assert "[] 703" in result
    env.close()
    twin.close()
