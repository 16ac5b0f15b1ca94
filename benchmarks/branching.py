"""Where do branches leave, and which decisions pass? Read from the traces of runs, side by side.

    python -m benchmarks.branching before=RUN/traces.jsonl after=RUN/traces.jsonl [--steps 8] [--vocabulary 49152]
    python -m benchmarks.branching --simulate 16        # prompts; no model, no training

A run is a traces.jsonl of `arpo train` or `arpo rollout`. Traces that were written before entropies had a fixed unit
are read with theirs, ln V of the tokenizer (`--vocabulary`). The decisions of each are also replayed: which would pass
under ARPO's rule and AEPO's, on the scale of then and of now, and how many roots AEPO would start.

`--simulate` plays longer episodes (1 to 5 calls, entropies drawn by lot, the simulated engine of `rollout.py`) with
several ways to place the same 12 branches of 16 trajectories. Writes results/branching.json.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import math
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from arpo_env import ToolEnv
from arpo_trainer import Engine, RolloutSettings, RolloutTree, branch_score, read_traces
from arpo_trainer.algorithms.branching import ENTROPY_UNIT, entropy_level
from arpo_trainer.algorithms.registry import probed_roots
from arpo_trainer.rollout.metrics import fork_contrasts, fork_results, rollout_metrics
from arpo_trainer.tree import Decision
from benchmarks.rollout_script import Script, SimulatedBackend
from benchmarks.rollout_world import Delays, fixed_tools, small_tokenizer

RESULTS = Path(__file__).resolve().parent / "results" / "branching.json"
ALPHA, BETA, TAU, PENALTY = 0.5, 0.2, 0.5, 0.05  # as published


def measure(trees: Sequence[RolloutTree], vocabulary: int) -> dict[str, Any]:
    """Return what the trees' decisions and forks look like."""
    places = [(tree, span.index, span.decision) for tree in trees for span in tree.spans if span.decision]
    decisions = [decision for _, _, decision in places]
    contrasts = [contrast for tree in trees for contrast in fork_contrasts(tree) if contrast is not None]
    seen = rollout_metrics(trees)
    return {
        "trees": len(trees),
        "trajectories": Counter(trajectory.origin for tree in trees for trajectory in tree.trajectories),
        "decisions": len(decisions),
        "entropy rose": sum(decision.delta > 0 for decision in decisions),
        "passed": sum(decision.passed for decision in decisions),
        "passed without a rise": sum(decision.passed and decision.delta <= 0 for decision in decisions),
        "reasons": Counter(decision.reason.split(":")[0] for decision in decisions),
        "'entropy rose' without a rise": sum(_is_false(decision) for decision in decisions),
        "decisions by result": _counts(_result(tree, span) for tree, span, _ in places),
        "passed by result": _counts(_result(tree, span) for tree, span, decision in places if decision.passed),
        "rises of roots by result": _counts(result for tree in trees for rises in _rises(tree) for _, result in rises),
        "the first rise of each root": _counts(rises[0][1] for tree in trees for rises in _rises(tree)),
        "the highest rise of each root": _counts(max(rises)[1] for tree in trees for rises in _rises(tree)),
        "branches by result": _counts(result for tree in trees for result in fork_results(tree)),
        "branches by root": _counts(count for tree in trees for count in _families(tree)),
        "forks compared": len(contrasts),
        "forks with contrast": sum(contrasts),
        "copies held": seen.get("copies_held", 0),
        "copies unused": seen.get("copies_unused", 0),
        "seconds waited to settle, a trajectory": round(seen.get("wait/settle", 0.0), 2),
        "replay": replay([(decision.delta * _unit(tree, vocabulary)) for tree, _, decision in places], vocabulary),
        "aepo budget": budgets(trees),
    }


WAYS: dict[str, dict[str, Any]] = {
    "arpo, no quota": {"algorithm": "arpo", "branch_quota": 0},
    "arpo": {"algorithm": "arpo"},
    "arpo-ranked": {"algorithm": "arpo-ranked"},
    "arpo-ranked, no quota": {"algorithm": "arpo-ranked", "branch_quota": 0},
    "aepo on the budget of arpo": {"algorithm": "aepo", "budget": "arpo"},
    "random": {"algorithm": "random"},
    "tree-grpo": {"algorithm": "tree-grpo"},
    "spread": {"algorithm": "benchmarks.laboratory.paper_rows:spread"},
}


def simulate(prompts: int, speed: float = 4.0) -> dict[str, dict[str, Any]]:
    """Play so many prompts each way; seconds are those of the run, divided by `speed`."""
    found = {}
    for name, way in WAYS.items():
        tokenizer = small_tokenizer()
        delays = Delays(0, speed)
        env = ToolEnv("arpo/MultiHop-v0", tools=[functools.partial(fixed_tools, delays)])
        settings = RolloutSettings(
            **way, num_generations=16, initial_rollouts=4, max_turn_length=600, max_completion_length=6000
        )
        engine = Engine(SimulatedBackend(Script(tokenizer), speed), tokenizer, env, settings)
        began = time.perf_counter()
        trees = asyncio.run(engine.rollout([env.tasks.task(number) for number in range(prompts)]))
        seen = measure(trees, len(tokenizer))
        kept = (
            "decisions",
            "entropy rose",
            "passed",
            "reasons",
            "decisions by result",
            "branches by result",
            "branches by root",
            "copies held",
            "copies unused",
        )
        found[name] = {"wall s": round(time.perf_counter() - began, 1)} | {key: seen[key] for key in kept}
        found[name]["top-ups"] = seen["trajectories"]["top-up"]
    return found


def replay(rises: Sequence[float], vocabulary: int) -> dict[str, Any]:
    """Return how many of the rises, in nats a token, pass on the old scale and on the new one."""
    scales = {"ln V": math.log(vocabulary), "fixed unit": ENTROPY_UNIT}
    rules = {"arpo, alpha 0.505": (0.505, 0), "arpo": (ALPHA, 0)}
    rules |= {f"aepo, l = {length}": (ALPHA, length) for length in (1, 2, 3)}
    return {
        "largest rise, nats a token": round(max(rises, default=0.0), 3),
        **{
            rule: {
                scale: sum(branch_score(rise / unit, alpha, BETA, length, PENALTY) > TAU for rise in rises)
                for scale, unit in scales.items()
            }
            for rule, (alpha, length) in rules.items()
        },
    }


def budgets(trees: Sequence[RolloutTree]) -> dict[str, Any]:
    """Return how many roots AEPO would start, each root that called a tool taken for the probe."""
    differences = []
    for tree in trees:
        for number, trajectory in enumerate(tree.trajectories):
            turns = [entropy_level(span.entropies) for span in tree.path(number) if span.kind == "model"]
            if trajectory.origin != "branch" and len(turns) > 1:
                differences.append(turns[0] - statistics.fmean(turns[1:]))
    total = max((len(tree.trajectories) for tree in trees), default=0)
    return {
        "probes": len(differences),
        "roots, per nat": _counts(probed_roots("aepo", total, d * ENTROPY_UNIT, 0.0, 0.5) for d in differences),
        "roots, fixed unit": _counts(probed_roots("aepo", total, d, 0.0, 0.5) for d in differences),
    }


def _unit(tree: RolloutTree, vocabulary: int) -> float:
    return float(tree.meta.get("entropy_unit", math.log(vocabulary)))


def _is_false(decision: Decision) -> bool:
    return decision.reason == "entropy rose" and decision.delta <= 0


def _result(tree: RolloutTree, span: int) -> int:
    return sum(one.tool is not None and one.tool.get("status") != "refused" for one in tree.path_to(span))


def _rises(tree: RolloutTree) -> list[list[tuple[float, int]]]:
    """Return of each root whose entropy rose somewhere (dH, number of the result) of each rise, in order."""
    found = []
    for number, trajectory in enumerate(tree.trajectories):
        points = [(span.index, span.decision) for span in tree.path(number) if span.decision]
        rises = [(decision.delta, _result(tree, span)) for span, decision in points if decision.delta > 0]
        if trajectory.origin == "root" and rises:
            found.append(rises)
    return found


def _families(tree: RolloutTree) -> list[int]:
    """Return the branches of each root and all its descendants."""
    starts = tree.starts()
    origins = [trajectory.origin for trajectory in tree.trajectories]
    planned = [start for start, origin in zip(starts, origins, strict=True) if origin == "root"]
    return [sum(s == start and o == "branch" for s, o in zip(starts, origins, strict=True)) for start in planned]


def _counts(values: Any) -> dict[str, int]:
    return {str(value): count for value, count in sorted(Counter(values).items())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", metavar="NAME=TRACES")
    parser.add_argument("--steps", type=int, help="only the first so many steps")
    parser.add_argument("--vocabulary", type=int, default=49_152, help="entries of the tokenizer (default: the demo's)")
    parser.add_argument("--simulate", type=int, metavar="PROMPTS", help="play so many prompts with a simulated engine")
    arguments = parser.parse_args()
    found = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}
    for run in arguments.runs:
        name, _, path = run.partition("=")
        trees = list(read_traces(Path(path)))
        first = sorted({tree.meta["step"] for tree in trees})[: arguments.steps]
        found[name] = measure([tree for tree in trees if tree.meta["step"] in first], arguments.vocabulary)
        evaluations = Path(path).with_name("eval.jsonl")
        if evaluations.is_file():
            rows = [json.loads(line) for line in evaluations.read_text(encoding="utf-8").splitlines()]
            wanted = ("accuracy", "accuracy_low", "accuracy_high", "tool_calls", "n")
            found[name]["evaluations"] = {row["name"]: {key: row[key] for key in wanted} for row in rows}
        sys.stdout.write(f"{name}: {json.dumps(found[name], indent=1)}\n")
    if arguments.simulate:
        found["simulated"] = simulate(arguments.simulate)
        sys.stdout.write(f"simulated: {json.dumps(found['simulated'], indent=1)}\n")
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
