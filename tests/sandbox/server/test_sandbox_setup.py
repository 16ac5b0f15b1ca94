"""A setup's text can not be reached from the session that it prepared, by whatever route."""

import pytest

from sandbox import Sandbox, SandboxError

# The parts are put together at run time, so that the code that looks for them does not hold them itself.
SETUP = """\
# a note that is no code: marker-COMMENT-7f3a
rows = [3, 4]; hidden = "marker-LITERAL-7f3a"; del hidden  # deleted at once
def total(scale=2):
    # marker-INNER-7f3a
    return scale * sum(rows)
class Store:
    size = len(rows)
"""
# The memory of the process, byte by byte. Head and tail of what is looked for are never joined by the search itself.
SCAN = """
import contextlib, ctypes, re
def scan(head, tail):
    both = re.compile(re.escape(head) + b"(?=" + re.escape(tail) + b")")
    with open("/proc/self/maps") as maps:
        regions = [line.split()[:2] for line in maps]
    hits = 0
    for edges, rights in regions:
        start, end = (int(edge, 16) for edge in edges.split("-"))
        if rights.startswith("rw"):
            hits += len(both.findall(ctypes.string_at(start, end - start)))
        with contextlib.suppress(OSError, ValueError, OverflowError), open("/proc/self/mem", "rb", 0) as memory:
            memory.seek(start)
            hits += len(both.findall(memory.read(end - start)))
    return hits
"""


def test_the_memory_of_a_session_holds_neither_comments_nor_layout_of_its_setup(isolated: Sandbox) -> None:
    with isolated.interpreter_sync(SETUP) as python:
        assert python.run(SCAN + "total(), Store.size").value == "(14, 2)"
        known = python.run("planted = 'marker-' + 'PLANTED-7f3a'; scan(b'marker-', b'PLANTED-7f3a') > 0")
        assert known.value == "True", known.text  # the scan finds what is there
        for part in ("COMMENT-7f3a", "INNER-7f3a"):
            assert python.run(f"scan(b'marker-', b'{part}')").value == "0"
        assert python.run("scan(b'rows = ', b'[3, 4]')").value == "0"
        (twin,) = python.fork(1)
        assert twin.run("scan(b'marker-', b'COMMENT-7f3a')").value == "0"
        twin.close()


def test_other_sessions_and_those_of_one_call_do_not_hold_it_either(isolated: Sandbox) -> None:
    with isolated.interpreter_sync(SETUP), isolated.interpreter_sync(SCAN) as other:
        assert other.run("scan(b'marker-', b'COMMENT-7f3a') + scan(b'marker-', b'LITERAL-7f3a')").value == "0"
    assert isolated.run_sync(SCAN + "\nscan(b'marker-', b'COMMENT-7f3a')", setup=SETUP).value == "0"


def test_functions_of_a_setup_still_work_and_name_their_lines_in_errors(sandbox: Sandbox) -> None:
    with sandbox.interpreter_sync("import math\n\ndef fail():\n    return math.sqrt(-1)") as python:
        text = python.run("fail()").text
        assert 'File "<setup>", line 4, in fail' in text
        assert "math.sqrt(-1)" not in text


@pytest.mark.parametrize(
    ("setup", "told"),
    [
        ("x = 1\nx +", "invalid syntax"),
        ("x = 1\n1 / 0", "ZeroDivisionError"),
        ("raise SystemExit(3)", "exit"),
        ("(" * 5000 + ")" * 5000, "Error"),
    ],
)
def test_a_setup_that_can_not_be_run_is_told(setup: str, told: str, sandbox: Sandbox) -> None:
    with pytest.raises(SandboxError, match="the setup code failed") as error:
        sandbox.interpreter_sync(setup)
    assert told in str(error.value)
