"""A real vLLM server in a process of its own: the suite of all backends, and what is its own."""

import asyncio
import contextlib
import copy
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")

import httpx2
import torch

from arpo_trainer.backends import VLLMServerBackend
from arpo_trainer.backends.base import Backend, GenerationError, Request
from tests.arpo_trainer.backends.conformance import CONTEXTS, BackendConformance, rollout, under_way
from tests.waiting import free_port, wait_for

BOUND = 1e-4  # nats, float32 on both sides


@pytest.fixture(scope="module")
def url(llama_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of `python -m vllm.entrypoints.openai.api_server` on the CPU."""
    port = free_port()
    options = (
        f"--model {llama_folder} --served-model-name tiny --host 127.0.0.1 --port {port} --dtype float32 "
        "--enforce-eager --max-model-len 1024 --max-num-batched-tokens 4096 --gpu-memory-utilization 0.1 "
        "--logprobs-mode processed_logprobs --max-logprobs 20 --enable-prompt-tokens-details "
        "--enable-per-request-metrics"
    )
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *options.split()]
    surroundings = {**os.environ, "VLLM_SERVER_DEV_MODE": "1"}  # only for `load`
    file = tmp_path_factory.mktemp("server") / "log"
    with file.open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env=surroundings, start_new_session=True, cwd=llama_folder
        )
    address = f"http://127.0.0.1:{port}"
    try:
        wait_for(lambda: answers(address) or process.poll() is not None, 300)
        assert process.poll() is None, file.read_text()[-3000:]
        yield address
    finally:
        with contextlib.suppress(ProcessLookupError):  # it may have ended by itself
            os.killpg(process.pid, signal.SIGKILL)  # with its engine
        process.wait()


def answers(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/health", timeout=5).is_success
    except httpx2.HTTPError:
        return False


def load(url: str, folder: Path) -> None:
    """Load other weights."""
    call = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
    httpx2.post(f"{url}/collective_rpc", json=call, timeout=60).raise_for_status()


@pytest.fixture
def one(url: str, tokenizer: Any) -> VLLMServerBackend:
    return VLLMServerBackend([url], tokenizer=tokenizer)


class TestVLLMServerBackend(BackendConformance):
    bound = entropy_bound = BOUND
    estimator = "renormalised"

    @pytest.fixture
    def reference(self, llama: Any) -> Any:
        return llama

    @pytest.fixture
    def backend(self, url: str, tokenizer: Any, eos_id: int) -> VLLMServerBackend:
        return VLLMServerBackend([url], tokenizer=tokenizer, eos_token_ids={eos_id})

    @pytest.fixture(autouse=True)
    def _remember(self, url: str, tmp_path: Path) -> None:
        self.url, self.folder = url, tmp_path

    def load(self, backend: Backend, reference: Any) -> None:
        reference.save_pretrained(self.folder)
        load(self.url, self.folder)


def test_a_stop_string_that_is_a_special_token_is_seen(
    url: str, one: VLLMServerBackend, tokenizer: Any, llama: Any, llama_folder: Path, tmp_path: Path
) -> None:
    special = tokenizer.convert_tokens_to_ids("<file_sep>")
    changed = copy.deepcopy(llama)
    with torch.no_grad():
        best = changed(torch.tensor([CONTEXTS[1]])).logits[0, -1].argmax()
        head = changed.get_output_embeddings().weight
        head[special] = 2 * head[best]
    changed.save_pretrained(tmp_path)
    load(url, tmp_path)
    try:
        got = asyncio.run(rollout(one, [Request(CONTEXTS[1], 5, ("<file_sep>",), temperature=0.0)]))[0]
    finally:
        load(url, llama_folder)
    assert (got.ids, got.finish) == ([special], "stop")


def test_what_the_server_refuses_is_answered_with_the_cure(url: str, one: VLLMServerBackend, tokenizer: Any) -> None:
    wide = VLLMServerBackend([url], tokenizer=tokenizer, topk=21)
    with pytest.raises(GenerationError, match=r"logprobs of 21.*larger --max-logprobs"):
        asyncio.run(rollout(wide, [Request((5, 6), 2)]))
    for length in (1024, 1100):
        with pytest.raises(GenerationError, match="larger --max-model-len"):
            asyncio.run(rollout(one, [Request((7,) * length, 1)]))


def test_a_cancelled_request_is_aborted_on_the_server(url: str, one: VLLMServerBackend) -> None:
    def metric(name: str) -> float:
        found = re.search(rf"^vllm:{name}{{.*}} (\S+)$", httpx2.get(f"{url}/metrics").text, re.MULTILINE)
        return float(found[1])

    async def main() -> None:
        await one.begin()
        task = await under_way(one, Request(CONTEXTS[0], 1000, seed=1, window=1))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await one.end()

    before = metric("generation_tokens_total")
    asyncio.run(main())
    wait_for(lambda: not metric("num_requests_running"), 60)
    assert metric("generation_tokens_total") < before + 900
