"""Records of runs as training would write them, made up: success rises with cost, from binomial draws."""

from pathlib import Path
from typing import Any

import numpy

from benchmarks.laboratory.grid_run import GridRun

STEPS, TRAJECTORIES, EPISODES = 25, 64, 32
TOKENS = {"short": 12, "long-critical": 40, "long-many": 48, "stochastic": 30}


def record_of(spec: GridRun, gain: float = 0.5) -> dict[str, Any]:
    """The record of a run whose success rises by about `gain`."""
    rng = numpy.random.default_rng([spec.seed, *spec.label.encode(), *spec.env.encode()])
    own = gain + 0.1 * rng.standard_normal()
    totals = numpy.zeros(4)
    curve = []
    for step in range(STEPS):
        level = 0.15 + own * (1 - numpy.exp(-3 * step / STEPS))
        tokens = TRAJECTORIES * TOKENS[spec.env] * rng.uniform(0.9, 1.1)
        totals += [TRAJECTORIES, tokens, tokens // 6, 1.3 * tokens]
        success = rng.binomial(EPISODES, min(1.0, max(0.0, level))) / EPISODES
        names = ("trajectories", "sampled_tokens", "tool_calls", "update_tokens")
        costs = {name: int(total) for name, total in zip(names, totals, strict=True)}
        curve.append({"step": step + 1, **costs, "success": success, "episodes": EPISODES})
    final = rng.binomial(256, min(1.0, max(0.0, 0.15 + own * 0.95))) / 256
    return {
        **{"algorithm": spec.algorithm, "label": spec.label, "env": spec.env, "seed": spec.seed},
        **{"settings": spec.settings, "status": "finished", "error": "", "curve": curve},
        **{"final": {"success": final, "episodes": 256}, "seconds": 48.0, "versions": {"python": "3.12"}},
    }


def made_up_run(spec: GridRun, folder: Path) -> dict[str, Any]:
    return record_of(spec)
