"""Environment steps a second, beside gem-llm and skyrl-gym, and what importing costs.

    python -m benchmarks.envs [--peers PYTHON] [--rounds 3] [--seconds 4]

Two kinds of step, at 1 and at 64 episodes in one process: "answer" (reset, then a right answer that is graded) and
"tool" (Python prints a product; episodes last 8 calls). All subjects do the same work in the same run, round by round
in turn; the medians go to benchmarks/results/envs.json. The peers run in the interpreter that `--peers` names (a
virtual environment with gem-llm, skyrl-gym, datasets and pylatexenc); without it they are left out, and the output
says so.
Python is run as each library does by default: here in a sandboxed live session, by the peers in a new bare process a
call. Peers without a vector environment for tools are stepped from a pool of threads.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
CALLS = 8
EPISODES = (1, 64)
KINDS = ("answer", "tool")
Round = Callable[[], int]  # plays a little, returns the number of steps


def ours(kind: str, episodes: int) -> Round:
    """Our vector environment."""
    import gymnasium

    import arpo_env  # noqa: F401

    envs: Any = gymnasium.make_vec("arpo/Arithmetic-v0", num_envs=episodes, level=1, max_turns=99, max_tool_calls=99)
    if kind == "answer":

        def answers() -> int:
            _, infos = envs.reset(seed=0)
            _, rewards, *_ = envs.step(
                [f"<think>x</think><answer>\\boxed{{{task.answers[0]}}}</answer>" for task in infos["task"]]
            )
            assert all(rewards == 1.0), rewards
            return episodes

        return answers

    def tools() -> int:
        envs.reset(seed=0)
        for number in range(CALLS):
            texts, *_ = envs.step([f"<python>print({number} * {i})</python>" for i in range(episodes)])
            assert [text.split()[1] for text in texts] == [str(number * i) for i in range(episodes)], texts
        return CALLS * episodes

    return tools


def gem(kind: str, episodes: int) -> Round:
    """gem-llm's MathEnv, with its Python tool for the second kind."""
    from datasets import Dataset
    from gem.envs.math_env import MathEnv
    from gem.tools.python_code_tool import PythonCodeTool
    from gem.tools.tool_env_wrapper import ToolEnvWrapper

    rows = Dataset.from_list([{"problem": f"What is {i} * 7?", "answer": str(i * 7)} for i in range(64)])
    envs = [MathEnv(dataset=rows, use_mp=kind == "answer") for _ in range(episodes if kind == "tool" else 1)]
    if kind == "answer":

        def answers() -> int:
            for _ in range(episodes):
                envs[0].reset()
                assert envs[0].step(f"\\boxed{{{envs[0].answer}}}")[1] == 1.0
            return episodes

        return answers
    wrapped = [ToolEnvWrapper(env, [PythonCodeTool()], max_tool_uses=99) for env in envs]

    def call(i: int, number: int) -> None:
        text = wrapped[i].step(f"<python>print({number} * {i})</python>")[0]
        assert str(number * i) in text, text

    return _threaded(call, lambda i: wrapped[i].reset(), episodes)


def skyrl(kind: str, episodes: int) -> Round:
    """skyrl-gym's GSM8K and SearchCode environments."""
    from skyrl_gym.envs.gsm8k.env import GSM8kEnv
    from skyrl_gym.envs.searchcode.env import SearchCodeEnv

    extras = {"reward_spec": {"ground_truth": "42"}, "max_turns": 99}
    if kind == "answer":

        def answers() -> int:
            for _ in range(episodes):
                env = GSM8kEnv(extras=extras)
                env.init([{"role": "user", "content": "What is 6 * 7?"}])
                assert env.step("#### 42")["reward"] == 1.0
            return episodes

        return answers
    envs = [SearchCodeEnv(extras=extras) for _ in range(episodes)]

    def call(i: int, number: int) -> None:
        step = envs[i].step(f"<tool><python>print({number} * {i})</python></tool>")
        assert str(number * i) in step["observations"][0]["content"], step

    def reset(i: int) -> None:
        envs[i] = SearchCodeEnv(extras=extras)
        envs[i].init([{"role": "user", "content": "What is 6 * 7?"}])

    return _threaded(call, reset, episodes)


def _threaded(call: Callable[[int, int], None], reset: Callable[[int], object], episodes: int) -> Round:
    pool = ThreadPoolExecutor(episodes)

    def play() -> int:
        for i in range(episodes):
            reset(i)
        for number in range(CALLS):
            list(pool.map(call, range(episodes), [number] * episodes))
        return CALLS * episodes

    return play


SUBJECTS = {"arpo-gym": ours, "gem-llm": gem, "skyrl-gym": skyrl}


def measure(subject: str, kind: str, episodes: int, seconds: float) -> dict[str, float]:
    """Play for some seconds after a first round; returns steps a second, and CPU ms a step of this process."""
    play = SUBJECTS[subject](kind, episodes)
    play()
    steps, started, cpu = 0, time.perf_counter(), _cpu()
    while time.perf_counter() - started < seconds:
        steps += play()
    wall = time.perf_counter() - started
    return {"rate": steps / wall, "cpu_ms": (_cpu() - cpu) * 1000 / steps}


def _cpu() -> float:
    return sum(
        getattr(resource.getrusage(who), part)
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        for part in ("ru_utime", "ru_stime")
    )


def import_seconds(python: str, module: str, rounds: int = 7) -> float:
    """Return CPU seconds of importing a module, less those of starting Python; the median of some rounds."""

    def spent(code: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([python, "-c", code], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return statistics.median(spent(f"import {module}") - spent("pass") for _ in range(rounds))


def _in_process(python: str, *arguments: str) -> dict[str, float]:
    done = subprocess.run([python, __file__, "--one", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{arguments[0]} failed:\n{done.stderr[-2000:]}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    """Run all subjects in turn, print the table, write the file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peers", help="Python of a virtual environment with gem-llm and skyrl-gym")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        subject, kind, episodes, seconds = arguments.one
        print(json.dumps(measure(subject, kind, int(episodes), float(seconds))))
        return
    pythons = {"arpo-gym": sys.executable}
    if arguments.peers:
        pythons |= dict.fromkeys(("gem-llm", "skyrl-gym"), arguments.peers)
    else:
        print("gem-llm and skyrl-gym are left out: --peers names no interpreter that has them")
    found: dict[str, list[dict[str, float]]] = {}
    for _ in range(arguments.rounds):
        for kind in KINDS:
            for episodes in EPISODES:
                for subject, python in pythons.items():
                    result = _in_process(python, subject, kind, str(episodes), str(arguments.seconds))
                    found.setdefault(f"{subject} / {kind} / {episodes}", []).append(result)
    table = {
        name: {key: statistics.median(result[key] for result in results) for key in ("rate", "cpu_ms")}
        for name, results in found.items()
    }
    modules = {"arpo-gym": "arpo_env", "gem-llm": "gem", "skyrl-gym": "skyrl_gym"}
    imports = {subject: import_seconds(python, modules[subject]) for subject, python in pythons.items()}
    for name, row in table.items():
        print(f"{name:32} {row['rate']:10.0f} steps/s {row['cpu_ms']:8.2f} CPU ms a step (this process and children)")
    for subject, seconds in imports.items():
        print(f"import {modules[subject]:12} {seconds:6.2f} CPU s")
    RESULTS.mkdir(exist_ok=True)
    machine = {"python": platform.python_version(), "system": platform.platform()}
    result = {"machine": machine, "steps": table, "import_cpu_s": imports}
    (RESULTS / "envs.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
