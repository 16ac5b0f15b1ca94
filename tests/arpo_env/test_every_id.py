"""Every registered id: Gymnasium's checker is content, and stepping a fork equals stepping the original.

Rows are invented, with the columns of the real sets; search runs on a corpus of a few passages.
"""

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.utils.env_checker import check_env

from arpo_env import ToolEnv
from envs_registry import all_specs
from tests.envs_registry.datasets.sample_rows import ROWS, sample_file

# sets without answers; see tools/test_tool_sets.py
BY_CALLS = {"arpo/TMDB-v0", "arpo/Spotify-v0", "arpo/ToolBench-v0", "arpo/APIBank-v0"}
IDS = [spec.id for spec in all_specs() if spec.id not in BY_CALLS]
PASSAGES = (
    {"id": "1", "title": "Oberland", "text": "Oberland is an invented town on the river Nieder."},
    {"id": "2", "title": "Ada Nowhere", "text": "Ada Nowhere founded the invented town of Oberland in 1901."},
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sample rows of every set, and a corpus."""
    made = tmp_path_factory.mktemp("sets")
    (made / "corpus.jsonl").write_text("".join(json.dumps(passage) + "\n" for passage in PASSAGES))
    return made


@pytest.fixture(params=IDS)
def env(request: pytest.FixtureRequest, folder: Path, isolation: str) -> Iterator[ToolEnv]:
    """The environment of an id. What would ask a judge asks EM and F1."""
    env_id = request.param
    spec = next(spec for spec in all_specs() if spec.id == env_id)
    options: dict[str, Any] = {"render_mode": "ansi"}
    if env_id in ROWS:
        options["data"] = str(sample_file(env_id, folder))
        if "search" in spec.tools:
            options["search"] = f"local:{folder / 'corpus.jsonl'}"
    if spec.scorer == "judge":
        options["scorer"] = "qa"
    made = gym.make(env_id, **options).unwrapped
    assert isinstance(made, ToolEnv)
    yield made
    made.close()


def call(env: ToolEnv, number: int) -> str:
    """A turn that uses one of the environment's tools, in turn."""
    name = list(env.tools)[number % len(env.tools)]
    texts = {"python": "import random; x = [*globals().get('x', []), random.random()]; x", "go": "a"}
    return f"<think>I look.</think><{name}>{texts.get(name, 'founded the town')}</{name}>"


def answer(text: str) -> str:
    return f"<think>Done.</think><answer>\\boxed{{{text}}}</answer>"


def test_check_env_is_content(env: ToolEnv) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*render fps.*")
        check_env(env)


def test_stepping_a_fork_equals_stepping_the_original(env: ToolEnv) -> None:
    env.reset(seed=1)
    first = env.step(call(env, 0))
    assert first[4]["tool"]["status"] == "ok", first
    env.step(call(env, 1))
    twin = env.fork()
    gold = env.episode.task.answers[0]
    for action in (call(env, 0), call(env, 1), answer(gold)):
        mine, other = env.step(action), twin.step(action)
        assert mine[:4] == other[:4]
        assert _without_times(mine[4]) == _without_times(other[4])
    assert mine[1] >= 1.0, mine
    assert env.render() == twin.render()
    assert str(env.render()).startswith(f"{env.episode.task.question}\n{call(env, 0)}")
    twin.close()


def _without_times(info: dict[str, Any]) -> dict[str, Any]:
    return {**info, "tool": {key: value for key, value in info.get("tool", {}).items() if key != "seconds"}}
