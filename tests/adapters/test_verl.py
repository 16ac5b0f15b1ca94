"""verl's own worker, data set class and tool loop play our environments; only the language model is a script."""

import asyncio
import copy
import functools
import gc
import math
import os
import random
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("verl")

import numpy as np
import torch
import yaml
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from tokenizers import AddedToken
from transfer_queue import KVBatchMeta
from transformers import AutoTokenizer, Qwen2Config
from verl.experimental.agent_loop import AgentLoopWorker
from verl.protocol import DataProto
from verl.trainer.ppo import padding_utils
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage, get_adv_estimator_fn, get_policy_loss_fn
from verl.trainer.ppo.v1 import agent_loop_tq, trainer_base
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn
from verl.utils.import_utils import import_external_libs
from verl.utils.tensordict_utils import assign_non_tensor_data, get_tensordict, list_of_dict_to_tensordict
from verl.workers.config import ActorConfig
from verl.workers.rollout.replica import TokenOutput

from arpo_env import ToolEnv
from arpo_env.adapters.task_rows import task_rows, write_rows
from arpo_trainer import ARPOConfig, ARPOTrainer
from arpo_trainer.adapters.verl_agent_loop import ArpoAgentLoop, EpisodeFailed
from arpo_trainer.adapters.verl_backend import VerlBackend
from arpo_trainer.algorithms.losses import Loss
from arpo_trainer.backends.base import Generation, GenerationError, Request
from arpo_trainer.rollout.engine import Engine
from arpo_trainer.rollout.settings import RolloutSettings
from arpo_trainer.training.rollout_batch import NoSignalWarning, RolloutBatch
from arpo_trainer.tree import RolloutTree
from sandbox import SandboxError

from ..arpo_trainer.algorithms.explicit_losses import aggregate, per_token
from .byte_level import byte_level
from .scripts import Script, as_text, breaking_sandbox, native_rewards, script_for, sets

# of the form of Qwen's: it shows tools, and results are messages of the user
TEMPLATE = """{% for message in messages %}{% if message.role == 'tool' %}<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response>{% else %}<|im_start|>{{ message.role }}
{{ message.content }}{% endif %}{% if loop.first and tools %}

{{ tools | tojson }}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
LOOP = "arpo_trainer.adapters.verl_agent_loop"
RECIPE = Path(__file__).resolve().parents[2] / "examples" / "frameworks" / "verl_arpo.sh"
LENGTHS = {"prompt": 4096, "response": 6144}


def write_model(folder: Path) -> Path:
    """Write a tokenizer whose merges cross the borders of tags, and a config for verl to read; return the folder."""
    texts = [TEMPLATE, "</python>\n<result>\n7\n</result>\n<think>Step 1.</think><python>print(1)</python>"] * 3
    made = byte_level(TEMPLATE, texts, 344)
    made.add_tokens([AddedToken(word, normalized=False) for word in ("<tool_call>", "</tool_call>")])
    made.save_pretrained(folder)
    Qwen2Config(vocab_size=len(made), num_hidden_layers=1, architectures=["Qwen2ForCausalLM"]).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


class StandIn:
    """In the place of verl's `LLMServerClient`: the same call, answered by a script.

    `surprise` is minus the log-probability of each token, by turn; the last one holds for all later turns.
    """

    def __init__(self, script: Script, tokenizer: Any) -> None:
        self.script, self.tokenizer = script, tokenizer
        self.surprise: Sequence[float] = (0.5,)
        self.seen: list[tuple[str, tuple[int, ...]]] = []
        self.before: Callable[[int, int], None] = lambda number, turn: None

    def turn(self, ids: Sequence[int], stops: Sequence[str]) -> tuple[list[int], int]:
        text = self.tokenizer.decode(ids)
        number = self.script.number_of(text)
        after = text.rpartition(self.script.tasks[number].question)[2]
        turn = after.count("<|im_start|>assistant") - 1 if self.script.native else after.count("<result>\n")
        self.before(number, turn)
        written = as_text(self.script.turn(number, turn, after))
        made = self.tokenizer.encode(written, add_special_tokens=False)
        return made if any(stop in written for stop in stops) else [*made, self.tokenizer.eos_token_id], turn

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
    ) -> Any:
        self.seen.append((request_id, tuple(prompt_ids)))
        await asyncio.sleep(0)
        ids, turn = self.turn(prompt_ids, sampling_params.get("stop") or ())
        ids = ids[: sampling_params.get("max_tokens", LENGTHS["response"])]
        surprise = self.surprise[min(turn, len(self.surprise) - 1)]
        return TokenOutput(
            token_ids=ids,
            log_probs=[-surprise] * len(ids) if sampling_params["logprobs"] else None,
            stop_reason="completed",
            extra_fields={"global_steps": 3},
        )


def config_for(model: Path, folder: Path, loop: dict[str, Any], **overrides: Any) -> Any:
    path = folder / "agent_loops.yaml"
    path.write_text(yaml.safe_dump([{"name": "arpo_agent", "_target_": f"{LOOP}.ArpoAgentLoop", **loop}]))
    rollout = "actor_rollout_ref.rollout"
    given = {
        "actor_rollout_ref.model.path": model,
        f"{rollout}.name": "vllm",
        f"{rollout}.agent.agent_loop_config_path": path,
        f"{rollout}.prompt_length": LENGTHS["prompt"],
        f"{rollout}.response_length": LENGTHS["response"],
        "data.max_prompt_length": LENGTHS["prompt"],
        "data.filter_overlong_prompts_workers": 1,
        "data.cache_dir": folder,
        **overrides,
    }
    config = copy.deepcopy(defaults())
    for name, value in given.items():
        OmegaConf.update(config, name, str(value) if isinstance(value, Path) else value, force_add=True)
    return config


@functools.cache
def defaults() -> Any:
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer")


class Verl:
    """A worker of verl with the rows of a script, read by verl's data set class."""

    def __init__(self, model: Path, folder: Path, script: Script, loop: dict[str, Any], **overrides: Any) -> None:
        self.folder = folder
        self.config = config_for(model, folder, loop, **overrides)
        self.tokenizer = AutoTokenizer.from_pretrained(model)  # as verl does
        self.client = StandIn(script, self.tokenizer)
        write_rows(folder / "rows.parquet", task_rows(script.factory, "verl", script.episodes), overwrite=True)
        self.rows = RLHFDataset(str(folder / "rows.parquet"), self.tokenizer, self.config.data)
        assert len(self.rows) == script.episodes

    def batch(self, numbers: Sequence[int], n: int = 1) -> DataProto:
        batch = DataProto.from_single_dict(collate_fn([self.rows[number] for number in numbers]))
        batch.non_tensor_batch["uid"] = np.array([f"uid-{number}" for number in numbers], dtype=object)
        return batch.repeat(repeat_times=n, interleave=True)

    def play(self, numbers: Sequence[int], n: int = 1) -> DataProto:
        async def run() -> DataProto:
            worker = AgentLoopWorker(self.config, self.client)
            output = await worker.generate_sequences(self.batch(numbers, n))
            gc.collect()  # what verl does not end is ended when its object is gone
            await asyncio.sleep(0.1)
            return output

        return asyncio.run(run())


def rewards(output: DataProto) -> list[float]:
    return [round(value, 5) for value in output.batch["rm_scores"].sum(-1).tolist()]


def unpadded(output: DataProto, number: int) -> tuple[list[int], list[int], list[int]]:
    row, width = output.batch[number], LENGTHS["prompt"]
    seen = row["attention_mask"].bool()
    inside = seen[width:]
    return (
        row["prompts"][seen[:width]].tolist(),
        row["responses"][inside].tolist(),
        row["response_mask"][inside].tolist(),
    )


@pytest.mark.parametrize("protocol", ["arpo-tags", "hermes"])
@pytest.mark.parametrize("env_id", sets())
def test_rewards_are_those_of_the_environment(
    env_id: str, protocol: str, model: Path, tmp_path: Path, isolation: str, open_episodes: set[int]
) -> None:
    script = script_for(env_id, protocol)
    output = Verl(model, tmp_path, script, {}).play(range(script.episodes))
    assert rewards(output) == [round(value, 5) for value in native_rewards(script)]
    assert not open_episodes
    assert output.non_tensor_batch["min_global_steps"].tolist() == [3] * script.episodes


class Scripted:
    """The same policy as a backend of our engine, without anything of verl."""

    wants_messages, trains = False, True

    def __init__(self, stand_in: StandIn) -> None:
        self.stand_in = stand_in

    async def begin(self) -> None:
        """It keeps nothing."""

    async def end(self) -> None:
        """It holds nothing."""

    async def generate(self, request: Request, on_window: Any = None) -> Generation:
        ids, _ = self.stand_in.turn(request.ids, request.stop)
        whole, ids = ids, ids[: request.max_tokens]
        ended = "eos" if ids[-1] == self.stand_in.tokenizer.eos_token_id else "stop"
        finish: Any = "length" if len(ids) < len(whole) else ended
        return Generation(ids, [-0.5] * len(ids), [0.5] * len(ids), finish)


@pytest.mark.parametrize("protocol", ["arpo-tags", "hermes"])
def test_ids_are_those_of_the_native_rollout(protocol: str, model: Path, tmp_path: Path, isolation: str) -> None:
    script = script_for("arpo/Arithmetic-v0", protocol)
    peer = Verl(model, tmp_path, script, {})
    output = peer.play(range(script.episodes))
    settings = RolloutSettings(algorithm="grpo", num_generations=1, max_completion_length=LENGTHS["response"])
    engine = Engine(Scripted(peer.client), peer.tokenizer, script.factory(), settings)
    trees = asyncio.run(engine.rollout(script.tasks))
    for number, tree in enumerate(trees):
        row = tree.row(0)
        assert unpadded(output, number) == (tree.prompt_ids, row.ids, row.mask)
        logprobs = output.batch["rollout_log_probs"][number][: len(row.ids)].tolist()
        assert logprobs == row.logprobs
    assert {0, 1} <= {bit for tree in trees for bit in tree.row(0).mask}


def test_the_rollouts_of_a_prompt_are_one_tree(
    model: Path, tmp_path: Path, isolation: str, open_episodes: set[int]
) -> None:
    """The tokens after a tool's result are more surprising than those of the first turn, so both roots branch."""
    script = script_for("arpo/Arithmetic-v0")
    peer = Verl(model, tmp_path, script, {"rollout": {"algorithm": "arpo", "initial_rollouts": 2}})
    peer.client.surprise = (0.1, 2.0)
    output = peer.play([0, 1], n=4)
    native = native_rewards(script)
    assert rewards(output) == [native[number] for number in (0, 1) for _ in range(4)]
    facts = output.non_tensor_batch["arpo"]
    for first in (0, 4):
        group = facts[first : first + 4]
        assert sorted(fact["origin"] for fact in group) == ["branch", "branch", "root", "root"]
        assert {fact["parent"] for fact in group if fact["origin"] == "branch"} <= {0, 1, 2, 3}
    # a branch does not generate what it shares: task 0 has two turns, and only the roots wrote the first one
    turns = [ids for name, ids in peer.client.seen if script.number_of(peer.tokenizer.decode(ids)) == 0]
    assert len(turns) == 2 + 4
    # all requests of a tree go to one server, so that it computes their common beginning once
    assert len({name for name, _ in peer.client.seen}) == 2
    assert not open_episodes


def test_a_broken_sandbox_is_an_error_and_not_a_reward(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_episodes: set[int]
) -> None:
    script = script_for("arpo/Arithmetic-v0")
    peer = Verl(model, tmp_path, script, {})
    with breaking_sandbox() as (factory, end):
        monkeypatch.setattr(f"{LOOP}.find_task", lambda reference: (factory, script.tasks[reference["index"]]))
        peer.client.before = lambda number, turn: end() if (number, turn) == (1, 1) else None
        with pytest.raises(EpisodeFailed, match="has no reward"):
            peer.play([1])
    assert not open_episodes


def failing_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first environment that takes a step has lost its sandbox."""
    step, lost = ToolEnv.astep, []

    async def astep(env: ToolEnv, action: str) -> Any:
        if not lost or lost[0] is env:
            lost[:] = [env]
            raise SandboxError("the container died")
        return await step(env, action)

    monkeypatch.setattr(ToolEnv, "astep", astep)


def test_a_masked_failure_has_no_gradient_and_leaves_the_baseline(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolation: str
) -> None:
    script = script_for("arpo/Arithmetic-v0")
    turn, answers = script.turn, iter([script.tasks[0].answers[0], "-1", "-1"])
    monkeypatch.setattr(script, "turn", lambda *of: turn(*of) if of[1] == 0 else script._answer(next(answers)))
    failing_once(monkeypatch)
    output = Verl(model, tmp_path, script, {"on_fault": "mask", "rollout": {"retries": 0}}).play([0], n=4)
    errors = [fact["error"] for fact in output.non_tensor_batch["arpo"]]
    [failed] = [number for number, error in enumerate(errors) if error]
    assert "the container died" in errors[failed]
    assert output.batch["response_mask"][failed].sum() == 0
    valid = [reward for number, reward in enumerate(rewards(output)) if number != failed]
    assert sorted(valid) == [0.0, 0.0, 1.0]
    assert rewards(output)[failed] == pytest.approx(1 / 3, abs=1e-4)
    advantages, _ = compute_grpo_outcome_advantage(
        output.batch["rm_scores"], output.batch["response_mask"], output.non_tensor_batch["uid"]
    )
    assert not advantages[failed].any()
    [right] = [number for number, reward in enumerate(rewards(output)) if reward == 1.0]
    assert advantages[right].max() > 0


class Queue:
    """In the place of verl's TransferQueue, which needs a Ray cluster: a dictionary with its calls."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.tags: dict[str, dict[str, Any]] = {}

    def init(self) -> None:
        """It is there."""

    async def async_kv_put(self, key: str, partition_id: str, tag: dict[str, Any]) -> None:
        self.tags[key] = tag

    async def async_kv_batch_put(self, keys: list[str], fields: Any, tags: list[Any], partition_id: str) -> None:
        self.kv_batch_put(keys, partition_id, fields, tags)

    def kv_batch_put(self, keys: list[str], partition_id: str, fields: Any, tags: Sequence[Any] = ()) -> None:
        for key, row in zip(keys, fields, strict=True):
            self.rows.setdefault(key, {}).update(row.items())
        self.tags.update(zip(keys, tags, strict=False))

    def kv_batch_get(self, keys: list[str], partition_id: str, select_fields: Sequence[str] | None = None) -> Any:
        rows = [self.rows[key] for key in keys]
        names = [name for name in select_fields or rows[0] if all(name in row for row in rows)]
        return list_of_dict_to_tensordict([{name: row[name] for name in names} for row in rows])


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    """The queue of all modules of verl's present trainer (`use_v1`)."""
    found = Queue()
    for module in (agent_loop_tq, trainer_base, padding_utils):
        monkeypatch.setattr(module, "tq", found)
    return found


def play_present(peer: Verl, prompts: int = 1) -> None:
    """Play the first prompts with the worker of verl's present trainer, which puts the samples into the queue."""
    uids = np.array([f"prompt{number}" for number in range(prompts)], dtype=object)
    batch = get_tensordict({**collate_fn([peer.rows[number] for number in range(prompts)]), "uid": uids})
    assign_non_tensor_data(batch, "global_steps", 1)

    async def run() -> None:
        worker = agent_loop_tq.AgentLoopWorkerTQ.__ray_metadata__.modified_class(peer.config, peer.client)
        await worker.generate_sequences(batch)
        await asyncio.gather(*worker.background_tasks)

    asyncio.run(run())


class Trainer(ARPOTrainer):
    """`ARPOTrainer` with trees that have been played, as far as its advantages need it."""

    def __init__(self, args: ARPOConfig, trees: list[RolloutTree]) -> None:
        self.args, self.rollout_batch, self.model = args, RolloutBatch(trees), SimpleNamespace(training=True)
        self.accelerator, self._no_signal = SimpleNamespace(process_index=0), NoSignalWarning()
        self._env_rewards, self._scale, self._prepare = True, args.scale_rewards, None
        rewards = [math.nan if reward is None else reward for tree in trees for reward in tree.rewards]
        self.rollout_batch.score(torch.tensor(rewards)[:, None], torch.ones(1))


CREDITS_OF_VERL: list[tuple[str, dict[str, Any], bool]] = [
    ("arpo", {}, True),
    ("arpo", {}, False),
    ("arpo", {"attribution": "hard"}, True),
    ("arpo", {"attribution": "dedup", "advantage": "reinforce++"}, True),
    ("aepo", {}, True),
    ("tree-grpo", {}, True),
    ("fork", {}, True),
]


@pytest.mark.parametrize("on_fault", ["raise", "mask"])
@pytest.mark.parametrize(("algorithm", "given", "deviation"), CREDITS_OF_VERL)
def test_advantages_are_those_of_our_trainer(
    algorithm: str,
    given: dict[str, Any],
    deviation: bool,
    on_fault: str,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    isolation: str,
    queue: Queue,
) -> None:
    """Two trees of 8 with one failed sample, a batch that verl fills up and reorders, and verl's own trainer."""
    draw, script, trees = random.Random(1), script_for("arpo/Arithmetic-v0"), []
    play = ArpoAgentLoop._play

    def turn(number: int, turn: int, last: str) -> dict[str, Any]:
        if turn < 2:
            return script._call(0, turn, code=f"print({draw.random()})")
        return script._answer(draw.choice([script.tasks[number].answers[0], "-1"]))

    monkeypatch.setattr(script, "turn", turn)

    async def kept(loop: ArpoAgentLoop, *of: Any) -> Any:
        tree, steps = await play(loop, *of)
        trees.append(tree)
        return tree, steps

    monkeypatch.setattr(ArpoAgentLoop, "_play", kept)
    failing_once(monkeypatch)
    loop = {"on_fault": on_fault, "rollout": {"algorithm": algorithm, "initial_rollouts": 3, "retries": 0}}
    overrides = {
        "actor_rollout_ref.rollout.n": 8,
        "actor_rollout_ref.model.external_lib": "arpo_trainer.adapters.verl_credit",
        "algorithm.adv_estimator": "arpo_tree",
        "algorithm.arpo_tree": given,
        "algorithm.norm_adv_by_std_in_grpo": deviation,
    }
    peer = Verl(model, tmp_path, script, loop, **overrides)
    peer.client.surprise = (0.1, 2.0, 1.0)
    play_present(peer, prompts=2)

    trees.sort(key=lambda tree: tree.meta["uid"])
    flat = [(tree, number) for tree in trees for number in range(8)]
    assert sum(tree.trajectories[number].valid for tree, number in flat) == 15
    assert any(trajectory.origin == "branch" for tree in trees for trajectory in tree.trajectories)
    names = [f"prompt{place // 8}_{place % 8}_0" for place in range(16)]
    for name, (tree, number) in zip(names, flat, strict=True):
        if name in queue.rows:
            assert queue.rows[name]["responses"].tolist() == tree.row(number).ids
    keys = [name for name in names if name in queue.rows]
    assert len(keys) == (15 if on_fault == "raise" else 16)
    batch = padding_utils.upsample_batch_to_divisible_size(
        KVBatchMeta(keys=keys[::-1], tags=[queue.tags[key] for key in keys[::-1]], partition_id="train"), 18, 0
    )
    entropies = {name: tree.row(number).entropies for name, (tree, number) in zip(names, flat, strict=True)}
    for key, row in queue.rows.items():  # verl computes them with the policy that it trains
        row |= {"entropy": torch.tensor(entropies.get(key, [0.0])), "old_log_probs": row["rollout_log_probs"]}
    trainer_base.PPOTrainer._compute_advantage(SimpleNamespace(config=peer.config), batch, {})

    scale = "group" if deviation else "none"
    args = ARPOConfig(
        str(tmp_path), algorithm=algorithm, num_generations=8, per_device_train_batch_size=8, use_cpu=True,
        num_iterations=2, scale_rewards=scale, **given
    )  # fmt: skip
    width = max(len(tree.row(number).ids) for tree, number in flat)
    centred = torch.zeros(16)
    wanted = Trainer(args, trees).token_advantages(centred, torch.zeros(16, width))
    assert wanted.abs().max() > 0.1
    for place, (name, (tree, number)) in enumerate(zip(names, flat, strict=True)):
        mask = torch.tensor(tree.row(number).mask) * tree.trajectories[number].valid
        if name in keys:
            got = queue.rows[name]["advantages"]
            torch.testing.assert_close(got, wanted[place, : len(mask)] * mask, atol=1e-5, rtol=1e-5)
        else:
            assert not (wanted[place, : len(mask)] * mask).any()
    padding = [row for key, row in queue.rows.items() if key.startswith("pad")]
    assert len(padding) == 18 - len(keys)
    assert not any(row["advantages"].any() for row in padding)


def test_a_batch_without_our_trees_is_refused_with_the_cure(queue: Queue) -> None:
    import_external_libs("arpo_trainer.adapters.verl_credit")
    estimate = get_adv_estimator_fn("arpo_tree")
    with pytest.raises(RuntimeError, match=re.escape("trainer.use_v1=True")):
        estimate(torch.zeros(1, 2), torch.ones(1, 2), index=["a"], config={})

    def compute(algorithm: str, fields: dict[str, Any], config: dict[str, Any]) -> None:
        fact = {"uid": "a", "tree": "t", "size": 1, "valid": True, "path": [(0, "model", 2)], "algorithm": algorithm}
        row = {"uid": "a", "response_mask": torch.ones(2), "rm_scores": torch.ones(2)}
        queue.rows = {"a": {**row, "extra_fields": fields or {"arpo": fact}}}
        whole = copy.deepcopy(defaults())
        given = {"adv_estimator": "arpo_tree", "rollout_correction": None, **config}
        for name, value in given.items():
            OmegaConf.update(whole, f"algorithm.{name}", value, force_add=True)
        batch = KVBatchMeta(keys=["a"], tags=[{}], partition_id="train")
        trainer_base.PPOTrainer._compute_advantage(SimpleNamespace(config=whole), batch, {})

    for algorithm, fields, config, said in BAD_CREDIT:
        with pytest.raises(ValueError, match=re.escape(said)):
            compute(algorithm, fields, config)


BAD_CREDIT: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("arpo", {"reward_extra_info": {}}, {}, "set their agent_name to 'arpo_agent'"),
    ("arpo", {}, {"arpo_tree": {"atribution": "hard"}}, "did you mean 'attribution'"),
    ("tree-grpo", {}, {"norm_adv_by_std_in_grpo": False}, "leave norm_adv_by_std_in_grpo at True"),
    ("aepo", {}, {}, "bypass_mode=False"),
    ("toolpo", {}, {}, "train with ARPOTrainer"),
]


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-mean"])
def test_the_loss_of_aepo_keeps_the_gradient_above_the_bound(mode: Any) -> None:
    """verl's clipped loss with its dual clip, and F = 1 + h where a positive advantage's ratio is above the bound."""
    import_external_libs("arpo_trainer.adapters.verl_credit")
    draw = torch.Generator().manual_seed(0)
    old, mask = torch.randn(4, 30, generator=draw), torch.rand(4, 30, generator=draw) > 0.2
    advantages = torch.randn(4, 30, generator=draw)
    policy = (old + 0.7 * torch.randn(4, 30, generator=draw)).requires_grad_()
    config = ActorConfig(strategy="fsdp", rollout_n=1, use_dynamic_bsz=True, clip_ratio_low=0.2, clip_ratio_high=0.28)
    loss, metrics = get_policy_loss_fn("aepo")(old, policy, advantages, mask, mode, config)
    [got] = torch.autograd.grad(loss, policy)
    row = Loss("aepo", low=0.2, high=0.28, dual=3.0)
    [wanted] = torch.autograd.grad(aggregate(per_token(row, policy - old, advantages, mask), mask, mode), policy)
    torch.testing.assert_close(got, wanted, atol=1e-6, rtol=1e-4)
    above = (policy > old + math.log(1.28)) & (advantages > 0) & mask
    assert metrics["actor/kept_gradients"] == pytest.approx(float(above.sum() / mask.sum()))
    assert above.any()
    assert got[above].all()


def test_verl_takes_the_settings_of_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script runs with commands that write down what they are called with."""
    for name in ("arpo", "python"):
        (tmp_path / name).write_text('#!/bin/sh\nprintf "%s\\n" "$@" >> "$0.said"\n')
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    environment = {**os.environ, "ALGORITHM": "aepo", "OUT": str(tmp_path / "run")}
    subprocess.run(["bash", RECIPE, "trainer.total_epochs=1"], check=True, env=environment)
    module, name, *overrides = (tmp_path / "python.said").read_text().splitlines()
    assert (module, name) == ("-m", "verl.trainer.main_ppo")
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=overrides)
    assert config.trainer.total_epochs == 1
    assert (
        config.actor_rollout_ref.rollout.max_model_len
        == config.data.max_prompt_length + config.data.max_response_length
    )
    import_external_libs(config.actor_rollout_ref.model.external_lib)
    assert get_adv_estimator_fn(config.algorithm.adv_estimator)
    assert get_policy_loss_fn(config.actor_rollout_ref.actor.policy_loss.loss_mode)
    [loop] = yaml.safe_load(Path(config.actor_rollout_ref.rollout.agent.agent_loop_config_path).read_text())
    assert loop["_target_"] == f"{LOOP}.ArpoAgentLoop"
    settings = RolloutSettings(num_generations=config.actor_rollout_ref.rollout.n, **loop["rollout"])
    assert settings.parts.loss == "aepo"
    exports = (tmp_path / "arpo.said").read_text().split("data\nexport\n")[1:]
    for said, path in zip(exports, (config.data.train_files, config.data.val_files), strict=True):
        assert path in said.splitlines()


BAD_LOOPS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"rollout": {"temperature": 2}}, {}, "a setting of `rollout` must be one of"),
    ({"on_fault": "zero"}, {}, "must be one of 'raise', 'mask'"),
    ({"max_trajectories": 1}, {}, "2 rollouts, but max_trajectories is 1"),
    ({}, {"actor_rollout_ref.rollout.prompt_length": 20}, "raise data.max_prompt_length"),
    ({}, {"actor_rollout_ref.rollout.name": "sglang"}, "skip_tokenizer_init=False"),
    ({}, {"actor_rollout_ref.rollout.name": "trtllm"}, "protocol='hermes'"),
]


@pytest.mark.parametrize(("loop", "overrides", "said"), BAD_LOOPS)
def test_wrong_settings_are_named(
    loop: dict[str, Any], overrides: dict[str, Any], said: str, model: Path, tmp_path: Path, isolation: str
) -> None:
    with pytest.raises(Exception, match=re.escape(said)):
        Verl(model, tmp_path, script_for("arpo/Arithmetic-v0"), loop, **overrides).play([0], n=2)


@pytest.mark.parametrize(
    ("output", "finish", "count"),
    [
        ({"token_ids": "<python>1</python> and more"}, "stop", len("<python>1</python>")),
        ({"token_ids": "no stop<|im_end|>"}, "eos", len("no stop") + 1),
        ({"token_ids": "x" * 40}, "length", 40),
        ({"token_ids": "x", "stop_reason": "aborted"}, "ended a request itself", 0),
        ({"token_ids": "x", "log_probs": None}, "0 log-probabilities", 0),
    ],
)
def test_what_a_server_returns_is_a_turn_or_an_error(output: dict[str, Any], finish: str, count: int) -> None:
    tokenizer = byte_level()

    class Server:
        async def generate(self, **_: Any) -> Any:
            ids = tokenizer.encode(output["token_ids"], add_special_tokens=False)
            return TokenOutput(
                **{"log_probs": [-1.0] * len(ids), "stop_reason": "completed", **output, "token_ids": ids}
            )

    backend = VerlBackend(Server(), tokenizer, {"temperature": 1.0}, "vllm", max_length=42)
    told: list[Sequence[float]] = []
    asked = backend.generate(Request((1, 2), 50, ("</python>",), window=5), told.append)
    if not count:
        with pytest.raises(GenerationError, match=finish):
            asyncio.run(asked)
        return
    made = asyncio.run(asked)
    assert (made.finish, len(made.ids), len(made.logprobs), made.entropies[0]) == (finish, count, count, 1.0)
    assert told == [[1.0] * min(5, count)]
