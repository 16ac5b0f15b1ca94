"""Environments in the rollout loop of TRL's `AsyncGRPOTrainer`, which asks a vLLM server; only the server is played."""

import contextlib
import math
import pickle
import queue
import threading
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("trl")

from accelerate import PartialState
from trl.experimental.async_grpo import async_rollout_worker

from arpo_env import EnvFactory
from arpo_env.adapters.trl import trl_spec

from .scripts import KINDS, AnsweringScript, as_text, breaking_sandbox, native_rewards
from .test_trl import RESULT, small_tokenizer

SECOND = "Once more. "


class PlayedServer:
    """What TRL sees of a vLLM server, without a network: `post` stands for a session of aiohttp."""

    def __init__(self, script: AnsweringScript) -> None:
        self.script, self.tokenizer = script, small_tokenizer([script])
        self.attempts: Counter[int] = Counter()

    @contextlib.asynccontextmanager
    async def post(self, url: str, json: Any, **_: Any) -> AsyncIterator[Any]:
        assert url == "http://vllm/v1/completions"
        assert json["model"]
        assert json["return_token_ids"]
        ids = self.tokenizer.encode(self.turn(self.tokenizer.decode(json["prompt"])), add_special_tokens=False)
        choice = {"token_ids": ids, "logprobs": {"token_logprobs": [-0.5] * len(ids)}}

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


def play(factory: EnvFactory, monkeypatch: pytest.MonkeyPatch, before: Any = lambda: None) -> list[Any]:
    """Run TRL's loop, which its worker runs in a process, in a thread: two samples of each of 6 tasks, by task."""
    script = AnsweringScript(EnvFactory(factory.id, **factory.options, protocol="hermes"), 6)
    server = PlayedServer(script)
    spec = trl_spec(EnvFactory(factory.id, **factory.options, protocol="hermes", limit=6), answer_tool=True)

    @contextlib.asynccontextmanager
    async def session(**_: Any) -> AsyncIterator[Any]:
        yield server

    PartialState()  # for the logger
    names = {"ClientSession": session, "TCPConnector": dict, "ClientTimeout": dict}
    monkeypatch.setattr(async_rollout_worker, "aiohttp", SimpleNamespace(**names), raising=False)
    monkeypatch.setattr(async_rollout_worker, "_RETRYABLE_HTTP_ERRORS", (), raising=False)
    buffer, failure, failed = queue.Queue[Any](), queue.Queue[Any](), threading.Event()
    before()
    loop = async_rollout_worker._AsyncRolloutLoop(
        model_name="policy",
        dataset=spec.train_dataset,
        reward_funcs=spec.reward_funcs,
        environment_factory=spec.environment_factory,
        processing_class=server.tokenizer,
        eos_token_ids=[server.tokenizer.eos_token_id],
        rollout_buffer=buffer,
        model_version_value=SimpleNamespace(value=0),
        heartbeat_value=SimpleNamespace(value=time.time()),
        failed_event=failed,
        exception_info_queue=failure,
        metrics_queue=queue.Queue(),
        vllm_server_url="http://vllm",
        num_generations=2,
        max_inflight_tasks=4,
        max_tokens=500,
        max_tool_calling_iterations=spec.max_tool_calling_iterations,
    )
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    taken: list[Any] = []
    while len(taken) < 12:
        assert not failed.is_set(), failure.get_nowait()
        with contextlib.suppress(queue.Empty):
            taken += [each for each in [buffer.get(timeout=1)] if each.group_id < 6]  # others are of the next epoch
    loop._loop.call_soon_threadsafe(loop._stop_event.set)
    thread.join(30)
    assert not thread.is_alive()
    return sorted(taken, key=lambda each: each.group_id)


def test_rewards_are_those_of_the_environment(isolation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    factory = EnvFactory("arpo/Arithmetic-v0", level=2)
    rewards: dict[int, set[float]] = defaultdict(set)
    for sample in play(factory, monkeypatch):
        rewards[sample.group_id].add(sample.metrics["reward"])
    maker = trl_spec(factory, limit=6, answer_tool=True).environment_factory
    assert pickle.loads(pickle.dumps(maker)) == maker  # TRL's worker is a process
    script = AnsweringScript(EnvFactory(factory.id, **factory.options, protocol="hermes"), 6)
    # TRL does not tell the environment of calls of unknown tools
    right = [1.0 if kind == "unknown tool" else each for each, kind in zip(native_rewards(script), KINDS, strict=True)]
    assert rewards == {number: {right[number], min(right[number], 0.0)} for number in range(6)}


def test_a_broken_sandbox_is_never_a_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    with breaking_sandbox() as (factory, end):
        samples = play(factory, monkeypatch, end)
    void = {each.group_id for each in samples if math.isnan(each.metrics["reward"])}
    assert void == {number for number, kind in enumerate(KINDS) if kind not in ("malformed", "unknown tool")}
    assert all(each.advantage == 0 for each in samples if each.group_id in void)
