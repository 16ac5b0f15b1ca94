"""Parts that several tests share. They are real: a real sandbox, a real tokenizer, a real (tiny) model."""

import gc
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # as in a job in the background; programs that tests start heed it
    signal.signal(signal.SIGINT, signal.default_int_handler)

import gymnasium as gym
import pytest

import arpo_env  # noqa: F401  (registers the environments)
from arpo_env import ToolEnv

SHARED = Path(__file__).resolve().parents[2] / "shared"


# the units of work that take minutes: where several processes run the tests, one that comes last leaves the others idle
LONG = (
    "tests/sandbox/",
    "tests/examples/",
    "tests/arpo_trainer/training/",
    "tests/arpo_trainer/rollout/",
    "tests/test_docs.py",
    "tests/test_site.py",
    "tests/arpo_trainer/evaluation/",
    "tests/laboratory/",
    "tests/adapters/",
    "tests/arpo_trainer/",
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """See `ByFile`."""
    from tests.by_file import ByFile

    config.option.loadscopereorder = False
    return ByFile(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let what takes long come first, where several processes run the tests."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: next((n for n, path in enumerate(LONG) if item.nodeid.startswith(path)), len(LONG)))


def pytest_collection_finish() -> None:
    """Let no collection of garbage look through what has been imported: every training asks for one."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data beside the project, where there is one."""
    if not SHARED.is_dir():
        pytest.skip("the shared folder with data and test vectors is not here")
    return SHARED


@pytest.fixture(scope="session")
def vectors(shared: Path) -> list[dict[str, Any]]:
    """Numbers computed independently from the papers' formulas."""
    path = shared / "spec" / "vectors.json"
    if not path.is_file():
        pytest.skip(f"{path} is not here")
    return list(json.loads(path.read_text(encoding="utf-8"))["vectors"])


@pytest.fixture
def own_names() -> Iterator[None]:
    """Forgets the environments, task sources and protocols that a test registers, and its modules own_* and my_envs."""
    from arpo_env import protocols, registration
    from envs_registry import sources, spec
    from envs_registry.generated import arithmetic, multihop  # noqa: F401  (generators register themselves on import)

    tables: list[dict[Any, Any]] = [
        gym.registry,
        spec._SPECS,
        sources._LOADERS,
        registration._origins,
        protocols._registered,
    ]
    before, path = [dict(table) for table in tables], list(sys.path)
    yield
    sys.path[:] = path
    for table, kept in zip(tables, before, strict=True):
        table.clear()
        table.update(kept)
    for name in [name for name in sys.modules if name.startswith(("own_", "my_envs"))]:
        del sys.modules[name]


@pytest.fixture(scope="session")
def isolation() -> str:
    """Opens the process-wide sandbox, and says what it is; skips where there is none, unless one was named."""
    from sandbox import SandboxUnavailable, default_sandbox

    try:
        return default_sandbox().isolation
    except SandboxUnavailable as error:
        if os.environ.get("ARPO_SANDBOX", "auto") != "auto":
            raise
        pytest.skip(f"no sandbox on this machine: {error}")


@pytest.fixture
def env(isolation: str) -> Any:
    """An arithmetic environment of level 3: tasks with variables in the interpreter."""
    made = gym.make("arpo/Arithmetic-v0", level=3)
    yield made
    made.close()


@pytest.fixture(scope="session")
def model_folder() -> Path:
    """SmolLM2-135M-Instruct as a Hugging Face folder; fetched on first use."""
    from arpo_trainer.models import get_model

    try:
        return get_model()
    except RuntimeError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def whole_tokenizer(model_folder: Path) -> Any:
    """SmolLM2's, where the number of tokens matters; as `tokenizer` for a folder or a module that says so."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model_folder, padding_side="left")


@pytest.fixture(scope="session")
def tokenizer(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """SmolLM2's with fewer tokens, for tiny models."""
    from transformers import AutoTokenizer

    from tests.small_tokenizer import write_small_tokenizer

    folder = tmp_path_factory.mktemp("tokenizer")
    write_small_tokenizer(model_folder, folder)
    return AutoTokenizer.from_pretrained(folder, padding_side="left")


@pytest.fixture(scope="session")
def served_model(model_folder: Path, tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to name beside an endpoint that has the model: its configuration, and a tokenizer that loads quickly."""
    folder = tmp_path_factory.mktemp("served-model")
    tokenizer.save_pretrained(folder)
    for name in ("config.json", "generation_config.json"):
        (folder / name).write_bytes((model_folder / name).read_bytes())
    return folder


def tiny_llama(vocabulary: int, seed: int = 0) -> Any:
    """A Llama of two layers with random weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    sizes = {"vocab_size": vocabulary, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "max_position_embeddings": 1024}
    tokens = {"eos_token_id": 2, "pad_token_id": 2, "bos_token_id": 1}
    config = LlamaConfig(**sizes, **heads, **tokens, tie_word_embeddings=False, initializer_range=0.2)
    return LlamaForCausalLM(config)


@pytest.fixture(scope="session")
def tiny_policy(tokenizer: Any, isolation: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that has learned to write the tags and to call the tool: a folder.

    Where several processes run the tests, one of them trains it for all.
    """
    from filelock import FileLock

    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "tiny-policy"
    with FileLock(f"{folder}.lock", timeout=300):
        if not folder.exists():
            made = tmp_path_factory.mktemp("tiny-policy")
            train_tiny_policy(tokenizer, made)
            made.rename(folder)
    return folder


def train_tiny_policy(tokenizer: Any, folder: Path) -> None:
    """Teach a tiny model with solved tasks, and write it and its tokenizer into a folder."""
    from arpo_trainer.run.sft_run import cold_start, demonstrated_traces, demonstrations

    env = gym.make("arpo/Arithmetic-v0", level=3)
    assert isinstance(env, ToolEnv)
    examples = list(demonstrations(env, tokenizer, demonstrated_traces(env, 16, tool_share=0.8)))
    env.close()
    model = tiny_llama(len(tokenizer), seed=2)  # one whose trees branch where tests want to see it
    cold_start(model, tokenizer, examples, folder, epochs=24, batch_size=8, learning_rate=2e-2, bf16=False)
    assert "forward" not in vars(model)  # neither autocast nor a fused head is left
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.fixture(scope="session")
def byte_lm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with random weights, whose tokens are bytes: a folder that no test changes."""
    pytest.importorskip("torch")
    from tests.arpo_trainer.byte_policy import write_byte_policy

    return write_byte_policy(tmp_path_factory.mktemp("byte-policy"))


@pytest.fixture(scope="session")
def byte_tokenizer(byte_lm: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(byte_lm)


@pytest.fixture
def tiny_model(tiny_policy: Path) -> Any:
    """A fresh copy of the tiny policy, in float32."""
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(tiny_policy, dtype=torch.float32)
