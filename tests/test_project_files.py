"""What a visitor of the repository finds beside the code: its files are valid and say what is so."""

import re
import tomllib
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).resolve().parents[1]


def test_the_citation_names_the_four_papers() -> None:
    papers = {"2507.19849", "2510.14545", "2505.16410", "2510.21618"}
    references = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["references"]
    assert {reference["url"].removeprefix("https://arxiv.org/abs/") for reference in references} == papers
    assert all(reference["doi"].endswith(reference["url"].rpartition("/")[2]) for reference in references)


def test_the_changelog_begins_with_what_is_unreleased_and_has_this_version() -> None:
    sections = re.findall(r"^## \[(.+)\](.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sections[0] == ("Unreleased", "")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] in dict(sections)


def test_the_workflow_runs_the_steps_of_continuous_integration() -> None:
    steps = re.findall(r"^step_(\w+)\(\)", (ROOT / ".ci/run").read_text(encoding="utf-8"), re.MULTILINE)
    [job] = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))["jobs"].values()
    assert sorted(job["strategy"]["matrix"]["step"]) == sorted(step.replace("_", "-") for step in steps)
    assert [step["run"] for step in job["steps"] if ".ci/run" in step.get("run", "")] == [".ci/run ${{ matrix.step }}"]
