"""What was left behind is found, and nothing else is touched; the `arpo sandbox` command."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from sandbox_under_test import open_or_skip

from arpo_trainer.cli.arpo_command import main
from sandbox import Sandbox
from sandbox import docker_engine as admin

pytestmark = pytest.mark.docker


@pytest.fixture
def mine() -> Iterator[Sandbox]:
    opened = open_or_skip("docker")
    yield opened
    opened.close_sync()


@pytest.fixture
def engine(mine: Sandbox) -> Iterator[Any]:
    import docker

    client = docker.from_env()
    yield client
    client.close()


def id_of(sandbox: Sandbox) -> str:
    """The container of a sandbox; this process may hold others at the same time."""
    (container,) = sandbox._pool.containers
    return str(container.stream._container)  # type: ignore[union-attr]


def our_ids() -> set[str]:
    return {one.id for one in admin.containers() if one.client == os.getpid()}


def a_dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.fixture(params=[{}])
def left_over(engine: Any, mine: Sandbox, request: pytest.FixtureRequest) -> Iterator[str]:
    """A container that has been created by a process which is gone, and was never started."""
    import docker.errors

    own = engine.containers.get(id_of(mine))
    labels = {**own.labels, "arpo.sandbox.client": str(a_dead_pid()), **request.param}
    made = engine.api.create_container(own.image.id, ["python3"], labels=labels)["Id"]
    yield made[:12]
    with contextlib.suppress(docker.errors.NotFound):
        engine.api.remove_container(made, force=True)


def test_a_container_in_use_is_listed_and_no_orphan(mine: Sandbox) -> None:
    (info,) = [one for one in admin.containers() if id_of(mine).startswith(one.id)]
    assert info.client == os.getpid()
    assert (info.state, info.orphan, info.host) == ("running", False, "")
    assert 0 <= info.age < 60
    assert info.image


@pytest.mark.parametrize("left_over", [{"arpo.sandbox.client_host": "elsewhere"}], indirect=True)
def test_a_client_on_another_machine_is_left_alone(left_over: str) -> None:
    admin.prune()
    assert left_over in {one.id for one in admin.containers()}


def test_images_that_were_replaced_are_removed_and_the_newest_stays(engine: Any, monkeypatch: Any) -> None:
    """The images of others are not to be touched here, so that only the choice is looked at."""
    images = [
        {"Created": 3, "Labels": {"arpo.sandbox.profile": "math"}, "RepoTags": ["arpo-sandbox:new"]},
        {"Created": 2, "Labels": {"arpo.sandbox.profile": "math"}, "RepoTags": ["arpo-sandbox:old"]},
        {"Created": 1, "Labels": {"arpo.sandbox.profile": "data"}, "RepoTags": ["arpo-sandbox:other"]},
        {"Created": 1, "Labels": None, "RepoTags": ["arpo-sandbox:ancient"]},
    ]
    monkeypatch.setattr(engine.api, "images", lambda name: images)
    assert admin._old_images(engine) == ["arpo-sandbox:old"]


def test_what_a_dead_client_left_is_listed_and_removed_and_nothing_else(
    mine: Sandbox, left_over: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = our_ids()
    assert main(["sandbox", "ps"]) == 0
    heading, *lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if line.startswith(left_over)]
    assert heading.split()[:3] == ["CONTAINER", "STATE", "AGE"]
    assert "(gone)" in line
    assert main(["sandbox", "prune"]) == 0
    assert f"removed container {left_over}" in capsys.readouterr().out
    assert left_over not in {one.id for one in admin.containers()}
    assert our_ids() == before
    assert mine.run_sync("6 * 7").value == "42"
