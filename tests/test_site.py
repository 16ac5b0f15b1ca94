"""The site: its generated pages are complete, and Sphinx builds it without a warning."""

import re
from pathlib import Path
from typing import Any

import pytest

from envs_registry.install_line import install_line

pytest.importorskip("torch", reason="the settings of the trainer need torch")

from arpo_trainer import ARPOConfig
from arpo_trainer.algorithms.branching import BranchSettings
from arpo_trainer.cli.arpo_command import main
from arpo_trainer.rollout.settings import TreeSettings
from envs_registry import all_specs
from scripts.site.assemble import assemble
from scripts.site.command_line import commands
from scripts.site.environments import FAMILIES, specs_of
from scripts.site.settings import CLASSES, own_fields, settings_table

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site's pages, with everything generated filled in."""
    folder = tmp_path_factory.mktemp("site") / "source"
    assemble(folder)
    return folder


def text(source: Path, page: str) -> str:
    return (source / page).read_text(encoding="utf-8")


def test_nothing_is_left_to_generate(source: Path) -> None:
    left = [page.name for page in source.rglob("*.md") if "<!-- generated:" in page.read_text(encoding="utf-8")]
    assert left == []


def test_every_environment_is_in_a_family() -> None:
    ours = sorted(spec.id for spec in all_specs() if spec.id.startswith("arpo/"))
    assert sorted(spec.id for name in FAMILIES for spec in specs_of(name)) == ours


def test_every_setting_is_listed(source: Path) -> None:
    page = text(source, "reference/settings.md")
    names = [field.name for kind in (ARPOConfig, TreeSettings) for field in own_fields(kind)]
    assert len(names) > 35
    ours = {**ARPOConfig.__annotations__, **TreeSettings.__annotations__, **BranchSettings.__annotations__}
    assert set(names) == {n for n in ours if not n.startswith("_")}
    for name in names:
        assert re.search(rf"^\*\*`{name}`\*\* `.+`, (default `.+`|required)\n: \S", page, re.MULTILINE), name


def test_every_class_of_settings_is_on_a_page() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md"))
    for name in CLASSES:
        assert f"<!-- generated: settings {name} -->" in pages
        assert settings_table(name), f"{name} has an empty list"


def test_every_command_is_described_with_the_options_of_its_help(source: Path, monkeypatch: Any, capsys: Any) -> None:
    """The help wraps each entry once, to the terminal."""
    monkeypatch.setenv("COLUMNS", "80")
    page = text(source, "reference/command-line.md")
    found = [name for name, _ in commands()]
    assert len(found) > 15
    for name in found:
        section = re.search(rf"^#+ arpo {re.escape(name)}\n(.*?)(?=^#|\Z)", page, re.MULTILINE | re.DOTALL)
        assert section, name
        assert main([*name.split(), "--help"]) == 0
        said = capsys.readouterr().out
        entries = re.findall(r"^(?:Commands|Arguments|Parameters):\n((?:.+\n)+)", said, re.MULTILINE)
        for line in "".join(entries).splitlines():
            assert re.match(r" {2}\S| {6}\S", line), f"arpo {name} --help: {line}"
            assert len(line) <= 80 or " " not in line.strip(), f"arpo {name} --help: {line}"
            if flag := re.match(r"  (--[\w-]+)", line):
                assert f"`{flag[1]}" in section[1], f"arpo {name} {flag[1]}"


@pytest.mark.filterwarnings("ignore")  # of Sphinx and its extensions about each other
def test_the_site_has_no_warning(source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Every page is read, every reference of ours resolved, and code is what it is said to be; no HTML is written."""
    for library in ("sphinx", "furo", "myst_parser"):
        pytest.importorskip(library, reason=install_line("docs"))
    from pygments.lexers import get_lexer_by_name
    from pygments.token import Error

    from scripts.site.__main__ import build

    # without copies of the code, which nothing refers to
    without = ("-D", "extensions=myst_parser,sphinx.ext.autodoc,sphinx.ext.napoleon")
    assert build(source, tmp_path / "site", *without, builder="dummy") == 0, capfd.readouterr().err
    for page in source.rglob("*.md"):
        for language, code in re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.M):
            wrong = [text for kind, text in get_lexer_by_name(language).get_tokens(code) if kind is Error]
            assert not wrong, f"{page.relative_to(source)}: {wrong} in {language} code"
