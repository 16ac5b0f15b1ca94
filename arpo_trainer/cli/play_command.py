"""The `arpo play` command: one episode in the terminal, played by hand or by a model.

arpo play arpo/Arithmetic-v0 --env-set level=2
arpo play arpo/Arithmetic-v0 --model smollm2-135m-instruct
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from arpo_env import ToolEnv
from arpo_trainer.cli.command_options import ENV_HELP, add_command, add_env_options, read_env_options
from arpo_trainer.make_env import make_env
from arpo_trainer.optional_dependencies import require

_HELP = "Write a turn; it ends with {ends}. Ctrl-D leaves.\n"


def add_play_command(commands: Any) -> None:
    """Add the command to a parser."""
    play = add_command(
        commands,
        "play",
        _play,
        "play an episode in the terminal, by hand or with a model",
        usage="arpo play ENV [options]",
    )
    play.add_argument("env", metavar="ENV", help=ENV_HELP)
    play.add_argument("--model", help="the model that plays: a folder, a hub id, or smollm2-135m-instruct")
    add_env_options(play)
    play.add_argument("--temperature", type=float, default=0.0, metavar="T", help="of sampling (default 0: greedy)")
    play.add_argument("--seed", type=int, default=0, metavar="N", help="chooses the task (default 0)")


def _play(arguments: argparse.Namespace) -> int:
    env = make_env(arguments.env, read_env_options(arguments))
    env.check()
    if arguments.model:
        return play_with_model(env, arguments.seed, arguments.model, arguments.temperature)
    return play_by_hand(env, arguments.seed)


def play_by_hand(env: ToolEnv, seed: int) -> int:
    """Show the task, read turns from standard input, and show the results."""
    try:
        question, info = env.reset(seed=seed)
        # stops of white space are not named: they could not be read, and an empty line ends a turn anyway
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


def play_with_model(env: ToolEnv, seed: int, model: str, temperature: float) -> int:
    """Let a model play one episode, and show it.

    Raises:
        ModuleNotFoundError: the training stack is not installed; the error names the extra.
    """
    require("train")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from arpo_env.event_loop import run
    from arpo_trainer.backends import transformers_backend
    from arpo_trainer.demo_model import resolve_model
    from arpo_trainer.rollout.engine import Engine
    from arpo_trainer.rollout.settings import RolloutSettings

    path = resolve_model(model)
    tokenizer = AutoTokenizer.from_pretrained(path)
    backend = transformers_backend(AutoModelForCausalLM.from_pretrained(path), tokenizer)
    # one trajectory and no branches: the tree is a single path
    settings = RolloutSettings("grpo", 1, 1, temperature=temperature, seed=seed)
    _, info = env.reset(seed=seed)
    tree = run(Engine(backend, tokenizer, env, settings).rollout([info["task"]]))[0]
    _write(tree.prompt)
    for span in tree.path(0):
        _write(span.text)
    first = tree.trajectories[0]
    _write(_verdict(first.outcome, first.reward, info["task"].answers))
    return 0


def _read_turn(stops: list[str]) -> str | None:
    """Return the lines up to a stop string or an empty line; None at the end of the input."""
    lines: list[str] = []
    while True:
        if sys.stdin.isatty():
            _write("> " if not lines else ". ")
        line = sys.stdin.readline()
        if not line:
            # Ctrl-D after some lines ends the turn; only on the first line of a turn it leaves
            return "\n".join(lines) if lines else None
        lines.append(line.rstrip("\n"))
        if not lines[-1] or any(stop in line for stop in stops):
            return "\n".join(lines).rstrip("\n")


def _verdict(outcome: str, reward: float | None, answers: tuple[str, ...]) -> str:
    return f"\n{outcome}, reward {reward}; the answer is {' or '.join(answers)}\n"


def _write(text: str) -> None:
    sys.stdout.write(text)
    # the prompt of `_read_turn` has no line end, and would stay in the buffer while it waits for input
    sys.stdout.flush()
