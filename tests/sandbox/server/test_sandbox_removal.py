"""What removes the directories of sessions never follows a link, wherever one has been put."""

import os
import stat
from pathlib import Path

import pytest

from sandbox.server.processes import remove_tree


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    place = tmp_path / "precious"
    (place / "inner").mkdir(parents=True)
    (place / "file").write_text("kept")
    return place


def kept(precious: Path) -> bool:
    return (precious / "file").read_text() == "kept" and (precious / "inner").is_dir()


@pytest.mark.parametrize("kind", ["link", "dangling", "file", "fifo", "absent"])
def test_something_else_in_its_place_is_removed_itself(tmp_path: Path, precious: Path, kind: str) -> None:
    place = tmp_path / "place"
    if kind in ("link", "dangling"):
        place.symlink_to(precious if kind == "link" else tmp_path / "nowhere")
    elif kind != "absent":
        os.mknod(place, 0o600 | (stat.S_IFIFO if kind == "fifo" else stat.S_IFREG))
    remove_tree(str(place))
    assert not os.path.lexists(place)
    assert kept(precious)


def test_links_inside_are_not_followed(tmp_path: Path, precious: Path) -> None:
    place = tmp_path / "place"
    (place / "a" / "b").mkdir(parents=True)
    (place / "a" / "link").symlink_to(precious)
    (place / "link").symlink_to(precious)
    (place / ".removed-1").symlink_to(precious)
    os.link(precious / "file", place / "a" / "hard")
    remove_tree(str(place))
    assert not os.path.lexists(place)
    assert kept(precious)
