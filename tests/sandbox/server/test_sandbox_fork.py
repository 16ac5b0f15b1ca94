"""A fork of a live session is the same session, twice, and independent from then on."""

import pytest
from sandbox_under_test import values

from sandbox import ForkError, Sandbox, SessionEnded, SyncInterpreter


@pytest.mark.parametrize("kind", ["TemporaryFile('w+b')", "NamedTemporaryFile('w+b')", "SpooledTemporaryFile(4)"])
def test_temporary_files_are_copied_also_without_a_name(python: SyncInterpreter, kind: str) -> None:
    python.run(f"import tempfile\nf = tempfile.{kind}\nf.write(b'0123456789'); f.flush(); f.seek(4)")
    family = [python, *python.fork(2)]
    assert values(family, "f.read(2)") == ["b'45'"] * 3
    family[0].run("f.seek(0); f.write(b'parent'); f.flush()")
    family[1].run("f.seek(0); f.write(b'child!'); f.flush()")
    read = "f.seek(0), f.read()"
    assert values(family, read) == ["(0, b'parent6789')", "(0, b'child!6789')", "(0, b'0123456789')"]


def test_a_deleted_file_and_a_duplicated_descriptor_are_copied(python: SyncInterpreter) -> None:
    python.run("import os\na = os.open('gone', os.O_RDWR | os.O_CREAT)\nb = os.dup(a); os.write(a, b'abcdef')")
    python.run("os.unlink('gone'); os.lseek(a, 2, 0)")
    family = [python, *python.fork(1)]
    assert values(family, "os.read(a, 1), os.read(b, 1)") == ["(b'c', b'd')"] * 2
    assert values(family, "os.lseek(a, 0, 1)") == ["4"] * 2


def test_files_elsewhere_are_read_on_at_their_own_offset(python: SyncInterpreter) -> None:
    python.run("import json\nf = open(json.__file__, 'rb')\nhead = f.read(5)\ng = open(f.name, 'rb', buffering=0)")
    family = [python, *python.fork(1)]
    assert len(set(values(family, "g.read(8)"))) == 1
    family[0].run("g.read(100)")
    assert values(family, "g.tell(), f.tell()") == ["(108, 5)", "(8, 5)"]


def test_the_directory_is_copied_with_modes_links_and_times(python: SyncInterpreter) -> None:
    code = """
import os, stat
os.makedirs('a/b'); open('a/b/f', 'w').write('x' * 10); os.chmod('a/b/f', 0o400); os.utime('a/b/f', (1, 2))
os.symlink('a/b/f', 'soft'); os.link('a/b/f', 'hard'); os.mkfifo('pipe'); os.chmod('a', 0o500)
with open('sparse', 'wb') as s: s.truncate(50 << 20)
def seen():
    one = os.stat('a/b/f')
    return (oct(one.st_mode), one.st_mtime, one.st_nlink, os.readlink('soft'), os.stat('hard').st_ino == one.st_ino,
            oct(os.stat('a').st_mode), stat.S_ISFIFO(os.stat('pipe').st_mode), os.stat('sparse').st_blocks)
"""
    python.run(code)
    family = [python, *python.fork(1)]
    here, there = values(family, "seen()")
    assert here == there == "('0o100400', 2.0, 2, 'a/b/f', True, '0o40500', True, 0)"
    family[1].run("os.chmod('a', 0o700); os.rename('a', 'z')")
    assert values(family, "sorted(os.listdir('.'))")[0] != values(family, "sorted(os.listdir('.'))")[1]


def test_absolute_paths_made_from_the_working_directory_stay_valid(isolated: Sandbox) -> None:
    with isolated.interpreter_sync() as python:
        python.run("import os\npath = os.path.abspath('data'); open(path, 'w').write('first')")
        family = [python, *python.fork(1)]
        family[1].run("open(path, 'w').write('second')")
        assert values(family, "path, open(path).read()") == ["('/work/data', 'first')", "('/work/data', 'second')"]
        assert values(
            family, "import subprocess; subprocess.check_output(['/bin/sh', '-c', 'read x < /work/data; echo $x'])"
        )


def test_redirected_output_stays_redirected_and_restored_output_is_the_forks_own(python: SyncInterpreter) -> None:
    python.run("import os\nsaved = os.dup(1); log = open('log', 'w'); os.dup2(log.fileno(), 1); print('one')")
    family = [python, *python.fork(1)]
    assert [session.run("print('two')").stdout for session in family] == ["", ""]
    assert [session.run("os.dup2(saved, 1); print('three')").stdout for session in family] == ["three\n"] * 2
    assert values(family, "open('log').read()") == ["'one\\ntwo\\n'"] * 2


WRITER = """
import os, time
if os.fork() == 0:
    if os.fork() == 0:
        with open("log", "ab", buffering=0) as log:
            while True: log.write(b"x")
    time.sleep(100)
while not os.path.exists("log"): time.sleep(0.001)
"""


def test_what_workers_have_started_writes_nothing_while_files_are_copied(python: SyncInterpreter) -> None:
    python.run(WRITER)
    family = [python, *python.fork(4)]
    sizes = [int(str(size)) for size in values(family, "os.path.getsize('log')")]
    assert max(sizes) - min(sizes) <= 1  # a write that had begun may end


def test_sixty_four_forks_at_once(python: SyncInterpreter) -> None:
    python.run("x = 7")
    copies = python.fork(64)
    assert values(copies, "x") == ["7"] * 64
    for copy in copies:
        copy.close()


@pytest.mark.parametrize(
    "code",
    [
        "shutil.rmtree(os.path.realpath(os.environ['HOME']))",
        "os.register_at_fork(after_in_child=lambda: os._exit(9))",  # a copy that dies at birth
    ],
)
def test_a_fork_that_fails_leaves_the_session_alive(python: SyncInterpreter, code: str) -> None:
    python.run(f"import os, shutil\npid = os.getpid()\n{code}")
    with pytest.raises(ForkError, match="goes on"):
        python.fork(2)
    assert python.run("os.getpid() == pid").value == "True"


def test_a_session_that_dies_in_its_fork_says_so(python: SyncInterpreter) -> None:
    python.run("import os\nos.register_at_fork(before=lambda: os._exit(9))")
    with pytest.raises(SessionEnded, match="exit code 9"):
        python.fork(2)
    assert python.run("1").status == "killed"


def test_a_tree_of_depth_ten_outlives_its_ancestors(python: SyncInterpreter) -> None:
    python.run("path = ''\ngo = (number for number in range(1000))\nopen('file', 'w').write('root')")
    level, paths = [python], [""]
    for depth in range(10):
        wide = 2 if depth in (0, 3, 6, 9) else 1  # 2^4 leaves
        following = [copy for session in level for copy in session.fork(wide)]
        paths = [path + str(place) for path in paths for place in range(wide)]
        for path, session in zip(paths, following, strict=True):
            session.run(f"path += '{path[-1]}'; next(go); open('file', 'a').write(path[-1])")
        for session in level if depth else ():
            session.close()
        level = following
    read = "(path, next(go), open('file').read())"
    assert values([python], read) == ["('', 0, 'root')"]
    assert values(level, read) == [f"('{path}', 10, 'root{path}')" for path in paths]
    for session in level:
        session.close()


def test_forks_in_a_line_have_an_end_that_is_said(isolated: Sandbox) -> None:
    if "landlock" not in isolated.isolation:
        pytest.skip("NOT TESTED: without Landlock there is no limit")
    line = [isolated.interpreter_sync("x = 0")]
    for _ in range(15):
        line += line[-1].fork(1)
        line[-1].run("x += 1")
    with pytest.raises(ForkError, match=r"forks in a line can be 15 deep; fork an ancestor"):
        line[-1].fork(1)
    assert line[-1].run("x").value == "15"
    for session in line:
        session.close()
