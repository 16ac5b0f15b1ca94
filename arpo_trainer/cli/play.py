"""An episode in the terminal, played by hand or by a model."""

from __future__ import annotations

import sys
from typing import Any

from arpo_env import ToolEnv
from arpo_trainer.optional_dependencies import require
from arpo_trainer.run.train import make_env

_HELP = "Write a turn; it ends with {ends}. Ctrl-D leaves.\n"


def play_by_hand(env_id: str, options: dict[str, Any], seed: int) -> int:
    """Show the task, read turns from standard input, show what comes back."""
    env = _make(env_id, options)
    try:
        question, info = env.reset(seed=seed)
        ends = " or ".join([*(stop for stop in info["stop"] if stop.strip()), "an empty line"])
        _write(f"{info['messages'][0]['content']}\n\n{question}\n\n{_HELP.format(ends=ends)}")
        done = False
        while not done:
            turn = _read_turn(info["stop"])
            if turn is None:
                _write("left before the end\n")
                return 0
            observation, reward, terminated, truncated, step_info = env.step(turn)
            done = terminated or truncated
            _write(observation)
        _write(_verdict(step_info["outcome"], reward, info["task"].answers))
        return 0
    finally:
        env.close()


def play_with_model(env_id: str, options: dict[str, Any], seed: int, model: str, temperature: float) -> int:
    """Let a model play one episode and show it.

    Raises:
        ModuleNotFoundError: no model can run here; names the extra.
    """
    require("train")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from arpo_env.event_loop import run
    from arpo_trainer.backends import transformers_backend
    from arpo_trainer.rollout.engine import Engine, RolloutSettings
    from arpo_trainer.run.demo_model import check_model_folder
    from arpo_trainer.run.train import DEMO_MODEL, resolve_model

    env = _make(env_id, options)
    if model != DEMO_MODEL:
        check_model_folder(model)
    path = resolve_model(model)
    tokenizer = AutoTokenizer.from_pretrained(path)
    backend = transformers_backend(AutoModelForCausalLM.from_pretrained(path), tokenizer)
    settings = RolloutSettings("grpo", 1, 1, temperature=temperature, seed=seed)
    _, info = env.reset(seed=seed)
    tree = run(Engine(backend, tokenizer, env, settings).rollout([info["task"]]))[0]
    _write(tree.prompt)
    for span in tree.path(0):
        _write(span.text)
    first = tree.trajectories[0]
    _write(_verdict(first.outcome, first.reward, info["task"].answers))
    return 0


def _make(env_id: str, options: dict[str, Any]) -> ToolEnv:
    env = make_env(env_id, options)
    env.check()
    return env


def _read_turn(stops: list[str]) -> str | None:
    lines: list[str] = []
    while True:
        if sys.stdin.isatty():
            _write("> " if not lines else ". ")
        line = sys.stdin.readline()
        if not line:
            return "\n".join(lines) if lines else None
        lines.append(line.rstrip("\n"))
        if not lines[-1] or any(stop in line for stop in stops):
            return "\n".join(lines).rstrip("\n")


def _verdict(outcome: str, reward: float | None, answers: tuple[str, ...]) -> str:
    return f"\n{outcome}, reward {reward}; the answer is {' or '.join(answers)}\n"


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
