"""What removes the directories of sessions never follows a link, wherever one has been put."""

import os
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
    if kind == "link":
        place.symlink_to(precious)
    elif kind == "dangling":
        place.symlink_to(tmp_path / "nowhere")
    elif kind == "file":
        place.write_text("x")
    elif kind == "fifo":
        os.mkfifo(place)
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


def test_what_is_closed_deep_and_oddly_named_goes_too(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    here = os.open(place, os.O_PATH)
    for depth in range(1500):
        os.mkdir("d" * 20, dir_fd=here)
        if depth % 100 == 0:
            os.mkdir(f".removed-{depth}", dir_fd=here)
        below = os.open("d" * 20, os.O_PATH, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    (place / "locked" / "inner").mkdir(parents=True)
    (place / "locked" / "inner" / "file\n").write_text("x")
    (place / "locked" / "inner").chmod(0)
    (place / "locked").chmod(0)
    place.chmod(0)
    remove_tree(str(place))
    assert not os.path.lexists(place)
