"""What stands between the code and the machine; attempts to get through are in `attacks`."""

from collections.abc import Iterator

import pytest

from sandbox import Sandbox, SyncInterpreter


@pytest.fixture
def python(isolated: Sandbox) -> Iterator[SyncInterpreter]:
    with isolated.interpreter_sync() as interpreter:
        yield interpreter


def test_the_isolation_is_named(isolated: Sandbox, python: SyncInterpreter) -> None:
    assert isolated.isolation == python.run("1").isolation
    assert isolated.isolation.removeprefix("http+").startswith(("docker(", "bubblewrap", "command("))


def test_no_environment_variable_of_the_client_is_visible(isolated: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hush-hush")
    with Sandbox.open_sync(isolated.backend) as fresh, fresh.interpreter_sync() as python:
        code = "import os, glob\nseen = repr(dict(os.environ))\nfor p in glob.glob('/proc/*/environ'):\n"
        code += "    try: seen += open(p).read()\n    except OSError: pass\n'hush' in seen, sorted(os.environ)"
        value = str(python.run(code).value)
    assert value.startswith("(False, ")
    packages = ["PYTHONPATH"] if "bubblewrap" in isolated.isolation else []  # where the profile's are
    assert eval(value)[1] == [
        "HOME",
        "LANG",
        "MALLOC_ARENA_MAX",
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "PATH",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONHASHSEED",
        *packages,
        "TMPDIR",
    ]
