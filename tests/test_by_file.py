"""The tests of a process that dies are run by others, and nobody waits for ever."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("xdist")
from tests.by_file import ByFile

TESTS = [f"tests/{file}.py::test_{number}" for file, count in (("a", 3), ("b", 4), ("c", 5)) for number in range(count)]


class Worker:
    """Runs a test when it knows the next one, as a process of xdist does."""

    def __init__(self) -> None:
        self.queue, self.shutting_down, self.gateway = list[int](), False, SimpleNamespace(id="gw")

    def send_runtest_some(self, tests: list[int]) -> None:
        self.queue += tests

    def shutdown(self) -> None:
        self.shutting_down = True

    def run(self) -> int | None:
        return self.queue.pop(0) if len(self.queue) > 1 or (self.queue and self.shutting_down) else None


def started(scheduler: ByFile) -> Any:
    worker: Any = Worker()
    scheduler.add_node(worker)
    scheduler.add_node_collection(worker, TESTS)
    return worker


@pytest.mark.parametrize("dies_after", range(len(TESTS)))
def test_all_are_run_once_though_one_process_dies(pytestconfig: pytest.Config, dies_after: int) -> None:
    option = SimpleNamespace(loadscopereorder=False, tx=["popen"] * 2, numprocesses=2, px=[])
    config: Any = SimpleNamespace(option=option, getvalue=lambda name: getattr(option, name), hook=None)
    scheduler = ByFile(config, SimpleNamespace(loadscopesched=lambda *words: None))
    workers = [started(scheduler), started(scheduler)]
    scheduler.schedule()
    run, crashed = list[str](), ""
    while any(worker.queue for worker in workers):
        before = len(run)
        for worker in list(workers):
            if len(run) == dies_after and not crashed and worker.queue:
                workers.remove(worker)
                crashed = scheduler.remove_node(worker) or ""
                late: Any = Worker()
                scheduler.add_node(late)
                scheduler.schedule()  # as when a second one dies while the first one's successor is collecting
                scheduler.add_node_collection(late, TESTS)
                scheduler.schedule()
                workers.append(late)
                before = -1
            elif (number := worker.run()) is not None:
                run.append(TESTS[number])
                scheduler.mark_test_complete(worker, number)
        if scheduler.tests_finished:
            for worker in workers:
                worker.shutdown()
        assert len(run) > before, "all wait for ever"
    assert sorted([*run, crashed]) == sorted(TESTS)
