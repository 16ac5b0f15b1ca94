"""The documents: their links lead somewhere, and their code runs and prints what they say."""

from __future__ import annotations

import ast
import os
import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from arpo_env.adapters import PEERS
from tests import ready_processes

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
PAGES += sorted((ROOT / "benchmarks").rglob("*.md"))
SNIPPET = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)
# pages whose snippets are functions that want a model, or that want a server: each has a test of its own
WITH_MODEL = (
    "README.md",
    "adapters/play.md",
    "concepts/trees.md",
    "how-to/generation-backends.md",
    "how-to/ray.md",
    "how-to/remote-sandboxes.md",
    "how-to/rollouts.md",
    "tutorials/first-training.md",
    "tutorials/own-algorithm.md",
)


def name(page: Path) -> str:
    """What a page is called here: its path below docs/."""
    return page.relative_to(DOCS if page.is_relative_to(DOCS) else ROOT).as_posix()


def snippets(page: Path) -> list[tuple[str, str | None]]:
    """The page's code, each piece with the output that the page shows behind it, if any."""
    return [(code, shown or None) for code, shown in SNIPPET.findall(page.read_text(encoding="utf-8"))]


PROCESSES = [name(page) for page in PAGES if snippets(page) and name(page) not in WITH_MODEL]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{name(page)} links to {target}"


def test_documents_that_the_code_names_are_there() -> None:
    """Messages, docstrings, recipes and scripts that send the reader to a page below docs/; and the map of the code."""
    section = (DOCS / "architecture.md").read_text(encoding="utf-8").partition("## Where to look")[2]
    assert section
    for file in re.findall(r"`([\w/]+(?:\.py|/))`", section.partition("\n## ")[0]):
        assert (ROOT / file).exists(), f"the map names {file}"
    for folder in ("arpo_env", "arpo_trainer", "benchmarks", "envs_registry", "sandbox", "scripts", "tests"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".yaml", ".sh", ".toml") and path != Path(__file__):
                for target in re.findall(r"\bdocs/[\w/-]+\.md", path.read_text(encoding="utf-8")):
                    assert (ROOT / target).exists(), f"{path.relative_to(ROOT)} names {target}"


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=name)
def test_commands_of_the_documents_are_understood(page: Path) -> None:
    """The commands and options of `arpo` that a page shows exist, and are not hidden ones that only still work."""
    from arpo_trainer.cli.arpo_command import app
    from scripts.site.command_line import arguments, commands, spellings

    known = dict(commands())
    for shown in re.findall(r"```(?:bash|sh)\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        for line in shown.replace("\\\n", " ").splitlines():
            written = re.sub(r"^([A-Z_]+=\S+ )+", "", line)
            if written.startswith("arpo "):
                words = shlex.split(written, comments=True)[1:]
                app.parse_args(words, exit_on_error=False, print_error=False)
                command = max(name for name in known if words[: name.count(" ") + 1] == name.split())
                flags = {flag for one in arguments(known[command]) for flag in spellings(one)}
                assert {word for word in words if word.startswith("--")} <= flags, written


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
    "from typing import Any": "twin.reset()\n",  # a tool with state: its `reset` and `close` are called by an episode
}


def run_snippet(code: str, folder: Path) -> str:
    """Run it in a process of its own, see that each of its functions is called, and return what it prints."""
    backend = os.environ.get("ARPO_SANDBOX", "auto")
    code = re.sub(r"open_sync\((?=\)|profile=)", f"open_sync({backend!r}, ", code)
    body, names = marked(code)
    use = USES.get(code.partition("\n")[0], "")
    check = f"left = set({sorted(names)}) - _called\nassert not left, f'never called: {{left}}'"
    program = folder / "snippet.py"
    program.write_text(f"_called = set()\n{body}\n{use}\n{check}\n", encoding="utf-8")
    return ready_processes.run(str(program), folder=ROOT, said=folder / "snippet.out")


def open_page(page: str) -> tuple[dict[str, Any], set[str]]:
    """The names that a page's snippets define, all in one namespace, and those of its functions."""
    names: dict[str, Any] = {"_called": set(), "__name__": "page"}
    functions: set[str] = set()
    for code, _ in snippets(DOCS / page):
        body, defined = marked(code)
        exec(body, names)
        functions |= defined
    return names, functions


@pytest.mark.parametrize("page", PROCESSES)
def test_the_code_of_the_docs_runs(isolation: str, page: str, tmp_path: Path) -> None:
    if page.startswith("adapters/") and (peer := Path(page).stem.replace("-", "_")) in PEERS:
        pytest.importorskip(peer, reason=f"its code needs {peer}; scripts/adapters.sh runs it")
    for code, shown in snippets((DOCS if (DOCS / page).exists() else ROOT) / page):
        printed = run_snippet(code, tmp_path)
        assert shown is None or printed.split() == shown.split()


def test_the_readme_s_code_runs(isolation: str, tmp_path: Path) -> None:
    """All of it but the training snippet, which wants a model from the hub; that one has to compile."""
    (play, _), (train, _) = snippets(ROOT / "README.md")
    compile(train, "README.md", "exec")
    assert run_snippet(play, tmp_path).split() == ["<result>", "1", "</result>", "1.0"]


def quick(folder: Path, **more: Any) -> Any:
    """Settings of one short step."""
    from arpo_trainer import ARPOConfig

    lengths = {"max_completion_length": 160, "max_turn_length": 48, "num_generations": 4, "max_steps": 1}
    without = {"save_strategy": "no", "report_to": [], "disable_tqdm": True, "gradient_checkpointing": False}
    here = {"use_cpu": True, "bf16": False, "per_device_train_batch_size": 4}
    return ARPOConfig(str(folder), algorithm="grpo", **lengths, **without, **here, **more)


def test_the_first_training_trains_and_evaluates(tiny_policy: Path, isolation: str, tmp_path: Path) -> None:
    """One step of each, evaluated on tasks that need no data."""
    pytest.importorskip("torch")
    from arpo_env import ToolEnv

    page, functions = open_page("tutorials/first-training.md")
    trainer = page["train"](str(tiny_policy), str(tmp_path / "one"))
    assert trainer.state.global_step == 1
    page["gym"] = SimpleNamespace(make=lambda _: ToolEnv("arpo/Arithmetic-v0", level=3, split="test", max_turns=1))
    args = quick(tmp_path / "two", eval_strategy="steps", eval_steps=1)
    page["train_and_evaluate"](tiny_policy, ToolEnv("arpo/Arithmetic-v0", level=3), args)
    assert page["_called"] == functions


def test_the_own_algorithm_branches_and_gives_credit(tiny_policy: Path, isolation: str, tmp_path: Path) -> None:
    """Its rule decides, its advantages are taken, one step of its trainer is made; its rows are taken out again."""
    pytest.importorskip("torch")
    from arpo_env import ToolEnv
    from arpo_trainer import RolloutSettings
    from arpo_trainer.algorithms.advantages import ADVANTAGES, batch_advantages
    from arpo_trainer.algorithms.branching import BRANCHES
    from arpo_trainer.algorithms.credit import CREDITS, token_advantages
    from arpo_trainer.algorithms.registry import ALGORITHMS, BUDGETS
    from tests.arpo_trainer.test_tree import small_tree

    page, functions = open_page("tutorials/own-algorithm.md")
    try:
        settings = RolloutSettings(algorithm="calm", budget="three-quarters")
        assert page["calm"](page["Decision"](entropy=0.1, delta=-0.2), settings).branch
        assert BUDGETS["three-quarters"].start(16, 8) == 12
        assert batch_advantages("above-median", [[1.0, 0.0, 0.5, None]], [[1] * 4]) == [[1.0, -1.0, 0.0, 0.0]]
        assert token_advantages(small_tree(), [1.0, 0.5, 9.0], "answers-only")[1] == [0.0] * 5 + [0.5]
        args = quick(tmp_path, attribution="answers-only", advantage="grpo-no-std", loss_type="dr_grpo")
        page["CarefulTrainer"](str(tiny_policy), ToolEnv("arpo/Arithmetic-v0", level=3), args=args).train()
        assert page["_called"] == functions
    finally:
        del ALGORITHMS["calm"], ALGORITHMS["calm-median"], BRANCHES["calm"], ADVANTAGES["above-median"]
        del BUDGETS["three-quarters"], CREDITS["answers-only"]


def test_a_rollout_is_played_written_and_shown(tiny_policy: Path, tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("torch")
    from arpo_trainer import write_traces

    page, functions = open_page("how-to/rollouts.md")
    [tree] = page["rollout"](str(tiny_policy), 1)
    assert page["_called"] == functions
    write_traces(tmp_path / "traces.jsonl", [tree])
    page, functions = open_page("concepts/trees.md")
    page["show_all"](str(tmp_path))
    assert tree.prompt in capsys.readouterr().out
    assert page["_called"] == functions


def test_a_backend_of_one_s_own_answers(tiny_policy: Path) -> None:
    pytest.importorskip("torch")
    from transformers import AutoTokenizer

    from arpo_env import ToolEnv
    from arpo_env.event_loop import run
    from arpo_trainer import Engine, RolloutSettings

    page, functions = open_page("how-to/generation-backends.md")
    tokenizer = AutoTokenizer.from_pretrained(tiny_policy)
    parrot = page["Parrot"](tokenizer.encode("<think>So.</think><answer>Ada</answer>"))
    env = ToolEnv("arpo/MultiHop-v0")
    settings = RolloutSettings(algorithm="arpo", num_generations=2, initial_rollouts=1)
    [said] = run(Engine(parrot, tokenizer, env, settings).rollout([env.tasks.task(0)]))
    assert [trajectory.answer for trajectory in said.trajectories] == ["Ada", "Ada"]
    assert page["_called"] == functions
