"""The models of an evaluation: what each is, and how it is opened for generation.

    EvalModel("smollm2", "transformers", "smollm2-135m-instruct")
    EvalModel("qwen", "vllm-server", "Qwen/Qwen2.5-7B-Instruct", urls=("http://127.0.0.1:8000",))
    EvalModel("gpt", "endpoint", "Qwen/Qwen2.5-7B-Instruct", urls=("https://host/v1",), name="gpt-4.1-mini")

The id of a model on a server or behind an endpoint is that of its tokenizer. `checkpoints` lists the checkpoints of a
trainer's output folder.
"""

from __future__ import annotations

import gc
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from arpo_env.net import strip_credentials
from arpo_trainer.demo_model import resolve_model
from arpo_trainer.optional_dependencies import warn_of_vllm
from arpo_trainer.validation import check_name

if TYPE_CHECKING:
    from arpo_trainer.backends.base import Backend

ModelKind = Literal["transformers", "vllm", "vllm-server", "endpoint"]
KINDS: tuple[ModelKind, ...] = ("transformers", "vllm", "vllm-server", "endpoint")
SERVED: tuple[ModelKind, ...] = ("vllm-server", "endpoint")  # by another process
_TOPK = 20  # log-probabilities that entropies are estimated from


@dataclass(frozen=True)
class EvalModel:
    """One model.

    Attributes:
        label: its name in tables and files.
        kind: "transformers", "vllm" (an engine in this process), "vllm-server" or "endpoint".
        model_id: a folder or a hub id; of a served model, that of its tokenizer.
        urls: addresses of the servers, or of the endpoint.
        name: of the model on the servers or at the endpoint.
        price: US dollars for a million tokens of input, of output, and of input from a cache; None if not known.

    Raises:
        ValueError: the kind is unknown, or the addresses do not go with it.
    """

    label: str
    kind: ModelKind
    model_id: str
    urls: tuple[str, ...] = ()
    name: str = ""
    price: tuple[float, float, float] | None = None

    def __post_init__(self) -> None:
        check_name("kind", self.kind, KINDS)
        served = self.kind in SERVED
        if served != bool(self.urls) and self.kind != "endpoint":
            raise ValueError(f"a model of kind {self.kind!r} {'needs an address' if served else 'takes no address'}")
        if self.kind == "endpoint" and not self.name:
            raise ValueError("a model at an endpoint needs its name there: --endpoint-model NAME")

    @property
    def recorded_as(self) -> str:
        """The name of the weights in a recording: labels of different runs may be equal, as in "checkpoint-100"."""
        return self.name or self.model_id

    def facts(self) -> dict[str, Any]:
        """Return the model as plain data for run.json, without passwords and keys that addresses may contain."""
        shown = {"kind": self.kind, "path": self.model_id, "name": self.name}
        price = dict(zip(("input", "output", "cached"), self.price, strict=True)) if self.price else None
        return {**shown, "urls": [strip_credentials(url) for url in self.urls], "price": price}


def labelled(models: Sequence[EvalModel]) -> list[EvalModel]:
    """Return the models with labels that differ: parents of their paths are added where they do not.

    Raises:
        ValueError: a model occurs twice.
    """
    if len(set(models)) < len(models):
        twice = next(model for model, count in Counter(models).items() if count > 1)
        raise ValueError(f"the model {twice.label!r} is given twice")
    depth, found = 1, list(models)
    while len({model.label for model in found}) < len(found) and depth < 8:
        depth += 1
        same = Counter(model.label for model in found)
        found = [replace(m, label=_last(m.model_id, depth)) if same[m.label] > 1 else m for m in found]
    # such as one model on two servers
    names = Counter(model.label for model in found)
    return [
        replace(model, label=f"{model.label}#{number}") if names[model.label] > 1 else model
        for number, model in enumerate(found, 1)
    ]


def model_label(path: str) -> str:
    """Return the label of a folder or hub id: its last part."""
    return _last(path, 1)


def checkpoints(path: str) -> list[str]:
    """Return the checkpoints in a trainer's output folder by step, or the path itself if it is no such folder.

    Raises:
        FileNotFoundError: it is a folder with neither a model nor checkpoints.
    """
    folder = Path(path).expanduser()
    if not folder.is_dir() or any((folder / name).is_file() for name in ("config.json", "adapter_config.json")):
        return [path]
    found = [one for one in folder.glob("checkpoint-*") if re.fullmatch(r"checkpoint-\d+", one.name) and one.is_dir()]
    if not found:
        model = f"; give {str(folder / 'model')!r}" if (folder / "model").is_dir() else ""
        raise FileNotFoundError(f"{path!r} holds neither a model (config.json) nor checkpoints (checkpoint-N){model}")
    return [str(one) for one in sorted(found, key=lambda one: int(one.name.rpartition("-")[2]))]


def load_tokenizer(model: EvalModel) -> Any:
    """Return the tokenizer of a model."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(resolve_model(model.model_id))


def context_length(path: str) -> int | None:
    """Return the most tokens of context that a model was made for, or None if its configuration does not say."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(resolve_model(path))
    except (OSError, ValueError):  # a folder with a tokenizer alone
        return None
    length = getattr(config.get_text_config(), "max_position_embeddings", None)
    return length if isinstance(length, int) else None


def open_backend(model: EvalModel, tokenizer: Any) -> Backend:
    """Load a model, or connect to its servers, for generation."""
    if model.kind == "transformers":
        return _transformers(model, tokenizer)
    if model.kind == "vllm":
        return _vllm(model)
    if model.kind == "vllm-server":
        from arpo_trainer.backends import VLLMServerBackend

        return VLLMServerBackend(model.urls, tokenizer=tokenizer, model=model.name or None)
    from arpo_trainer.backends import EndpointBackend

    return EndpointBackend(model.name, next(iter(model.urls), None), tokenizer=tokenizer)


def free_memory() -> None:
    """Give back the memory of models that nothing refers to any more: the next one needs it."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _transformers(model: EvalModel, tokenizer: Any) -> Backend:
    import torch
    from transformers import AutoModelForCausalLM

    from arpo_trainer.backends import transformers_backend

    gpu = torch.cuda.is_available()
    loaded = AutoModelForCausalLM.from_pretrained(resolve_model(model.model_id), dtype="auto" if gpu else torch.float32)
    return transformers_backend(loaded.to("cuda" if gpu else "cpu").eval(), tokenizer)


def _vllm(model: EvalModel) -> Backend:
    from vllm import LLM

    from arpo_trainer.backends import VLLMEngineBackend

    warn_of_vllm()
    # the backend reads log-probabilities of the distribution that is sampled from
    engine = LLM(resolve_model(model.model_id), logprobs_mode="processed_logprobs", max_logprobs=_TOPK)
    return VLLMEngineBackend(engine, topk=_TOPK)


def _last(path: str, parts: int) -> str:
    names = [name for name in path.rstrip("/").split("/") if name not in ("", ".", "..", "~")]
    return "/".join(names[-parts:]) or path
