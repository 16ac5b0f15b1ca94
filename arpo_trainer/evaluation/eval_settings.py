"""What decides an evaluation, as plain data that run.json keeps: `EvalSettings`, and its models (`EvalModel`).

The defaults of sampling are those of the papers' evaluation: temperature 0.6, top_p 0.95, repetition penalty 1.1, 4,096
tokens a turn, 32,768 in all (ARPO's published evaluation code; arXiv 2507.19849, app. C).
"""

from __future__ import annotations

import dataclasses
import gc
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from arpo_env.net import redact_urls, strip_credentials
from arpo_trainer.backends.base import Backend
from arpo_trainer.inference_tools import InferenceSettings
from arpo_trainer.models import resolve_model
from arpo_trainer.optional_dependencies import warn_of_vllm
from arpo_trainer.rollout.settings import RolloutSettings
from arpo_trainer.validation import check_lowest, check_name, check_types, nearest_names

PAPER_SAMPLING: dict[str, Any] = {"temperature": 0.6, "top_p": 0.95, "repetition_penalty": 1.1, "max_turn_length": 4096}
PAPER_CONTEXT = 32_768
PROMPT_ROOM = 4096  # tokens of the context that are left to the prompt
TREE_SIZE = 8  # trajectories of a tree, where nothing else is set
# a resumed run may change these, which decide no episode
SPEED = ("concurrency", "limits", "max_broken", "cache", "cache_mode")
_AMOUNTS = ("tasks", "samples")


@dataclass(frozen=True)
class EvalSettings:
    """The settings of an evaluation.

    Attributes:
        environments: ids of environments and names of suites.
        env_options: options of all these environments.
        models: the facts of the models by label (`EvalModel.facts`).
        tasks: N tasks of each environment; None is all.
        first_task: the number of the first one; the others follow it.
        samples: independent samples of each task. With an algorithm that branches, a task has one tree.
        algorithm: "grpo" for independent samples, or one that branches, such as "arpo".
        seed: of everything that is drawn.
        rollout: other fields of `RolloutSettings`, such as temperature; `PAPER_SAMPLING` fills what is missing.
        chat_template_kwargs: arguments for the chat template, such as {"enable_thinking": False}.
        concurrency: maximum number of episodes at once.
        limits: maximum number of operations of one kind at once, such as {"python": 8}.
        max_broken: largest share of episodes that may break before the command ends with an error status.
        cache: file that records what was generated and asked outside.
        cache_mode: "record" or "replay"; a replay needs no network and no weights.
        inference: fields of `InferenceSettings`: tools at inference time, such as {"debugger": 1, "backtracer": 1}.

    Raises:
        ValueError: a setting is unknown, has the wrong type, or cannot work.
    """

    environments: tuple[str, ...]
    env_options: dict[str, Any] = field(default_factory=dict)
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    tasks: int | None = None
    first_task: int = 0
    samples: int = 1
    algorithm: str = "grpo"
    seed: int = 0
    rollout: dict[str, Any] = field(default_factory=dict)
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    concurrency: int = 64
    limits: dict[str, int] = field(default_factory=dict)
    max_broken: float = 0.02
    cache: str | None = None
    cache_mode: str | None = None
    inference: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_types(self, EvalSettings.__annotations__)
        check_lowest(self, {"tasks": 1, "samples": 1, "concurrency": 1, "first_task": 0})
        if not 0 <= self.max_broken <= 1:
            raise ValueError(f"max_broken is a share of the episodes, from 0 to 1; got {self.max_broken}")
        if self.cache_mode and not self.cache:
            raise ValueError(f"cache_mode {self.cache_mode!r} needs the file of the recording: --cache FILE")
        known = {entry.name for entry in dataclasses.fields(RolloutSettings)} - {"algorithm", "seed"}
        for name in self.rollout:
            if name not in known:
                raise ValueError(f"no setting {name!r} of a rollout; there is {nearest_names(name, known) or known}")
        if self.branches and self.samples > 1:
            raise ValueError(
                f"algorithm {self.algorithm!r} plays one tree for each task: set its size with num_generations instead "
                "of samples, or take algorithm 'grpo' for independent samples"
            )
        if not self.branches and "num_generations" in self.rollout:
            raise ValueError("independent samples are set with samples, not with num_generations")
        if self.inference and not self.inference_settings:
            raise ValueError(f"no tool at inference time for {self.inference}: name them with --with debugger,...")
        temperature = {**PAPER_SAMPLING, **self.rollout}["temperature"]
        self.inference_settings.check(temperature)
        self.rollout_settings()  # refuses values of `rollout` before a folder is made

    @property
    def branches(self) -> bool:
        """Whether a task is played as a tree."""
        return self.algorithm != "grpo"

    @property
    def inference_settings(self) -> InferenceSettings:
        """The tools at inference time."""
        return InferenceSettings.of(self.inference)

    def rollout_settings(self, context: int | None = None, endpoint: bool = False) -> RolloutSettings:
        """Return the settings of the engine.

        Args:
            context: maximum number of tokens that the model takes; bounds the papers' length where none was set.
            endpoint: leave out the repetition penalty, which many endpoints refuse, unless it was set.
        """
        room = min(PAPER_CONTEXT, context or PAPER_CONTEXT)
        values: dict[str, Any] = {"max_completion_length": max(room - PROMPT_ROOM, room // 2), **PAPER_SAMPLING}
        if endpoint:
            del values["repetition_penalty"]
        values |= self.rollout
        size = values.setdefault("num_generations", TREE_SIZE if self.branches else 1)
        values.setdefault("initial_rollouts", max(1, size // 2))
        values["max_turn_length"] = min(values["max_turn_length"] or room, values["max_completion_length"])
        # failures are counted and stop nothing, since nothing is trained
        return RolloutSettings(algorithm=self.algorithm, seed=self.seed, max_invalid=1.0, **values)

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as plain data."""
        return {**dataclasses.asdict(self), "environments": list(self.environments)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> EvalSettings:
        """Read back what `as_dict` wrote."""
        return cls(**{**data, "environments": tuple(data["environments"])})


def refuse_other_settings(stored: Mapping[str, Any], settings: EvalSettings, sharded: bool = False) -> None:
    """Refuse to continue an evaluation with settings under which the same episodes would differ.

    More tasks and more samples are fine, except in a shard, whose units depend on these numbers.
    """
    # as it would be stored: run.json has no passwords, no tuples and no types of ours
    now = json.loads(redact_urls(json.dumps(settings.as_dict(), default=str)))
    if differing := differing_settings(stored, now, () if sharded else _AMOUNTS):
        raise ValueError(
            f"the run has other settings: {'; '.join(differing)}. Continue it with its own (only --resume and "
            "--output are needed), or give another folder with --output"
        )


def differing_settings(before: Mapping[str, Any], now: Mapping[str, Any], free: Sequence[str] = ()) -> list[str]:
    """Return in words what differs between two settings as run.json has them, except `SPEED` and `free`."""
    before, now = _comparable(before), _comparable(now)
    return [
        f"{name} was {before[name]!r} and is {now[name]!r}"
        for name in now
        if name not in (*SPEED, *free) and name in before and before[name] != now[name]
    ]


def _comparable(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with the usual sampling, without where a model runs and what it costs."""
    models = {
        label: {name: model.get(name) for name in ("path", "name")} for label, model in settings["models"].items()
    }
    inference = {name: value for name, value in settings.get("inference", {}).items() if name not in ("url", "price")}
    rollout = {**PAPER_SAMPLING, **settings["rollout"]}
    return {**settings, "models": models, "rollout": rollout, "inference": inference}


# The models of an evaluation: what each is, and how it is opened for generation.
#
#     EvalModel("smollm2", "transformers", "smollm2-135m")
#     EvalModel("qwen", "vllm-server", "Qwen/Qwen2.5-7B-Instruct", urls=("http://127.0.0.1:8000",))
#     EvalModel("gpt", "endpoint", "Qwen/Qwen2.5-7B-Instruct", urls=("https://host/v1",), name="gpt-4.1-mini")
#
# The id of a model on a server or behind an endpoint is that of its tokenizer. `checkpoints` lists the checkpoints of a
# trainer's output folder.

ModelKind = Literal["transformers", "vllm", "vllm-server", "endpoint"]
KINDS: tuple[ModelKind, ...] = ("transformers", "vllm", "vllm-server", "endpoint")
SERVED: tuple[ModelKind, ...] = ("vllm-server", "endpoint")  # by another process
_TOPK = 20  # log-probabilities that entropies are estimated from
_ROWS = 128  # at least so many may be decoded together, whatever `concurrency` is


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
    def endpoint(self) -> str:
        """The model with its address, for messages, if it is at an endpoint; else ""."""
        return " at ".join((self.name, *map(strip_credentials, self.urls))) if self.kind == "endpoint" else ""

    def facts(self) -> dict[str, Any]:
        """Return the model as plain data for run.json, without passwords and keys that addresses may contain."""
        shown = {"kind": self.kind, "path": self.model_id, "name": self.name}
        price = dict(zip(("input", "output", "cached"), self.price, strict=True)) if self.price else None
        return {**shown, "urls": [strip_credentials(url) for url in self.urls], "price": price}


def labelled(models: Sequence[EvalModel]) -> list[EvalModel]:
    """Return the models with labels that differ: where they do not, the whole path, and then a number."""
    if len(set(models)) < len(models):
        twice = next(model for model, count in Counter(models).items() if count > 1)
        raise ValueError(f"the model {twice.label!r} is given twice")
    same = Counter(model.label for model in models)
    found = [replace(m, label=m.model_id.strip("/")) if same[m.label] > 1 else m for m in models]
    # such as one model on two servers
    names = Counter(model.label for model in found)
    return [
        replace(model, label=f"{model.label}#{number}") if names[model.label] > 1 else model
        for number, model in enumerate(found, 1)
    ]


def check_for_workers(models: Sequence[EvalModel], cache: str | None = None) -> None:
    """Refuse what rollout workers cannot play: a model of this process, or a recording in the file `cache`."""
    for model in models:
        if model.kind not in SERVED:
            raise ValueError(
                f"rollout workers (--ray, --rollout-workers) reach no model of this process, and {model.label!r} would "
                f"be one ({model.kind}): serve it with vLLM and give --vllm-server URL, or give an --endpoint"
            )
    if cache:
        raise ValueError(
            f"rollout workers cannot share the recording {cache!r}, which is a file of one machine: leave out --cache, "
            "or play without --ray and --rollout-workers (with --shard on several machines)"
        )


def model_label(path: str) -> str:
    """Return the label of a folder or hub id: its last part."""
    names = [name for name in path.split("/") if name not in ("", ".", "..", "~")]
    return names[-1] if names else path


def checkpoints(path: str) -> list[str]:
    """Return the checkpoints in a trainer's output folder by step, or the path itself if it is no such folder."""
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


def rollout_of(model: EvalModel, settings: EvalSettings) -> RolloutSettings:
    """Return the settings of the engine with which a model plays, within its context if its configuration says one."""
    from transformers import AutoConfig

    if model.kind == "endpoint":  # it has a context of its own; the tokenizer may be that of another model
        return settings.rollout_settings(endpoint=True)
    try:
        config = AutoConfig.from_pretrained(resolve_model(model.model_id))
    except (OSError, ValueError):  # a folder with a tokenizer alone
        return settings.rollout_settings()
    return settings.rollout_settings(getattr(config.get_text_config(), "max_position_embeddings", None))


def open_backend(model: EvalModel, tokenizer: Any, concurrency: int = 0, **entropy: Any) -> Backend:
    """Load a model, or connect to its servers, for generation.

    Args:
        model: the model.
        tokenizer: its tokenizer.
        concurrency: maximum number of episodes at once, so of rows that a model of this process decodes together.
        entropy: arguments that say how it is estimated.
    """
    from arpo_trainer import backends

    if model.kind == "transformers":
        return backends.transformers_backend(_loaded(model), tokenizer, max_rows=max(_ROWS, concurrency), **entropy)
    if model.kind == "vllm":
        from vllm import LLM

        warn_of_vllm()
        # the backend reads log-probabilities of the distribution that is sampled from
        engine = LLM(resolve_model(model.model_id), logprobs_mode="processed_logprobs", max_logprobs=_TOPK)
        return backends.VLLMEngineBackend(engine, **{"topk": _TOPK, **entropy})
    if model.kind == "vllm-server":
        return backends.VLLMServerBackend(model.urls, tokenizer=tokenizer, model=model.name or None, **entropy)
    return backends.EndpointBackend(model.name, next(iter(model.urls), None), tokenizer=tokenizer)


def free_memory() -> None:
    """Give back the memory of models that nothing refers to any more: the next one needs it."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _loaded(model: EvalModel) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    from arpo_trainer.training.devices import lacks_bfloat16

    gpu = torch.cuda.is_available()
    on_cpu = torch.float32 if lacks_bfloat16(on_cpu=True) else torch.bfloat16
    loaded = AutoModelForCausalLM.from_pretrained(resolve_model(model.model_id), dtype="auto" if gpu else on_cpu)
    return loaded.to("cuda" if gpu else "cpu").eval()
