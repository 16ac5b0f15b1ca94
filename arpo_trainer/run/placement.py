"""`arpo train --dry-run`: which processes run where, with the GPU, rollouts, vLLM and sandboxes of each; loads nothing.

    planned = plan_run(settings, processes=16, launch_config="fsdp2")
    placement = Placement(planned, machines=2, address="n1")
    placement.rows(), placement.refused()

The hosts of SLURM or of another scheduler are not asked: machines are numbered as `--machine-rank` numbers them.
"""

from __future__ import annotations

import os
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch

from arpo_env.net import strip_credentials
from arpo_trainer.costs.cost_table import Line
from arpo_trainer.costs.memory import SHARDINGS, format_bytes
from arpo_trainer.rollout.live_trajectory import DEFAULT_TRAJECTORIES
from arpo_trainer.run.dry_run import PlannedRun
from arpo_trainer.run.launch import refused_machines
from arpo_trainer.training.policy_backend import server_urls
from sandbox.backends.http_backend import http_addresses, is_http_address

_THIS_MACHINE = ("localhost", "0.0.0.0", "::1")
_PYTHON = "python"  # the tool that needs a sandbox


@dataclass(frozen=True)
class Placement:
    """Where the parts of a planned run are.

    Attributes:
        planned: the run.
        machines: the number of machines.
        address: that of machine 0, or None.
        environ: environment variables, which name sandboxes.
    """

    planned: PlannedRun
    machines: int = 1
    address: str | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)

    @property
    def processes(self) -> int:
        """Processes on all machines."""
        return self.planned.costs.layout.processes

    def rows(self) -> list[Line]:
        """Return the rows of the table: what, where or how many, remark."""
        return [("PLACEMENT", "", ""), *self._training(), *self._generation(), *self._rollouts(), *self._memory()]

    def refused(self) -> list[str]:
        """Return why this placement cannot work; what is wrong with single settings, `plan_run` has refused."""
        args, layout = self.planned.args, self.planned.costs.layout
        refused = refused_machines(self.processes, self.machines, self.address)
        for url in self._servers():
            host = urllib.parse.urlsplit(url).hostname or ""
            if self.machines > 1 and (host in _THIS_MACHINE or host.startswith("127.")):
                refused.append(
                    f"the vLLM server {strip_credentials(url)} is another one on each of {self.machines} machines: "
                    "give it the address that all of them reach"
                )
        if self.planned.run.cold_start_examples and layout.sharding != "ddp":
            refused.append(
                f"a cold start with {layout.sharding}: it writes whole weights. Make it once with --accelerate-config "
                "ddp and --set max_steps=1; it is kept"
            )
        if args.use_vllm and args.vllm_mode == "colocate" and self.processes // self.machines:
            size, each = args.vllm_tensor_parallel_size, self.processes // self.machines
            if each % size:
                refused.append(
                    f"vllm_tensor_parallel_size={size}: an engine would span two machines of {each} processes; take a "
                    "number that divides them"
                )
        return refused

    def _servers(self) -> list[str]:
        args = self.planned.args
        if not args.use_vllm or args.vllm_mode != "server":
            return []
        return server_urls(args)

    def _training(self) -> Iterator[Line]:
        layout, each = self.planned.costs.layout, self.processes // self.machines
        parts = SHARDINGS[layout.sharding]
        shared = f"{layout.sharding}: a share of {', '.join(parts)}" if parts else "ddp: whole weights, all states"
        how = shared if self.processes > 1 else "the whole model"
        device = "on the CPU" if self.planned.args.use_cpu and not self.planned.args.use_vllm else "a GPU each"
        first = f"machine 0 ({self.address})" if self.address else "machine 0"
        yield first, _span("process", 0, each), f"training, {device}; {how}"
        if self.machines > 1:
            yield (
                _span("machine", 1, self.machines - 1),
                _span("process", each, self.processes - each),
                f"training, {each} on each",
            )

    def _generation(self) -> Iterator[Line]:
        args, layout = self.planned.args, self.planned.costs.layout
        if urls := self._servers():
            for url in urls:
                yield "vLLM server", strip_credentials(url), "is not started by this command; its GPUs are its own"
            ports = _span("port", args.vllm_group_port, len(urls))
            yield "  new weights", "from process 0", f"after each step, by NCCL over {ports}"
        elif args.use_vllm:
            size = max(1, args.vllm_tensor_parallel_size)
            sleeps = "between rollouts it sleeps" if args.vllm_enable_sleep_mode else "all the time"
            share = f"{args.vllm_gpu_memory_utilization:.0%} of each of their GPUs, {sleeps}"
            what = (
                f"{self.processes // size} vLLM engine{'s' * (self.processes // size > 1)} of {_many(size, 'process')}"
            )
            yield "generation", what, share
        else:
            copied = layout.share("weights") < 1 or bool(args.max_staleness)
            copy = "with a whole copy of the weights in rollouts" if copied else "the model itself"
            yield "generation", "transformers, in each process", copy

    def _rollouts(self) -> Iterator[Line]:
        plan, args = self.planned.costs.schedule, self.planned.args
        players, where, one = self.processes, "in the training processes", "process"
        if args.uses_workers:
            players, one = max(args.rollout_workers, self.processes), "actor"
            count = f"{args.rollout_workers}" if args.rollout_workers else "one for each node:"
            where = f"{count} Ray actors, cluster {args.ray_address or 'RAY_ADDRESS, or of this machine'}"
        groups, size = -(-plan.prompts // players), plan.trajectories // plan.prompts
        idle = max(0, players - plan.prompts)
        words = f"; {_many(idle, one)} without a group wait{'s' * (idle == 1)}" if idle else ""
        yield "rollouts", where, f"at most {groups} of {plan.prompts} groups of {size} in each{words}"
        most = min(groups * size, args.rollout_limits().get("trajectory", DEFAULT_TRAJECTORIES))
        yield "environments at once, at most", f"{most:,} in each", f"{min(most * players, plan.trajectories):,} in all"
        if _PYTHON in self.planned.costs.episode.calls_of:
            yield "sandboxes", self._sandboxes(one), f"at most {most:,} sessions of each {one}"

    def _sandboxes(self, one: str) -> str:
        backend = self.environ.get("ARPO_SANDBOX") or "auto"
        if is_http_address(backend):
            return "servers " + ", ".join(http_addresses(backend, "")[0])
        hosts = self.environ.get("DOCKER_HOST", "")
        if hosts and backend in ("auto", "docker"):
            return "docker on " + ", ".join(strip_credentials(host) for host in hosts.split(","))
        return f"{backend}, on the machine of each {one}"

    def _memory(self) -> Iterator[Line]:
        needs = self.planned.costs.memory
        if needs is None:
            yield "memory of a process", "not estimated", "the model's configuration is not available"
            return
        has = torch.cuda.get_device_properties(0).total_memory if torch.cuda.is_available() else None
        seen = f"; a GPU of this machine has {format_bytes(has)}" if has else ""
        left_out = "; ".join(["without PyTorch and CUDA", *needs.elsewhere])
        yield "memory of a process", format_bytes(needs.peak), left_out + seen


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}{'es' if what.endswith('s') else 's'}"


def _span(what: str, first: int, count: int) -> str:
    if count == 1:
        return f"{what} {first}"
    return f"{what}{'es' if what.endswith('s') else 's'} {first} .. {first + count - 1}"
