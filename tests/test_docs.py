"""The documents: their links lead somewhere, and their code runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES += sorted((ROOT / "benchmarks").glob("*.md"))


def snippets(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_readme_s_code_runs(isolation: str) -> None:
    """All of it but the training snippet, which wants a model from the hub; that one has to compile."""
    play, train, sandbox = snippets(ROOT / "README.md")
    compile(train, "README.md", "exec")
    backend = os.environ.get("ARPO_SANDBOX", "auto")
    shown = []
    for code in (play, sandbox.replace("open_sync()", f"open_sync({backend!r})")):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        shown.append(done.stdout)
    assert re.search(r"<result>\n0\.\d+\n</result>", shown[0])
    assert shown[1] == "[1, 2, 3] [1, 2, 3, 4]\n"


@pytest.mark.parametrize("page", ["environments.md", "sandbox.md", "search.md"])
def test_the_code_of_the_docs_runs(isolation: str, page: str) -> None:
    backend = os.environ.get("ARPO_SANDBOX", "auto")
    for code in snippets(ROOT / "docs" / page):
        code = code.replace("open_sync()", f"open_sync({backend!r})")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr


def test_the_code_of_the_rollout_page_runs(tiny_policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its functions are called, on a tiny model; the algorithm it adds is taken out again."""
    from transformers import AutoTokenizer

    from arpo_env.background import run
    from arpo_trainer import Engine, RolloutSettings
    from arpo_trainer.algorithms import ALGORITHMS
    from arpo_trainer.branching import BRANCHES

    page: dict[str, Any] = {}
    for code in snippets(ROOT / "docs" / "rollout.md"):
        exec(code, page)
    try:
        [tree] = page["rollout"](str(tiny_policy), 1)
        page["show"](tree)
        assert tree.prompt in capsys.readouterr().out
        tokenizer = AutoTokenizer.from_pretrained(tiny_policy)
        parrot = page["Parrot"](tokenizer.encode("<think>So.</think><answer>Ada</answer>"))
        env = page["gym"].make("arpo/MultiHop-v0").unwrapped
        engine = Engine(
            parrot, tokenizer, env, RolloutSettings(algorithm="calm", num_generations=2, initial_rollouts=1)
        )
        [said] = run(engine.rollout([env.tasks.task(0)]))
        assert [trajectory.answer for trajectory in said.trajectories] == ["Ada", "Ada"]
    finally:
        del ALGORITHMS["calm"], BRANCHES["calm"]
