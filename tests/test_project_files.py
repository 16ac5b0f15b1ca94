"""What a visitor of the repository finds beside the code: its files are valid and say what is so."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs/images/rollout-tree.svg"
SVG = "{http://www.w3.org/2000/svg}"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def version() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_the_citation_names_the_four_papers() -> None:
    papers = {"2507.19849", "2510.14545", "2505.16410", "2510.21618"}
    references = read("CITATION.cff")["references"]
    assert {reference["url"].removeprefix("https://arxiv.org/abs/") for reference in references} == papers
    for reference in references:
        assert reference["type"] == "article"
        assert reference["title"]
        assert reference["doi"].endswith(reference["url"].rpartition("/")[2])
        assert all(set(author) == {"given-names", "family-names"} for author in reference["authors"])


def test_the_changelog_begins_with_what_is_unreleased_and_has_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## \[([^\]]+)\](.*)$", text, re.MULTILINE)
    assert sections[0] == ("Unreleased", "")
    assert version() in [name for name, _ in sections]
    assert all(re.fullmatch(r" - \d{4}-\d\d-\d\d", date) for _, date in sections[1:])


def test_the_workflow_runs_the_steps_of_continuous_integration() -> None:
    steps = re.findall(r"^step_(\w+)\(\)", (ROOT / ".ci/run").read_text(encoding="utf-8"), re.MULTILINE)
    [job] = read(".github/workflows/ci.yml")["jobs"].values()
    assert sorted(job["strategy"]["matrix"]["step"]) == sorted(step.replace("_", "-") for step in steps)
    assert [step["run"] for step in job["steps"] if ".ci/run" in step.get("run", "")] == [".ci/run ${{ matrix.step }}"]


def test_the_readme_is_short_and_begins_with_the_picture() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 110
    picture = next(number for number, line in enumerate(lines) if "docs/images/rollout-tree.svg" in line)
    assert picture < lines.index("## Install")


def classes(picture: ElementTree.Element) -> list[str]:
    return sorted(part.get("class", "") for part in picture.iter())


def test_the_picture_stands_alone_in_light_and_dark() -> None:
    text = PICTURE.read_text(encoding="utf-8")
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"<script|href=|url\((?!#)|\son\w+=", text)
    picture = ElementTree.fromstring(text)
    used = set(re.findall(r"var\((--[\w-]+)\)", text))
    for block in re.findall(r":root \{([^}]*)\}", text):
        assert used - {"--sans"} <= set(re.findall(r"(--[\w-]+):", block))
    assert picture.findall(f".//{SVG}g[@class='decision grew']")


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_the_picture_is_what_the_report_draws_of_its_tree(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    output = tmp_path / "tree.svg"
    command = [sys.executable, ROOT / "scripts/tree_picture.py", PICTURE.with_suffix(".jsonl"), output]
    subprocess.run(command, check=True, timeout=120, cwd=ROOT)
    drawn = ElementTree.parse(output).getroot()
    assert classes(drawn) == classes(ElementTree.parse(PICTURE).getroot())
