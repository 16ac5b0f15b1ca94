"""Removes directories made by untrusted code. Runs inside the sandbox.

The trees may be deep beyond any recursion limit, without permissions, full of links. Nothing is followed, and
nothing recurses: subdirectories are moved up to the top before they are emptied.
"""

from __future__ import annotations

import os


def remove_tree(root: str) -> None:
    """Remove a directory and everything in it; what can not be removed is left."""
    try:
        _empty(root, root, 0)
        os.rmdir(root)
    except OSError:
        return


def _empty(root: str, directory: str, moved: int) -> None:
    """Empty `root`, taking its subdirectories apart one at a time."""
    waiting = [root]
    while waiting:
        directory = waiting.pop()
        os.chmod(directory, 0o700)
        for name in os.listdir(directory):
            path = os.path.join(directory, name)
            if os.path.islink(path) or not os.path.isdir(path):
                os.unlink(path)
                continue
            moved += 1
            up = os.path.join(root, f".removed-{moved}")
            while os.path.lexists(up):
                moved += 1
                up = os.path.join(root, f".removed-{moved}")
            os.chmod(path, 0o700)
            os.rename(path, up)
            waiting.append(up)
        if directory != root:
            os.rmdir(directory)
