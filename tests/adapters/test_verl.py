"""verl's own worker, data set class and tool loop play our environments; only the language model is a script."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl")

import numpy as np
import yaml
from hydra import compose, initialize_config_module
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen2Config
from verl.experimental.agent_loop import AgentLoopWorker
from verl.protocol import DataProto
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn
from verl.workers.rollout.replica import TokenOutput

from arpo_env import EnvFactory, ToolEnv
from arpo_env.adapters.task_rows import task_rows, write_rows
from arpo_trainer.adapters.verl_agent_loop import EpisodeFailed
from arpo_trainer.backends.base import Generation, Request
from arpo_trainer.rollout.engine import Engine
from arpo_trainer.rollout.settings import RolloutSettings

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
LENGTHS = {"prompt": 4096, "response": 6144}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tokenizer whose merges cross the borders of tags and lines, and a config for verl to read."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    texts = [TEMPLATE, "</python>\n<result>\n7\n</result>\n<think>Step 1.</think><python>print(1)</python>"] * 3
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet))
    words = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in words])
    tokenizer.add_tokens([AddedToken(word, normalized=False) for word in ("<tool_call>", "</tool_call>")])
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    made.chat_template = TEMPLATE
    folder = tmp_path_factory.mktemp("model")
    made.save_pretrained(folder)
    Qwen2Config(vocab_size=len(made), num_hidden_layers=1, architectures=["Qwen2ForCausalLM"]).save_pretrained(folder)
    return folder


class StandIn:
    """In the place of verl's `LLMServerClient`: the same call, answered by a script.

    Args:
        script: the policy.
        tokenizer: of the model.
        surprise: minus the log-probability of each token, by turn; the last one holds for all later turns.
    """

    def __init__(self, script: Script, tokenizer: Any, surprise: Sequence[float] = (0.5,)) -> None:
        self.script, self.tokenizer, self.surprise = script, tokenizer, surprise
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
    """verl's own configuration."""
    path = folder / "agent_loops.yaml"
    target = "arpo_trainer.adapters.verl_agent_loop.ArpoAgentLoop"
    path.write_text(yaml.safe_dump([{"name": "arpo_agent", "_target_": target, **loop}]))
    rollout = "actor_rollout_ref.rollout"
    given = {
        "actor_rollout_ref.model.path": model,
        f"{rollout}.name": "vllm",
        f"{rollout}.agent.agent_loop_config_path": path,
        f"{rollout}.prompt_length": LENGTHS["prompt"],
        f"{rollout}.response_length": LENGTHS["response"],
        "data.max_prompt_length": LENGTHS["prompt"],
        "data.filter_overlong_prompts_workers": 1,
        "+data.cache_dir": folder,
        **overrides,
    }
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", [f"{name}={value}" for name, value in given.items()])


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
        """As verl's trainer makes it."""
        batch = DataProto.from_single_dict(collate_fn([self.rows[number] for number in numbers]))
        batch.non_tensor_batch["uid"] = np.array([f"uid-{number}" for number in numbers], dtype=object)
        return batch.repeat(repeat_times=n, interleave=True)

    def play(self, numbers: Sequence[int], n: int = 1) -> DataProto:
        async def run() -> DataProto:
            worker = AgentLoopWorker(self.config, self.client)
            return await worker.generate_sequences(self.batch(numbers, n))

        return asyncio.run(run())


def rewards(output: DataProto) -> list[float]:
    return [round(value, 5) for value in output.batch["rm_scores"].sum(-1).tolist()]


def unpadded(output: DataProto, number: int) -> tuple[list[int], list[int], list[int]]:
    """Prompt ids, response ids and response mask of a row."""
    row, width = output.batch[number], LENGTHS["prompt"]
    seen = row["attention_mask"].bool()
    inside = seen[width:]
    return (
        row["prompts"][seen[:width]].tolist(),
        row["responses"][inside].tolist(),
        row["response_mask"][inside].tolist(),
    )


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[ToolEnv]:
    """Environments that were started and not closed."""
    living: list[ToolEnv] = []
    start, close, fork = ToolEnv.areset, ToolEnv.aclose, ToolEnv.afork

    async def areset(env: ToolEnv, **options: Any) -> Any:
        living.append(env)
        return await start(env, **options)

    async def afork(env: ToolEnv, n: int = 1) -> list[ToolEnv]:
        copies = await fork(env, n)
        living.extend(copies)
        return copies

    async def aclose(env: ToolEnv) -> None:
        await close(env)
        living[:] = [each for each in living if each is not env]

    for name, function in (("areset", areset), ("afork", afork), ("aclose", aclose)):
        monkeypatch.setattr(ToolEnv, name, function)
    return living


@pytest.mark.parametrize("protocol", ["arpo-tags", "hermes"])
@pytest.mark.parametrize("env_id", sets())
def test_rewards_are_those_of_the_environment(
    env_id: str, protocol: str, model: Path, tmp_path: Path, isolation: str, opened: list[ToolEnv]
) -> None:
    script = script_for(env_id, protocol)
    output = Verl(model, tmp_path, script, {}).play(range(script.episodes))
    assert rewards(output) == [round(value, 5) for value in native_rewards(script)]
    assert not opened
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
    settings = RolloutSettings("grpo", 1, 1, max_completion_length=LENGTHS["response"], max_turn_length=None)
    engine = Engine(Scripted(peer.client), peer.tokenizer, script.factory(), settings)
    trees = asyncio.run(engine.rollout(script.tasks))
    for number, tree in enumerate(trees):
        row = tree.row(0)
        assert unpadded(output, number) == (tree.prompt_ids, row.ids, row.mask)
        logprobs = output.batch["rollout_log_probs"][number][: len(row.ids)].tolist()
        assert logprobs == row.logprobs
    assert {0, 1} <= {bit for tree in trees for bit in tree.row(0).mask}
