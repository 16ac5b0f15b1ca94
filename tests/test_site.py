"""The site: its generated pages are complete, and Sphinx builds it without a warning."""

import pydoc
import re
from pathlib import Path

import pytest

from envs_registry.install_line import install_line

pytest.importorskip("torch", reason="the settings of the trainer need torch")

from arpo_trainer import ARPOConfig
from arpo_trainer.algorithms.advantages import ADVANTAGES
from arpo_trainer.algorithms.branching import BRANCHES, BranchSettings
from arpo_trainer.algorithms.credit import CREDITS
from arpo_trainer.algorithms.losses import LOSSES
from arpo_trainer.algorithms.registry import ALGORITHMS, BUDGETS
from arpo_trainer.cli.arpo_command import main
from arpo_trainer.rollout.settings import TreeSettings
from benchmarks.laboratory.paper_rows import PAPER_ALGORITHMS, PAPER_BRANCHES, PAPER_CREDITS
from envs_registry import all_specs
from scripts.site.api import PACKAGES
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


def test_a_page_that_is_read_without_the_site_says_where_its_tables_are() -> None:
    """Right below the place of the table, if not in the text above; the terminal prints what the table lists."""
    for page in sorted((ROOT / "docs").rglob("*.md")):
        marks = re.findall(r"^<!-- generated: (\S+) ?(.*) -->\n(.*)", page.read_text(encoding="utf-8"), re.MULTILINE)
        for kind, name, below in marks:
            assert below or kind in ("command-line", "environments"), page
            if kind in ("settings", "metrics"):
                [path] = re.findall(r"^In a terminal: `python -m pydoc ([\w.]+)`\.$", below)
                said = pydoc.render_doc(path, renderer=pydoc.plaintext)
                listed = own_fields(pydoc.locate(path)) if kind == "settings" else []
                assert path.endswith(name)
                assert all(text in said for text in ([f"{field.name}: " for field in listed] or ["`roots`"])), path


def test_assembling_twice_gives_the_same(source: Path, tmp_path: Path) -> None:
    assemble(tmp_path / "again")
    for page in source.rglob("*.md"):
        assert (tmp_path / "again" / page.relative_to(source)).read_text() == page.read_text(), page.name


def test_every_environment_is_listed_with_licence_and_family(source: Path) -> None:
    table = text(source, "reference/environments.md")
    ours = [spec for spec in all_specs() if spec.id.startswith("arpo/")]
    for spec in ours:
        [row] = re.findall(rf"^\| \[`{re.escape(spec.id)}`\]\((\S+)\) \|.*\|$", table, re.MULTILINE)
        assert spec.licence in text(source, f"reference/{row}")
        assert f"`{spec.id}`" in text(source, f"reference/{row}")
    assert sorted(spec.id for name in FAMILIES for spec in specs_of(name)) == sorted(spec.id for spec in ours)


def test_each_family_has_a_page_with_an_example_turn(source: Path) -> None:
    for family in FAMILIES:
        page = text(source, f"reference/environments/{family}.md")
        shown = re.search(r"```python\n.*env\.step\(.*?```", page, re.DOTALL)
        assert shown or "(math.md#an-example-turn)" in page, family
        assert ("## Columns of the data" in page) is (family != "generated")


PAPER = {*PAPER_ALGORITHMS, *PAPER_BRANCHES, *PAPER_CREDITS}
TABLES = {
    "algorithm": ALGORITHMS,
    "budget": BUDGETS,
    "branch": BRANCHES,
    "advantage": ADVANTAGES,
    "attribution": CREDITS,
    "policy_loss": LOSSES,
}


@pytest.mark.parametrize("setting", TABLES)
def test_every_row_of_the_algorithms_is_listed(source: Path, setting: str) -> None:
    tables = re.findall(
        rf"^\| `{setting}` \|.*\n\|[-| ]+\|\n((?:\|.*\n)+)", text(source, "reference/algorithms.md"), re.MULTILINE
    )
    assert tables
    for rows in tables:
        # another test of this process may have registered the laboratory's
        assert set(re.findall(r"^\| `([^`]+)` \|", rows, re.MULTILINE)) - PAPER == set(TABLES[setting]) - PAPER


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


def test_every_command_is_described_with_the_options_of_its_help(
    source: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_every_example_is_shown(source: Path) -> None:
    page = text(source, "examples.md")
    scripts = sorted((ROOT / "examples").glob("[0-9]*.py"))
    assert re.findall(r"^`examples/(.*)`:$", page, re.MULTILINE) == [script.name for script in scripts]


def test_every_public_name_is_described(source: Path) -> None:
    for package in PACKAGES:
        page = text(source, f"reference/api/{package}.md")
        module = __import__(package)
        listed = set(re.findall(rf"^\.\. auto\w+:: {package}\.(\w+)$", page, re.MULTILINE))
        assert set(module.__all__) <= listed


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
