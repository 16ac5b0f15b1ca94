"""The image is made once, without a registry, and holds what Python and wheels need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sandbox_under_test import open_or_skip

from sandbox import Sandbox, SandboxError, SyncInterpreter, build_image
from sandbox.shared_libraries import closure

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def docker_sandbox() -> Iterator[Sandbox]:
    opened = open_or_skip("docker")
    yield opened
    opened.close_sync()


@pytest.fixture
def python(docker_sandbox: Sandbox) -> Iterator[SyncInterpreter]:
    with docker_sandbox.interpreter_sync() as interpreter:
        yield interpreter


def test_the_tag_is_made_from_the_recipe_and_the_image_only_once(docker_sandbox: Sandbox) -> None:
    import time

    started = time.monotonic()
    tag = build_image()
    assert time.monotonic() - started < 2
    assert tag == build_image()
    name, _, digest = tag.partition(":")
    assert name == "arpo-sandbox"
    assert len(digest) == 12


def test_modules_with_shared_libraries_work(python: SyncInterpreter) -> None:
    modules = "ssl, sqlite3, ctypes, lzma, bz2, zlib, hashlib, decimal, multiprocessing, asyncio, venv, unittest"
    assert python.run(f"import {modules}").error is None
    assert python.run("sqlite3.connect('db').execute('select 6 * 7').fetchone()").value == "(42,)"


def test_what_wheels_expect_is_there(python: SyncInterpreter) -> None:
    code = "import ctypes\nnames = ['libstdc++.so.6', 'libgcc_s.so.1', 'libpthread.so.0', 'libdl.so.2', 'librt.so.1']\n"
    assert python.run(code + "len([ctypes.CDLL(name) for name in names])").value == "5"


def test_the_packages_of_this_machine_are_not_in_it(python: SyncInterpreter) -> None:
    assert "ModuleNotFoundError" in str(python.run("import docker").error)
    assert "ModuleNotFoundError" in str(python.run("import sandbox").error)


def test_processes_and_the_shell_work(python: SyncInterpreter) -> None:
    code = "import multiprocessing, subprocess\n"
    code += "with multiprocessing.Pool(2) as pool: squares = pool.starmap(pow, [(2, 2), (3, 2)])\n"
    code += "squares, subprocess.check_output('cd /work && echo $((6 * 7))', shell=True, text=True)"
    assert python.run(code).value == "([4, 9], '42\\n')"


def test_an_image_can_be_made_from_a_base_that_is_here(docker_sandbox: Sandbox) -> None:
    base = build_image()
    tag = build_image(base)
    assert tag != base
    with Sandbox.open_sync("docker", image=tag) as opened, opened.interpreter_sync() as python:
        assert python.run("import os; os.getcwd()").value == "'/work'"
        (copy,) = python.fork()
        assert copy.run("import tempfile; tempfile.gettempdir()").value == "'/work'"


def test_a_base_can_be_named_by_the_environment(docker_sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    base = build_image()
    monkeypatch.setenv("ARPO_SANDBOX_BASE_IMAGE", base)
    assert build_image() == build_image(base) != base


def test_a_base_that_can_not_be_had_is_an_error_of_the_machinery(docker_sandbox: Sandbox) -> None:
    with pytest.raises(SandboxError, match="no-such-image"):
        build_image("localhost:1/no-such-image:none")


def test_libraries_come_with_what_they_need_and_stay_where_the_loader_looks() -> None:
    import _ctypes

    places = closure([Path(_ctypes.__file__)])
    names = {Path(place).name for place in places}
    assert {"libc.so.6", "libstdc++.so.6", "libgcc_s.so.1"} <= names
    assert any(name.startswith("libffi") for name in names)
    assert all(place.startswith(("/lib", "/usr/lib")) for place in places)
