"""An environment travels between processes as its factory; a running episode does not, and is copied by a fork."""

import copy
import multiprocessing
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from arpo_env import EnvFactory, ToolEnv

OPTIONS: dict[str, Any] = {"level": 2, "tools": ["python"], "reward": {"accuracy": 1.0}, "max_turns": 3}
OPTIONS["sandbox"] = {"backend": "unsafe_local", "profile": "minimal", "limits": {"open_files": 300}}


def first_question(env: Any) -> tuple[str, str, str]:
    """What another process sees of an environment."""
    question = env.reset(options={"index": 5})[0]
    look = "import resource; resource.getrlimit(resource.RLIMIT_NOFILE)"
    return question, env.step(f"<think>t</think><python>{look}</python>")[0], repr(env.unwrapped.factory)


def shout(text: str) -> str:
    """Shout."""
    return text.upper()


class Pinned(ToolEnv):
    """A subclass, which a factory would not make."""


def test_an_environment_reaches_a_process_that_is_spawned() -> None:
    env = gym.make("arpo/Arithmetic-v0", **OPTIONS)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        question, result, factory = pool.submit(first_question, env).result(timeout=120)
    assert question == env.reset(options={"index": 5})[0]
    assert "(300, 300)" in result  # the sandbox there has the settings that were asked for
    assert factory == repr(EnvFactory("arpo/Arithmetic-v0", **OPTIONS))
    env.close()


def test_equal_settings_are_equal_factories_which_print_as_the_call() -> None:
    factory = EnvFactory("arpo/Arithmetic-v0", **OPTIONS)
    same = pickle.loads(pickle.dumps(factory))
    assert same == factory == gym.make("arpo/Arithmetic-v0", **OPTIONS).unwrapped.factory  # type: ignore[attr-defined]
    assert hash(same) == hash(factory)
    assert factory != EnvFactory("arpo/Arithmetic-v0", level=2)
    assert eval(repr(factory), {"gym": gym}).unwrapped.factory == factory
    assert factory() is not factory()
    assert factory().tasks is factory().tasks  # loaded once


def test_a_running_episode_is_forked_and_not_pickled(isolation: str) -> None:
    env = gym.make("arpo/Arithmetic-v0", level=2).unwrapped
    env.reset(seed=0)
    env.step("<think>a</think><python>x = 41</python>")
    with pytest.raises(pickle.PicklingError, match=r"env\.fork\(\)"):
        pickle.dumps(env)
    twin = copy.copy(env)  # as copy.deepcopy, which it calls
    env.step("<think>a</think><python>x = 0</python>")
    assert "42" in twin.step("<think>a</think><python>x + 1</python>")[0]
    twin.close()
    env.step("<think>a</think><answer>\\boxed{1}</answer>")
    assert pickle.loads(pickle.dumps(env)).factory == env.factory  # type: ignore[attr-defined]
    env.close()


def test_a_function_travels_by_its_module_or_by_cloudpickle(tmp_path: Path) -> None:
    pytest.importorskip("cloudpickle")
    secret = 17

    def add(number: int) -> int:
        """Add."""
        return number + secret

    env = gym.make("arpo/Arithmetic-v0", tools=["python", shout, add]).unwrapped
    there = pickle.loads(pickle.dumps(env))
    there.reset(seed=0)
    assert "18" in there.step('<think>a</think><add>{"number": 1}</add>')[0]
    there.close()
    script = tmp_path / "script.py"
    script.write_text(
        "import pickle, sys\nfrom arpo_env import EnvFactory\n"
        "def shout(text: str) -> str:\n    '''Shout.'''\n    return text.upper()\n"
        "sys.stdout.buffer.write(pickle.dumps(EnvFactory('arpo/Arithmetic-v0', tools=[shout])))\n"
    )
    state = subprocess.run([sys.executable, script], capture_output=True, check=True).stdout
    assert list(pickle.loads(state)().tools) == ["shout"]


def test_an_environment_of_a_module_is_found_in_a_new_process(tmp_path: Path, own_names: None) -> None:
    (tmp_path / "my_envs.py").write_text(
        "import arpo_env\nfrom envs_registry import Task\n"
        "arpo_env.register('own/Where-v0', [Task('a', 'where?', ('here',))])\n"
    )
    sys.path.insert(0, str(tmp_path))
    state = pickle.dumps(gym.make("my_envs:own/Where-v0"))
    code = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read()).reset()[0])"
    root = str(Path(__file__).resolve().parents[2])
    for path, works in ((f"{root}:{tmp_path}", True), (root, False)):
        run = subprocess.run([sys.executable, "-c", code], input=state, capture_output=True, env={"PYTHONPATH": path})
        assert (run.returncode == 0) is works
        assert b"where?" in run.stdout if works else b"no module 'my_envs' (searched" in run.stderr


def test_a_changed_protocol_travels_and_a_subclass_or_a_lock_does_not() -> None:
    env = ToolEnv("arpo/Arithmetic-v0", level=2).with_protocol("hermes")
    there = pickle.loads(pickle.dumps(env))
    assert (there.protocol.name, there.tasks.task(0).level) == ("hermes", "2")
    with pytest.raises(TypeError, match="this is a Pinned"):
        pickle.dumps(Pinned("arpo/Arithmetic-v0"))
    with pytest.raises(pickle.PicklingError, match=r"the option scorer= cannot be sent.*give what makes it there"):
        pickle.dumps(EnvFactory("arpo/Arithmetic-v0", scorer=threading.Lock()))
