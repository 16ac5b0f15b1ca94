"""The diffs of CONTRIBUTING.md are whole changes: a copy of the packages that has one does what its heading says."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("sandbox", "envs_registry", "arpo_env", "arpo_trainer")
SECTIONS = re.split(r"^## ", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
DIFFS = {
    section.partition("\n")[0]: section.partition("```diff\n")[2].partition("```")[0]
    for section in SECTIONS
    if "```diff\n" in section
}
# what a user does with each of them
USES = {
    "Add a tool": """
import gymnasium as gym, arpo_env
env = gym.make("arpo/Arithmetic-v0", tools=["weekday"])
_, info = env.reset(seed=0)
assert "Call weekday in <weekday> date </weekday>: Name the day of the week." in info["messages"][0]["content"]
assert env.step("<think>So.</think><weekday>2026-11-30</weekday>")[4]["results"] == ["Monday"]
env.close()
""",
    "Add an environment": """
import gymnasium as gym, arpo_env
asked = {}
for split in ("train", "test"):
    env = gym.make("arpo/Letters-v0", split=split)
    asked[split] = {env.unwrapped.tasks.task(number).question for number in range(50)}
    question, _ = env.reset(seed=0)
    count = question.partition(" in ")[2].count("b")
    assert env.step(f"<think>I count.</think><answer>\\\\boxed{{{count}}}</answer>")[1] == 1.0
    env.close()
assert not asked["train"] & asked["test"]
""",
    "Add a credit rule": """
from arpo_trainer import ARPOConfig
from arpo_trainer.algorithms.credit import token_advantages
from tests.arpo_trainer.test_tree import small_tree
args, tree = ARPOConfig(output_dir="out", use_cpu=True, bf16=False, attribution="last"), small_tree()
rows = token_advantages(tree, [1.0, 0.5, 9.0], args.attribution)
for number, (row, advantage) in enumerate(zip(rows, [1.0, 0.5, 9.0])):
    last = len(tree.path(number)[-1].ids)
    expected = [0.0] * (len(row) - last) + [advantage] * last
    assert row == (expected if tree.trajectories[number].valid else [0.0] * len(row))
assert any(map(any, rows))
""",
    "Add a search provider": """
import os
import gymnasium as gym, arpo_env
from tests.arpo_env.local_server import LocalServer
os.environ["EXAMPLE_SEARCH_KEY"] = "k-1"
found = {"results": [{"title": "Norway", "url": "https://n.example", "text": "Its capital is Oslo."}]}
with LocalServer(lambda call: call.reply(found)) as server:
    env = gym.make("arpo/MultiHop-v0", search=f"example:{server.address}")
    env.reset(seed=0)
    assert "Its capital is Oslo." in env.step("<think>So.</think><search>capital of Norway</search>")[0]
    env.close()
    [seen] = server.seen
assert (seen.headers["x-key"], seen.params["q"]) == ("k-1", "capital of Norway")
""",
}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The packages, and what the test's own programs need."""
    for package in (*PACKAGES, "tests"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__", "recorded"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def run(folder: Path, *command: str, said: str = "") -> None:
    # git would look for a repository around the folder, and leave out what is not in it
    variables = {**os.environ, "PYTHONPATH": str(folder), "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    done = subprocess.run(command, cwd=folder, env=variables, input=said, text=True, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("heading", USES)
def test_a_diff_of_the_page_is_short_and_adds_what_it_says(heading: str, copy: Path) -> None:
    assert DIFFS.keys() == USES.keys()
    assert len(DIFFS[heading].splitlines()) < 40
    pytest.importorskip({"Add a credit rule": "torch", "Add a search provider": "httpx2"}.get(heading, "gymnasium"))
    run(copy, "git", "apply", "-", said=DIFFS[heading])
    run(copy, sys.executable, "-c", USES[heading])
    if ruff := shutil.which("ruff"):
        run(copy, ruff, "check", *PACKAGES)
        run(copy, ruff, "format", "--check", *PACKAGES)
