"""The simulation of scale: a step of it."""

import json

from benchmarks.rollout_world import small_tokenizer
from benchmarks.scale_step import Load, simulate
from scripts.scale_tables import RESULTS


def test_a_step_is_the_same_each_time_and_keeps_to_its_slots() -> None:
    measured = json.loads(RESULTS.read_text(encoding="utf-8"))["costs"]
    load = Load("search", "7B", workers=2, servers=1, groups=3, generations=4, searches=2.0, slots=2)
    first, second = (simulate(load, measured, small_tokenizer()) for _ in range(2))
    assert {**first, "simulated_in": 0} == {**second, "simulated_in": 0}
    assert first["void"] == 0
    assert 0 < first["sandboxes"] <= load.slots * load.workers
