"""A scripted policy that solves MultiHop tasks hop by hop and folds after each, from what its context shows alone."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from arpo_env import ToolEnv
from arpo_trainer.backends.base import Generation, Request
from arpo_trainer.rollout.engine import Engine, RolloutSettings
from arpo_trainer.tree import RolloutTree, Stopwatch
from envs_registry import Task
from tests.arpo_trainer.text_policy import TextPolicy


def memory(done: int, query: str) -> dict[str, Any]:
    """Return a memory that says how many hops are done and what to search next."""
    events = [{"step": hop, "description": "searched", "outcome": "found"} for hop in range(done)]
    return {
        "episodic": {"task_description": "find it", "key_events": events, "current_progress": f"{done} hops"},
        "working": {
            "immediate_goal": "next hop",
            "current_challenges": "",
            "next_actions": [{"type": "search", "description": query}],
        },
        "tool": {"tools_used": [], "derived_rules": []},
    }


def fold_call(value: Any) -> str:
    """Return a turn that folds, without white space in its JSON."""
    written = json.dumps(value, separators=(",", ":"))
    return f"<think>f</think><fold_thought>{written}</fold_thought>"


@dataclass
class FoldingPolicy(TextPolicy):
    """Searches, folds, and answers with the gold answer if, and only if, it stands in the context."""

    tokenizer: Any
    tasks: Sequence[Task]
    queries: Sequence[Sequence[str]]
    folds: bool = True
    unsure: str = "</result>\n"  # what a context ends with after which the entropy is high
    seen: list[Request] = field(default_factory=list)
    time: Stopwatch = field(default_factory=Stopwatch)

    async def generate(self, request: Request, on_window: Any = None) -> Generation:
        """Return the next turn."""
        self.seen.append(request)
        await asyncio.sleep(0)
        text = self.tokenizer.decode(request.ids)
        started = text.count("<result>\n") + text.count('"key_events"') > 0
        entropy = 2.0 if started and text.endswith(self.unsure) else 0.1
        return self.said(request, self.turn(text, request.seed), entropy, on_window)

    def turn(self, text: str, seed: int) -> str:
        """Return the turn that follows a context."""
        number = next(n for n, task in enumerate(self.tasks) if task.question in text)
        queries, answer = self.queries[number], self.tasks[number].answers[0]
        shown = text.partition(self.tasks[number].question)[2]
        fresh = shown.count("<result>\n") - shown.count("There is no room")
        done = shown.count('"outcome": "found"') + fresh
        if done >= len(queries):
            boxed = answer if answer in shown else "unknown"
            return f"<think>d</think><answer>\\boxed{{{boxed}}}</answer>"
        if self.folds and fresh:
            return fold_call(memory(done, queries[done]))
        return f"<think>s</think><search>{queries[done]}</search>"


def multihop(folds: int, count: int = 3, **options: Any) -> tuple[ToolEnv, list[Task], list[Sequence[str]]]:
    """Return an environment, of four hops by default, tasks whose question lacks the answer, and their solutions."""
    sizes = {"level": 4, "result_characters": 3200, "search_results": 20, **options}
    env = ToolEnv("arpo/MultiHop-v0", folds=folds, world_size=400, max_turns=40, max_tool_calls=30, **sizes)
    numbers = [n for n in range(40) if env.tasks.task(n).answers[0] not in env.tasks.task(n).question][:count]
    return env, [env.tasks.task(n) for n in numbers], [env.tasks.solution(n) for n in numbers]


def play(policy: Any, env: ToolEnv, tasks: Sequence[Task], window: int, **settings: Any) -> list[RolloutTree]:
    """Play tasks by the engine; `window` is the longest context after the prompt, in tokens."""
    values = {"num_generations": 1, "initial_rollouts": 1, "algorithm": "grpo", "max_turn_length": None, **settings}
    chosen = RolloutSettings(max_completion_length=window, **values)
    return asyncio.run(Engine(policy, policy.tokenizer, env, chosen).rollout(tasks))
