"""docs/papers.md and the laboratory's page of rows: what they name is there, and the faults they list are not ours."""

import re
from functools import cache
from pathlib import Path as File
from pydoc import locate
from typing import Any

import pytest

from arpo_env.event_loop import run
from arpo_env.tools.python import PythonTool
from arpo_trainer import ARPOConfig
from arpo_trainer.algorithms.credit import CREDITS
from arpo_trainer.algorithms.registry import ALGORITHMS
from arpo_trainer.cli.command_options import attribute_docs
from arpo_trainer.rollout.branch_scheduler import BranchState
from benchmarks.laboratory.paper_rows import PAPER_ALGORITHMS, PAPER_CREDITS

ROOT = File(__file__).resolve().parents[1]
PAGES = ("docs/papers.md", "benchmarks/laboratory/PAPER_ROWS.md")
PACKAGES = "arpo_env|arpo_trainer|envs_registry|sandbox|benchmarks"


@cache
def page() -> str:
    return "\n".join((ROOT / name).read_text(encoding="utf-8") for name in PAGES)


def rows(heading: str) -> list[list[str]]:
    """The rows of the tables whose first column has this heading."""
    starts = list(re.finditer(rf"^\| {re.escape(heading)} \|.*\n\|[-|]+\|\n", page(), re.MULTILINE))
    assert starts, f"no table {heading!r}"
    lines = [line for start in starts for line in page()[start.end() :].split("\n\n")[0].splitlines()]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_every_function_that_is_named_can_be_imported() -> None:
    paths = set(re.findall(rf"`((?:{PACKAGES})(?:\.\w+)+)`", page()))
    assert len(paths) > 50
    for path in sorted(paths):
        assert locate(path) is not None, path


def test_every_test_that_is_named_is_there() -> None:
    named = set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page()))
    assert len(named) > 25
    for file, name in sorted(named):
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file}::{name}"


def test_every_algorithm_says_what_is_missing() -> None:
    named = [name for row in rows("`algorithm`") for name in re.findall(r"`([^`]+)`", row[0])]
    assert named == list(dict.fromkeys(named))
    assert set(named) == set(ALGORITHMS)


@pytest.mark.parametrize(("setting", "table"), [("algorithm", ALGORITHMS), ("attribution", CREDITS)])
def test_the_help_of_a_setting_names_all_that_it_takes(setting: str, table: dict[str, Any]) -> None:
    found = attribute_docs(ARPOConfig)[setting]
    own = table.keys() - PAPER_ALGORITHMS.keys() - PAPER_CREDITS.keys()
    assert [name for name in own if f"'{name}'" not in found] == []


def test_all_known_faults_are_there_with_what_would_notice_them() -> None:
    faults = [line for line in page().splitlines() if re.match(r"\| \d+ \|", line)]
    assert [int(re.findall(r"\d+", line)[0]) for line in faults] == list(range(1, 29))
    for line in faults:
        *_, here, checked, _ = re.split(r"(?<!\\)\|", line)
        assert re.search(rf"`((?:{PACKAGES})\.|tests/)", here + checked), line


def test_a_branch_is_compared_with_its_root() -> None:
    state = BranchState(baseline=0.25, chain=[True, False])
    branch = state.branch()
    assert (branch.baseline, branch.chain) == (0.25, [True, False])
    branch.chain.append(True)
    assert state.chain == [True, False]


def test_a_program_that_prints_nothing_runs_once_and_is_told_so(isolation: str) -> None:
    async def play() -> tuple[str, str, str]:
        tool = PythonTool()
        silent = await tool.call(code="with open('runs', 'a') as file:\n    _ = file.write('x')")
        count = await tool.call(code="print(len(open('runs').read()))")
        await tool.close()
        return silent.status, silent.text, count.text.strip()

    assert run(play()) == ("ok", "(no output)", "1")
