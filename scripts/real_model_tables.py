"""Writes the tables of the page qwen of docs/results, and its pictures, from benchmarks/results/real_models.json.

Its table of the GPU, and that of the page gpus of docs/how-to, are from docs/results/gpu/h200.

python -m scripts.real_model_tables
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from arpo_trainer.statistics import compare_paired

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "docs" / "results" / "qwen.md", ROOT / "docs" / "how-to" / "gpus.md")
PICTURE = ROOT / "docs" / "images" / "qwen.svg"
GPU_PICTURE = ROOT / "docs" / "images" / "qwen-gpu.svg"
CURVE = ROOT / "docs" / "images" / "qwen-training.svg"
RESULTS = ROOT / "benchmarks" / "results" / "real_models.json"
ON_GPU = ROOT / "docs" / "results" / "gpu" / "h200"
GPU_PARTS = {
    "train-bf16": "all weights, flat rows",
    "train-packed": "all weights, packed trees",
    "train-lora": "LoRA on a bfloat16 base, packed trees",
    "train-fsdp2": "FSDP2, packed trees",
    "vllm-colocate": "vLLM in the process, flat rows",
}
END = "<!-- end of table -->\n"
PLACES = (
    *("found", "worse query than the question", "not found by the question either"),
    *("a call that nobody can read", "no call"),
)
Part = dict[str, Any]


def search_table(part: Part) -> str:
    """Return accuracy and calls of each way to play, and how far the episodes with search came."""
    heads = ["set", "tools", "protocol", "tasks", "accuracy", "right in any format", "calls", "answered"]
    rows, reached = [], []
    for way in part["ways"]:
        rows.append([
            way["set"], way["tools"], way["protocol"], way["tasks"], _interval(way["accuracy"]),
            _interval(way["right in any format"]), f"{way['calls']:.2f}",
            f"{way['outcomes'].get('answered', 0)} of {way['tasks']}",
        ])  # fmt: skip
        if "places" in way:
            cells = [f"{way['places'].get(one, 0)} ({way['right'].get(one, 0)} right)" for one in PLACES]
            reached.append([way["set"], way["protocol"], *cells])
    second = _table(["set", "protocol", *PLACES], reached)
    return f"{_table(heads, rows)}\n{second}"


def judge_table(part: Part) -> str:
    """Return agreement of the judges' verdicts."""
    rows = []
    for name, found in part.items():
        against = [key for key, value in found.items() if isinstance(value, dict)]
        rows += [[name if key in against[:1] else "", key, *_agreement(found[key])] for key in against]
    return _table(["judge", "compared with", "answers", "agree", "kappa", "wrongly accepted", "wrongly rejected"], rows)


def helpers_table(part: Part) -> str:
    """Return what each helper did."""
    rows = []
    for name, found in part.items():
        for kind, counts in found["debugger"]["kinds"].items():
            rows.append(
                [name, f"debugger: {kind}", counts["programs"], f"{counts['run']} run, {counts['right']} right"]
            )
        tools = found["tool_model"]
        rows.append([
            name, "plays tools", tools["asked"],
            f"{tools['JSON']} JSON; {tools['of them answered']} of {tools['calls that fit']} calls that fit answered, "
            f"{tools['of them refused']} of {tools['calls that do not fit']} that do not fit refused",
        ])  # fmt: skip
        for helper in ("summariser", "condenser"):
            one = found[helper]
            size = one["characters"]
            words = f"{size['before']:,} -> {size['after']:,} characters; the answer is kept in {one['kept']}"
            rows.append([name, helper, one["asked"], words])
        if one := found.get("refiner"):
            size, failed = one["characters"], sum(one["failed"].values())
            words = f"{one['asked'] - failed} shortened, {size['before']:,} -> {size['after']:,} characters of turns"
            rows.append([name, "refiner", one["asked"], words])
    return _table(["model", "helper", "asked", "what came of it"], rows)


def frameworks_table(part: Part) -> str:
    """Return what each framework counted, beside `arpo eval`."""
    heads = ["model", "framework", "tasks", "mean reward", "calls", "same text", "same answer", "same reward"]
    rows = []
    for model, frameworks in part.items():
        for name, found in frameworks.items():
            same = [found[key] for key in ("same text", "same answer", "same reward")]
            rows.append([model, name, found["tasks"], f"{found['reward']:.2f}", found["calls"], *same])
    return _table(heads, rows)


def path_table(part: Part) -> str:
    """Return accuracy after each stage, and what each was trained on."""
    heads = ["model", "accuracy", "right in any format", "minus cold start"]
    heads += ["tasks with calls", "tried again after code that failed", "answered", "tokens", "trained on"]
    elsewhere = part.get("math500", {})  # a few tasks of another set
    more = {"score": "MATH500", "said": "MATH500 in any format"} if elsewhere else {}
    heads += more.values()
    rows = []
    for name, found in part["evaluations"].items():
        outcomes = found["outcomes"]
        rows.append([
            _stage(name), _interval(found["score"]), _interval(found["said"]), _difference(name, part),
            f"{found['tasks_with_tools']:.2f}",
            f"{found['tried again']} of {found['code failed']}" if "code failed" in found else "",
            f"{outcomes.get('answered', 0)} of {sum(outcomes.values())}", f"{found['tokens']:.0f}",
            _trained_on(name, part),
            *(_interval(elsewhere[name][kind]) if name in elsewhere else "" for kind in more),
        ])  # fmt: skip
    return _table(heads, rows)


def steps_table(part: Part) -> str:
    """Return what the trajectories of each quarter of a training run were like: means over its steps."""
    kinds = {
        "right": ("accuracy", 2), "cut off": ("completions/clipped_ratio", 2), "tokens": ("completions/mean_length", 0),
        "calls": ("tool_calls", 2), "branches": ("branches", 1), "groups all wrong": ("all_wrong", 2),
        "groups all right": ("all_right", 2), "entropy": ("entropy", 2), "seconds a step": ("seconds_step", 0),
    }  # fmt: skip
    lines = []
    for name, steps in part.items():
        size = max(1, len(steps) // 4)
        for rows in (steps[begin : begin + size] for begin in range(0, len(steps), size)):
            means = {key: sum(row[key] for row in rows) / len(rows) for key in rows[0]}
            cells = [f"{means[key]:.{digits}f}" for key, digits in kinds.values()]
            faults = f"{means['accuracy'] - means['reward']:.2f}"
            lines.append([_stage(name), f"{rows[0]['step']} to {rows[-1]['step']}", cells[0], faults, *cells[1:]])
    heads = list(kinds)
    return _table(["run", "steps", heads[0], "faults of format", *heads[1:]], lines)


def gpu_parts_table(part: Part) -> str:
    """Return what three steps of ARPO took on a GPU in each way, and how far rollout and update are apart."""
    heads = ["way", "seconds a step", "of them rollout", "tokens/s of the rollout", "peak of PyTorch's memory, GB"]
    heads += ["tokens of rows per token computed", "rollout and update apart, nats a token"]
    rows = []
    for name, way in GPU_PARTS.items():
        found = part[name]["results"]
        apart, packing = found["logps, rollout - training"], found["packing"]
        middle = {
            key: statistics.median(found[key])
            for key in ("seconds of a step, rollout included", "seconds_rollout", "tokens_per_second")
        }
        step, rollout, speed = middle.values()
        rows.append([
            way, f"{step:.1f}", f"{rollout:.1f}", f"{speed:,.0f}", f"{found['peak_gb']:.1f}",
            f"{statistics.median(packing):.1f}" if packing else "", f"{apart['mean']:.1e}, at most {apart['max']:.2f}",
        ])  # fmt: skip
    return _table(heads, rows)


STYLE = """
text { font: 14px ui-sans-serif, system-ui, "Segoe UI", Roboto, "Liberation Sans", Arial, sans-serif; fill: #181c22; }
.soft { fill: #57606c; } .track { fill: #eceff2; } .bar { fill: #0a66b0; } .line { stroke: #181c22; stroke-width: 1.5; }
.curve { fill: none; stroke-width: 2; } .arpo { stroke: #0a66b0; } .grpo { stroke: #b45309; }
@media (prefers-color-scheme: dark) {
text { fill: #e6e9ee; } .soft { fill: #a3adb9; } .track { fill: #2a313a; } .bar { fill: #4b9fe0; }
.line { stroke: #e6e9ee; } }
"""


def path_picture(part: Part) -> str:
    """Return a picture of the share of right answers, in any format, after each stage: bars with their intervals."""
    left, width, height = 245, 300, 34
    drawn = []
    for number, (name, found) in enumerate(part["evaluations"].items()):
        top, score = 34 + number * height, found["said"]
        low, mean, high = (left + width * score[key] for key in ("low", "mean", "high"))
        middle = top + 11
        drawn.append(
            f'<text x="0" y="{top + 16}">{_stage(name)}</text>'
            f'<rect class="track" x="{left}" y="{top}" width="{width}" height="22"/>'
            f'<rect class="bar" x="{left}" y="{top}" width="{mean - left:.1f}" height="22"/>'
            f'<path class="line" d="M {low:.1f} {middle} H {high:.1f} M {low:.1f} {middle - 4} v 8'
            f' M {high:.1f} {middle - 4} v 8"/>'
            f'<text x="{left + width + 12}" y="{top + 16}">{_interval(score)}</text>'
            f'<text class="soft" x="{left + width + 140}" y="{top + 16}">{found["tokens"]:.0f} tokens</text>'
        )
    sizes = sorted({found["score"]["tasks"] for found in part["evaluations"].values()})
    asked = " to ".join(f"{size:,}" for size in sorted({sizes[0], sizes[-1]}))
    title = f"Qwen2.5-Coder-0.5B, first {asked} test questions of GSM8K: right answers, with 95 % intervals"
    return _picture(title, 40 + len(drawn) * height, drawn)


def curve_picture(part: Part) -> str:
    """Return a picture of the share of right trajectories in each step of each training run."""
    left, top, width, height = 40, 34, 560, 160
    last = max(row["step"] for rows in part["steps"].values() for row in rows)
    drawn = [
        f'<path class="line" stroke-opacity="0.2" d="M {left} {y} H {left + width}"/>'
        f'<text x="0" y="{y + 5}">{mark}</text>'
        for mark, y in ((f"{quarter / 4:.2f}", top + height - height * quarter // 4) for quarter in range(5))
    ]
    for number, (name, rows) in enumerate(part["steps"].items()):
        points = " ".join(
            f"{left + width * row['step'] / last:.1f},{top + height * (1 - row['accuracy']):.1f}" for row in rows
        )
        kind, at = name.partition("-")[0], top + 16 + 24 * number
        drawn.append(f'<polyline class="curve {kind}" points="{points}"/>')
        drawn.append(f'<path class="curve {kind}" d="M {left + width + 16} {at - 5} h 20"/>')
        drawn.append(f'<text x="{left + width + 44}" y="{at}">{_stage(name)}</text>')
    drawn.append(f'<text class="soft" x="{left}" y="{top + height + 20}">step 1 to {last}</text>')
    return _picture("Right answers among the trajectories of each training step", top + height + 30, drawn)


def _picture(title: str, tall: int, drawn: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 785 {tall}" width="785" height="{tall}">'
        f"<title>{title}</title><style>{STYLE}</style>"
        f'<text class="soft" x="0" y="16">{title}</text>{"".join(drawn)}</svg>\n'
    )


def episodes_text(part: Part) -> str:
    """Return whole episodes, each after its question."""
    shown = []
    for kind, one in part.items():
        shown.append(f"**{kind.capitalize()}** ({one['task']}, accepted: {', '.join(one['answers'])})\n")
        shown.append("".join(f"> {line}\n" for line in one["question"].splitlines()))
        if kind.startswith("computes"):
            before = one["before"].strip()
            shown.append(
                f"The model as it is, which makes up what its code prints:\n\n~~~text\n{before}\n~~~\n\nTrained:\n"
            )
        shown.append(f"```text\n{one['text'].strip()}\n```\n")
    return "\n".join(shown)


def _stage(name: str) -> str:
    """Return words for a model, as "grpo-4-tokens"."""
    if name in (words := {"prose": "base, without tools", "start": "base, with tools", "sft": "cold start"}):
        return words[name]
    algorithm, seed, *equal = name.split("-")
    return f"{algorithm.upper()}, seed {seed}" + (f", at as many {equal[0]}" if equal else "")


def _difference(name: str, part: Part) -> str:
    """Return the difference in accuracy on the same tasks, of the models that began with the cold start."""
    if name.partition("-")[0] not in ("arpo", "grpo"):
        return ""
    both = part["evaluations"]["sft"], part["evaluations"][name]
    sides, tasks = [], min(one["score"]["tasks"] for one in both)  # the first ones; a run may have been cut short
    for one in both:
        right = set(one["right"])
        sides.append({str(task): [float(task in right)] for task in range(tasks)})
    found = compare_paired(sides[0], sides[1])
    return f"{found.difference:+.2f} [{found.low:+.2f}, {found.high:+.2f}]"


def _trained_on(name: str, part: Part) -> str:
    if name == "sft":
        synth = part["synth"]
        return f"{synth['rows']} of {synth['played']} samples of the 1.5B{_minutes(part, 'synth', 'sft')}"
    spent = part["spent"].get(name)
    return f"{spent['sampled']:,} tokens, {spent['calls']:,} calls{_minutes(part, name)}" if spent else ""


def _minutes(part: Part, *names: str) -> str:
    seconds = part.get("seconds", {})
    taken = [seconds[name] / 60 for name in names if name in seconds]
    return f"; {' + '.join(f'{one:.0f}' for one in taken)} min" if taken else ""


TABLES = {
    "path": path_table,
    "gpu": path_table,
    "gpu parts": gpu_parts_table,
    "episodes": episodes_text,
    "steps": steps_table,
    "search": search_table,
    "judge": judge_table,
    "helpers": helpers_table,
    "frameworks": frameworks_table,
}


def page_with_tables(page: str) -> str:
    """Return the text of a page with the tables that it has a place for written anew."""
    for name, part in results().items():
        begin = f"<!-- {name}: written by scripts/real_model_tables.py -->\n"
        before, mark, rest = page.partition(begin)
        if mark:
            page = before + begin + TABLES[name](part) + END + rest.partition(END)[2]
    return page


def results() -> dict[str, Part]:
    """Return what each table shows, by its name."""
    data: dict[str, Part] = json.loads(RESULTS.read_text(encoding="utf-8"))
    data |= {name: data["path"][name] for name in ("episodes", "steps")}
    data["gpu"] = _on_gpu("qwen")["results"]
    data["gpu parts"] = {name: _on_gpu(name) for name in GPU_PARTS}
    return data


def _on_gpu(name: str) -> Part:
    part: Part = json.loads((ON_GPU / f"{name}.json").read_text(encoding="utf-8"))
    return part


def _interval(found: Part | None) -> str:
    return f"{found['mean']:.2f} [{found['low']:.2f}, {found['high']:.2f}]" if found else "-"


def _agreement(found: Part) -> list[Any]:
    share, kappa = f"{found['share']:.2f}", f"{found['kappa']:.2f}"
    return [found["answers"], share, kappa, found["wrongly accepted"], found["wrongly rejected"]]


def _table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(str(cell) for cell in cells)} |\n" for cells in lines)


def pictures() -> dict[Path, str]:
    """Return the pictures of the stored results, each with its file."""
    part = json.loads(RESULTS.read_text(encoding="utf-8"))["path"]
    drawn = {PICTURE: path_picture(part), GPU_PICTURE: path_picture(_on_gpu("qwen")["results"])}
    return drawn | ({CURVE: curve_picture(part)} if part["steps"] else {})


def main() -> int:
    """Write the tables and the pictures."""
    for page in PAGES:
        page.write_text(page_with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
    for file, text in pictures().items():
        file.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
