"""The documents: their links lead somewhere, and their code runs, each function of it included."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
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


class Marking(ast.NodeTransformer):
    """Lets each function note that it was called, in the set `_called`."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        self.generic_visit(node)
        self.names.add(node.name)
        behind = 1 if ast.get_docstring(node) is not None else 0
        node.body[behind:behind] = ast.parse(f"_called.add({node.name!r})").body
        return node

    visit_AsyncFunctionDef = visit_FunctionDef


def marked(code: str) -> tuple[str, set[str]]:
    """The code, in which each function notes its call, and the names of the functions."""
    marking = Marking()
    tree = marking.visit(ast.parse(code))
    return ast.unparse(ast.fix_missing_locations(tree)), marking.names


# what a user does with the functions of a snippet that only defines them, by its first line
USES = {
    "# my_envs.py": """
import gymnasium as gym
env = gym.make("mine/Capital-v0", protocol="lines")
env.reset(seed=0)
env.step('CALL capital {"country": "Peru"}')
assert env.step("ANSWER Lima")[2]
env.close()
""",
}


def run_snippet(code: str) -> str:
    """Run it in a process of its own, see that each of its functions is called, and return what it prints."""
    backend = os.environ.get("ARPO_SANDBOX", "auto")
    body, names = marked(code.replace("open_sync()", f"open_sync({backend!r})"))
    use = USES.get(code.partition("\n")[0], "")
    check = f"left = set({sorted(names)}) - _called\nassert not left, f'never called: {{left}}'"
    body = f"_called = set()\n{body}\n{use}\n{check}\n"
    done = subprocess.run([sys.executable, "-c", body], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def open_page(name: str) -> tuple[dict[str, Any], set[str]]:
    """The names that a page's snippets define, all in one namespace, and those of its functions."""
    page: dict[str, Any] = {"_called": set(), "__name__": "page"}
    functions: set[str] = set()
    for code in snippets(ROOT / "docs" / name):
        body, names = marked(code)
        exec(body, page)
        functions |= names
    return page, functions


PROCESSES = ["environments.md", "sandbox.md", "search.md"]


def test_every_page_with_code_is_run() -> None:
    assert {page.name for page in PAGES if snippets(page)} == {"README.md", "learning.md", "rollout.md", *PROCESSES}


def test_the_readme_s_code_runs(isolation: str) -> None:
    """All of it but the training snippet, which wants a model from the hub; that one has to compile."""
    play, train, sandbox = snippets(ROOT / "README.md")
    compile(train, "README.md", "exec")
    assert re.search(r"<result>\n0\.\d+\n</result>", run_snippet(play))
    assert run_snippet(sandbox) == "[1, 2, 3] [1, 2, 3, 4]\n"


@pytest.mark.parametrize("page", PROCESSES)
def test_the_code_of_the_docs_runs(isolation: str, page: str) -> None:
    for code in snippets(ROOT / "docs" / page):
        run_snippet(code)


def test_the_code_of_the_learning_page_runs(tiny_policy: Path, isolation: str, tmp_path: Path) -> None:
    """One step of its trainer, evaluated as the page says, on tasks that need no data."""
    pytest.importorskip("torch")
    from arpo_env import ToolEnv
    from arpo_trainer import ARPOConfig

    page, functions = open_page("learning.md")
    page["gym"] = SimpleNamespace(make=lambda _: ToolEnv("arpo/Arithmetic-v0", level=3, split="test", max_turns=1))
    page["ARPOTrainer"] = page["ToolPOTrainer"]
    args = ARPOConfig(
        output_dir=str(tmp_path), use_cpu=True, bf16=False,
        algorithm="grpo", advantage="grpo-no-std", loss_type="dr_grpo", num_generations=4,
        per_device_train_batch_size=4, max_steps=1, max_completion_length=160, max_turn_length=48,
        eval_strategy="steps", eval_steps=1, save_strategy="no", report_to=[], disable_tqdm=True,
        gradient_checkpointing=False,
    )  # fmt: skip
    page["train"](tiny_policy, ToolEnv("arpo/Arithmetic-v0", level=3), args)
    assert page["_called"] == functions


def test_the_code_of_the_rollout_page_runs(
    tiny_policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its functions are called, on a tiny model; the algorithm it adds is taken out again."""
    from transformers import AutoTokenizer

    from arpo_env.event_loop import run
    from arpo_trainer import Engine, RolloutSettings, write_traces
    from arpo_trainer.algorithms.branching import BRANCHES
    from arpo_trainer.algorithms.registry import ALGORITHMS

    page, functions = open_page("rollout.md")
    try:
        [tree] = page["rollout"](str(tiny_policy), 1)
        write_traces(tmp_path / "traces.jsonl", [tree])
        page["show_all"](str(tmp_path))
        assert tree.prompt in capsys.readouterr().out
        tokenizer = AutoTokenizer.from_pretrained(tiny_policy)
        parrot = page["Parrot"](tokenizer.encode("<think>So.</think><answer>Ada</answer>"))
        env = page["gym"].make("arpo/MultiHop-v0").unwrapped
        settings = RolloutSettings(algorithm="calm", num_generations=2, initial_rollouts=1)
        engine = Engine(parrot, tokenizer, env, settings)
        [said] = run(engine.rollout([env.tasks.task(0)]))
        assert [trajectory.answer for trajectory in said.trajectories] == ["Ada", "Ada"]
        assert page["calm"](page["Point"](entropy=0.1, baseline=0.3), settings).branch
        assert page["_called"] == functions
    finally:
        del ALGORITHMS["calm"], BRANCHES["calm"]
