"""Commands about this machine: `arpo doctor` says what it has and lacks, `arpo sandbox` runs code on it.

arpo sandbox check --backend docker
arpo sandbox ps
arpo sandbox prune --images
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import itertools
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from arpo_trainer.cli.command_options import Flag, Words, chosen, new_app, set_option, write_lines, write_table
from arpo_trainer.optional_dependencies import EXTRAS, other_versions
from arpo_trainer.run.recipes import parse_assignments
from arpo_trainer.validation import check_name
from envs_registry.install_line import install_line

Backend = Literal["auto", "docker", "bubblewrap", "command", "unsafe_local"]
Profile = Literal["minimal", "math", "data"]
DockerHost = Annotated[str | None, Parameter(help="a Docker engine, written as in DOCKER_HOST (default: that)")]
Packages = Annotated[Words, Parameter(help="further packages, as pip takes them: networkx, rich==13.9.4")]
sandbox = new_app("sandbox", "check the sandbox, list or remove containers, build its image, serve code")


@sandbox.command
def check(*, backend: str | None = None, command: str | None = None) -> int:
    """Open a sandbox, run and fork a session, and print the times.

    Args:
        backend: auto, docker, bubblewrap, command, unsafe_local or the address of a sandbox server (default: ARPO_SANDBOX, else auto)
        command: of the backend command (default: the variable ARPO_SANDBOX_COMMAND)
    """  # noqa: E501
    from sandbox import Sandbox
    from sandbox.backends.http_backend import is_http_address, without_password
    from sandbox.docker_engine import describe_unenforced_limits

    backend = backend or os.environ.get("ARPO_SANDBOX") or "auto"
    if backend not in Backend.__args__ and not is_http_address(backend):  # type: ignore[attr-defined]
        raise ValueError(
            f"there is no backend {without_password(backend)!r}; choose one of "
            f"{', '.join(Backend.__args__)}, or the address of a sandbox server, such as http://host:8080"  # type: ignore[attr-defined]
        )
    times = [time.perf_counter()]
    with Sandbox(backend, containers=1, command=command) as opened:
        isolation = opened.isolation  # a sandbox starts at its first use, and asking for the isolation is one
        times.append(time.perf_counter())
        python = opened.interpreter_sync()
        times.append(time.perf_counter())
        value = python.run("x = 6 * 7; x").value
        times.append(time.perf_counter())
        copy = python.fork()[0]
        times.append(time.perf_counter())
        copied = copy.run("x").value
        times.append(time.perf_counter())
        used = opened.backend
    steps = ("open the sandbox", "open a session", "run 6 * 7", "fork it", "run x in the copy")
    took = [f"{1000 * (end - start):.1f} ms" for start, end in itertools.pairwise(times)]
    # "docker(runc)+uid+landlock" begins with the backend; unsafe_local calls its isolation "none"
    found = isolation.partition("+")[0].partition("(")[0]
    known = {"none": "unsafe_local"}.get(found, found)
    # what a server elsewhere cannot keep, it says in its own isolation
    unenforced = [("NOT KEPT", why) for why in describe_unenforced_limits(known)] if found != "http" else []
    write_table(
        [
            ("BACKEND", used),
            ("ISOLATION", isolation),
            ("ANSWER", str(value)),
            *zip(steps, took, strict=True),
            *unenforced,
        ]
    )
    # the copy must know the variable: a fork that had lost the session's state would run code as well
    if not value == copied == "42":
        sys.stderr.write(f"error: 6 * 7 gave {value} in the session and {copied} in its copy\n")
        return 1
    return 0


@sandbox.command
def ps(*, docker_host: DockerHost = None) -> None:
    """List the containers of all sandboxes."""
    from sandbox.docker_engine import containers

    rows: list[Sequence[str]] = [("CONTAINER", "STATE", "AGE", "CLIENT", "IMAGE", "HOST")]
    for one in containers(docker_host):
        client = f"{one.client} on {one.client_host or '?'}{' (gone)' if one.orphan else ''}"
        rows.append((one.id, one.state, _span(one.age), client, one.image, one.host or "-"))
    write_table(rows)


def _span(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


@sandbox.command
def prune(*, all: Flag = False, images: Flag = False, docker_host: DockerHost = None) -> None:
    """Remove containers whose program has ended.

    Args:
        all: remove also containers in use: their sessions are lost
        images: remove also images that a newer one has replaced
        docker_host: a Docker engine
    """
    from sandbox.docker_engine import prune

    removed = prune(all, images, docker_host)
    sys.stdout.write("".join(f"removed {one}\n" for one in removed) or "nothing to remove\n")


@sandbox.command
def build(
    *,
    base: str | None = None,
    local: Flag = False,
    profile: Profile = "math",
    packages: Packages = (),
    docker_host: DockerHost = None,
) -> None:
    """Build the image, if it does not exist.

    Args:
        base: build on an image with python3, such as python:3.12-slim
        local: copy this machine's Python; needs no registry
        profile: its packages
        packages: further packages, as pip takes them
        docker_host: a Docker engine
    """
    from sandbox import build_image

    chosen({"--base": base, "--local": local})
    if local:
        os.environ.pop("ARPO_SANDBOX_BASE_IMAGE", None)  # --local takes precedence over the variable
    tag = build_image(base, host=docker_host, profile=profile, packages=list(packages))
    sys.stdout.write(f"{tag}\n")


@sandbox.command
def serve(
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    token: Annotated[str, Parameter(show_default=False)] = "",
    containers: int = 4,
    sessions: int = 64,
    clients: Path | None = None,
    idle_timeout: float = 900.0,
    backend: Backend = "auto",
    profile: Profile = "math",
    packages: Packages = (),
    settings: set_option("a limit of containers and sessions, such as session_memory=2147483648") = (),  # type: ignore[valid-type]
) -> None:
    """Serve sessions for other machines, and POST /run_code, over HTTP.

    Args:
        host: address to listen on; any but this machine's own needs a token
        port: port to listen on
        token: the bearer token of requests (default: the variable ARPO_SANDBOX_TOKEN, which other users cannot see)
        containers: maximum number of containers
        sessions: maximum number of sessions per container
        clients: instead of one token: a file with a line 'NAME TOKEN [SESSIONS]' for each client
        idle_timeout: close a session that nobody has used for so many seconds
        backend: where the code runs
        profile: packages of the code
        packages: further packages, as pip takes them
        settings: limits
    """
    from sandbox import Limits
    from sandbox.http.sandbox_server import serve  # type: ignore[import-not-found, unused-ignore]

    limits = parse_assignments(settings, "--set")
    for name in limits:
        check_name("a limit of --set", name, [entry.name for entry in dataclasses.fields(Limits)])
    token = token or ("" if clients else os.environ.get("ARPO_SANDBOX_TOKEN", ""))
    serve(
        host,
        port,
        token,
        clients,
        idle_timeout,
        backend,
        Limits(**limits),
        containers=containers,
        sessions=sessions,
        profile=profile,
        packages=list(packages),
    )


# `arpo doctor`.

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


def doctor() -> int:
    """Show what this machine has and lacks, and how to get it."""
    findings = examine()
    write_lines(findings)
    return 0 if all(finding.fine for finding in findings if finding.needed) else 1
