"""`arpo doctor`: what this machine has and lacks, or with `--model` what a model will get.

arpo doctor
arpo doctor --model Qwen/Qwen3-8B
"""

from __future__ import annotations

import collections
import contextlib
import importlib.metadata
import itertools
import os
import platform
import shutil
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arpo_trainer.cli.command_options import write_lines
from arpo_trainer.optional_dependencies import EXTRAS, other_versions
from envs_registry.install_line import install_line

_EXTRAS_OF_TASKS = ("data", "search", "math", "mcp")
ENVIRONMENTS = tuple(name for extra in _EXTRAS_OF_TASKS for name in EXTRAS[extra])
TRAINING = tuple(EXTRAS["train"])


_WIDTH, _INDENT = 80, 18 * " "
_WHOLE_WORDS: Any = {"break_long_words": False, "break_on_hyphens": False}  # what is copied stays whole


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report."""

    what: str  # the part that was checked
    fine: bool  # whether it is available
    detail: str  # what was found
    cure: str = ""  # the command to run if it is missing
    needed: bool = True  # whether a run is impossible without it

    def __str__(self) -> str:
        mark = "ok  " if self.fine else ("LACK" if self.needed else "--  ")
        lines = [f"{mark} {self.what:<12} {self.detail}"]
        if not self.fine and self.cure:
            lines.append(f"{_INDENT}to fix: {self.cure}")
        wrapped = (textwrap.wrap(line, _WIDTH, subsequent_indent=_INDENT, **_WHOLE_WORDS) for line in lines)
        return "\n".join(itertools.chain(*wrapped))


def examine() -> list[Finding]:
    """Check everything; this takes a few seconds and changes nothing."""
    return [*_machine(), *_packages(), *_sandbox(), *_model(), *_environments()]


def _machine() -> Iterator[Finding]:
    yield Finding("Python", True, platform.python_version())
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    yield Finding("machine", True, f"{os.cpu_count()} cores, {memory:.0f} GiB memory, load {os.getloadavg()[0]:.1f}")


def _packages() -> Iterator[Finding]:
    cure = f"make setup, or {install_line('train')}"
    if not _installed("trl"):  # environments alone do not need it
        yield Finding("training", False, "not installed: environments only", cure, needed=False)
        return
    for name in TRAINING:
        there = _installed(name)
        yield Finding(name, there, importlib.metadata.version(name) if there else "not installed", cure)
    if wrong := other_versions("train"):
        yield Finding("versions", False, f"needed: {', '.join(wrong)}", cure)
    yield _gpu()
    yield _vllm()


def _vllm() -> Finding:
    cure = f"{install_line('vllm')}, for `use_vllm: true`; `arpo rollout --vllm-server` does not need it"
    if not _installed("vllm"):
        return Finding("vLLM", False, "not installed: rollouts run on transformers", cure, needed=False)
    if wrong := other_versions("vllm"):
        supported = f"TRL {importlib.metadata.version('trl')} supports {', '.join(wrong)}"
        return Finding("vLLM", False, supported, cure, needed=False)
    return Finding("vLLM", True, importlib.metadata.version("vllm"))


def _gpu() -> Finding:
    try:
        import torch
    except (ImportError, OSError) as error:  # the second: a library of its own is broken
        return Finding("GPU", False, f"unknown without torch ({_said(error)})", needed=False)

    from arpo_trainer.training.devices import lacks_bfloat16

    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
        several = "; each process uses one: --accelerate-config ddp starts one for each" if len(names) > 1 else ""
        old = "" if torch.cuda.is_bf16_supported(including_emulation=False) else "; without bfloat16: set fp16: true"
        return Finding("GPU", True, ", ".join(names) + old + several)
    old = "; set dtype: float32, since this CPU has no bfloat16" if lacks_bfloat16(on_cpu=True) else ""
    return Finding("GPU", False, f"none: training runs on the CPU{old}", needed=False)


def _sandbox() -> Iterator[Finding]:
    from sandbox import check_docker

    docker = check_docker()
    works, bwrap = docker.state == "ok", shutil.which("bwrap")
    # either of the two can run code, so the lack of Docker matters only where bubblewrap is missing too
    yield Finding("Docker", works, docker.detail, docker.cure, needed=not bwrap)
    detail = bwrap or "not installed; it replaces Docker where there is none"
    yield Finding("bubblewrap", bool(bwrap), detail, "sudo apt-get install bubblewrap", needed=False)


def _model() -> Iterator[Finding]:
    from arpo_trainer.models import DEMO_MODEL, MODELS

    there, wrong = [], []
    for model in MODELS.values():
        try:
            there += [model.name] if model.is_here() else []
        except FileExistsError as error:
            wrong.append(str(error))
    detail = ", ".join(there) or "none in the cache"
    cure = f"arpo models get {DEMO_MODEL}  (98 MB; `arpo models` lists others)"
    yield Finding("models", bool(there) and not wrong, "; ".join([detail, *wrong]), cure, needed=False)


def _environments() -> Iterator[Finding]:
    from arpo_env.search.backends import VARIABLE, ready_providers

    lacking = [name for name in ENVIRONMENTS if not _installed(name)]
    wrong = [text for extra in _EXTRAS_OF_TASKS for text in other_versions(extra)]
    detail = f"without {', '.join(lacking)}" if lacking else ", ".join(ENVIRONMENTS)
    if wrong and not lacking:
        detail = f"needed: {', '.join(wrong)}"
    yield Finding("tasks", not lacking and not wrong, detail, install_line("envs"), needed=False)
    search = os.environ.get(VARIABLE)
    yield Finding(
        "search",
        bool(search),
        search or f"{VARIABLE} is not set",
        f"export {VARIABLE}=corpus.jsonl, or a provider (docs/how-to/search.md)",
        needed=False,
    )
    keys = ready_providers()
    yield Finding("web search", bool(keys), ", ".join(keys) or "no provider has an API key", needed=False)
    judge = os.environ.get("OPENAI_BASE_URL") or ("api.openai.com" if os.environ.get("OPENAI_API_KEY") else "")
    lack = "neither OPENAI_BASE_URL nor OPENAI_API_KEY is set"
    cure = "export OPENAI_BASE_URL=http://host:8000/v1, or play with scorer='qa'"
    yield Finding("judge", bool(judge), judge or lack, cure, needed=False)


def _installed(name: str) -> bool:
    try:
        # the package's metadata tells it at once; importing torch or vLLM would take seconds
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


# `arpo doctor --model`. Others' folders and templates raise whatever they like: each part is looked at by itself.


def examine_model(model: str) -> list[Finding]:
    """Say what a model would get, from its configuration and tokenizer alone."""
    from arpo_trainer.models import resolve_model

    folder = Path(model).expanduser()
    try:
        path = resolve_model(str(folder) if folder.is_dir() else model, download=False)
    except (OSError, RuntimeError) as error:
        return [Finding("model", False, str(error), _other_folder(folder))]
    loaded, findings = _load(path)
    return findings if loaded is None else [*findings, *_each(path, loaded)]


def _each(path: str, model: Any) -> Iterator[Finding]:
    for part in (_layers, _tokenizer):
        try:
            yield from part(path, model)
        except Exception as error:
            yield Finding(part.__name__.strip("_"), False, f"cannot be examined: {_said(error)}")


def _other_folder(folder: Path) -> str:
    """Return what to give in place of a folder without a model."""
    if (folder / "adapter_config.json").exists():
        return "these are adapters: give their base, or merge them: arpo export FOLDER --output NEW"
    if (folder / "model" / "config.json").exists():
        return f"give {folder / 'model'}"
    return ""


def _load(path: str) -> tuple[Any, list[Finding]]:
    """Return a model without weights, or None, and what there is to say of it."""
    from arpo_trainer.costs.memory import empty_model, experts_of, shape_of

    try:
        with _quiet():
            model = empty_model(path)
    except Exception as error:
        cure = "see whether config.json is that of a causal language model, and whether this transformers knows it"
        return None, [Finding("model", False, _said(error), cure)]
    config, text = model.config, model.config.get_text_config()
    total = sum(parameter.numel() for parameter in model.parameters())
    size = f"{total:,} parameters"
    if (experts := experts_of(text))[0]:
        with contextlib.suppress(Exception):  # widths with other names
            size += f", of which a token uses {shape_of(model).active:,} ({experts[1]} of {experts[0]} experts)"
    dtype = str(config.dtype or text.dtype or "float32").removeprefix("torch.")
    what = f"{type(model).__name__} ({config.model_type}), {size}, {dtype}"
    found = [Finding("model", True, what)]
    if model.get_output_embeddings() is None:
        cure = "name the class with a head in `architectures` of config.json, such as Qwen3ForCausalLM"
        found.append(Finding("head", False, f"{type(model).__name__} predicts no tokens", cure))
    if quantised := getattr(config, "quantization_config", None):
        how = quantised.get("quant_method") if isinstance(quantised, dict) else quantised.quant_method
        words = f"quantised ({how}): memory is estimated as if they were not"
        found.append(Finding("weights", False, words, needed=False))
    elif (folder := Path(path)).is_dir() and not any(True for pattern in _WEIGHTS for _ in folder.glob(pattern)):
        found.append(Finding("weights", False, "none in this folder: it can be checked and not run", needed=False))
    return model, found


_WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "*.gguf")


def _layers(_path: str, model: Any) -> Iterator[Finding]:
    """Say what the layers of a model attend to, and how training and rollouts compute them."""
    from arpo_trainer.backends.in_process import why_not_continuous
    from arpo_trainer.costs.memory import layer_kinds
    from arpo_trainer.packing import why_not_packable, why_not_padding_free, why_not_proven

    text = model.config.get_text_config()
    try:
        kinds = collections.Counter(layer_kinds(text))
        window = f", window {window:,}" if (window := getattr(text, "sliding_window", None)) else ""
        words = ", ".join(f"{count} x {kind}" for kind, count in kinds.most_common()) + window
        yield Finding("attention", True, f"{words} ({text._attn_implementation})")
    except (AttributeError, TypeError) as error:
        yield Finding("attention", False, _said(error), needed=False)
    reason, unproven, padded = why_not_packable(model), why_not_proven(model), why_not_padding_free(model)
    if reason or unproven:
        rows = f"{'padded rows' if padded else 'flat rows without padding'}: {reason or unproven}"
        yield Finding("packing", False, rows, "" if reason else "packing: true, after a comparison", needed=False)
    else:
        yield Finding("packing", True, "packed trees: what rows share is computed once")
    reason = why_not_continuous(model)
    detail = f"padded batches without vLLM: {reason}" if reason else "continuous batches with shared prefixes"
    yield Finding("rollouts", not reason, detail, "use_vllm: true", needed=False)


def _tokenizer(path: str, model: Any) -> Iterator[Finding]:
    """Say what ends a turn, how long a context may be, and how a chat is written."""
    from transformers import AutoTokenizer

    try:
        with _quiet():
            tokenizer = AutoTokenizer.from_pretrained(path)
        words = tokenizer.get_vocab()
    except Exception as error:
        yield Finding("tokenizer", False, _said(error), _NO_TOKENIZER)
        return
    yield _context(model.config.get_text_config(), tokenizer)
    # transformers makes up a tokenizer for a folder that has none, with nothing but special tokens
    if len(words) <= len(tokenizer.added_tokens_decoder):
        yield Finding("tokenizer", False, "without a vocabulary: its files are missing", _NO_TOKENIZER)
        return
    ends = _ends(path, model, tokenizer)
    yield _special_tokens(ends, model, tokenizer, max(words.values()))
    yield from _template(tokenizer, ends)


_NO_TOKENIZER = "put tokenizer.json and tokenizer_config.json into the folder"


def _context(config: Any, tokenizer: Any) -> Finding:
    rope = getattr(config, "rope_parameters", None) or {}
    longest = getattr(config, "max_position_embeddings", None)
    words = f"{longest:,} tokens" if longest else "of any length"
    kind, factor = rope.get("rope_type", "default"), rope.get("factor")
    if kind != "default" and factor:
        original = rope.get("original_max_position_embeddings")
        words += f", rope scaled ({kind}, {factor:g} x {f'{original:,}' if original else 'the original'})"
    if longest and tokenizer.model_max_length < longest:
        words += f"; the tokenizer warns above {tokenizer.model_max_length:,}"
    return Finding("context", True, words)


def _ends(path: str, model: Any, tokenizer: Any) -> set[int]:
    """Return the ids that end a turn, as the backends read them."""
    from transformers import GenerationConfig

    generation = getattr(model, "generation_config", model.config)
    with contextlib.suppress(OSError, ValueError, TypeError), _quiet():
        generation = GenerationConfig.from_pretrained(path)
    declared = getattr(generation, "eos_token_id", None)
    return {tokenizer.eos_token_id, *(declared if isinstance(declared, list) else [declared])} - {None}


def _special_tokens(ends: set[int], model: Any, tokenizer: Any, largest: int) -> Finding:
    padding = tokenizer.pad_token or f"none, so the end token {tokenizer.eos_token}"
    named = [f"{tokenizer.convert_ids_to_tokens(number)} ({number})" for number in sorted(ends)]
    words = f"a turn ends at {' or '.join(named) or 'nothing'}; padding {padding}"
    if tokenizer.eos_token_id is None:
        cure = "name eos_token in tokenizer_config.json"
        return Finding("tokens", False, f"{words}; the tokenizer has no end token", cure)
    rows = model.get_input_embeddings().weight.shape[0]
    if largest >= rows:
        detail = f"{words}; the tokenizer has ids up to {largest:,}, and the model embeds {rows:,}"
        return Finding("tokens", False, detail, "give the model and the tokenizer that belong together")
    return Finding("tokens", True, words)


def _template(tokenizer: Any, ends: set[int]) -> Iterator[Finding]:
    """Say which template writes a chat, whether earlier turns stay as they were, and what protocol its model gets."""
    from trl.chat_template_utils import is_chat_template_prefix_preserving, supports_tool_calling

    from arpo_trainer.rollout.rendering import check_tokenizer

    try:
        check_tokenizer(tokenizer)
    except ValueError as error:
        yield Finding("template", False, str(error))
        return
    known = known_template(tokenizer.chat_template)
    name = f"{known}, as TRL has it" if known else "its own: no template that TRL knows by its text"
    if fault := chat_fault(tokenizer):
        cure = "mend chat_template.jinja, or take that of the model's Instruct version"
        yield Finding("template", False, f"{name}; {fault}", cure)
        return
    yield Finding("template", True, name)
    try:
        kept = is_chat_template_prefix_preserving(tokenizer) if supports_tool_calling(tokenizer) else None
    except Exception as error:
        yield Finding("prefix", False, f"not known: the template fails on a tool call ({_said(error)})", needed=False)
    else:
        if kept is not None:
            detail = "a call stays as it was when its result follows" if kept else _REWRITTEN
            yield Finding("prefix", kept, detail, needed=False)
    yield from _protocol(tokenizer, ends)


def _protocol(tokenizer: Any, ends: set[int]) -> Iterator[Finding]:
    from arpo_env.protocols import make_protocol
    from arpo_trainer.rollout.model_protocol import protocol_for
    from arpo_trainer.rollout.native import ModelCalls

    name, why = protocol_for(tokenizer)
    try:
        make_protocol(name)
        calls = ModelCalls(tokenizer) if name == "native" else None
    except ValueError as error:  # one of its own, or it was trained with another template or release of TRL
        cure = "" if name == "native" else "name the module that registers it, as in my_envs:ID, or choose another"
        yield Finding("protocol", False, f"{name}, since {why}; but {error}", cure)
        return
    if calls is None:
        yield Finding("protocol", True, f"{name}: {why}")
        return
    yield Finding("family", True, calls.family)
    number = tokenizer.convert_tokens_to_ids(calls.end)
    detail = f"native: the model's own tool calls, which {calls.end} ends"
    if number in ends:
        yield Finding("protocol", True, detail)
    else:
        cure = f"add {number} to eos_token_id in generation_config.json"
        yield Finding("protocol", False, f"{detail}; but no turn ends there", cure)


_CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]  # as an episode begins


def chat_fault(tokenizer: Any) -> str:
    """Return why an episode cannot begin with the chat template of a tokenizer, or ""."""
    try:
        text = tokenizer.apply_chat_template(_CHAT, tokenize=False, add_generation_prompt=True)
    except Exception as error:
        return f"it does not render a system prompt and a question ({_said(error)})"
    lost = [message["role"] for message in _CHAT if message["content"] not in text]
    return f"it leaves out the text of the {' and the '.join(lost)}" if lost else ""


_REWRITTEN = (
    "the template writes earlier turns again in another way (often without thoughts). Rollouts and training keep what "
    "was sampled; a server that is sent messages sees the other"
)


def known_template(text: str) -> str:
    """Return the name of a chat template among those that TRL ships, or ""."""
    import trl

    folder = Path(trl.__file__).parent / "chat_templates"
    return next((file.stem for file in sorted(folder.glob("*.jinja")) if file.read_text(encoding="utf-8") == text), "")


def _said(error: Exception) -> str:
    """Return what an error says in its first line."""
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers from warning of what the report says."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def doctor(*, model: str | None = None) -> int:
    """Show what this machine has and lacks, and how to get it.

    Args:
        model: say instead what a model will get: a folder, with or without weights, a hub id, a name of `arpo models`
    """
    findings = examine_model(model) if model else examine()
    write_lines(findings)
    return 0 if all(finding.fine for finding in findings if finding.needed) else 1
