"""`arpo doctor`: checks what this machine has and lacks for a run, with a command for each missing part."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from arpo_trainer.optional_dependencies import EXTRAS, other_versions
from envs_registry.install_line import install_line

_EXTRAS_OF_TASKS = ("data", "search", "math", "mcp")
ENVIRONMENTS = tuple(name for extra in _EXTRAS_OF_TASKS for name in EXTRAS[extra])
TRAINING = tuple(EXTRAS["train"])


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
        text = f"{mark} {self.what:<12} {self.detail}"
        return text if self.fine or not self.cure else f"{text}\n     {'':<12} to fix: {self.cure}"


def examine() -> list[Finding]:
    """Check everything; this takes a few seconds and changes nothing."""
    return [*_machine(), *_packages(), *_sandbox(), *_model(), *_environments()]


def _machine() -> Iterator[Finding]:
    yield Finding("Python", sys.version_info >= (3, 11), platform.python_version(), "install Python 3.11 or newer")
    yield Finding("machine", True, f"{os.cpu_count()} cores, {_memory()}, load {os.getloadavg()[0]:.1f}")


def _memory() -> str:
    try:
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return "memory unknown"
    return f"{pages * size / 2**30:.0f} GiB memory"


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
    except ImportError:
        return Finding("GPU", False, "unknown without torch", needed=False)
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
        several = "; each process uses one: --accelerate-config ddp starts one for each" if len(names) > 1 else ""
        old = "" if torch.cuda.is_bf16_supported(including_emulation=False) else "; without bfloat16: set fp16: true"
        return Finding("GPU", True, ", ".join(names) + old + several)
    return Finding("GPU", False, "none: training runs on the CPU", needed=False)


def _sandbox() -> Iterator[Finding]:
    from sandbox import check_docker

    docker = check_docker()
    works, bwrap = docker.state == "ok", shutil.which("bwrap")
    # either of the two can run code, so the lack of Docker matters only where bubblewrap is missing too
    yield Finding("Docker", works, docker.detail, docker.cure, needed=not bwrap)
    detail = bwrap or "not installed; it replaces Docker where there is none"
    yield Finding("bubblewrap", bool(bwrap), detail, "sudo apt-get install bubblewrap", needed=False)


def _model() -> Iterator[Finding]:
    from arpo_trainer.demo_model import demo_model_folder, has_demo_model

    folder, there = demo_model_folder(), has_demo_model()
    cure = "python -m arpo_trainer.demo_model  (98 MB)"
    yield Finding("demo model", there, str(folder) if there else "not downloaded yet", cure, needed=False)


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
