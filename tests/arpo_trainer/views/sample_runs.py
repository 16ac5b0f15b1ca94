"""Folders of `arpo eval` with realistic trees, made quickly and without a model."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from arpo_trainer.evaluation.episode_store import EpisodeStore, UnitKey
from arpo_trainer.tree import Decision, Event, RolloutTree, Trajectory

HOSTILE = (
    "</script><script>document.documentElement.dataset.pwned=1</script>"
    '<img src="http://192.0.2.1/x" onerror="document.documentElement.dataset.pwned=2"> <!-- {{data}} {{pieces}} '
    "<!-- pieces --> \x1b[31mred\x1b]0;title\x07 \x00 \u202e עברית 中文 😀 \ud800 half"
)


class _QuickTree(RolloutTree):
    """Written without a copy of each list, since the tests write thousands."""

    def to_json(self) -> str:
        return json.dumps(vars(self), ensure_ascii=False, separators=(",", ":"), default=vars)


_WORDS = ("the", "number", "of", "apples", "left", "after", "each", "day", "is", "half", "so", "how", "many", "then")


def make_run(
    folder: Path,
    *,
    tasks: int,
    samples: int = 1,
    models: Sequence[str] = ("qwen2.5-3b",),
    envs: Sequence[str] = ("GSM8K",),
    trajectories: int = 1,
    skill: float = 0.6,
    tokens: int = 400,
    seed: int = 0,
    **facts: Any,
) -> Path:
    """Write a finished run; `tasks` counts those of each environment."""
    rng = random.Random(seed)
    folder.mkdir(parents=True)
    about = {
        "kind": "eval",
        "name": folder.name,
        "status": "finished",
        "started": "2026-11-20T10:00:00+00:00",
        "seconds": 1234.5,
        "samples": samples,
        "algorithm": "arpo" if trajectories > 1 else "grpo",
        "environments": {env: {"id": f"arpo/{env}-v0", "tasks": tasks, "metric": "accuracy"} for env in envs},
        "models": {model: {"kind": "transformers", "path": f"models/{model}"} for model in models},
        "settings": {"temperature": 1.0, "max_tool_calls": 4},
        **facts,
    }
    (folder / "run.json").write_text(json.dumps(about), encoding="utf-8")
    with EpisodeStore(folder) as store:
        for env in envs:
            for number in range(tasks):
                hard = rng.random()
                for model in models:
                    for sample in range(samples):
                        tree = make_tree(rng, number, trajectories, skill - 0.4 * (hard - 0.5), tokens)
                        store.add(UnitKey(model, env, f"{env}-{number}", sample), number, tree)
    return folder


def make_tree(rng: random.Random, number: int, trajectories: int, skill: float, tokens: int) -> RolloutTree:
    """A thought, a call, its result and an answer; with several trajectories, branches after the result."""

    def prose(rng: random.Random, words: int) -> str:
        return " ".join(rng.choices(_WORDS, k=words))

    def turn(parent: int | None, text: str) -> int:
        entropies = [round(rng.expovariate(2.0), 4) for _ in range(tokens // 2)]
        numbers = {"logprobs": [-value for value in entropies], "entropies": entropies}
        ids = [rng.randrange(32000) for _ in entropies]
        return tree.add_span(parent, "model", ids, text=text, finish="stop", **numbers).index

    gold, story = str(number * 7 % 101), prose(random.Random(number), 30)
    question = f"Ann has {number + 3} apples and {story}. How many are left on day {number % 9 + 1}?"
    task = {"id": f"t{number}", "question": question, "answers": [gold], "level": str(number % 3 + 1)}
    tree = _QuickTree(list(range(40)), task=task, prompt=f"Use <python> if it helps.\n{question}")
    thought = prose(rng, tokens // 2)  # about eight words to ten tokens
    first = turn(None, f"<think>{thought}</think>\n<python>\nprint({number} * 7 % 101)\n</python>")
    tool = {"name": "python", "status": "error" if rng.random() < 0.05 else "ok", "seconds": 0.12}
    result = tree.add_span(first, "environment", [7] * 12, text=f"<result>\n{gold}\n</result>", tool=tool)
    if trajectories > 1:
        result.decision = Decision(0.3, 0.1, 0.55, 0.5, trajectories - 1, "entropy rose")
    for at in range(trajectories):
        right, broke = rng.random() < skill, rng.random() < 0.02
        answer = gold if right else str(rng.randrange(200))
        leaf = turn(result.index, f"{prose(rng, tokens // 4)}\n<answer> \\boxed{{{answer}}} </answer>")
        end = Trajectory(leaf, *(("branch", 0, result.index) if at else ()), tool_calls=1)
        if broke:
            end.outcome, end.error = "failed", "SandboxError: the container is gone"
        else:
            end.outcome, end.answer, end.reward = "answered", answer, float(answer == gold)
            end.components = {"accuracy": end.reward}
        tree.trajectories.append(end)
        seconds = 1.0 + 3.0 * rng.random()
        tree.timeline.append(Event(at, "generate", 0.0, seconds, tokens=tokens, context=900, cached=500))
    return tree


def make_hostile(tree: RolloutTree, text: str = HOSTILE) -> RolloutTree:
    """Put a text into every text of a tree, whose second trajectory breaks."""
    tree.prompt = text
    tree.task |= {"question": text, "answers": [text, "4"], "level": text}
    for span in tree.spans:
        span.text = f"<think>{text}</think><answer>{text}"
        if span.tool:
            span.tool["name"] = text
    tree.trajectories[0].answer = text
    tree.trajectories[1].reward, tree.trajectories[1].error = None, f"SandboxError: {text}"
    return tree


def hostile_run(folder: Path) -> Path:
    """A run in which every text is hostile."""
    run = make_run(folder, tasks=1, models=[HOSTILE[:60]], envs=["<b>env</b>"], name=HOSTILE.replace("\ud800", ""))
    with EpisodeStore(run) as store:
        tree = make_hostile(make_tree(random.Random(1), 0, 2, 0.5, 40))
        store.add(UnitKey(HOSTILE[:60], "<b>env</b>", "hostile"), 1, tree)
    # EpisodeStore replaces halves of surrogate pairs; other writers escape them
    rows = (run / "episodes.jsonl").read_text(encoding="utf-8").replace("? half", "\\ud800 half")
    (run / "episodes.jsonl").write_text(rows, encoding="utf-8")
    return run
