"""The notebook examples/tour.ipynb runs from top to bottom, and is committed with what it prints and draws."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

ROOT = Path(__file__).resolve().parents[2]
TOUR = ROOT / "examples" / "tour.ipynb"
SVG = "{http://www.w3.org/2000/svg}"


def outputs(cells: list[Any]) -> list[str]:
    texts = []
    for cell in cells:
        if cell.cell_type == "code":
            shown = [out for out in cell.outputs if out.get("name") != "stderr"]  # there are progress bars
            parts = [out.get("text") or out.get("data", {}).get("image/svg+xml", "") for out in shown]
            texts.append("".join(parts))
    return texts


def trees(cells: list[Any]) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(text) for text in outputs(cells) if text.startswith("<svg")]


def spans(tree: ElementTree.Element) -> int:
    return sum(box.get("class") in ("model", "environment") for box in tree.iter(f"{SVG}rect"))


@pytest.fixture(scope="module")
def committed() -> Any:
    return nbformat.read(TOUR, as_version=4)


def test_it_runs(committed: Any, tiny_policy: Path, isolation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a tiny model; what needs none comes out as committed."""
    for name, value in {"MODEL": str(tiny_policy), "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}.items():
        monkeypatch.setenv(name, value)
    notebook = nbformat.from_dict(committed)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(TOUR.parent)}}
    ).execute()
    before, after = outputs(committed.cells), outputs(notebook.cells)
    assert all(before[1:])  # the first cell imports
    assert after[1:4] == before[1:4]
    assert [spans(tree) >= 6 for tree in trees(notebook.cells)] == [True, True]
    assert after[-1].count("advantage") == 6
