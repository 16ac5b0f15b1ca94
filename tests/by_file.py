"""How several processes share the tests, and what becomes of those of a process that dies."""

from typing import Any

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped, unused-ignore]

WHOLE = ("tests/sandbox/", "tests/arpo_trainer/ray_rollouts/")  # one counts what the machine has, one shares a cluster


class ByFile(LoadScopeScheduling):  # type: ignore[misc, unused-ignore]
    """Keeps a file's tests in one process, where several run them: their fixtures are made once.

    Those of the folders `WHOLE` stay together, too. The order is that of the collection.

    Of a process that dies (killed for its memory, say) the test that it ran has failed and is not run again; another
    process, started in its place, runs the rest. A process runs a test when it knows the next one, or that there is
    none: one that got a single test of several that are left would wait for ever.
    """

    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in WHOLE if nodeid.startswith(folder)), nodeid.partition("::")[0])

    def remove_node(self, node: Any) -> str | None:
        workload = self.assigned_work.pop(node)
        crashed = next(((unit, test) for unit in workload.values() for test, done in unit.items() if not done), None)
        if crashed is None:
            return None
        unit, test = crashed
        unit[test] = True
        self.workqueue.update({scope: unit for scope, unit in workload.items() if not all(unit.values())})
        for other in self.assigned_work:
            self._reschedule(other)
        return str(test)

    def _reschedule(self, node: Any) -> None:
        if node not in self.registered_collections:  # it has just started, and is still collecting
            return
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)
