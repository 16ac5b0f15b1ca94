"""A vLLM engine on the CPU. All that this build of vLLM needs, and a GPU does not, is here."""

import contextlib
import gc
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB; else it wants nearly all memory of the machine
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")

# float32 on both sides, so that stale weights show; by itself the engine would take bfloat16.
ENGINE: dict[str, Any] = {"dtype": "float32", "enforce_eager": True, "gpu_memory_utilization": 0.1}
# Requests with a seed whose prompt is computed in pieces kill the engine on the CPU: batches here stay below this.
BATCH = 4096


@pytest.fixture(scope="session", autouse=True)
def plain_linears() -> None:
    """Weights stay what they are: packed for oneDNN they cannot be loaded again, and a tied head would stay stale."""
    if importlib.util.find_spec("vllm") is None:
        return
    import vllm._custom_ops as ops

    ops._supports_onednn = False


@contextlib.contextmanager
def eager_trl() -> Iterator[None]:
    """Let TRL start its engine as the tests need it, and without compiling, which takes a minute here."""
    from trl.generation import vllm_generation

    def eager(*args: Any, **settings: Any) -> Any:
        return original(*args, **{**settings, **ENGINE})

    original = vllm_generation.LLM
    with mock.patch.object(vllm_generation, "LLM", eager):
        yield


@pytest.fixture(scope="session")
def tokenizer(whole_tokenizer: Any) -> Any:
    return whole_tokenizer


@pytest.fixture(scope="package")
def llama_folder(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.conftest import tiny_llama

    folder = tmp_path_factory.mktemp("llama")
    tiny_llama(len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="package")
def llama(llama_folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(llama_folder, dtype=torch.float32).eval()


@pytest.fixture(scope="package")
def llm(llama_folder: Path) -> Iterator[Any]:
    """One engine for all: it takes ten seconds to start."""
    from vllm import LLM

    engine = LLM(
        str(llama_folder),
        max_model_len=1024,
        max_num_batched_tokens=BATCH,
        logprobs_mode="processed_logprobs",
        **ENGINE,
    )
    yield engine
    del engine
    gc.collect()


def load_weights(llm: Any, model: torch.nn.Module) -> None:
    inside = llm.llm_engine.model_executor.driver_worker.model_runner.model
    for name, value in model.named_parameters():
        inside.load_weights([(name, value.data)])
