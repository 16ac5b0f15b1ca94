"""What TRL's four corrections of vLLM's log-probabilities keep of a batch, by length of the completion and by noise.

    python -m benchmarks.importance

A token's log-ratio between trainer and vLLM is drawn from N(-s^2/2, s^2): noise of s nats, whose mean ratio is 1.
Tokens are independent. Each mode does what TRL does with its bound of 3:

    sequence_*   one ratio a row, the product of its tokens';  token_*   one ratio a token
    *_mask       a ratio above 3 becomes 0;                    *_truncate   it becomes 3

Measured are: rows dropped (whose every weight is 0), the effective sample size as a share, (sum w)^2 / (n sum w^2) over
what has a weight of its own, and two biases. "left" is the mean weight: what is left of a gradient if the noise has
nothing to do with the reward; 1 is unbiased. "shift" is what is wrong in the mean reward, in standard deviations of the
reward, if the reward were the noise itself, summed up: nothing is worse. Prints a table and writes
benchmarks/results/importance.json. Real noise has heavier tails; nothing is said about these.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results"
LENGTHS, NOISES, BOUND = (500, 4_000, 16_000), (0.005, 0.02, 0.05), 3.0
ROWS, ROWS_OF_TOKENS, CHUNK = 200_000, 1_000, 100


def mask(ratios: np.ndarray) -> np.ndarray:
    """Drop what is above the bound."""
    return np.where(ratios > BOUND, 0.0, ratios)


def truncate(ratios: np.ndarray) -> np.ndarray:
    """Cut what is above the bound."""
    return np.minimum(ratios, BOUND)


CUTS = {"mask": mask, "truncate": truncate}


def of_rows(length: int, noise: float, rows: int, rng: np.random.Generator) -> Iterator[dict[str, float | str]]:
    """Measure the two modes with one ratio a row; a sum of normal numbers is drawn as one."""
    reward = rng.standard_normal(rows)
    spread = noise * math.sqrt(length)
    ratios = np.exp(spread * reward - spread**2 / 2)
    for name, cut in CUTS.items():
        weights = cut(ratios)
        size = weights.sum() ** 2 / max(rows * (weights**2).sum(), 1e-300)
        shift = float(((weights - 1) * reward).mean()) - spread  # without weights the mean is 0
        yield row(f"sequence_{name}", float((weights == 0).mean()), float(size), float(weights.mean()), shift)


def of_tokens(length: int, noise: float, rows: int, rng: np.random.Generator) -> Iterator[dict[str, float | str]]:
    """Measure the two modes with one ratio a token."""
    sums = {name: np.zeros(4) for name in CUTS}  # weights, their squares, weighted rewards, rows without a weight
    for start in range(0, rows, CHUNK):
        draws = rng.standard_normal((min(CHUNK, rows - start), length), dtype=np.float32)
        reward = draws.sum(axis=1) / math.sqrt(length)
        ratios = np.exp(noise * draws - noise**2 / 2)
        for name, cut in CUTS.items():
            weights = cut(ratios)
            of_row = weights.sum(axis=1)
            sums[name] += (of_row.sum(), (weights**2).sum(), ((of_row - length) * reward).sum(), (of_row == 0).sum())
    count = rows * length
    for name, (total, squares, weighted, dropped) in sums.items():
        shift = weighted / count - noise * math.sqrt(length)
        yield row(f"token_{name}", dropped / rows, total**2 / (count * squares), total / count, shift)


def row(mode: str, dropped: float, size: float, left: float, shift: float) -> dict[str, float | str]:
    """Return a line of the table."""
    numbers = {"rows_dropped": dropped, "effective_sample_size": size, "left": left, "shift": shift}
    return {"mode": mode, **{name: round(float(value), 4) for name, value in numbers.items()}}


def measure() -> list[dict[str, float | str]]:
    """Return a line for each mode, length and noise."""
    rng, lines = np.random.default_rng(0), []
    for length in LENGTHS:
        for noise in NOISES:
            case = {"tokens": length, "noise": noise}
            found = (*of_rows(length, noise, ROWS, rng), *of_tokens(length, noise, ROWS_OF_TOKENS, rng))
            lines += [{**case, **one} for one in found]
    return lines


def main() -> None:
    """Measure, print, write."""
    started = time.perf_counter()
    lines = measure()
    names = list(lines[0])
    for cells in (names, *([str(line[name]) for name in names] for line in lines)):
        sys.stdout.write(
            "  ".join(cell.rjust(max(len(name), 17)) for cell, name in zip(cells, names, strict=True)) + "\n"
        )
    facts = {"bound": BOUND, "rows": ROWS, "rows_of_tokens": ROWS_OF_TOKENS}
    facts["seconds"] = round(time.perf_counter() - started, 1)
    text = json.dumps({**facts, "lines": lines}, indent=1)
    (RESULTS / "importance.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
