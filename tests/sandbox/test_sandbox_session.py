"""What a session does with code that comes to an end by itself."""

import pytest

from sandbox import Sandbox, SessionLost, SyncInterpreter


def test_the_last_expression_is_the_value_and_the_next_underscore_unless_it_is_none(python: SyncInterpreter) -> None:
    execution = python.run("print('out')\n'a' + 'b'")
    assert (execution.stdout, execution.value, execution.status) == ("out\n", "'ab'", "ok")
    assert [python.run(code).value for code in ("None", "x = 1", "_ + 'c'")] == [None, None, "'abc'"]


def test_a_traceback_shows_the_users_frames_with_their_source_and_nothing_else(python: SyncInterpreter) -> None:
    python.run("import json\ndef load(text):\n    return json.loads(text)")
    execution = python.run("load('{')")
    assert (execution.status, execution.alive) == ("error", True)
    lines = str(execution.error).splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert [line.strip() for line in lines if line.startswith("  File")] == [
        'File "<cell 2>", line 1, in <module>',
        'File "<cell 1>", line 3, in load',
    ]
    assert "    return json.loads(text)" in lines
    assert lines[-1].startswith("json.decoder.JSONDecodeError: ")
    assert 'File "<cell 3>", line 2' in str(python.run("1\nx = = 1").error)


@pytest.mark.parametrize(
    "code",
    [
        "class Bad(Exception):\n    def __str__(self): raise RuntimeError('worse')\nraise Bad",
        "class Bad:\n    def __repr__(self): raise ValueError('no repr')\nBad()",
        "raise BaseException('base')",
        "raise ExceptionGroup('many', [ValueError('one'), TypeError('two')])",
        "def f(): f()\nf()",
        "x = 1\0",
        "x = = 1",
    ],
)
def test_whatever_is_raised_is_reported_and_the_session_goes_on(python: SyncInterpreter, code: str) -> None:
    assert python.run(code).status == "error"
    assert python.run("1 + 1").value == "2"


def test_output_of_subprocesses_and_of_c_is_caught(python: SyncInterpreter) -> None:
    code = "import os, subprocess, sys\nos.write(1, b'raw\\n')\nos.write(2, b'err\\n')\n"
    code += "subprocess.run(['/bin/sh', '-c', 'echo sub'])\nprint('end')"
    execution = python.run(code)
    assert execution.stdout.splitlines() == ["raw", "sub", "end"]
    assert execution.stderr == "err\n"


def test_odd_characters_survive_the_way_there_and_back(python: SyncInterpreter) -> None:
    assert python.run("print('∑ 𝄞'); '∑ 𝄞'").text == "∑ 𝄞\n'∑ 𝄞'"
    assert python.run("print('\\ud800')").stdout == "\\ud800\n"
    assert python.run("'\ud800'").status in ("ok", "error")
    assert python.run("1").alive


@pytest.mark.parametrize("code", ["exit()", "import sys; sys.exit(0)", "raise SystemExit"])
def test_exit_ends_the_cell_and_keeps_the_session(python: SyncInterpreter, code: str) -> None:
    python.run("x = 7")
    execution = python.run(code)
    assert (execution.status, execution.alive, execution.error) == ("exit", True, None)
    assert python.run("x").value == "7"
    assert "EOFError" in str(python.run("input()").error)


def test_classes_can_be_pickled_and_main_is_the_session(python: SyncInterpreter) -> None:
    code = "import pickle\nclass C: pass\nc = pickle.loads(pickle.dumps(C()))\ntype(c) is C, __name__"
    assert python.run(code).value == "(True, '__main__')"


def test_a_written_module_can_be_imported(python: SyncInterpreter) -> None:
    python.run("open('mine.py', 'w').write('answer = 42\\ndef bad(): raise KeyError(1)')")
    assert python.run("import mine; mine.answer").value == "42"
    assert "mine.py" in str(python.run("mine.bad()").error)


def test_hashes_are_the_same_in_every_session(sandbox: Sandbox) -> None:
    assert len({sandbox.run_sync("hash('arpo')").value for _ in range(2)}) == 1


def test_setup_runs_first_and_is_not_counted(sandbox: Sandbox) -> None:
    with sandbox.interpreter_sync("import math\nr = 2") as python:
        assert python.run("round(math.pi * r, 2)").value == "6.28"
        assert "<cell 2>" in str(python.run("1/0").error)


def test_a_closed_session_can_be_closed_again_but_not_run(sandbox: Sandbox) -> None:
    python = sandbox.interpreter_sync()
    python.close()
    python.close()
    with pytest.raises(SessionLost, match="open a new interpreter"):
        python.run("1")


def test_long_code_is_no_problem(python: SyncInterpreter) -> None:
    assert python.run(f"text = {'x' * (3 << 20)!r}\nlen(text)").value == str(3 << 20)
