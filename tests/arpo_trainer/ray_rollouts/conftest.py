"""A Ray cluster of a head without CPUs and two nodes; its nodes find no Docker."""

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    pytest.importorskip("ray", reason="without the extra `ray`")
    from benchmarks.ray_world import Nodes

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", "unix:///nonexistent.sock")  # inherited by the raylets and their actors
        made = Nodes(2, folder="/tmp/arpo-ray-test")
    yield made
    made.close()


@pytest.fixture(scope="session")
def workers(nodes: Any) -> Iterator[Any]:
    from arpo_trainer.ray_rollouts import RolloutWorkers

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ARPO_SANDBOX", "docker")  # handed on to the actors
        made = RolloutWorkers(2, nodes.address, start_timeout=60)
    yield made
    made.close()
