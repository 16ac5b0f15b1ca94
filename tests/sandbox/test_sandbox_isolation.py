"""What stands between the code and the machine, for the backends that isolate."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from sandbox import Sandbox, SyncInterpreter


@pytest.fixture
def python(isolated: Sandbox) -> Iterator[SyncInterpreter]:
    with isolated.interpreter_sync() as interpreter:
        yield interpreter


def test_the_isolation_is_named(isolated: Sandbox, python: SyncInterpreter) -> None:
    assert isolated.isolation == python.run("1").isolation
    assert isolated.isolation.startswith(("docker(", "bubblewrap"))


def test_there_is_no_network(python: SyncInterpreter) -> None:
    code = "import socket\ntry: socket.create_connection(('1.1.1.1', 53), timeout=2)\n"
    code += "except OSError as e: print(e.strerror)"
    assert "unreachable" in python.run(code).stdout
    assert python.run("[line.split(':')[0].strip() for line in open('/proc/net/dev') if ':' in line]").value == "['lo']"


@pytest.mark.parametrize(
    "path", ["/x", "/usr/x", "/bin/x", "/etc/x", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger"]
)
def test_nothing_of_the_system_can_be_written(python: SyncInterpreter, path: str) -> None:
    assert python.run(f"open({path!r}, 'w')").status == "error"


def test_the_code_has_no_root_and_no_capabilities_and_can_gain_none(python: SyncInterpreter) -> None:
    code = "status = dict(line.split(':', 1) for line in open('/proc/self/status'))\n"
    code += "[int(status[k], 16) for k in ('CapEff', 'CapPrm', 'CapInh', 'CapAmb')], int(status['NoNewPrivs'])"
    assert python.run(code).value == "([0, 0, 0, 0], 1)"
    assert python.run("import os; os.setuid(0)").status == "error" or os.getuid() != 0


def test_no_environment_variable_of_the_client_is_visible(isolated: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hush-hush")
    with Sandbox.open_sync(isolated.backend) as fresh, fresh.interpreter_sync() as python:
        code = "import os, glob\nseen = repr(dict(os.environ))\nfor p in glob.glob('/proc/*/environ'):\n"
        code += "    try: seen += open(p).read()\n    except OSError: pass\n'hush' in seen, sorted(os.environ)"
        value = str(python.run(code).value)
    assert value.startswith("(False, ")
    assert eval(value)[1] == [
        "HOME",
        "LANG",
        "MALLOC_ARENA_MAX",
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "PATH",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONHASHSEED",
        "TMPDIR",
    ]


def test_no_file_of_the_machine_is_visible(python: SyncInterpreter) -> None:
    here = os.path.abspath(__file__)
    assert python.run(f"import os; os.path.exists({here!r})").value == "False"
    assert (
        python.run("[p for p in ('/home', '/etc/shadow', '/var/run/docker.sock', '/boot') if os.path.exists(p)]").value
        == "[]"
    )


def test_processes_of_the_machine_are_not_visible(python: SyncInterpreter) -> None:
    code = "import os\nmax(int(p) for p in os.listdir('/proc') if p.isdigit()) < 10**7, os.path.exists('/proc/1')"
    assert python.run(code).value == "(True, True)"
    assert "<sandbox" not in str(python.run("open('/proc/1/cmdline').read()").error)
    assert "pytest" not in str(
        python.run("[open(f'/proc/{p}/cmdline').read() for p in os.listdir('/proc') if p.isdigit()]").value
    )


@pytest.mark.parametrize("what", ["mem", "environ", "fd", "cwd", "root", "exe"])
def test_the_supervisor_and_other_sessions_can_not_be_looked_into(
    isolated: Sandbox, python: SyncInterpreter, what: str
) -> None:
    with isolated.interpreter_sync() as other:
        pid = other.run("import os; os.getpid()").value
        zygote = "min(int(p) for p in os.listdir('/proc') if p.isdigit() and int(p) > 1)"
        for target in ("1", str(pid), zygote):
            code = f"import os\npath = f'/proc/{{{target}}}/{what}'\n"
            code += "try: os.listdir(path) if path.endswith('fd') else os.readlink(path)\n"
            code += "except OSError as e: first = e.errno\nelse: first = 0\n"
            code += (
                "try: open(path, 'rb').read(1)\nexcept OSError as e: second = e.errno\nelse: second = 0\nfirst, second"
            )
            value = python.run(code).value
            assert "0" not in str(value).strip("()").split(", "), (target, value)


def test_the_supervisor_survives_being_killed(isolated: Sandbox, python: SyncInterpreter) -> None:
    for number in ("KILL", "TERM", "INT", "STOP", "HUP", "SEGV", "CHLD"):
        python.run(f"import os, signal\nos.kill(1, signal.SIG{number})")
    assert python.run("1").value == "1"


def test_a_kill_of_everything_costs_sessions_but_not_the_sandbox(isolated: Sandbox) -> None:
    vandal = isolated.interpreter_sync()
    vandal.run("import os, signal\nos.kill(-1, signal.SIGKILL)")
    for _ in range(3):
        with isolated.interpreter_sync() as python:
            assert python.run("6 * 7").value == "42"
    vandal.close()


def test_multiprocessing_works(python: SyncInterpreter) -> None:
    code = "import multiprocessing\nwith multiprocessing.Pool(2) as pool: print(pool.map(abs, [-1, -2]))"
    assert python.run(code).stdout == "[1, 2]\n"


def test_other_directories_have_no_names(python: SyncInterpreter) -> None:
    assert "Permission denied" in str(python.run("import os; [os.listdir(f'/slots/{k}') for k in range(64)]").error)


def test_a_fork_bomb_is_held_by_the_limit(isolated: Sandbox) -> None:
    bomb = isolated.interpreter_sync()
    execution = bomb.run(
        "import os, time\nwhile True:\n    try: os.fork()\n    except OSError: time.sleep(0.1)", timeout=2
    )
    assert execution.status == "timeout"
    bomb.close()
    for _ in range(50):
        try:
            with isolated.interpreter_sync() as python:
                assert python.run("6 * 7").value == "42"
            return
        except Exception as error:  # the processes are being swept up
            last = error
    raise last
