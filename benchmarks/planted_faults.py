"""Plants faults in the core, one at a time, and looks whether the tests notice.

    python -m benchmarks.planted_faults [NAME ...]     # in a clean checkout; all faults take about half an hour

Each fault replaces a piece of text that occurs once in the product. The tests named beside it, which pass without it,
must fail. A fault that they let pass is an error, and so is a text that is not found because the code has moved on. The
changed file is restored each time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("sandbox", "envs_registry", "arpo_env", "arpo_trainer")
ALGORITHMS, ROLLOUT, TRAINING = (f"tests/arpo_trainer/{name}" for name in ("algorithms", "rollout", "training"))
VECTORS, PACKING = "tests/test_vectors.py tests/test_vectors_learning.py", "tests/arpo_trainer/packing"
GRADING, SERVER = "tests/arpo_env/grading", "tests/sandbox/server"


class Fault(NamedTuple):
    """A piece of the product's text, what is put in its place, and the tests that must notice."""

    name: str
    old: str
    new: str
    tests: str


FAULTS = [
    # which tokens are trained on, and what belongs to which token
    Fault("mask-environment", "row.mask += [int(model)] * n", "row.mask += [1] * n", "tests/arpo_trainer/test_tree.py"),
    Fault("learn-invalid", "trajectory.valid and (weighed is None", "(weighed is None", TRAINING),
    Fault("reward-invalid", "rewards[torch.tensor(invalid, device=rewards.device)] = torch.nan", "pass", TRAINING),
    Fault("align-opening", "[*zeros, *made.logprobs]", "[*made.logprobs, *zeros]", ROLLOUT),
    Fault("fold-context", 'list(step.ids) if step.kind == "fold" else ids + step.ids', "ids + step.ids", ROLLOUT),
    Fault("trim-too-much", "mask.bool().any(dim=0).cumsum(0)", "mask.bool().all(dim=0).cumsum(0)", TRAINING),
    Fault("control-words", "cuts.append(position)", "pass", ROLLOUT),
    # advantages and credit
    Fault("deviation", "if population else statistics.stdev", "if population else statistics.pstdev", ALGORITHMS),
    Fault("leave-one-out", "n / (n - 1) if n > 1 else 1.0", "1.0", ALGORITHMS),
    Fault("whiten-tokens", "reward * n for reward, n in rewards", "reward for reward, n in rewards", ALGORITHMS),
    Fault("fork-pseudo", "mean(others + pseudo) if others", "mean(others) if others", ALGORITHMS),
    Fault("dedup-copies", "(shared(span_advantages), once)", "(shared(span_advantages))", f"{ALGORITHMS} {TRAINING}"),
    Fault("weight-scale", "return copied / weighed if weighed else 1.0", "return 1.0", f"{ALGORITHMS} {TRAINING}"),
    Fault("entropy-factor", "1 + weight * z.clamp(-limit, limit)", "1 + weight * z", f"{ALGORITHMS} {TRAINING}"),
    Fault(
        "samples",
        "return roots[:1] if",
        "return list(range(len(self.trajectories))) if",
        "tests/arpo_trainer/test_tree.py tests/arpo_trainer/evaluation",
    ),
    # losses
    Fault(
        "aepo-clip",
        "((advantages > 0) | (loss.clip",
        "((advantages < 0) | (loss.clip",
        f"{TRAINING}/test_trl_losses.py",
    ),
    Fault("turn-borders", "starts[:, 1:] &= ~ones[:, :-1]", "pass", f"{ALGORITHMS} {VECTORS}"),
    Fault("loss-margin", "loss.high)) - margin", "loss.high)) + margin", f"{ALGORITHMS} {TRAINING}"),
    # packing
    Fault("packed-mask", "ends[path[common:]] = start", "ends[path[common + 1 :]] = start", PACKING),
    Fault("packed-depth", "np.arange(common, length)", "np.arange(length - common)", PACKING),
    Fault("packed-idle", "layouts += [idle_layout()] * (wanted - len(layouts))", "pass", PACKING),
    Fault(
        "packed-back",
        "value[0] for value in values",
        "values[0][0], *(value[0].detach() for value in values[1:])",
        PACKING,
    ),
    # the branch budget: what it gives, and that timing decides nothing
    Fault("quota", "self._used[_root(request.path)] += granted", "pass", ROLLOUT),
    Fault("early-grant", "int(self.width ** min(live.points, request.clock - live.clock + 1)) - 1", "0", ROLLOUT),
    Fault("round-order", "return request.clock, self.priority(", "return 0, self.priority(", ROLLOUT),
    Fault("group-seeds", "self.number_groups(len(tasks)) if training else 0", "0", TRAINING),
    Fault("rank-share", "-(-(rank + 1) * count // ranks)", "-(-rank * count // ranks) + 1", ROLLOUT),
    Fault("replay", "raise ReplayError(f", "logger.warning(f", ROLLOUT),
    # forks
    Fault("fork-episode", "tools, episode.copy()", "tools, episode", "tests/arpo_env/test_env.py"),
    Fault(
        "fork-generator",
        "twin._np_random = copy.deepcopy(self._np_random)",
        "twin._np_random = self._np_random",
        "tests/arpo_env/test_env.py tests/arpo_env/test_vector.py",
    ),
    Fault("fork-offset", "os.lseek(fd, file.offset, os.SEEK_SET)", "pass", SERVER),
    Fault("fork-random", 'sys.modules["random"].setstate(kept)', "pass", SERVER),
    Fault("fork-memory", "own_memory(old, directory)", "pass", SERVER),
    # limits of an episode
    Fault(
        "call-limit",
        "if len(used) >= self.calls:",
        "if len(used) > self.calls:",
        "tests/arpo_env/test_folding.py tests/arpo_env/test_env.py",
    ),
    Fault("thought-calls", 'if opened is None and name == "think":', "if False:", "tests/arpo_env/protocols"),
    Fault(
        "format",
        "well_formed = episode.malformed == 0 and",
        "well_formed =",
        "tests/arpo_env/test_env.py tests/arpo_env/test_rewards.py",
    ),
    # the sandbox's limits
    Fault("memory-own", "group.sure += sure + max(", "group.sure += max(", SERVER),
    Fault(
        "shared-memory", "size > share or files > share_files", "False", "tests/sandbox/server tests/sandbox/security"
    ),
    # grading
    Fault("relation-sign", "(_TURNED.get(sign, sign) if turned else sign) == other", "True", GRADING),
    Fault("chain-sides", "return all(_is_checkable(side, gold) for side in rest) and checked", "return True", GRADING),
    Fault("letter", "if mine is not None and mine[0] != letter:", "if False:", GRADING),
    # resume
    Fault("resume-passes", 'self._passes = int(_state(checkpoint)["epoch"])', "pass", TRAINING),
    Fault("resume-rollout", "        self.restore_state(state)\n", "        pass\n", TRAINING),
]


def place(text: str) -> Path | None:
    """Return the one file of the product that has a text once; None if there is no such file."""
    found = [
        path
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        for _ in range(path.read_text(encoding="utf-8").count(text))
    ]
    return found[0] if len(found) == 1 else None


def passes(tests: str) -> bool:
    """Return whether all of these tests pass; stops at the first that fails."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests.split()]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):  # such as a path that is not there: this is no failure of a test
        raise RuntimeError(f"pytest {tests} could not run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode == 0


def noticed(fault: Fault, path: Path) -> bool:
    """Return whether the tests fail with the fault."""
    before = path.read_text(encoding="utf-8")
    try:
        path.write_text(before.replace(fault.old, fault.new), encoding="utf-8")
        return not passes(fault.tests)
    finally:
        path.write_text(before, encoding="utf-8")


def main(names: list[str]) -> int:
    """Plant the named faults, or all; return 1 if one was missed or could not be planted."""
    wrong = 0
    faults = [fault for fault in FAULTS if not names or fault.name in names]
    # tests that fail anyway would notice anything
    sound = {tests: passes(tests) for tests in {fault.tests for fault in faults}}
    for fault in faults:
        began, path = time.perf_counter(), place(fault.old)
        if path is None:
            said = "NOT FOUND"
        elif not sound[fault.tests]:
            said = "its tests fail without it"
        else:
            said = "noticed" if noticed(fault, path) else "MISSED"
        wrong += said != "noticed"
        print(f"{fault.name:16} {said:10} {time.perf_counter() - began:5.0f} s", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
