"""The sbatch templates: which command they start on which node and GPU, with SLURM's commands replaced by records."""

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.waiting import wait_for

FOLDER = Path(__file__).parents[2] / "examples" / "slurm"
FAKES = {
    "scontrol": "echo \"${3//,/$'\\n'}\"",
    # runs the command once on each node, as srun does with one task per node
    "srun": r"""
        nodes=batch options=() tasks=()
        trap 'kill "${tasks[@]}" 2>/dev/null; wait; exit 143' TERM
        while [[ $1 == --* ]]; do
            [[ $1 == --nodelist=* ]] && nodes=${1#*=}
            options+=("$1"); shift
        done
        for node in ${nodes//,/ }; do
            SLURMD_NODENAME=$node SLURM_PROCID=${#tasks[@]} OPTIONS="${options[*]}" "$@" & tasks+=($!)
        done
        while wait -n; status=$?; ((status != 127)); do
            ((status)) && { kill "${tasks[@]}" 2>/dev/null; exit $status; }
        done
        exit 0""",
    "arpo": r"""
        printf '%s\n' "arpo|$SLURMD_NODENAME|${CUDA_VISIBLE_DEVICES:-}|${ARPO_SANDBOX:-}|$OPTIONS|$*" >>"$RECORDS"
        [[ $1 == sandbox ]] && { echo $$ >"$RECORDS.$SLURMD_NODENAME"; exec /bin/sleep 60; }
        [[ " $* " == *" --dry-run "* ]] && exit "${DRY_RUN_STATUS:-0}"
        [[ ${TRAINING_SECONDS:-} ]] && exec /bin/sleep "$TRAINING_SECONDS"
        exit "${TRAINING_STATUS:-0}" """,
    "vllm": r"""
        [[ ${SERVER_FAILS:-} == start ]] && exit 3
        printf '%s\n' "vllm|$SLURMD_NODENAME|$CUDA_VISIBLE_DEVICES||$OPTIONS|$*" >>"$RECORDS"
        [[ ${SERVER_FAILS:-} == later ]] && { /bin/sleep 0.3; exit 3; }
        echo $$ >"$RECORDS.$SLURMD_NODENAME"; exec /bin/sleep 60""",
    # a server answers once it was started on the node of the address
    "curl": "url=${*: -1}; url=${url#http://}; [[ -e $RECORDS.${url%%:*} || ${SERVER_FAILS:-} == later ]]",
    "sleep": "exec /bin/sleep 0.02",
}


@dataclass
class Step:
    program: str
    node: str
    gpus: str
    sandbox: str
    options: str
    words: str

    def after(self, flag: str) -> str:
        words = self.words.split(" ")
        return words[words.index(flag) + 1]


class FakeSlurm:
    """A folder with the commands of SLURM, vLLM and ours, which write down what was started where."""

    def __init__(self, folder: Path) -> None:
        self.records = folder / "records"
        self.records.touch()
        for name, body in FAKES.items():
            (folder / name).write_text(f"#!/bin/bash\n{body}\n")
            (folder / name).chmod(0o755)
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "ARPO_SANDBOX", "CUDA"))}
        self.environ = {**clean, "PATH": f"{folder}:{os.environ['PATH']}", "RECORDS": str(self.records)}

    def start(self, template: str, **environ: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", str(FOLDER / template)], env={**self.environ, **environ}, stderr=subprocess.PIPE, text=True
        )

    def run(self, template: str, **environ: str) -> tuple[int, str, list[Step]]:
        process = self.start(template, **environ)
        said = process.communicate(timeout=20)[1]
        return process.returncode, said, self.steps()

    def steps(self) -> list[Step]:
        return [Step(*line.split("|")) for line in self.records.read_text().splitlines()]

    def servers_are_gone(self) -> bool:
        pids = [file.read_text().strip() for file in self.records.parent.glob("records.*")]
        return bool(pids) and not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.fixture
def slurm(tmp_path: Path) -> FakeSlurm:
    return FakeSlurm(tmp_path)


def job(nodes: int, **environ: str) -> dict[str, str]:
    names = ",".join(f"n{number}" for number in range(nodes))
    given = {"CONFIG": "my.yaml", "MODEL": "x/y", "OUTPUT": "runs/mine", "SLURM_GPUS_ON_NODE": "8"}
    return {**given, "SLURM_JOB_NODELIST": names, **environ}


@pytest.mark.parametrize(
    ("nodes", "sandbox_nodes", "training", "server", "gpus"),
    [
        (1, 0, ["n0"], "n0", ("0,1,2,3", "4,5,6,7")),
        (2, 0, ["n0"], "n1", ("0,1,2,3,4,5,6,7",) * 2),
        (8, 3, ["n0", "n1", "n2", "n3"], "n7", ("0,1,2,3,4,5,6,7",) * 2),
    ],
)
def test_each_part_is_started_where_it_belongs(
    slurm: FakeSlurm, nodes: int, sandbox_nodes: int, training: list[str], server: str, gpus: tuple[str, str]
) -> None:
    status, said, steps = slurm.run("train.sbatch", **job(nodes, SANDBOX_NODES=str(sandbox_nodes)))
    assert (status, said) == (0, "")
    dry, *rest = steps
    assert "--dry-run" in dry.words
    [serve] = [step for step in rest if step.program == "vllm"]
    ranks = {step.node: step for step in rest if step.words.startswith("train")}
    boxes = {step.node: step for step in rest if step.words.startswith("sandbox serve")}
    assert (serve.node, sorted(ranks)) == (server, training)
    assert {step.gpus for step in ranks.values()} == {gpus[0]}
    assert serve.gpus == gpus[1]
    assert serve.after("--tensor-parallel-size") == str(len(gpus[1].split(",")))
    for number, node in enumerate(training):
        words = ranks[node]
        processes = len(training) * len(gpus[0].split(","))
        told = {"machine-rank": number, "num-machines": len(training), "num-processes": processes}
        for flag, value in {**told, "main-process-ip": "n0"}.items():
            assert words.after(f"--{flag}") == str(value)
        assert f"vllm_server_base_url=http://{server}:8000" in words.words
    names = [f"n{len(training) + number}" for number in range(sandbox_nodes)]
    assert sorted(boxes) == names
    assert {step.sandbox for step in (dry, *ranks.values())} == {",".join(f"http://{name}:8080" for name in names)}
    assert {step.sandbox for step in boxes.values()} <= {""}  # they open their own
    assert all("--overlap" in step.options and "--gpus-per-node=8" in step.options for step in steps)
    assert slurm.servers_are_gone()


def test_the_flags_are_those_of_the_command(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    from arpo_trainer.cli.arpo_command import main

    _, _, steps = slurm.run("train.sbatch", **job(2, TRAIN_OPTIONS="--set max_steps=1", CONFIG="none.yaml"))
    words = next(step.words for step in steps if "--dry-run" in step.words).split(" ")
    assert words[-2:] == ["--set", "max_steps=1"]
    assert main(words) == 1  # it has read all flags when it looks for the file
    assert "none.yaml" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("environ", "words", "programs"),
    [
        ({"CONFIG": ""}, "CONFIG: is missing", set()),
        ({"SANDBOX_NODES": "1"}, "no node is left to train: 2 nodes", set()),
        ({"SLURM_JOB_NODELIST": "n0", "SLURM_GPUS_ON_NODE": "1"}, "one node needs 2 GPUs", set()),
        ({"DRY_RUN_STATUS": "1"}, "", {"arpo"}),
        ({"SERVER_FAILS": "start"}, "the vLLM server on n1 ended", {"arpo"}),
        ({"SERVER_FAILS": "later", "TRAINING_SECONDS": "30"}, "a server ended during training", {"arpo", "vllm"}),
        ({"TRAINING_STATUS": "7"}, "", {"arpo", "vllm"}),
    ],
)
def test_what_fails_ends_the_job(slurm: FakeSlurm, environ: dict[str, str], words: str, programs: set[str]) -> None:
    status, said, steps = slurm.run("train.sbatch", **job(2, **environ))
    assert status == int(environ.get("TRAINING_STATUS", 1))
    assert words in said
    assert {step.program for step in steps} == programs
    if "vllm" in programs and "SERVER_FAILS" not in environ:
        assert slurm.servers_are_gone()


def test_a_job_that_is_ended_leaves_nothing(slurm: FakeSlurm) -> None:
    process = slurm.start("train.sbatch", **job(2, TRAINING_SECONDS="30"))
    wait_for(lambda: any("--machine-rank" in step.words for step in slurm.steps()))
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=10) == 143
    assert slurm.servers_are_gone()


@pytest.mark.parametrize(("restarts", "name"), [("1", "checkpoint-4"), ("1", "other"), ("0", "checkpoint-4")])
def test_a_requeued_job_goes_on_from_its_checkpoint(slurm: FakeSlurm, tmp_path: Path, restarts: str, name: str) -> None:
    (tmp_path / "run" / name).mkdir(parents=True)
    (tmp_path / "run" / name / "trainer_state.json").touch()
    given = job(1, SLURM_RESTART_COUNT=restarts, OUTPUT=str(tmp_path / "run"))
    status, _, steps = slurm.run("train.sbatch", **given)
    assert status == 0
    resumed = (restarts, name) == ("1", "checkpoint-4")
    assert {"--resume" in step.words for step in steps if step.program == "arpo"} == {resumed}


@pytest.mark.parametrize(("shards", "shard"), [("", "auto"), ("8", "auto/8")])
def test_an_array_plays_shards_and_joins_them(slurm: FakeSlurm, shards: str, shard: str) -> None:
    given = {"SUITES": "reasoning arpo/GAIA-v0", "MODEL": "x/y", "OUTPUT": "evals/y", "SHARDS": shards}
    assert slurm.run("evaluate.sbatch", **given)[0] == 0
    status, _, [play, merge] = slurm.run("merge.sbatch", **given, SLURMD_NODENAME="", OPTIONS="")
    assert status == 0
    assert play.words == f"eval reasoning arpo/GAIA-v0 --model x/y --vllm --shard {shard} --resume --output evals/y"
    assert merge.words == "eval merge evals/y"
    assert slurm.run("evaluate.sbatch", **{**given, "SUITES": ""})[0] == 1
