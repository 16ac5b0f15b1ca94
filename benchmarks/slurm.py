"""Do the SLURM templates run under a real SLURM, and is a sharded evaluation the whole one after kills?

    apt-get install slurmctld slurmd slurm-client munge      # root; Debian's 22.05 has --enable-multiple-slurmd
    python -m benchmarks.slurm [--tasks 48] [--samples 2]

Starts a cluster of eight nodes with eight GPUs each on this machine: eight slurmd, whose GPUs are empty files. On it:

- examples/slurm/train.sbatch on 1, 2 and 8 nodes. `arpo`, `vllm` and `curl` write down where they were started; vLLM
  and the training itself do not run.
- examples/slurm/evaluate.sbatch: an array of eight shards with the real `arpo eval`, Python tool calls in the sandbox,
  and a scripted model behind an endpoint. One shard is requeued in the middle; one is killed with SIGKILL, refused by
  `arpo eval merge`, and submitted again by its number. Then merge.sbatch, compared with one process that plays all.

Everything is stopped in the end. Written to benchmarks/results/slurm.json.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from arpo_trainer.evaluation.episode_store import EvalRun, load_eval_run
from tests.arpo_env.chat_server import chat_server, reply

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "slurm.json"
TEMPLATES = ROOT / "examples" / "slurm"
NODES, GPUS, SHARDS = 8, 8, 8
CONFIG = """
ClusterName=trial
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={folder}/munge.sock
SlurmctldPort=16817
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/node-%n.pid
SlurmctldLogFile={folder}/controller.log
SlurmdLogFile={folder}/node-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MailProg=/bin/true
GresTypes=gpu
SchedulerParameters=sched_interval=1
NodeName=n[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[17001-1700{nodes}] CPUs={cpus} Gres=gpu:{gpus}
PartitionName=all Nodes=n[1-{nodes}] Default=YES MaxTime=INFINITE OverSubscribe=FORCE:8
"""
RECORD = 'printf "%s\\n" "$(basename "$0")|$SLURMD_NODENAME|$CUDA_VISIBLE_DEVICES|$ARPO_SANDBOX|$*" >>"$RECORDS"\n'
FAKES = {
    "arpo": RECORD + '[[ $1 == sandbox ]] && exec sleep 300; [[ " $* " == *" --dry-run "* ]] || sleep 2',
    "vllm": RECORD + "exec sleep 300",
    "curl": 'grep -q "^vllm" "$RECORDS"',
}


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[None]:
    """Run a SLURM cluster on this machine until the block ends."""
    host = subprocess.run(["hostname", "-s"], capture_output=True, text=True, check=True).stdout.strip()
    (folder / "state").mkdir()
    for number in range(GPUS):
        (folder / f"gpu{number}").touch()
    given = {"host": host, "folder": folder, "nodes": NODES, "gpus": GPUS, "cpus": os.cpu_count()}
    (folder / "slurm.conf").write_text(CONFIG.format(**given))
    (folder / "gres.conf").write_text(f"NodeName=n[1-{NODES}] Name=gpu File={folder}/gpu[0-{GPUS - 1}]\n")
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o400)
    files = {"socket": "munge.sock", "key-file": "munge.key", "pid-file": "munge.pid", "log-file": "munge.log"}
    options = [f"--{name}={folder / file}" for name, file in {**files, "seed-file": "munge.seed"}.items()]
    os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
    try:
        subprocess.run(["munged", "--force", *options], check=True)
        subprocess.run(["slurmctld"], check=True)
        for number in range(1, NODES + 1):
            subprocess.run(["slurmd", "-N", f"n{number}"], check=True, stderr=subprocess.DEVNULL)
        wait_for(lambda: said("sinfo", "--noheader", "--format=%T %D") == f"idle {NODES}", 30)
        yield
    finally:
        for pid in [*folder.glob("node-*.pid"), folder / "controller.pid", folder / "munge.pid"]:
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(pid.read_text()), 15)
        time.sleep(3)


def said(*command: str, **environ: str) -> str:
    """Return what a command prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **environ})
    return done.stdout.strip()


def wait_for(condition: Any, seconds: float) -> None:
    """Wait until something is true."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"not true after {seconds} s"
        time.sleep(0.1)


def submit(template: str, *options: str, wait: bool = True, **environ: str) -> str:
    """Submit a template, and return the id of its job."""
    command = ["sbatch", "--parsable", *(["--wait"] if wait else []), *options, str(TEMPLATES / template)]
    return said(*command, **environ)


def train(folder: Path, nodes: int, sandbox_nodes: int) -> dict[str, Any]:
    """Run the template of training, and return what was started where."""
    programs, records = folder / "programs", folder / f"records-{nodes}"
    programs.mkdir(exist_ok=True)
    records.touch()
    for name, body in FAKES.items():
        (programs / name).write_text(f"#!/bin/bash\n{body}\n")
        (programs / name).chmod(0o755)
    environ = {"PATH": f"{programs}:{os.environ['PATH']}", "RECORDS": str(records), "SANDBOX_NODES": str(sandbox_nodes)}
    began = time.monotonic()
    submit("train.sbatch", f"--nodes={nodes}", CONFIG="my.yaml", MODEL="x/y", OUTPUT=str(folder / "run"), **environ)
    seconds = time.monotonic() - began
    lines = [line.split("|") for line in records.read_text().splitlines()]
    started = [{"program": p, "node": n, "gpus": g, "sandbox": d, "arguments": a} for p, n, g, d, a in lines]
    return {"nodes": nodes, "sandbox_nodes": sandbox_nodes, "seconds": round(seconds, 1), "started": started}


def scripted(body: dict[str, Any]) -> tuple[int, Any]:
    """A model that computes some tasks with the tool, and guesses others."""
    luck = int(hashlib.sha256((json.dumps(body["messages"]) + str(body["seed"])).encode()).hexdigest(), 16) % 4
    if len(body["messages"]) == 2 and luck < 3:
        return 200, reply("<think>compute</think><python>print(6 * 7)</python>")
    return 200, reply(f"<think>so</think><answer>\\boxed{{{luck}}}</answer>")


def rows_in(folder: Path) -> int:
    """Return how many episodes a folder has."""
    file = folder / "episodes.jsonl"
    return file.read_bytes().count(b"\n") if file.is_file() else 0


def evaluate(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Run the templates of evaluation with two kills, and compare with one process."""
    programs = folder / "real"
    programs.mkdir()
    (programs / "arpo").write_text(f'#!/bin/bash\nexec {sys.executable} -m arpo_trainer.cli "$@"\n')
    (programs / "arpo").chmod(0o755)
    amount = f"--tasks {given.tasks} -n {given.samples} --env-set level=3 --concurrency 2"
    joined, whole = folder / "joined", folder / "whole"
    with chat_server(scripted, seconds=given.seconds) as server:
        options = f"--endpoint {server.address} --endpoint-model scripted {amount}"
        environ = {
            **{"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "OUTPUT": str(joined)},
            **{"SUITES": "arpo/Arithmetic-v0", "MODEL": given.model, "EVAL_OPTIONS": options},
        }
        began = time.monotonic()
        job = submit("evaluate.sbatch", f"--array=0-{SHARDS - 1}%2", "--cpus-per-task=1", wait=False, **environ)
        wait_for(lambda: rows_in(joined / "shard-2-of-8") >= 3, 240)
        said("scontrol", "requeue", f"{job}_2")
        wait_for(lambda: rows_in(joined / "shard-5-of-8") >= 3, 240)
        said("scancel", "--signal=KILL", f"{job}_5")
        wait_for(lambda: not said("squeue", "--noheader", "--name=arpo-eval"), 550)
        half = subprocess.run(
            [str(programs / "arpo"), "eval", "merge", str(joined)],
            capture_output=True,
            text=True,
            env={**os.environ, **environ},
        )
        submit("evaluate.sbatch", "--array=5", "--cpus-per-task=1", SHARDS="8", **environ)
        submit("merge.sbatch", **environ)
        seconds = time.monotonic() - began
        command = [
            str(programs / "arpo"),
            "eval",
            "arpo/Arithmetic-v0",
            "--model",
            given.model,
            *options.split(),
        ]
        subprocess.run([*command, "--output", str(whole)], check=True, env={**os.environ, **environ})
    one, two = load_eval_run(whole), load_eval_run(joined)
    return {
        "tasks": given.tasks,
        "samples": given.samples,
        "shards": SHARDS,
        "merged before the killed shard was done": half.stderr.strip(),
        "episodes": len(two.attempts),
        "twice": len(two.attempts) - len({row.key for row in two.attempts}),
        "sittings": two.facts["sittings"],
        "tool calls": two.facts["usage"]["calls"],
        "same results.json": (whole / "results.json").read_bytes() == (joined / "results.json").read_bytes(),
        "same episodes without times": untimed(one) == untimed(two),
        "seconds until merged": round(seconds, 1),
    }


def untimed(run: EvalRun) -> list[Any]:
    """Return all that is stored, without times."""

    def cleaned(value: Any) -> Any:
        if isinstance(value, dict):
            times = ("seconds", "trace", "timeline", "start", "end")
            return {name: cleaned(each) for name, each in value.items() if name not in times}
        return [cleaned(each) for each in value] if isinstance(value, list) else value

    return [(cleaned(asdict(row)), cleaned(json.loads(run.line(row)))) for row in run.rows]


def main() -> None:
    """Run all parts, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=48)
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.2, help="that each answer of the scripted model takes")
    parser.add_argument("--model", default="smollm2-135m", help="the tokenizer")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    os.chdir(folder)
    found: dict[str, Any] = {"slurm": said("slurmd", "-V"), "machine": f"{os.cpu_count()} cores, {NODES} slurmd on it"}
    with cluster(folder):
        found["train"] = [train(folder, *shape) for shape in ((1, 0), (2, 0), (8, 3))]
        found["evaluate"] = evaluate(folder, given)
        found["jobs left"] = said("squeue", "--noheader")
    RESULTS.write_text(json.dumps(found, indent=1).replace(str(folder), "FOLDER") + "\n")
    shutil.rmtree(folder)
    sys.stdout.write(json.dumps({**found, "train": "..."}, indent=1) + f"\n{RESULTS}\n")


if __name__ == "__main__":
    main()
