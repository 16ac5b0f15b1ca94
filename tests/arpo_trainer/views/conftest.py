"""Runs of evaluations and a browser, shared by the tests of the views."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from arpo_trainer.views.run_page import write_view
from tests.arpo_trainer.views.browser import CHROMIUM, Browser
from tests.arpo_trainer.views.sample_runs import make_run

MODELS, ENVS = ("qwen2.5-3b", "llama3.1-8b"), ("GSM8K", "MATH500")


@pytest.fixture(scope="session")
def large_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """5,000 units: two models, two environments, two samples of each task."""
    folder = tmp_path_factory.mktemp("views") / "large"
    return make_run(folder, tasks=625, samples=2, models=MODELS, envs=ENVS, skill=0.5)


@pytest.fixture(scope="session")
def large_page(large_run: Path) -> Path:
    """The page of the 5,000 units, with all their trees."""
    return write_view([large_run])


@pytest.fixture(scope="session")
def tree_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trees of four trajectories."""
    return make_run(tmp_path_factory.mktemp("views") / "trees", tasks=30, trajectories=4, tokens=120)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()
