"""A new algorithm is one file with a row for a table, which a user adds from outside.

So are a tool, a protocol and tasks (`tests/arpo_trainer/cli/test_own_environment.py`), a generation backend
(`tests/test_docs.py`), a data set, a search provider and a grader (`tests/arpo_env/test_own_rows.py`).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

pytest.importorskip("torch")

from transformers import AutoTokenizer

from arpo_env.event_loop import run
from arpo_trainer import Engine, RolloutSettings, read_traces
from arpo_trainer.algorithms.branching import BRANCHES
from arpo_trainer.algorithms.registry import ALGORITHMS, get_algorithm
from arpo_trainer.cli.arpo_command import main
from tests.arpo_trainer.inference_tools.scripted_samples import ScriptedTurns

ALGORITHM = '''
from arpo_trainer.algorithms.branching import BRANCHES, BranchMethod
from arpo_trainer.algorithms.registry import ALGORITHMS, Algorithm


def everywhere(point, settings):
    """Branch after every result."""
    return point.scored(1.0, 0.0, True, "always")


BRANCHES["own-everywhere"] = BranchMethod(everywhere)
ALGORITHMS["own"] = row = Algorithm("arpo", "own-everywhere")
'''

TURNS = ("<think>I compute.</think><python>6 * 7</python>", "<think>So.</think><answer>\\boxed{42}</answer>")


@pytest.fixture
def folder(own_names: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's current folder, which is on Python's path; what a test puts into the tables is taken out again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    tables: list[dict[str, Any]] = [ALGORITHMS, BRANCHES]
    before = [dict(table) for table in tables]
    yield tmp_path
    for table, kept in zip(tables, before, strict=True):
        table.clear()
        table.update(kept)


def test_an_algorithm_is_one_file_with_a_row(folder: Path, byte_lm: Path, isolation: str) -> None:
    """A branching rule of its own: trained by name from the command line, and played by the engine."""
    (folder / "own_algorithm.py").write_text(ALGORITHM)
    given = f"model={byte_lm} algorithm=own_algorithm:own output_dir=out max_steps=1 eval_tasks=0 num_generations=4"
    given += " per_device_train_batch_size=4 gradient_accumulation_steps=1 max_completion_length=32 threads=1"
    given += " cold_start_examples=0 initial_rollouts=2 max_turn_length=16 save_final_model=false"
    assert main(["train", "--recipe", "arithmetic-cpu", "--set", *given.split()]) == 0
    assert get_algorithm("own_algorithm:row") == get_algorithm("own")
    with pytest.raises(ValueError, match=r"'own_algorithm:everywhere' is a function, not an .*Algorithm"):
        get_algorithm("own_algorithm:everywhere")
    with pytest.raises(ModuleNotFoundError, match=r"no module 'own_nowhere' .*searched"):
        get_algorithm("own_nowhere:own")
    [trained] = read_traces(folder / "out" / "traces.jsonl")
    assert trained.meta["algorithm"] == "own_algorithm:own"

    tokenizer = AutoTokenizer.from_pretrained(byte_lm)
    policy = ScriptedTurns(tokenizer, lambda request: TURNS[tokenizer.decode(request.ids).count("\n</result>")])
    env: Any = gym.make("arpo/Arithmetic-v0")
    grown = RolloutSettings(algorithm="own", num_generations=4, initial_rollouts=2)
    [tree] = run(Engine(policy, tokenizer, env, grown).rollout([env.tasks.task(0)]))
    env.close()
    assert [trajectory.origin for trajectory in tree.trajectories] == ["root", "root", "branch", "branch"]
    assert {span.decision.reason for span in tree.spans if span.decision and span.decision.branches} == {"always"}
