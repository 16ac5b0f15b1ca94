"""What top-k log-probabilities and stop strings cost a vLLM engine in Python, beside its GPU.

    .venv-vllm/bin/python -m benchmarks.vllm_engine [--requests 512] [--steps 60] [--rounds 3]

vLLM's own output processor is given tokens and log-probabilities as its model would, without a model, and our backend
takes what comes out. CPU milliseconds of a step of all requests, of three ways to ask:

    TRL         the sampled token's log-probability, no stop strings, one output at the end
    objects     top 20 and stop strings, as vLLM hands them out by itself: objects, decoded, at every token
    arrays      the same as `VLLMEngineBackend` has it

All three decode the text, and neither includes what TRL does with its outputs. Prints medians of interleaved rounds and
writes them to benchmarks/results/vllm_engine.json. Needs `make model setup-vllm`; no GPU.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import vllm
from transformers import AutoTokenizer
from vllm import SamplingParams
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine import EngineCoreOutput, EngineCoreRequest
from vllm.v1.engine.output_processor import OutputProcessor
from vllm.v1.outputs import LogprobsLists

from arpo_trainer.backends.base import EntropyWindow, Request
from arpo_trainer.backends.vllm_engine import VLLMEngineBackend, _EngineRequest
from arpo_trainer.models import get_model

RESULTS = Path(__file__).parent / "results" / "vllm_engine.json"
PROMPT, STOP = [5] * 50, ("</search>", "</python>", "</answer>")
WINDOW, TOPK, WARM = 20, 20, 5


class Engine:
    """vLLM's engine without its core: what the model makes of a step is put into `made`."""

    def __init__(self, tokenizer: Any) -> None:
        self.model_config = SimpleNamespace(logprobs_mode="processed_logprobs", max_model_len=8192)
        self.llm_engine, self.output_processor = self, OutputProcessor(tokenizer, log_stats=False)
        self.made: list[EngineCoreOutput] = []

    def add_request(self, name: str, prompt: Any, params: SamplingParams) -> str:
        """Give vLLM's output processor a request."""
        told = {field: None for field in ("mm_features", "pooling_params", "lora_request", "cache_salt")}
        request = EngineCoreRequest(
            request_id=f"{name}-inside",
            external_req_id=name,
            prompt_token_ids=prompt["prompt_token_ids"],
            sampling_params=params,
            arrival_time=0.0,
            data_parallel_rank=None,
            **told,
        )
        self.output_processor.add_request(request, None, None, 0)
        return request.request_id

    def has_unfinished_requests(self) -> bool:
        """Return whether there is anything to process."""
        return bool(self.made)

    def step(self) -> list[Any]:
        """Process what the model made, as vLLM does after each of its steps."""
        outputs: list[Any] = self.output_processor.process_outputs(self.made).request_outputs
        return outputs


def outputs(names: list[str], texts: np.ndarray, width: int, draw: np.random.Generator) -> list[EngineCoreOutput]:
    """Return what a model's step hands to the output processor."""
    first, columns = draw.integers(0, len(texts), (len(names), 1)), np.arange(width)
    ids = texts[(first + 97 * columns) % len(texts)]
    logprobs = -np.sort(draw.exponential(2, (len(names), width)).astype(np.float32))
    if width > 1:  # the sampled token comes first, and is the most likely one, which comes next
        ids[:, 0], logprobs[:, 0] = ids[:, 1], logprobs[:, 1]
    every = LogprobsLists(ids, logprobs, np.ones(len(names), np.int64))
    return [
        EngineCoreOutput(request_id=name, new_token_ids=[int(ids[n, 0])], new_logprobs=every.slice_request(n, 1))
        for n, name in enumerate(names)
    ]


def trl(engine: Engine, requests: int) -> Callable[[], None]:
    """Add the requests as TRL does; return what happens at a step."""
    for n in range(requests):
        params = SamplingParams(max_tokens=4096, logprobs=0, output_kind=RequestOutputKind.FINAL_ONLY)
        engine.add_request(f"r{n}", {"prompt_token_ids": PROMPT}, params)
    return lambda: engine.step() and None


def ours(engine: Engine, requests: int, arrays: bool) -> Callable[[], None]:
    """Add the requests as our backend does; return what happens at a step, with its share of the entropies."""
    backend, loop = VLLMEngineBackend(engine, topk=TOPK), asyncio.new_event_loop()
    backend._arrays = arrays
    for n in range(requests):
        request = Request(tuple(PROMPT), 4096, STOP, window=WINDOW)
        backend._new.append(
            _EngineRequest(f"r{n}", request, loop.create_future(), EntropyWindow(WINDOW, lambda _: None))
        )
    backend._step(backend._tick())

    def step() -> None:
        _, began, handed = backend._step(backend._tick())
        for output in handed:
            backend._take(output, began)

    return step


def measure(way: str, tokenizer: Any, texts: np.ndarray, requests: int, steps: int) -> float:
    """Return the CPU milliseconds of a step."""
    draw, names = np.random.default_rng(0), [f"r{n}-inside" for n in range(requests)]
    engine = Engine(tokenizer)
    step = trl(engine, requests) if way == "TRL" else ours(engine, requests, way == "arrays")
    seconds = 0.0
    for number in range(WARM + steps):
        engine.made = outputs(names, texts, 1 if way == "TRL" else 1 + TOPK, draw)
        begun = time.thread_time()
        step()
        seconds += (time.thread_time() - begun) * (number >= WARM)
    return 1000 * seconds / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=512)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(get_model())
    plain = [n for n in range(100, 45000) if (text := tokenizer.decode([n])).isascii() and text.strip()]
    readings: dict[str, list[float]] = {"TRL": [], "objects": [], "arrays": []}
    for _ in range(arguments.rounds):
        for way, values in readings.items():
            values.append(measure(way, tokenizer, np.array(plain), arguments.requests, arguments.steps))
    medians = {way: statistics.median(values) for way, values in readings.items()}
    for way, value in medians.items():
        share = value / medians["TRL"]
        print(f"{way:<8} {value:6.1f} CPU ms a step of {arguments.requests} requests, {share:.2f} of TRL's")
    facts = {
        **vars(arguments),
        "vllm": vllm.__version__,
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "ms_step": readings,
        "ratio_to_trl": {way: value / medians["TRL"] for way, value in medians.items()},
    }
    RESULTS.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
