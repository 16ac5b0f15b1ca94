"""Files that a session has from the start, and what is in its directory."""

import asyncio
import errno
import os
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from sandbox import FileInfo, Sandbox, SyncInterpreter

FILES = {"data/in.csv": b"a,b\n1,2\n", "note.txt": "für alle", "empty": b""}


def test_files_are_there_before_the_setup(sandbox: Sandbox) -> None:
    setup = "rows = open('data/in.csv').read()"
    with sandbox.interpreter_sync(setup, files=FILES) as python:
        assert python.run("rows").value == repr("a,b\n1,2\n")
        assert python.get("note.txt").decode() == "für alle"
        assert python.get("empty") == b""


def test_a_local_file_is_read_when_the_session_opens(sandbox: Sandbox, tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.write_bytes(bytes(range(256)) * 10_000)  # three pieces
    with sandbox.interpreter_sync(files={"copy": local}) as python:
        local.unlink()
        python.restart()
        assert python.get("copy") == bytes(range(256)) * 10_000


def test_a_restart_writes_them_again_and_forks_have_them(sandbox: Sandbox) -> None:
    with sandbox.interpreter_sync(files={"a": b"first"}) as python:
        python.put("a", b"changed")
        (copy,) = python.fork()
        assert copy.get("a") == b"changed"
        for each in (python, copy):
            each.restart()
            assert each.get("a") == b"first"
        copy.close()


def test_each_fresh_run_has_them(sandbox: Sandbox) -> None:
    python = sandbox.interpreter_sync(
        "text = open('a').read()", fresh=True, files={"a": "first", "big": bytes(3 << 20)}
    )
    code = "import os\nseen = text, os.path.getsize('big')\nopen('a', 'w').write('changed')\nseen"
    (copy,) = python.fork()
    assert [each.run(code).value for each in (python, python, copy)] == ["('first', 3145728)"] * 3


@pytest.mark.parametrize("fresh", [False, True])
def test_names_outside_the_directory_are_refused(sandbox: Sandbox, fresh: bool) -> None:
    with pytest.raises(ValueError, match=r"relative path"):
        sandbox.interpreter_sync(fresh=fresh, files={"../x": b""})


@pytest.mark.parametrize(
    ("files", "kind", "words"),
    [
        ({"a": 5}, TypeError, "the content of the file 'a'"),
        ({5: b""}, TypeError, "str or a path"),
        (["a"], TypeError, "mapping"),
        ({"a": Path("/no/such/file")}, FileNotFoundError, "/no/such/file"),
    ],
)
def test_what_makes_no_sense_is_refused(sandbox: Sandbox, files: Any, kind: type, words: str) -> None:
    before = sandbox.stats()["opened"]
    for start in (sandbox.interpreter_sync, lambda files: sandbox.run_sync("1", files=files)):
        with pytest.raises(kind, match=words):
            start(files=files)  # type: ignore[operator]
    assert sandbox.stats()["opened"] == before


def test_files_above_the_limits_are_refused(sandbox: Sandbox, tmp_path: Path) -> None:
    limits = sandbox.limits
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(limits.file_size + 1)
    many = {str(number): bytes(limits.file_size) for number in range(limits.disk // limits.file_size)}
    for files in ({"a": bytes(limits.file_size + 1)}, {"a": large}, {**many, "last": b"1"}):
        with pytest.raises(OSError, match="the limit is") as caught:
            sandbox.interpreter_sync(files=files)
        assert caught.value.errno == errno.EFBIG


def test_a_disk_that_is_too_small_after_all_is_an_error_and_leaves_nothing(isolated: Sandbox) -> None:
    before = isolated.stats()["sessions"]
    half = isolated.limits.disk // 2  # files take whole pages
    with pytest.raises(OSError, match="No space left"):
        isolated.interpreter_sync(files={"a": bytes(half), "b": bytes(half - 10), "c": b"1"})
    assert isolated.stats()["sessions"] == before


def test_ls_lists_a_directory(python: SyncInterpreter) -> None:
    assert python.ls() == []
    python.put("some/where.txt", b"12345")
    python.run("import os\nos.symlink('some', 'link')\nos.mkdir('ä b')\nopen(b'\\xff', 'w').close()")
    entries = python.ls()
    assert [(entry.name, entry.is_dir) for entry in entries] == [
        ("\\xff", False),
        ("link", False),
        ("some", True),
        ("ä b", True),
    ]
    assert python.ls("some") == python.ls(PurePosixPath("./some/")) == [FileInfo("where.txt", 5, False)]
    assert asyncio.run(python.interpreter.ls("some")) == [FileInfo("where.txt", 5, False)]


@pytest.mark.parametrize(("path", "kind"), [("none", FileNotFoundError), ("file", NotADirectoryError)])
def test_ls_of_what_is_no_directory_is_an_error(python: SyncInterpreter, path: str, kind: type[OSError]) -> None:
    python.put("file", b"")
    with pytest.raises(kind, match=path):
        python.ls(path)


@pytest.mark.parametrize("path", ["", "/etc", "a/../.."])
def test_ls_outside_the_directory_is_refused(python: SyncInterpreter, path: str) -> None:
    with pytest.raises(ValueError, match=r"relative path|not a directory"):
        python.ls(path)


def test_ls_of_too_many_files_is_an_error(python: SyncInterpreter) -> None:
    python.run("import os\nfor number in range(5000): os.mknod(f'{number:0>250}')", timeout=60)
    with pytest.raises(OSError, match="too large") as caught:
        python.ls()
    assert caught.value.errno == errno.EFBIG
    assert python.run("6 * 7").value == "42"


FORGE = """
import sys
frame = sys._getframe()
while frame:
    if "answer_file" in frame.f_globals: frame.f_globals["answer_file"] = forged
    frame = frame.f_back
"""


@pytest.mark.parametrize(
    "answer", ["1, 0, 500) + b'a'", "1, 0, 5) + b'../ab'", "2**64 - 1, 0, 1) + b'a'"], ids=["length", "name", "size"]
)
def test_a_listing_that_makes_no_sense_is_an_error_of_the_file_system(python: SyncInterpreter, answer: str) -> None:
    forged = f"b'\\0' * 12 + struct.pack('>Q?H', {answer}"
    done = python.run(f"import struct\ndef forged(*_): return {forged}\n{FORGE}")
    assert done.status == "ok", done.text
    with pytest.raises(OSError, match=r"malformed|Input/output error") as caught:
        python.ls()
    assert caught.value.errno == errno.EIO
    assert python.run("6 * 7").value == "42"


def test_a_path_has_to_be_a_regular_file(sandbox: Sandbox, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (Path("/dev/zero"), tmp_path / "fifo"):
        with pytest.raises(ValueError, match="not a regular file"):
            sandbox.interpreter_sync(files={"a": path})


def test_large_files_of_a_fresh_run_arrive(sandbox: Sandbox) -> None:
    files = {"a": bytes(30 << 20), "b": bytes(30 << 20)}
    sizes = sandbox.run_sync("import os; [os.path.getsize(name) for name in 'ab'], x", files=files, setup="x = 1").value
    assert sizes == f"([{30 << 20}, {30 << 20}], 1)"
