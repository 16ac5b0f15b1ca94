"""A training step beside plain TRL: the same model, prompts, tools and settings. Flat and packed rows here.

    python -m benchmarks.trl_step [--rounds 1] [--steps 2] [--cases plain tools slow] [--precision auto] [--quick]

SmolLM2-135M-Instruct, 4 prompts x 8 completions a step, at most 96 tokens each, on one core. Weights are in float32;
computations are in bf16 if the processor has instructions for it. The sides are `GRPOTrainer` as it comes, and
`ARPOTrainer` with `algorithm: grpo` and `packing` False or True. Branching would change what is sampled, so it stays
out. The cases:

    plain   no tools, prompts that ask for long answers
    tools   one call of a tool, then an answer; TRL gets the tool by `environment_factory`
    slow    the same, and each call sleeps for half a second

The demo model writes no tool calls of its own, so the last two cases start from a copy that 64 demonstrations have
taught to. It is made once and kept in the cache. Both sides get its folder, Qwen2.5's chat template included.

Each number is a process of its own that makes a trainer and then times `train()`; sides take turns, and the first one
changes from round to round. CPU seconds count the process alone. Prints medians of the rounds and writes
benchmarks/results/trl_step.json.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
import torch

import arpo_env
from arpo_env import ToolEnv
from arpo_trainer.models import get_model
from arpo_trainer.training.recorder import versions
from envs_registry import Task
from sandbox.images.profiles import cache_directory

RESULTS = Path(__file__).parent / "results"
SIDES = ("trl", "flat", "packed")
CASES = {"plain": None, "tools": 0.0, "slow": 0.5}  # seconds that a call sleeps; None is without tools
TOPICS = (
    "a lighthouse",
    "a river in winter",
    "two friends on a train",
    "an old library",
    "a lost letter",
    "the first snow",
    "a market at dawn",
    "a garden on the moon",
)
CAPITALS = {
    "France": "Paris",
    "Japan": "Tokyo",
    "Kenya": "Nairobi",
    "Peru": "Lima",
    "Norway": "Oslo",
    "Egypt": "Cairo",
    "Cuba": "Havana",
    "Chile": "Santiago",
    "Spain": "Madrid",
    "Italy": "Rome",
    "Ghana": "Accra",
    "Nepal": "Kathmandu",
}
STORIES = [Task(topic, f"Write a long story about {topic}.", (topic,)) for topic in TOPICS]
QUESTIONS = [Task(name, f"What is the capital of {name}?", (city,)) for name, city in CAPITALS.items()]
TEACHING = 64  # demonstrations
GROUPS = {"num_generations": 8, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 4}
calls = [0, 0.0]  # how many, and how long each sleeps


def has_bf16() -> bool:
    """Return whether the processor has instructions for bfloat16; without them it is several times slower."""
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    return "avx512_bf16" in flags or "amx_bf16" in flags


def capital(country: str) -> str:
    """Look up the capital of a country.

    Args:
        country: its English name.
    """
    calls[0] += 1
    time.sleep(calls[1])
    return CAPITALS.get(country, "not known")


class Lookup:
    """The same tool as TRL takes it: each row has an environment, whose methods are its tools."""

    def reset(self, **row: Any) -> None:
        """Begin an episode; there is nothing to begin with."""

    def capital(self, country: str) -> str:
        """Look up the capital of a country.

        Args:
            country: its English name.
        """
        return capital(country)


def reward(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """Pay every other row: a gradient does not depend on what is sampled, and a taught model often repeats itself."""
    return [float(number % 2) for number in range(len(completion_ids))]


def make_env(with_tools: bool) -> ToolEnv:
    """The environment of a case; a native protocol renders prompts and tools by the chat template, as TRL does."""
    name = "bench/Capital-v0" if with_tools else "bench/Story-v0"
    arpo_env.register(
        name, QUESTIONS if with_tools else STORIES, tools=[capital] if with_tools else [], scorer="qa", overwrite=True
    )
    return ToolEnv(name, protocol="hermes", max_turns=2 if with_tools else 1)


def ensure_taught(base: Path) -> Path:
    """Return a copy of the model that calls the tool and then answers; made on first use."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl.chat_template_utils import qwen2_5_chat_template

    from arpo_trainer.rollout.rendering import Renderer
    from arpo_trainer.run.sft_run import cold_start
    from arpo_trainer.sft.trace_data import IGNORED

    folder = cache_directory() / "benchmark-trl"
    if (folder / "config.json").is_file():
        return folder
    tokenizer = AutoTokenizer.from_pretrained(base)
    tokenizer.chat_template = qwen2_5_chat_template
    env = make_env(with_tools=True)
    renderer, end = Renderer(tokenizer, env.protocol), tokenizer("<|im_end|>")["input_ids"]
    examples = []
    for number in range(TEACHING):
        country, city = list(CAPITALS.items())[number % len(CAPITALS)]
        _, info = env.reset(options={"task": QUESTIONS[number % len(QUESTIONS)]})
        ids = renderer.prompt_ids(info["messages"], env.schemas)
        labels = [IGNORED] * len(ids)
        call = f'<tool_call>\n{{"name": "capital", "arguments": {{"country": "{country}"}}}}\n</tool_call>'
        for text in (call, f"The capital of {country} is {city}. \\boxed{{{city}}}"):
            turn = tokenizer(text, add_special_tokens=False)["input_ids"] + end
            *_, step = env.step(text)
            after = renderer.result_ids(step["results"], True, env.schemas) if step["results"] else []
            ids, labels = ids + turn + after, labels + turn + [IGNORED] * len(after)
        examples.append({"input_ids": ids, "labels": labels})
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    scratch = folder.with_suffix(".unfinished")
    cold_start(model, tokenizer, examples, scratch, epochs=1, learning_rate=2e-4, bf16=has_bf16())
    model.save_pretrained(scratch)
    tokenizer.save_pretrained(scratch)
    shutil.rmtree(folder, ignore_errors=True)
    scratch.rename(folder)
    return folder


def make_trainer(side: str, case: str, model: Any, tokenizer: Any, folder: str, size: dict[str, int]) -> Any:
    """A trainer of one side; all get the same settings."""
    from trl import GRPOConfig, GRPOTrainer

    from arpo_trainer import ARPOConfig, ARPOTrainer
    from arpo_trainer.training.task_data import task_rows

    with_tools = CASES[case] is not None
    settings: dict[str, Any] = {
        "output_dir": folder,
        "learning_rate": 1e-6,
        "bf16": size["bf16"],
        "use_cpu": True,
        "gradient_checkpointing": False,
        "save_strategy": "no",
        "report_to": [],
        "logging_steps": 1,
        "seed": 1,
        "disable_tqdm": True,
        **{name: value for name, value in size.items() if name != "bf16"},
    }
    env = make_env(with_tools)
    parts = {"reward_funcs": reward, "processing_class": tokenizer}
    if side == "trl":
        rows = task_rows(env, QUESTIONS if with_tools else STORIES).select_columns(["prompt"])
        args = GRPOConfig(**settings, max_tool_calling_iterations=1 if with_tools else None)
        return GRPOTrainer(
            model, args=args, train_dataset=rows, **parts, environment_factory=Lookup if with_tools else None
        )
    return ARPOTrainer(model, env, args=ARPOConfig(**settings, algorithm="grpo", packing=side == "packed"), **parts)


def measure(side: str, case: str, folder: str, size: dict[str, int]) -> dict[str, float]:
    """Time the steps of one side; runs in a process of its own."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.trainer_callback import PrinterCallback

    torch.set_num_threads(1)
    calls[:] = [0, CASES[case] or 0.0]
    path = Path(folder)
    tokenizer = AutoTokenizer.from_pretrained(path, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    with tempfile.TemporaryDirectory() as scratch:
        trainer = make_trainer(side, case, model, tokenizer, scratch, size)
        trainer.remove_callback(PrinterCallback)
        wall, cpu = time.perf_counter(), time.process_time()
        trainer.train()
        found = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    logs = [entry for entry in trainer.state.log_history if "completions/mean_length" in entry]
    rows = size["per_device_train_batch_size"] * size["gradient_accumulation_steps"]
    found["tokens"] = rows * sum(entry["completions/mean_length"] for entry in logs)
    return {**found, "calls": calls[0], "gradient": max(entry["grad_norm"] for entry in logs)}


def compare(case: str, folder: Path, rounds: int, size: dict[str, int]) -> dict[str, dict[str, float]]:
    """Return the medians of all sides in one case."""
    spawn, found = multiprocessing.get_context("spawn"), {side: list[dict[str, float]]() for side in SIDES}
    with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as pool:
        for number in range(rounds):
            for side in SIDES[number % 3 :] + SIDES[: number % 3]:
                found[side].append(pool.submit(measure, side, case, str(folder), size).result())
                print(f"  {case} {side}: {found[side][-1]}", flush=True)
    return {
        side: {name: statistics.median(one[name] for one in every) for name in every[0]}
        for side, every in found.items()
    }


def keep(facts: dict[str, Any], case: str, medians: dict[str, Any]) -> None:
    """Write a case beside those that were measured before with the same settings and versions."""
    path = RESULTS / "trl_step.json"
    before = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    same = all(before.get(name) == facts[name] for name in ("rounds", "size", "versions"))
    cases = {**(before["cases"] if same else {}), case: {"load": os.getloadavg()[0], **medians}}
    path.write_text(json.dumps({**facts, "cases": cases}, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=96, help="most tokens of a completion")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--precision", choices=("auto", "bf16", "float32"), default="auto")
    parser.add_argument("--quick", action="store_true", help="one step of 1 x 2 completions, nothing written")
    arguments = parser.parse_args()
    size = {"max_steps": arguments.steps, "max_completion_length": arguments.tokens, **GROUPS}
    size["bf16"] = has_bf16() if arguments.precision == "auto" else arguments.precision == "bf16"
    if arguments.quick:
        size |= {
            "max_steps": 1,
            "num_generations": 2,
            "per_device_train_batch_size": 2,
            "gradient_accumulation_steps": 1,
        }
    os.environ["OMP_NUM_THREADS"] = "1"
    base = get_model()
    facts = {"rounds": arguments.rounds, "size": size, "threads": 1, "cores": os.cpu_count(), "versions": versions()}
    for case in arguments.cases:
        folder = base if CASES[case] is None else ensure_taught(base)
        medians = compare(case, folder, arguments.rounds, size)
        print(f"{case:<8}{'wall s':>10}{'CPU s':>10}{'tokens':>10}{'calls':>8}{'TRL/ours wall':>16}{'CPU':>8}")
        for side, one in medians.items():
            ratio = [medians["trl"][name] / one[name] for name in ("wall", "cpu")]
            print(
                f"{side:<8}{one['wall']:>10.1f}{one['cpu']:>10.1f}{one['tokens']:>10.0f}{one['calls']:>8.0f}"
                f"{ratio[0]:>16.2f}{ratio[1]:>8.2f}",
                flush=True,
            )
        if not arguments.quick:
            keep(facts, case, medians)


if __name__ == "__main__":
    main()
