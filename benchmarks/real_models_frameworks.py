"""The same tasks through `arpo eval`, verifiers, Inspect and TRL's own trainer, with one model behind one server.

    scripts/adapters.sh verifiers inspect_ai            # makes their environments
    python -m benchmarks.real_models frameworks --name qwen2.5-coder-0.5b

Each framework plays tasks of GSM8K greedily, with native calls of Python, one request at a time, in a process of its
own: verifiers and Inspect in the environments of scripts/adapters.sh, the others in this one. TRL's trainer evaluates
with a stand-in of the model, whose generation is replaced by requests with its token ids to the same server; prompts,
the tool loop, parsing and rewards are TRL's and the adapter's. The server should use the chat template of the model's
folder (`--template` of examples/serve_gguf.py), since TRL renders it here, and `--reproducible`: otherwise what it has
read before changes the rounding, and after some hundred characters the most likely token.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from arpo_env.protocols.protocol import last_boxed

ROOT = Path(__file__).resolve().parents[1]
ENV = "arpo/GSM8K-v0"
OPTIONS = {"split": "test", "tools": ["python"], "max_turns": 4, "prompt": "paper"}
TURN, EPISODE = 400, 1600  # tokens
_CALLS = re.compile(r"<tool_call>.*?(?:</tool_call>|\Z)|<\|im_end\|>", re.DOTALL)  # which others keep apart
Row = dict[str, Any]


def compare_frameworks(given: argparse.Namespace) -> Row:
    """Play the tasks in every framework, and return the rows of each beside those of `arpo eval`."""
    folder = given.runs / "frameworks" / given.name
    folder.mkdir(parents=True, exist_ok=True)
    for name in PLAYERS:
        peer = ROOT / ".venv-peers" / name / "bin" / "python"
        python = str(peer) if name in ("verifiers", "inspect_ai") else sys.executable
        line = [python, "-m", __name__, name, given.url, given.name, str(folder.resolve()), str(given.tasks)]
        subprocess.run(line, check=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    rows = {name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in PLAYERS}
    ours = rows["arpo eval"]
    return {name: beside(each, ours) for name, each in rows.items()}


def beside(rows: list[Row], ours: list[Row]) -> Row:
    """Return what a framework counted, and where it differs from `arpo eval`."""
    pairs = list(zip(rows, ours, strict=True))
    return {
        "tasks": len(rows),
        "reward": sum(row["reward"] for row in rows) / len(rows),
        "calls": sum(row["calls"] for row in rows),
        "same text": sum(one["text"] == other["text"] for one, other in pairs),
        "same answer": sum(one["answer"] == other["answer"] for one, other in pairs),
        "same reward": sum(one["reward"] == other["reward"] for one, other in pairs),
        "rows": rows,
    }


def play_arpo(url: str, name: str, folder: Path, tasks: int) -> list[Row]:
    """Play by `arpo eval`."""
    from arpo_trainer.evaluation.eval_session import run_evaluation
    from arpo_trainer.evaluation.eval_settings import EvalModel, EvalSettings

    rollout = {"temperature": 0.0, "top_p": 1.0, "max_turn_length": TURN, "max_completion_length": EPISODE}
    settings = EvalSettings((ENV,), {**OPTIONS, "protocol": "native"}, tasks=tasks, rollout=rollout, concurrency=1)
    run = run_evaluation(settings, [EvalModel(name, "endpoint", name, (url,), name)], folder / "eval", resume=True)
    rows = []
    for row in run.rows:
        entry, path = row.episodes[0], run.tree(row).path(0)
        said = [_CALLS.sub("", span.text).strip() for span in path if span.kind == "model"]
        rows.append(_row(entry.reward, sum(entry.calls.values()), "\n".join(said)))
    return rows


def play_verifiers(url: str, name: str, folder: Path, tasks: int) -> list[Row]:
    """Play by verifiers' `vf-eval`."""
    from verifiers.v1.cli.eval.runner import run_eval
    from verifiers.v1.configs.cli.eval import EvalConfig

    taskset = {"id": "arpo-gym", "env_id": ENV, "options": {**OPTIONS, "protocol": "hermes", "limit": tasks}}
    config = {
        "env": {"taskset": taskset}, "model": name, "client": {"base_url": url, "api_key_var": "NO_KEY"},
        "select": {"limit": tasks}, "output_dir": str(folder / "verifiers"), "push": False, "rich": None,
        "sampling": {"temperature": 0.0, "top_p": 1.0, "max_tokens": TURN}, "max_concurrent": 1,
    }  # fmt: skip
    episodes = asyncio.run(run_eval(EvalConfig.model_validate(config)))
    rows = []
    for episode in sorted(episodes, key=lambda one: one.task.data.idx):
        [trace] = episode.traces
        said = [node.message.content or "" for node in trace.nodes if node.sampled]
        rows.append(_row(trace.reward, trace.metrics["tool_calls"], "\n".join(said)))
    return rows


def play_inspect(url: str, name: str, folder: Path, tasks: int) -> list[Row]:
    """Play by Inspect's `eval`."""
    from inspect_ai import eval as inspect_eval
    from inspect_ai.model import get_model

    from arpo_env.adapters.inspect_ai import inspect_task

    model = get_model(f"openai-api/local/{name}", base_url=url, api_key="none")
    task = inspect_task(ENV, **{**OPTIONS, "limit": tasks})
    [log] = inspect_eval(task, model=model, temperature=0.0, top_p=1.0, max_tokens=TURN, max_connections=1,
                         display="none", log_dir=str(folder / "inspect"))  # fmt: skip
    rows = []
    for sample in sorted(log.samples, key=lambda one: one.metadata["number"]):
        said = [message for message in sample.messages if message.role == "assistant"]
        calls = sum(message.role == "tool" for message in sample.messages)
        rows.append(_row(sample.scores["reward"].value, calls, "\n".join(message.text for message in said)))
    return rows


def play_trl(url: str, name: str, folder: Path, tasks: int) -> list[Row]:
    """Play by an evaluation of TRL's `GRPOTrainer`, whose generation is asked of the server by token ids."""
    from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM
    from trl import GRPOConfig, GRPOTrainer

    from arpo_env.adapters.trl import environment_reward, trl_spec
    from arpo_trainer.models import resolve_model

    spec = trl_spec(ENV, **OPTIONS, limit=tasks)
    tokenizer = AutoTokenizer.from_pretrained(resolve_model(name))
    asked = [example["prompt"][-1]["content"] for example in spec.train_dataset]  # TRL shuffles them
    rows: dict[int, Row] = {}

    class Served(GRPOTrainer):  # type: ignore[misc]
        def _generate_single_turn(self, prompt_ids: Any, *_: Any, **__: Any) -> tuple[list[list[int]], None]:
            return [ask_for_ids(url, ids, tokenizer.eos_token_id) for ids in prompt_ids], None

    def noted_reward(**columns: Any) -> list[float | None]:
        rewards = environment_reward(**columns)
        kinds = (columns[kind] for kind in ("environments", "prompts", "completions"))
        for each, prompt, completion, reward in zip(*kinds, rewards, strict=True):
            said = [message.get("content") or "" for message in completion if message["role"] == "assistant"]
            number = asked.index(prompt[-1]["content"])
            rows[number] = _row(reward, each.episode.info["tool_calls"], "\n".join(said))
        return rewards

    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    stand_in = Qwen2ForCausalLM(Qwen2Config(vocab_size=len(tokenizer), num_key_value_heads=1, **sizes))
    args = GRPOConfig(
        str(folder / "trl"), per_device_eval_batch_size=1, num_generations_eval=1, max_completion_length=EPISODE,
        max_tool_calling_iterations=spec.max_tool_calling_iterations, report_to=[], use_cpu=True, bf16=False,
    )  # fmt: skip
    given = {**spec.kwargs, "reward_funcs": [noted_reward]}
    Served(stand_in, args=args, processing_class=tokenizer, eval_dataset=spec.train_dataset, **given).evaluate()
    return [rows[number] for number in range(len(asked))]


def ask_for_ids(url: str, ids: list[int], eos: int) -> list[int]:
    """Return the ids that llama.cpp's own completion of token ids makes greedily."""
    body = {"prompt": ids, "n_predict": TURN, "temperature": 0.0, "return_tokens": True, "top_p": 1.0}
    request = urllib.request.Request(
        f"{url.removesuffix('/v1')}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=1200) as reply:
        made = json.load(reply)
    return [*made["tokens"], eos] if made["stop_type"] == "eos" and made["tokens"][-1:] != [eos] else made["tokens"]


def _row(reward: float | None, calls: float, text: str) -> Row:
    """Return an episode; `text` is what the model wrote besides its calls."""
    return {"reward": reward, "answer": last_boxed(text), "calls": int(calls), "text": text.strip()}


PLAYERS: dict[str, Callable[[str, str, Path, int], list[Row]]] = {
    "arpo eval": play_arpo,
    "verifiers": play_verifiers,
    "inspect_ai": play_inspect,
    "trl": play_trl,
}


if __name__ == "__main__":
    player, address, model, where, number = sys.argv[1:]
    target = Path(where) / f"{player}.json"
    if not target.is_file() or len(json.loads(target.read_text(encoding="utf-8"))) != int(number):
        played = PLAYERS[player](address, model, Path(where), int(number))
        target.write_text(json.dumps(played, indent=1) + "\n", encoding="utf-8")
