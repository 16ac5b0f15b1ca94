"""How long collecting trajectories takes: our engine beside one that works in rounds, as the published one does.

    python -m benchmarks.rollout [--part simulated] [--part tiny] [--part calls] [--rounds 5] [--speed 4] [--quick]

simulated  16 prompts x 16 trajectories, 1 to 5 calls each, on a simulated engine of a GPU with a model of 1.5B
           parameters (rollout_script.py has its numbers); tools only wait. ARPO, and GRPO, in which the two engines
           make the same trajectories and differ in scheduling alone.
tiny       the same with a real model of two layers, the transformers backend and the real Python sandbox.
calls      tool calls of ARPO beside GRPO, at equal trajectories, with the cold-started demo model, for several numbers
           of roots. The least possible share is N / M: each of the N roots makes its calls, and a branch that starts
           after the last result of its parent makes none.

Both engines play in one process, in turn; medians over the rounds are reported. Tools wait as long as a heavy-tailed
distribution says; in the simulated part these seconds and those of the engine are divided by --speed. "idle" is the
share of the wall time in which the generation engine had nothing to do. Writes benchmarks/results/rollout.json, each
part for itself. --quick is for trying it out: few trajectories, one round, nothing is written.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arpo_env import ToolEnv
from arpo_env.tools.python import PythonTool
from arpo_trainer.backends import TransformersBackend
from arpo_trainer.rollout.engine import Engine, RolloutSettings
from arpo_trainer.training.recorder import versions
from arpo_trainer.tree import RolloutTree
from benchmarks.barrier import BarrierEngine
from benchmarks.rollout_script import Script, SimulatedBackend
from benchmarks.rollout_world import DELAYS, DelayedTool, Delays, fixed_tools, small_tokenizer

RESULTS = Path(__file__).parent / "results" / "rollout.json"
PARTS = ("simulated", "tiny", "calls")
SUBJECTS = (
    ("barrier", "arpo-reference"),
    ("ours", "arpo"),
    ("ours", "arpo-reference"),
    ("barrier", "grpo"),
    ("ours", "grpo"),
)
PAIRS = (("arpo", "arpo-reference"), ("arpo-reference", "arpo-reference"), ("grpo", "grpo"))  # ours, barrier
LEVELS = "3,4,6"  # one, two and three calls
RECIPES = ("arithmetic-cpu", "multihop-cpu")
# the format is learned from fewer demonstrations, whose results are long
CHANGES = {"multihop-cpu": ["cold_start_examples=48"]}
ROOTS = ((4, 2), (2, 2), (2, 4), (1, 2), (1, 8))  # N and Z
Numbers = dict[str, float]


@dataclass(frozen=True)
class World:
    """What one rollout is played in: fresh delays, environment and backend, for a seed."""

    tokenizer: Any
    make: Callable[[int], tuple[Delays, ToolEnv, Any]]
    settings: Callable[[str, int], RolloutSettings]


def simulated(speed: float, generations: int) -> World:
    """Return the world of the simulated engine."""
    tokenizer = small_tokenizer()

    def make(seed: int) -> tuple[Delays, ToolEnv, Any]:
        delays = Delays(seed, speed)
        env = ToolEnv("arpo/MultiHop-v0", tools=[lambda: fixed_tools(delays)])
        return delays, env, SimulatedBackend(Script(tokenizer), speed)

    return World(tokenizer, make, lambda algorithm, seed: _settings(algorithm, seed, generations, 600, 6000))


def tiny(generations: int, folder: Path) -> World:
    """Return the world of the tiny policy; it is trained first, which takes seconds."""
    import torch

    from arpo_trainer.run.sft_run import cold_start, demonstrated_traces, demonstrations

    torch.set_num_threads(1)
    shown: Any = ToolEnv("arpo/Arithmetic-v0", level=LEVELS)
    cells = ["".join(shown.tasks.solution(number)) for number in range(200)]
    tokenizer = small_tokenizer([shown.system_prompt, *cells, *(shown.tasks.task(n).question for n in range(200))])
    examples = list(demonstrations(shown, tokenizer, demonstrated_traces(shown, 32, tool_share=0.9)))
    shown.close()
    model = _two_layers(len(tokenizer))
    cold_start(model, tokenizer, examples, folder, epochs=24, batch_size=8, learning_rate=2e-2, bf16=False)

    def make(seed: int) -> tuple[Delays, ToolEnv, Any]:
        delays = Delays(seed)
        tools = [lambda: DelayedTool(PythonTool(), delays)]
        env = ToolEnv("arpo/Arithmetic-v0", level=LEVELS, tools=tools)
        return delays, env, TransformersBackend(model, tokenizer, max_rows=256)

    return World(tokenizer, make, lambda algorithm, seed: _settings(algorithm, seed, generations, 80, 800))


def _settings(algorithm: str, seed: int, generations: int, turn: int, completion: int) -> RolloutSettings:
    return RolloutSettings(
        algorithm=algorithm,
        num_generations=generations,
        initial_rollouts=max(1, generations // 2),
        max_turn_length=turn,
        max_completion_length=completion,
        max_invalid=1.0,
        seed=seed,
    )


def _two_layers(vocabulary: int) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=32,
            max_position_embeddings=2048,
            tie_word_embeddings=False,
            initializer_range=0.2,
            eos_token_id=0,
            pad_token_id=0,
            bos_token_id=1,
        )
    )


async def play(world: World, engine: str, algorithm: str, seed: int, prompts: int) -> Numbers:
    """Collect all trajectories once and say how it went."""
    delays, env, backend = world.make(seed)
    maker: Any = Engine if engine == "ours" else BarrierEngine
    made = maker(backend, world.tokenizer, env, world.settings(algorithm, seed))
    tasks = [env.tasks.task(number) for number in range(prompts)]
    started = time.perf_counter()
    trees: list[RolloutTree] = await made.rollout(tasks)
    wall = time.perf_counter() - started
    busy = backend.time.seconds
    tokens = sum(len(span.ids) for tree in trees for span in tree.spans if span.kind == "model")
    return {
        "wall": wall,
        "busy": busy,
        "idle": 1 - busy / wall,
        "tools": delays.time.seconds,
        "rounds": getattr(made, "rounds", 0),
        "trajectories": sum(len(tree.trajectories) for tree in trees),
        "branches": sum(t.origin == "branch" for tree in trees for t in tree.trajectories),
        "top_ups": sum(t.origin == "top-up" for tree in trees for t in tree.trajectories),
        "failed": sum(not t.valid for tree in trees for t in tree.trajectories),
        "calls": delays.calls,
        "tokens": tokens,
        "tokens_per_second": tokens / wall,
    }


def compare(world: World, rounds: int, prompts: int) -> dict[str, Any]:
    """Play all subjects in turn, several rounds; return medians and the ratios of wall times, round by round."""
    found: dict[str, list[Numbers]] = {}
    for seed in range(rounds):
        for engine, algorithm in SUBJECTS:
            numbers = asyncio.run(play(world, engine, algorithm, seed, prompts))
            print(
                f"{engine:8}{algorithm:15} round {seed}: {numbers['wall']:.1f} s, idle {numbers['idle']:.0%}",
                flush=True,
            )
            found.setdefault(f"{engine} {algorithm}", []).append(numbers)
    medians = {
        name: {key: statistics.median(row[key] for row in rows) for key in rows[0]} for name, rows in found.items()
    }
    ratios = {
        ours: [
            one["wall"] / other["wall"]
            for one, other in zip(found[f"ours {ours}"], found[f"barrier {barrier}"], strict=True)
        ]
        for ours, barrier in PAIRS
    }
    for name, row in medians.items():
        print(f"{name:23}" + "".join(f"  {key} {value:.4g}" for key, value in row.items()))
    print("ours / barrier, wall time: " + ", ".join(f"{name} {statistics.median(r):.2f}" for name, r in ratios.items()))
    return {"prompts": prompts, "rounds": rounds, "medians": medians, "ratios": ratios}


def calls(recipe: str, tasks: int, roots: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Count what GRPO and ARPO call for the same tasks and as many trajectories, with a recipe's cold-started model."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from arpo_trainer.models import resolve_model
    from arpo_trainer.run.arguments import idle_threads, split_settings
    from arpo_trainer.run.dry_run import RunEnvironments
    from arpo_trainer.run.recipes import read_settings
    from arpo_trainer.run.sft_run import cold_started_model
    from arpo_trainer.training.config import ARPOConfig

    torch.set_num_threads(idle_threads())
    settings = read_settings(recipe, CHANGES.get(recipe, []))
    run, values = split_settings(settings)
    args = ARPOConfig(**values, use_cpu=True, report_to=[])
    path = resolve_model(run.model)
    tokenizer = AutoTokenizer.from_pretrained(path, padding_side="left")
    environments = RunEnvironments(run)
    assert environments.cold_start, f"{recipe} has no cold start"
    start = cold_started_model(run, args, environments.cold_start, path, tokenizer)
    model = AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32)
    env = environments.train
    rows: dict[str, Numbers] = {}
    ways: list[dict[str, Any]] = [{"algorithm": "grpo"}]
    ways += [{"algorithm": "arpo", "initial_rollouts": n, "branch_width": z} for n, z in roots]
    for way in ways:
        name = " ".join(str(value) for value in way.values())
        engine = Engine(TransformersBackend(model, tokenizer), tokenizer, env, args.rollout_settings(**way))
        trees = asyncio.run(engine.rollout([env.tasks.task(number) for number in range(tasks)]))
        rows[name] = count(trees)
        rows[name]["of_grpo"] = rows[name]["calls"] / max(rows["grpo"]["calls"], 1e-9)
        rows[name]["bound"] = way.get("initial_rollouts", args.num_generations) / args.num_generations
        print(f"{recipe} {name:10}" + "".join(f"  {key} {value:.2f}" for key, value in rows[name].items()), flush=True)
    env.close()
    return {"tasks": tasks, "num_generations": args.num_generations, "rows": rows}


def count(trees: Sequence[RolloutTree]) -> Numbers:
    """Return means a group: calls that were executed, tokens sampled, how the trajectories began.

    "of_own" is the share of calls that were executed of those that the trajectories hold: 1 without branches. ARPO's
    trajectories hold more than GRPO's, since only those that call are branched.
    """
    spans = [span for tree in trees for span in tree.spans]
    trajectories = [trajectory for tree in trees for trajectory in tree.trajectories]
    executed = sum(span.tool["status"] != "refused" for span in spans if span.tool)
    held = sum(trajectory.tool_calls for trajectory in trajectories)
    return {
        "calls": executed / len(trees),
        "calls_a_trajectory": held / len(trajectories),
        "of_own": executed / max(held, 1),
        "tokens": sum(len(span.ids) for span in spans if span.kind == "model") / len(trees),
        "branches": sum(t.origin == "branch" for t in trajectories) / len(trees),
        "top_ups": sum(t.origin == "top-up" for t in trajectories) / len(trees),
        "reward": statistics.fmean(t.reward for t in trajectories if t.reward is not None),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=PARTS, help="may be given several times; default: all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--speed", type=float, default=4.0)
    parser.add_argument("--tasks", type=int, default=8, help="of the part `calls`, for each recipe")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    prompts, generations = (3, 6) if given.quick else (16, 16)
    rounds, tasks, roots = (1, 1, ROOTS[:1]) if given.quick else (given.rounds, given.tasks, ROOTS)
    facts: dict[str, Any] = {
        "cores": os.cpu_count(),
        "speed": given.speed,
        "versions": versions(),
        "delays": {name: vars(delay) for name, delay in DELAYS.items()},
    }
    for part in given.part or PARTS:
        found = {"load": os.getloadavg()[0]}
        if part == "calls":
            found |= {recipe: calls(recipe, tasks, roots) for recipe in RECIPES[: 1 if given.quick else None]}
        elif part == "tiny":
            with tempfile.TemporaryDirectory() as folder:
                found |= compare(tiny(generations, Path(folder)), rounds, prompts)
        else:
            found |= compare(simulated(given.speed, generations), rounds, prompts)
        if not given.quick:
            write(part, found, facts)


def write(part: str, found: dict[str, Any], facts: dict[str, Any]) -> None:
    """Put one part's numbers into the file, beside those of the others."""
    known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({**known, part: {**facts, **found}}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
