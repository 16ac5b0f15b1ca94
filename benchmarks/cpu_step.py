"""The output matrix in a training step on a CPU: TRL's head beside ours, and with freed memory kept.

    python -m benchmarks.cpu_step [--positions 600] [--labelled 0.6] [--rounds 3]

Log-probabilities of tokens under bfloat16 autocast and their gradients, with the sizes of Qwen2.5-0.5B (a vocabulary of
151,936, 896 numbers a position); a share of the positions has labels, as in packed trees. CPU seconds, the medians of
rounds in which the subjects alternate, each in a process of its own that has warmed up once. Written to
benchmarks/results/cpu_step.json.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from trl.trainer import utils as trl_utils

from arpo_trainer.training.cpu_head import speed_up_head
from arpo_trainer.training.devices import keep_freed_memory

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "cpu_step.json"
SUBJECTS = ("TRL's head", "ours", "ours, memory kept")
VOCABULARY, WIDTH = 151_936, 896
WARM = 6  # calls that are not counted: the first ones touch new memory


class Backbone(torch.nn.Module):
    """A model that only has its output matrix, for `add_fused_lm_head`."""

    def __init__(self, positions: int) -> None:
        super().__init__()
        self.config: Any = argparse.Namespace(get_text_config=lambda: argparse.Namespace(model_type="qwen2"))
        self.states = torch.nn.Parameter(torch.randn(1, positions, WIDTH))
        self.head = torch.nn.Linear(WIDTH, VOCABULARY, bias=False)

    @property
    def base_model(self) -> Any:
        """What TRL's head calls for the states."""
        return lambda **_: argparse.Namespace(last_hidden_state=self.states)

    def get_output_embeddings(self) -> Any:
        """What TRL's head multiplies with."""
        return self.head


def measure(subject: str, positions: int, labelled: float) -> dict[str, float]:
    """Return CPU seconds and page faults of a call with its gradients."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if subject != SUBJECTS[0]:
        speed_up_head()
    if subject == SUBJECTS[2]:
        keep_freed_memory()
    model = Backbone(positions)
    trl_utils.add_fused_lm_head(model)
    labels = torch.randint(VOCABULARY, (1, positions))
    labels[torch.rand(labels.shape) > labelled] = -100
    seconds, faults = [], []
    for _ in range(WARM + 3):
        before, start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.process_time()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = model(shift_labels=labels, fused_lm_head=True)
        found.log_probs.sum().backward()
        seconds.append(time.process_time() - start)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    return {"seconds": statistics.median(seconds[WARM:]), "faults": statistics.median(faults[WARM:])}


def main() -> None:
    """Measure all subjects in turn, and write the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--positions", type=int, default=600)
    parser.add_argument("--labelled", type=float, default=0.6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--subject", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.subject:
        print(json.dumps(measure(given.subject, given.positions, given.labelled)))
        return
    found: dict[str, list[dict[str, float]]] = {subject: [] for subject in SUBJECTS}
    sizes = ["--positions", str(given.positions), "--labelled", str(given.labelled)]
    for _ in range(given.rounds):
        for subject in SUBJECTS:
            command = [sys.executable, "-m", "benchmarks.cpu_step", "--subject", subject, *sizes]
            done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
            found[subject].append(json.loads(done.stdout.splitlines()[-1]))
            print(f"{subject:20} {found[subject][-1]}", flush=True)
    table = {
        subject: {key: statistics.median(one[key] for one in rows) for key in rows[0]}
        for subject, rows in found.items()
    }
    sized = {"positions": given.positions, "labelled": given.labelled, "rounds": given.rounds}
    RESULTS.write_text(json.dumps({**sized, "medians": table}, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
