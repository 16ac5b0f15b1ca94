"""A new algorithm, tool, data set, search provider, generation backend or grader is one file, or one row in a table.

Each test adds one as a user would, from outside and with nothing else touched, uses it by the public way of use, and
takes it out again.
"""

import importlib.util
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from tests.arpo_env.local_server import Call, LocalServer

ALGORITHM = '''
from arpo_trainer.algorithms.advantages import ADVANTAGES
from arpo_trainer.algorithms.branching import BRANCHES, BranchMethod
from arpo_trainer.algorithms.losses import LOSSES, Loss
from arpo_trainer.algorithms.registry import ALGORITHMS, Algorithm


def everywhere(point, settings):
    """Branch after every result."""
    return point.scored(1.0, 0.0, True, "always")


def centred(groups, lengths, starts):
    """Return rewards as they are."""
    return [[reward or 0.0 for reward in group] for group in groups]


BRANCHES["own-everywhere"] = BranchMethod(everywhere)
ADVANTAGES["own-centred"] = centred
LOSSES["own-wide"] = Loss(high=0.5)
ALGORITHMS["own"] = row = Algorithm("arpo", "own-everywhere", advantage="own-centred", loss="own-wide")
'''

TOOL = '''
import arpo_env
from envs_registry import Task


def spell(word: str) -> str:
    """Spell a word.

    Args:
        word: any one.
    """
    return "-".join(word)


arpo_env.register("own/Spelling-v0", [Task("s-0", "Spell tree.", ("t-r-e-e",))], tools=[spell], scorer="em")
'''

GRADER = '''
from arpo_env import Grader, Score
from arpo_env.grading import GRADERS


class Length(Grader):
    """Compares how long the answers are."""

    async def grade(self, answer, task):
        return Score(float(len(answer) == len(task.answers[0])))


GRADERS["own-length"] = Length
'''

BACKEND = '''
from arpo_trainer import Generation
from arpo_trainer.backends.base import check_request
from arpo_trainer.tree import Stopwatch


class Scripted:
    """Writes one turn after the other, whatever the question is."""

    trains = False
    wants_messages = False

    def __init__(self, tokenizer, turns):
        self.tokenizer, self.turns, self.time = tokenizer, turns, Stopwatch()

    async def begin(self): ...

    async def generate(self, request, on_window=None):
        check_request(request)
        with self.time.running():
            number = self.tokenizer.decode(request.ids).count("\\n</result>")
            ids = self.tokenizer.encode(self.turns[number])[: request.max_tokens]
        if on_window and request.window:
            on_window([0.0] * min(len(ids), request.window))
        return Generation(ids, [0.0] * len(ids), [0.0] * len(ids), "stop")

    async def end(self): ...
'''

TURNS = ("<think>I compute.</think><python>6 * 7</python>", "<think>So.</think><answer>\\boxed{42}</answer>")


@pytest.fixture(autouse=True)
def tables_as_before(own_names: None) -> Iterator[None]:
    """Takes out of all tables what a test has put in, and its modules own_*."""
    from arpo_env import grading
    from arpo_env.search import backends

    tables: list[dict[Any, Any]] = [
        grading.GRADERS,
        backends._factories,
        backends._BY_NAME,
    ]
    if importlib.util.find_spec("torch"):
        tables += _tables_of_algorithms()
    before = [dict(table) for table in tables]
    yield
    for table, kept in zip(tables, before, strict=True):
        table.clear()
        table.update(kept)


def _tables_of_algorithms() -> list[dict[Any, Any]]:
    from arpo_trainer.algorithms import advantages, branching, losses, registry

    return [registry.ALGORITHMS, branching.BRANCHES, advantages.ADVANTAGES, losses.LOSSES]


@dataclass
class User:
    """Someone with a folder of files of their own."""

    folder: Path

    def writes(self, name: str, text: str) -> Path:
        (self.folder / name).write_text(text, encoding="utf-8")
        return self.folder / name

    def imports(self, name: str, text: str) -> Any:
        self.writes(f"{name}.py", text)
        return importlib.import_module(name)


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> User:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return User(tmp_path)


def test_an_algorithm_is_one_file_with_a_row(user: User, byte_lm: Path, isolation: str) -> None:
    """A branching rule, an advantage and a loss: trained by name from a settings file, and played by the engine."""
    from transformers import AutoTokenizer

    from arpo_env.event_loop import run
    from arpo_trainer import Engine, RolloutSettings, read_traces
    from arpo_trainer.algorithms.registry import get_algorithm
    from arpo_trainer.cli.arpo_command import main

    user.writes("own_algorithm.py", ALGORITHM)
    settings = {
        "model": str(byte_lm),
        "env": "arpo/Arithmetic-v0",
        "algorithm": "own_algorithm:own",
        "max_steps": 1,
        "output_dir": "out",
        "eval_tasks": 0,
        "num_generations": 4,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 1,
        "max_completion_length": 32,
        "use_cpu": True,
        "bf16": False,
        "save_strategy": "no",
        "save_final_model": False,
        "threads": 1,
    }
    config = user.writes("own.yaml", json.dumps(settings))  # JSON is YAML
    assert main(["train", "--config", str(config)]) == 0
    assert get_algorithm("own_algorithm:row") == get_algorithm("own")
    with pytest.raises(ValueError, match=r"'own_algorithm:everywhere' is a function, not an .*Algorithm"):
        get_algorithm("own_algorithm:everywhere")
    with pytest.raises(ModuleNotFoundError, match=r"no module 'own_nowhere' .*searched"):
        get_algorithm("own_nowhere:own")
    [trained] = read_traces(user.folder / "out" / "traces.jsonl")
    assert trained.meta["algorithm"] == "own_algorithm:own"

    tokenizer = AutoTokenizer.from_pretrained(byte_lm)
    backend = user.imports("own_backend", BACKEND).Scripted(tokenizer, TURNS)
    env: Any = gym.make("arpo/Arithmetic-v0")
    grown = RolloutSettings(algorithm="own", num_generations=4, initial_rollouts=2)
    [tree] = run(Engine(backend, tokenizer, env, grown).rollout([env.tasks.task(0)]))
    env.close()
    assert [trajectory.origin for trajectory in tree.trajectories] == ["root", "root", "branch", "branch"]
    assert {span.decision.reason for span in tree.spans if span.decision and span.decision.branches} == {"always"}


def test_a_tool_is_one_file_with_a_typed_function(user: User) -> None:
    user.writes("own_tool.py", TOOL)
    env = gym.make("own_tool:own/Spelling-v0")
    _, info = env.reset(seed=0)
    assert "Call spell in <spell> word </spell>: Spell a word." in info["messages"][0]["content"]
    *_, info = env.step("<think>I call it.</think><spell>tree</spell>")
    assert info["results"] == ["t-r-e-e"]
    _, reward, *_ = env.step(f"<think>So.</think><answer>\\boxed{{{info['results'][0]}}}</answer>")
    assert reward == 1.0
    env.close()


def test_a_data_set_is_one_row(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row as those of `math_sets`; the environment, its options and where its data may lie come from the row."""
    from envs_registry import DataSet, register_data_sets

    row = DataSet(
        name="OwnPuzzles",
        description="puzzles",
        hub="someone/puzzles",
        splits=(("train", "train"), ("test", "test")),
        play={"tools": ("python",), "scorer": "math", "max_turns": 3, "max_tool_calls": 2},
        size="test 2",
        licence="MIT",
        question=("puzzle",),
        answers=("solution",),
        level="stars",
        levels=("1", "2"),
        kind="math",
    )
    register_data_sets([row])
    lines = [{"puzzle": "1 + 1?", "solution": "2", "stars": 1}, {"puzzle": "2 ** 5?", "solution": "32", "stars": 2}]
    file = user.writes("test.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    env: Any = gym.make("arpo/OwnPuzzles-v0", data=str(file), level=2)
    question, _ = env.reset(seed=0)
    assert (question, env.tasks.size) == ("2 ** 5?", 1)
    _, reward, *_ = env.step("<think>I know.</think><answer>\\boxed{32}</answer>")
    assert reward == 1.0
    env.close()


def test_a_search_provider_is_one_row(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of the table of providers: asked with its key, recorded, and replayed without one."""
    pytest.importorskip("httpx2")
    from arpo_env.search.backends import (
        HitFields,
        ProviderRow,
        ReplyShape,
        Request,
        SearchQuery,
        ready_providers,
        register_provider,
    )

    def request(query: SearchQuery) -> Request:
        return {"headers": {"X-Own-Key": query.keys["OWN_SEARCH_KEY"]}, "params": {"q": query.text, "n": query.k}}

    row = ProviderRow(
        name="own-search",
        endpoint="https://search.example/v1",
        variables=("OWN_SEARCH_KEY",),
        page="https://search.example/keys",
        request=request,
        shape=ReplyShape(("found",), HitFields(snippet=("words",))),
        most=10,
    )
    register_provider(row)
    monkeypatch.setenv("OWN_SEARCH_KEY", "k-1")
    assert "own-search" in ready_providers()
    questions = user.writes("test.jsonl", json.dumps({"question": "Capital of Norway?", "answer": ["Oslo"]}) + "\n")
    turn, options = (
        "<think>I search.</think><search>capital of Norway</search>",
        {"data": questions, "cache": "c.sqlite"},
    )

    def answer(call: Call) -> None:
        call.reply({"found": [{"title": "Norway", "url": "https://n.example", "words": "Its capital is Oslo."}]})

    with LocalServer(answer) as server:
        where = f"own-search:{server.address}"
        env = gym.make("arpo/Bamboogle-v0", search=where, **options)
        env.reset(seed=0)
        assert "Its capital is Oslo." in env.step(turn)[0]
        env.close()
        [seen] = server.seen
        assert (seen.headers["x-own-key"], seen.params["q"]) == ("k-1", "capital of Norway")
    monkeypatch.delenv("OWN_SEARCH_KEY")
    env = gym.make("arpo/Bamboogle-v0", search=where, cache_mode="replay", **options)
    env.reset(seed=0)
    assert "Its capital is Oslo." in env.step(turn)[0]
    env.close()


def test_a_generation_backend_is_one_file(user: User, byte_lm: Path, isolation: str) -> None:
    """Anything with the methods of `Backend`: the engine plays trees with it, and `evaluate` measures it."""
    from transformers import AutoTokenizer

    from arpo_env.event_loop import run
    from arpo_trainer import Engine, RolloutSettings, evaluate

    tokenizer = AutoTokenizer.from_pretrained(byte_lm)
    backend = user.imports("own_backend", BACKEND).Scripted(tokenizer, TURNS)
    env: Any = gym.make("arpo/Arithmetic-v0", level=1)
    engine = Engine(backend, tokenizer, env, RolloutSettings(algorithm="grpo", num_generations=2))
    tasks = [env.tasks.task(number) for number in range(2)]
    trees = run(engine.rollout(tasks))
    assert [t.answer for tree in trees for t in tree.trajectories] == ["42"] * 4
    assert [t.tool_calls for tree in trees for t in tree.trajectories] == [1] * 4
    result = evaluate(engine, tasks, "scripted")
    assert (result.n, result.accuracy, result.tool_calls) == (2, 0.0, 1.0)
    env.close()


def test_a_grader_is_one_file_with_a_row(user: User) -> None:
    user.imports("own_grader", GRADER)
    env = gym.make("arpo/Arithmetic-v0", scorer="own-length")
    _, info = env.reset(seed=0)
    right = info["task"].answers[0]
    assert env.step(f"<think>I guess.</think><answer>\\boxed{{{'7' * len(right)}}}</answer>")[1] == 1.0
    env.reset(seed=0)
    assert env.step(f"<think>I guess.</think><answer>\\boxed{{{right}7}}</answer>")[1] == 0.0
    env.close()
