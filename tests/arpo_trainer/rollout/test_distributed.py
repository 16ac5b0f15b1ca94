"""Groups under two processes: two real ones (gloo, on the CPU) do what one does, and end together when one fails.

The pair is started once: `experiment` runs in each of its processes and in this one, and the tests compare.
"""

import asyncio
import copy
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from arpo_env import ToolEnv
from arpo_trainer import ARPOTrainer, RolloutTree
from arpo_trainer.backends import TransformersBackend
from arpo_trainer.backends.base import Generation, GenerationError, OnWindow, Request
from arpo_trainer.rollout.engine import group_tasks, play_groups, rank_count, this_rank
from arpo_trainer.tree import Stopwatch
from tests import ready_processes
from tests.arpo_trainer.text_policy import TextPolicy
from tests.arpo_trainer.training import test_overlap as overlap
from tests.arpo_trainer.training.test_trainer import config, listener

GROUP, GROUPS, MICRO = 4, 3, 2  # of two processes each has 6 rows, and half of the second group


class OneAtATime(TextPolicy):
    """Generates with a transformers backend that is new for each request.

    The last bits of a log-probability depend on what else was computed with it, and now and then a token hangs on
    them. Here nothing depends on timing, so that trees can be compared bit by bit.
    """

    def __init__(self, *arguments: Any) -> None:
        self.arguments, self.lock, self.time = arguments, asyncio.Lock(), Stopwatch()

    async def generate(self, request: Request, on_window: OnWindow | None = None) -> Generation:
        async with self.lock:
            with self.time.running():
                return await TransformersBackend(*self.arguments).generate(request, on_window)


class Seen(ARPOTrainer):
    """Keeps what a rollout gave to the loss."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        model = self.accelerator.unwrap_model(self.model)
        self.backend = self.engine.backend = OneAtATime(model, self._tokenizer)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        self.measured = {key: value[-1] for key, value in self._metrics["train"].items()}
        rows = zip(output["completion_ids"], output["completion_mask"].sum(1), output["advantages"], strict=True)
        self.batch = [[ids[:n].tolist(), values[:n].tolist()] for ids, n, values in rows]
        return output


def length(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """A reward that differs within every group."""
    return [len(ids) / 100 for ids in completion_ids]


def experiment(policy: Path, folder: Path) -> dict[str, Any]:
    """Take a training step, roll out and evaluate, and say what came of it; every rank does."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(policy, padding_side="left")
    env, recorded, heard = ToolEnv("arpo/Arithmetic-v0", level=3), [], []
    rounds = GROUP * GROUPS // MICRO // int(os.environ.get("WORLD_SIZE", 1))
    size = {"num_generations": GROUP, "initial_rollouts": 2, "per_device_train_batch_size": MICRO}
    size |= {"gradient_accumulation_steps": rounds, "max_completion_length": 120, "max_turn_length": 32}
    args = config(folder, max_steps=1, optim="sgd", learning_rate=1.0, **size)
    model = copy.deepcopy(AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32))  # as loaded, the weights
    # lie where the file has them, and several processes move them: another alignment rounds otherwise
    hears = [listener(on_rollout=recorded.append, on_evaluation=heard.append)]
    held_out = {"eval_env": env, "eval_tasks": 3, "overlap": "allow"}
    trainer = Seen(model, env, length, args, processing_class=tokenizer, callbacks=hears, **held_out)
    tasks = [env.tasks.task(number) for number in range(3)]
    few = play_groups(trainer.engine, tasks[:1], 7)[0]
    evaluation = trainer.evaluate_tasks("before")
    trainer.train()
    found = {
        "rows": trainer.batch,
        "trees": [tree.to_json() for tree in trainer.trees],
        "measured": trainer.measured,
        "recorded": [len(trees) for trees in recorded],
        "heard": len(heard),
        "few": [tree.to_json() for tree in few],
        "evaluation": evaluation.as_dict(),
        "ahead": ahead(folder),
    }
    weights = trainer.accelerator.unwrap_model(trainer.model).state_dict()
    torch.save(weights, folder / f"weights{this_rank()}.pt")
    if rank_count() > 1:
        if this_rank() == 1:
            trainer.backend.generate = no_memory
        started = time.monotonic()
        try:
            play_groups(trainer.engine, tasks[:2])
        except RuntimeError as error:
            found["error"], found["cause"] = str(error), repr(error.__cause__)
        found["seconds_to_error"] = time.monotonic() - started
    return found


def ahead(folder: Path) -> Any:
    """Train with rollouts ahead, with weights that stay the same; return what the main process was handed."""
    rows = GROUP * 2 // int(os.environ.get("WORLD_SIZE", 1))
    settings = {"max_staleness": 1, "max_steps": 3, "per_device_train_batch_size": rows, "learning_rate": 0.0}
    trainer = overlap.make(folder, tasks=4, **settings)
    rollouts = overlap.played(trainer)
    return [overlap.words(rollouts), overlap.logged(trainer, "staleness") if this_rank() == 0 else []]


async def no_memory(*_: Any) -> Any:
    raise GenerationError("out of memory")


def trees(lines: list[str]) -> list[RolloutTree]:
    """Read trees, without what no two rollouts share: how long a tool took."""
    found = [RolloutTree.from_json(line) for line in lines]
    for tree in found:
        for span in tree.spans:
            if span.tool:
                span.tool.pop("seconds")
    return found


@pytest.fixture(scope="module")
def ran(tiny_policy: Path, isolation: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[Any], Path]:
    """What one process found, what each of two found, and the folder with the weights."""
    folder = tmp_path_factory.mktemp("ranks")
    ready_processes.run_ranks(__name__, str(tiny_policy), str(folder), folder=Path(__file__).parents[3], said=folder)
    both = [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(2)]
    alone = folder / "alone"
    alone.mkdir()
    return experiment(tiny_policy, alone), both, folder


@pytest.mark.parametrize(("name", "count"), [("trees", GROUPS), ("few", 1)])  # fewer groups than ranks leave some idle
def test_trees_are_those_of_one_process(ran: Any, name: str, count: int) -> None:
    one, both, _ = ran
    assert len(one[name]) == count
    for rank in both:
        assert trees(rank[name]) == trees(one[name])


def test_every_rank_has_its_rows_with_the_advantages_of_one_process(ran: Any) -> None:
    one, both, _ = ran
    assert [len(rank["rows"]) for rank in both] == [GROUP * GROUPS // 2] * 2
    for (ids, values), (own, alone) in zip(both[0]["rows"] + both[1]["rows"], one["rows"], strict=True):
        assert ids == own
        assert values == pytest.approx(alone, abs=1e-6)


def test_measurements_are_those_of_all_trees_on_every_rank(ran: Any) -> None:
    one, both, _ = ran
    ours = [key for key in one["measured"] if key.startswith("arpo/")]
    assert [both[0]["measured"][key] for key in ours] == [both[1]["measured"][key] for key in ours]
    counted = [key for key in ours if not re.search("second|wait|idle", key)]
    assert {"arpo/reward", "arpo/branches", "arpo/entropy"} <= set(counted)
    assert [both[0]["measured"][key] for key in counted] == pytest.approx([one["measured"][key] for key in counted])


def test_an_evaluation_is_shared_out_and_the_main_process_alone_hands_results_on(ran: Any) -> None:
    one, both, _ = ran
    assert one["evaluation"]["n"] == 3
    assert both[0]["evaluation"] == both[1]["evaluation"] == one["evaluation"]
    assert [rank["recorded"] for rank in both] == [[GROUPS], []]
    assert [rank["heard"] for rank in both] == [1, 0]


def test_the_update_is_that_of_one_process(ran: Any, tiny_model: Any) -> None:
    """Up to rounding: the difference is at most 1e-4 of the update's norm (SGD, whose update is the gradient)."""
    _, _, folder = ran
    files = ["weights0.pt", "weights1.pt", "alone/weights0.pt"]
    first, second, alone = (torch.load(folder / name) for name in files)
    before = tiny_model.state_dict()
    moved = torch.cat([(alone[name] - value).flatten() for name, value in before.items()])
    apart = torch.cat([(first[name] - alone[name]).flatten() for name in before])
    assert moved.norm() > 0
    assert apart.norm() < 1e-4 * moved.norm()
    assert all(torch.equal(first[name], second[name]) for name in before)


def test_rollouts_ahead_are_those_of_one_process(ran: Any) -> None:
    """But for the last bits of log-probabilities: which beginnings are kept already is a matter of time."""
    one, both, _ = ran
    rollouts, staleness = both[0]["ahead"]
    assert staleness == [0, 1, 1]
    assert [len(trees) for trees in rollouts] == [2, 2, 2]
    for trees, alone in zip(rollouts, one["ahead"][0], strict=True):
        for (*place, spans), (*elsewhere, own) in zip(trees, alone, strict=True):
            assert place == elsewhere
            assert [ids for ids, _ in spans] == [ids for ids, _ in own]
            assert [logprobs for _, logprobs in spans] == [pytest.approx(logprobs, abs=1e-5) for _, logprobs in own]


def test_one_rank_s_failure_ends_both(ran: Any) -> None:
    _, both, _ = ran
    for rank in both:
        assert rank["error"] == "rank 1 of 2 failed: GenerationError: out of memory"
        assert rank["seconds_to_error"] < 60
    assert "GenerationError" in both[1]["cause"]


@pytest.mark.parametrize("names", ["aaabbb", "aabb b"])
def test_rows_that_are_no_groups_are_refused(names: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="6 rows of 1 processes are not whole groups of 2 rows with one task"):
        group_tasks(list(names), 2)
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(ValueError, match=r"\(2\) x steps_per_generation \(1\) x processes \(3\) = 6 rows must be"):
        config(tmp_path, per_device_train_batch_size=2, gradient_accumulation_steps=1)


if __name__ == "__main__":
    torch.set_num_threads(1)
    policy, folder = map(Path, sys.argv[1:])
    result = experiment(policy, folder)
    (folder / f"rank{this_rank()}.json").write_text(json.dumps(result))
