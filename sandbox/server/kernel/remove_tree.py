"""Removes directories made by untrusted code. Runs inside the sandbox.

The trees may be deeper than any recursion limit, without permissions, full of links, and may change while they are
removed. No link is followed: every directory is opened with O_NOFOLLOW, and names are looked up relative to descriptors
only. Nothing recurses: subdirectories are moved to the top before they are emptied.
"""

from __future__ import annotations

import os

_PLACE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(root: str) -> None:
    """Remove a directory with everything in it, or whatever else has its name.

    What cannot be removed is left.
    """
    parent, name = os.path.split(root)
    try:
        place = os.open(parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        _remove(place, name)
    except OSError:
        return
    finally:
        os.close(place)


def _remove(place: int, name: str) -> None:
    try:
        root = _enter(place, name)
    except NotADirectoryError:
        os.unlink(name, dir_fd=place)
        return
    try:
        _empty(root)
    finally:
        os.close(root)
    os.rmdir(name, dir_fd=place)


def _enter(place: int, name: str) -> int:
    """Open a directory, also one without permissions, but never a link to one.

    Raises:
        NotADirectoryError: it is not a directory.
    """
    path = os.open(name, _PLACE, dir_fd=place)
    try:
        # by way of /proc, since fchmod refuses an O_PATH descriptor, and the name may mean something else by now
        os.chmod(f"/proc/self/fd/{path}", 0o700)
        return os.open(f"/proc/self/fd/{path}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(path)


def _empty(root: int) -> None:
    """Empty a directory, one subdirectory at a time."""
    moved = _take_apart(root, root, 0)
    while True:
        # listed again in each round, since emptying a directory moves its subdirectories up to here
        inner = [name for name in os.listdir(root) if name.startswith(_MOVED)]
        if not inner:
            return
        for name in inner:
            directory = _enter(root, name)
            try:
                moved = _take_apart(root, directory, moved)
            finally:
                os.close(directory)
            os.rmdir(name, dir_fd=root)


_MOVED = ".removed-"


def _take_apart(root: int, directory: int, moved: int) -> int:
    """Remove the files of a directory and move its subdirectories to the root, under new names."""
    for name in os.listdir(directory):
        if directory == root and name.startswith(_MOVED) and _is_directory(root, name):
            continue
        if not _is_directory(directory, name):
            os.unlink(name, dir_fd=directory)
            continue
        # gives it permissions: to move a directory, the kernel demands write access to it, since ".." changes
        os.close(_enter(directory, name))
        moved += 1
        # the code may have used such names itself
        while _exists(root, f"{_MOVED}{moved}"):
            moved += 1
        os.rename(name, f"{_MOVED}{moved}", src_dir_fd=directory, dst_dir_fd=root)
    return moved


def _is_directory(place: int, name: str) -> bool:
    return (os.stat(name, dir_fd=place, follow_symlinks=False).st_mode & 0o170000) == 0o040000


def _exists(place: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=place, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
