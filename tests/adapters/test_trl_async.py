"""Environments in TRL's `AsyncGRPOTrainer`: its rollout loop and real steps on the CPU; only vLLM is played.

vLLM is a tiny Qwen3 behind `/v1/completions`, which writes what a script says, with its own log-probabilities. It gets
the trainer's weights, so that the ratio of the two is 1 if prompts, tokens and weights all agree.
"""

import contextlib
import itertools
import math
import pickle
import queue
import threading
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("trl")

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import Qwen3Config, Qwen3ForCausalLM
from trl.experimental.async_grpo import (
    AsyncGRPOConfig,
    AsyncGRPOTrainer,
    async_grpo_trainer,
    async_rollout_worker,
    packing,
)

from arpo_env import EnvFactory
from arpo_env.adapters.trl import TRLSpec, trl_spec

from .scripts import KINDS, AnsweringScript, as_text, breaking_sandbox, native_rewards
from .test_trl import RESULT, small_tokenizer

SECOND = "Once more. "


class PlayedServer:
    """What TRL sees of a vLLM server, without a network: `post` stands for a session of aiohttp."""

    def __init__(self, folder: Path, script: AnsweringScript) -> None:
        self.script, self.tokenizer = script, small_tokenizer([script])
        sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "head_dim": 8}
        config = Qwen3Config(vocab_size=len(self.tokenizer), num_attention_heads=2, num_key_value_heads=1, **sizes)
        self.model = Qwen3ForCausalLM(config).eval()
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        self.attempts: Counter[int] = Counter()
        self.pushes = 0

    @contextlib.asynccontextmanager
    async def post(self, url: str, json: Any, **_: Any) -> AsyncIterator[Any]:
        assert url == "http://vllm/v1/completions"
        assert json["model"]
        assert json["return_token_ids"]
        ids = self.tokenizer.encode(self.turn(self.tokenizer.decode(json["prompt"])), add_special_tokens=False)
        given = torch.tensor([[*json["prompt"], *ids]])
        with torch.no_grad():
            log_probs = self.model(given).logits[0, -len(ids) - 1 : -1].log_softmax(-1)
        chosen = log_probs.gather(1, torch.tensor(ids)[:, None])[:, 0].tolist()
        choice = {"token_ids": ids, "logprobs": {"token_logprobs": chosen}}

        async def answer() -> Any:
            return {"choices": [choice]}

        yield SimpleNamespace(raise_for_status=lambda: None, json=answer)

    def turn(self, prompt: str) -> str:
        """The script's turn; the second attempt at a task answers wrongly and goes on calling a tool."""
        turn, number = prompt.count("<|im_start|>assistant\n") - 1, self.script.number_of(prompt)
        self.attempts[number] += turn == 0
        second = self.attempts[number] % 2 == 0 if turn == 0 else SECOND in prompt
        results = RESULT.findall(prompt) or [""]
        message = self.script.turn(number, turn, results[-1])
        if second and turn < 4 and any("The answer was taken" in each for each in results):
            message = self.script._call(number, turn)
        elif second and "\\boxed" in str(message):
            message = self.script._call(number, turn, "answer", answer="-987654321")
        return f"{SECOND if second else ''}{as_text(message)}<|im_end|>"

    # the documented interface of a backend that sends weights

    def send_weights(self, weights: Iterator[tuple[str, torch.Tensor]]) -> None:
        missing, unexpected = self.model.load_state_dict({name: each.clone() for name, each in weights}, strict=False)
        assert not unexpected
        assert set(missing) <= {"lm_head.weight"}
        self.pushes += 1

    def init_weight_transfer(self) -> None: ...

    pause = resume = destroy = init_weight_transfer


class ThreadedWorker:
    """TRL's rollout loop in a thread of this process, where its own worker starts a process."""

    def __init__(self, spec: TRLSpec, server: PlayedServer) -> None:
        self.rollout_buffer: Any = queue.Queue()
        self.metrics_queue: Any = queue.Queue()
        self.failure: Any = queue.Queue()
        self.version = SimpleNamespace(value=0)
        self.failed = threading.Event()
        self.loop = async_rollout_worker._AsyncRolloutLoop(
            model_name="policy",
            dataset=spec.train_dataset,
            reward_funcs=spec.reward_funcs,
            environment_factory=spec.environment_factory,
            processing_class=server.tokenizer,
            eos_token_ids=[server.tokenizer.eos_token_id],
            rollout_buffer=self.rollout_buffer,
            model_version_value=self.version,
            heartbeat_value=SimpleNamespace(value=time.time()),
            failed_event=self.failed,
            exception_info_queue=self.failure,
            metrics_queue=self.metrics_queue,
            vllm_server_url="http://vllm",
            num_generations=2,
            max_inflight_tasks=4,
            max_tokens=500,
            max_tool_calling_iterations=spec.max_tool_calling_iterations,
        )
        self.thread = threading.Thread(target=self.loop.run, daemon=True)

    def start(self) -> None:
        self.thread.start()

    def stop(self) -> None:
        self.loop._loop.call_soon_threadsafe(self.loop._stop_event.set)
        self.thread.join(30)
        assert not self.thread.is_alive()

    def update_model_version(self, model_version: int) -> None:
        self.version.value = model_version

    def check_health(self, stale_after_s: float) -> None:
        assert not self.failed.is_set(), self.failure.get_nowait()

    def samples(self, count: int) -> list[Any]:
        """What the loop has scored, by the order of tasks."""
        self.start()
        taken = []
        while len(taken) < count:
            self.check_health(0)
            with contextlib.suppress(queue.Empty):
                taken.append(self.rollout_buffer.get(timeout=1))
        self.stop()
        return sorted(taken, key=lambda each: each.group_id)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[AnsweringScript], PlayedServer]:
    from accelerate import PartialState

    PartialState()  # as TRL's worker does in its process, for the logger

    def make(script: AnsweringScript) -> PlayedServer:
        server = PlayedServer(tmp_path, script)

        @contextlib.asynccontextmanager
        async def session(**_: Any) -> AsyncIterator[Any]:
            yield server

        names = {"ClientSession": session, "TCPConnector": dict, "ClientTimeout": dict}
        monkeypatch.setattr(async_rollout_worker, "aiohttp", SimpleNamespace(**names), raising=False)
        monkeypatch.setattr(async_rollout_worker, "_RETRYABLE_HTTP_ERRORS", (), raising=False)
        return server

    return make


def attention_of_segments(
    query: Any, key: Any, value: Any, starts_q: Any, starts_k: Any, *_: Any, softmax_scale: float, **__: Any
) -> Any:
    """FlashAttention's function for packed segments, whose kernel needs a GPU."""
    parts, copies = [], query.shape[1] // key.shape[1]
    for (first, end), (start, stop) in zip(
        *map(itertools.pairwise, (starts_q.tolist(), starts_k.tolist())), strict=True
    ):
        mask = torch.ones(end - first, stop - start, dtype=torch.bool).tril(stop - start - end + first)
        keys, values = (each[start:stop].repeat_interleave(copies, 1).transpose(0, 1) for each in (key, value))
        queries = query[first:end].transpose(0, 1)
        found = scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=softmax_scale)
        parts.append(found.transpose(0, 1))
    return torch.cat(parts)


def limited(script: AnsweringScript) -> TRLSpec:
    return trl_spec(EnvFactory(script.factory.id, **script.factory.options, limit=script.episodes), answer_tool=True)


def test_two_steps_train_on_the_rewards_of_the_environment(
    serve: Any, isolation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = SimpleNamespace(flash_attn_varlen_func=attention_of_segments)
    monkeypatch.setattr(packing, "_flash_attn", lambda: kernel)
    monkeypatch.setattr(async_grpo_trainer, "get_peak_flops_per_device", lambda *_: None)  # asks CUDA
    script = AnsweringScript(EnvFactory("arpo/Arithmetic-v0", level=2, protocol="hermes"), 6)
    server, spec = serve(script), limited(script)
    assert pickle.loads(pickle.dumps(spec.environment_factory)) == spec.environment_factory  # TRL starts a process
    worker = ThreadedWorker(spec, server)
    seen: list[Any] = []
    get, before = worker.rollout_buffer.get, {name: each.clone() for name, each in server.model.state_dict().items()}

    def noted(**options: Any) -> Any:
        seen.append(get(**options))
        return seen[-1]

    worker.rollout_buffer.get = noted
    args = AsyncGRPOConfig(
        str(tmp_path / "out"),
        max_steps=2,
        per_device_train_batch_size=6,
        token_budget=-1,  # as many samples as that
        learning_rate=0.01,
        warmup_steps=0,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        bf16=False,
        dtype="float32",
        gradient_checkpointing=False,
        disable_tqdm=True,
    )
    trainer = AsyncGRPOTrainer(
        str(tmp_path),
        args=args,
        processing_class=server.tokenizer,
        rollout_worker=worker,
        weight_transfer=server,
        **spec.kwargs,
    )
    trainer.train()
    assert trainer.state.global_step == 2
    logs = [line for line in trainer.state.log_history if "ratio" in line]
    assert logs[0]["ratio"] == pytest.approx(1, abs=1e-3)
    assert all(line["grad_norm"] > 0 for line in logs)
    assert all(math.isfinite(line["loss"]) for line in logs)
    assert server.pushes == 3, "at the start and after each step"
    assert any(not torch.equal(old, server.model.state_dict()[name]) for name, old in before.items())
    rewards: dict[int, set[float]] = defaultdict(set)
    for sample in seen:
        rewards[sample.group_id % script.episodes].add(sample.metrics["reward"])
    assert {0, 1, 2} <= rewards.keys()
    # TRL does not tell the environment of calls of unknown tools
    right = [1.0 if kind == "unknown tool" else each for each, kind in zip(native_rewards(script), KINDS, strict=True)]
    assert rewards == {number: {right[number], min(right[number], 0.0)} for number in rewards}


def test_a_broken_sandbox_is_never_a_reward(serve: Any) -> None:
    with breaking_sandbox() as (factory, end):
        script = AnsweringScript(EnvFactory(factory.id, protocol="hermes", **factory.options), 6)
        server = serve(script)
        spec = limited(script)
        end()
        samples = ThreadedWorker(spec, server).samples(12)
    void = {each.group_id for each in samples if math.isnan(each.metrics["reward"])}
    assert void == {number for number, kind in enumerate(KINDS) if kind not in ("malformed", "unknown tool")}
    assert all(each.advantage == 0 for each in samples if each.group_id in void)
