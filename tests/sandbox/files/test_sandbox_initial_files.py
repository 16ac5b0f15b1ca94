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


def test_each_fresh_run_has_them(sandbox: Sandbox) -> None:
    python = sandbox.interpreter_sync(
        "text = open('a').read()", fresh=True, files={"a": "first", "big": bytes(3 << 20)}
    )
    code = "import os\nseen = text, os.path.getsize('big')\nopen('a', 'w').write('changed')\nseen"
    (copy,) = python.fork()
    assert [each.run(code).value for each in (python, python, copy)] == ["('first', 3145728)"] * 3


@pytest.mark.parametrize(
    ("files", "kind", "words"),
    [
        ({"a": 5}, TypeError, "the content of the file 'a'"),
        ({5: b""}, TypeError, "str or a path"),
        (["a"], TypeError, "mapping"),
        ({"../x": b""}, ValueError, "relative path"),
        ({"a": Path("/no/such/file")}, FileNotFoundError, "/no/such/file"),
        ({"a": Path("/dev/zero")}, ValueError, "not a regular file"),
    ],
)
def test_what_makes_no_sense_is_refused(sandbox: Sandbox, files: Any, kind: type, words: str) -> None:
    before = sandbox.stats()["opened"]
    for start in (sandbox.interpreter_sync, lambda files: sandbox.run_sync("1", files=files)):
        with pytest.raises(kind, match=words):
            start(files=files)  # type: ignore[operator]
    assert sandbox.stats()["opened"] == before


def test_files_above_the_limits_are_refused(sandbox: Sandbox, tmp_path: Path) -> None:
    most = sandbox.limits.file_size
    large = tmp_path / "large"
    large.touch()
    os.truncate(large, most + 1)
    many = {str(number): bytes(most) for number in range(sandbox.limits.disk // most)}
    for files in ({"a": bytes(most + 1)}, {"a": large}, {**many, "last": b"1"}):
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
    assert [entry.name for entry in entries] == ["\\xff", "link", "some", "ä b"]
    assert [entry.is_dir for entry in entries] == [False, False, True, True]
    assert python.ls("some") == python.ls(PurePosixPath("./some/")) == [FileInfo("where.txt", 5, False)]
    assert asyncio.run(python.interpreter.ls("some")) == [FileInfo("where.txt", 5, False)]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("none", FileNotFoundError),
        ("file", NotADirectoryError),
        *((path, ValueError) for path in ("", "/etc", "a/../..")),
    ],
)
def test_ls_of_what_is_no_directory_is_an_error(python: SyncInterpreter, path: str, kind: type[Exception]) -> None:
    python.put("file", b"")
    with pytest.raises(kind, match=path or "relative path|not a directory"):
        python.ls(path)


def test_ls_of_too_many_files_is_an_error(python: SyncInterpreter) -> None:
    python.run("import os\nfor number in range(5000): os.mknod(f'{number:0>250}')", timeout=60)
    with pytest.raises(OSError, match="too large") as caught:
        python.ls()
    assert caught.value.errno == errno.EFBIG
    assert python.run("6 * 7").value == "42"


FORGE = """
import os, struct, sys
class evil(Exception): pass
def fail(): raise evil
def forged(*_): return {answer}
frame = sys._getframe()
while frame:
    if "answer_file" in frame.f_globals: frame.f_globals["answer_file"] = forged
    frame = frame.f_back
"""
FORGERIES = {
    "errno": "struct.pack('>IQ', 111, 0) + b'evil'",
    "no errno": "struct.pack('>IQ', 2**31, 0) + b'evil'",
    "too short": "b'evil'",
    "exception": "fail()",
    "lost": "os._exit(1)",
}
LISTINGS = {"length": "1, 0, 500) + b'a'", "name": "1, 0, 5) + b'../ab'", "size": "2**64 - 1, 0, 1) + b'a'"}


@pytest.mark.parametrize("answer", FORGERIES.values(), ids=FORGERIES)
def test_a_forged_failure_of_a_file_is_one_neutral_error(python: SyncInterpreter, answer: str) -> None:
    assert python.run(FORGE.format(answer=answer)).status == "ok"
    for attempt in (lambda: python.get("x"), lambda: python.put("x", b"")):
        with pytest.raises(OSError, match="Input/output error") as error:
            attempt()
        assert (type(error.value), error.value.errno, error.value.filename) == (OSError, errno.EIO, "x")


@pytest.mark.parametrize("answer", LISTINGS.values(), ids=LISTINGS)
def test_a_listing_that_makes_no_sense_is_an_error_of_the_file_system(python: SyncInterpreter, answer: str) -> None:
    assert python.run(FORGE.format(answer=f"b'\\0' * 12 + struct.pack('>Q?H', {answer}")).status == "ok"
    with pytest.raises(OSError, match=r"malformed|Input/output error") as caught:
        python.ls()
    assert caught.value.errno == errno.EIO
    assert python.run("6 * 7").value == "42"


def test_large_files_of_a_fresh_run_arrive(sandbox: Sandbox) -> None:
    files = {"a": bytes(30 << 20), "b": bytes(30 << 20)}
    sizes = sandbox.run_sync("import os; [os.path.getsize(name) for name in 'ab'], x", files=files, setup="x = 1").value
    assert sizes == f"([{30 << 20}, {30 << 20}], 1)"
