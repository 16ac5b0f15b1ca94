"""Files into sessions and out of them; restarting."""

import os
from pathlib import PurePosixPath
from typing import Any

import pytest

from sandbox import Sandbox, SyncInterpreter


def test_what_is_put_is_there_and_can_be_got(python: SyncInterpreter) -> None:
    data = os.urandom(3_000_001)  # three pieces
    python.put(PurePosixPath("some/where/data.bin"), data)
    assert python.run("import os; os.path.getsize('some/where/data.bin')").value == "3000001"
    python.run("open('copy', 'wb').write(open('some/where/data.bin', 'rb').read()[::-1])")
    assert python.get("copy") == data[::-1]


@pytest.mark.parametrize(
    ("prepare", "name", "kind"),
    [
        ("", "nothing", FileNotFoundError),
        ("import os; os.mkdir('d')", "d", IsADirectoryError),
        ("open('f', 'w').write('')", "f/g", NotADirectoryError),
        ("import os; os.mkfifo('p')", "p", OSError),
    ],
)
def test_errors_are_those_of_the_file_system(
    python: SyncInterpreter, prepare: str, name: str, kind: type[OSError]
) -> None:
    python.run(prepare)
    with pytest.raises(kind, match=name):
        python.get(name)
    assert python.run("1 + 1").value == "2"


@pytest.mark.parametrize("name", ["", "/etc/passwd", "a/../../x", "a\0b", ".", "\ud800"])
def test_names_outside_the_directory_are_refused(python: SyncInterpreter, name: str) -> None:
    for call in (lambda: python.put(name, b""), lambda: python.get(name)):
        with pytest.raises(ValueError, match=r"relative path|not a file name"):
            call()
    assert python.run("6 * 7").value == "42"


def test_a_restart_writes_files_again_leaves_copies_alone_and_gives_back_what_it_held(sandbox: Sandbox) -> None:
    before = sandbox.stats()
    with sandbox.interpreter_sync("x = 1", files={"a": b"first"}) as python:
        python.put("a", b"changed")
        python.run("x = 2")
        with python.fork()[0] as copy:
            for _ in range(3):
                python.restart()
            assert (copy.get("a"), copy.run("x").value) == (b"changed", "2")
            copy.restart()
            for each in (python, copy):
                assert (each.get("a"), each.run("x").value) == (b"first", "1")
    after = sandbox.stats()
    assert (after["sessions"], after["free"]) == (before["sessions"], before["free"])


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda p: p.run(b"1"), TypeError),
        (lambda p: p.run("#" * (8 << 20) + "#"), ValueError),
        (lambda p: p.run("1", timeout="5"), TypeError),
        (lambda p: p.run("1", timeout=float("nan")), ValueError),
        (lambda p: p.fork(0), ValueError),
        (lambda p: p.fork(65), ValueError),
        (lambda p: p.fork(1.0), TypeError),
        (lambda p: p.put(b"a", b"1"), TypeError),
        (lambda p: p.put("a", "text"), TypeError),
        (lambda p: p.put("a", bytes(p.interpreter.limits.file_size + 1)), OSError),
    ],
)
def test_what_makes_no_sense_is_refused_and_harms_nothing(python: SyncInterpreter, call: Any, kind: type) -> None:
    with pytest.raises(kind):
        call(python)
    assert python.run("1 + 1").value == "2"
