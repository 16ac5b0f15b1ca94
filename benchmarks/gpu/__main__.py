"""Runs everything that needs a GPU, and writes one JSON file for each part.

    make gpu                                                # on a machine with a GPU: installs, then runs all parts
    make gpu PARTS="packing-equal train-lora"               # some of them
    python -m benchmarks.gpu [PART ...] [--output FOLDER]   # the same in an environment of your own
    python -m benchmarks.gpu --list
    python -m benchmarks.gpu --tiny --output /tmp/gpu       # tiny sizes, also on a CPU: does the script itself work?

Each part is a process of its own with a limit of time (570 s; `qwen...` an hour; `--seconds`): one that hangs or dies
costs the others nothing. Results are written to docs/results/gpu/PART.json as soon as a part ends: `status` is
"ok", "skipped" (with the reason: a missing package, too few GPUs) or "failed" (with the end of its output). A result
that is "ok" is replaced only by another one that is "ok"; `--again` measures it anew, otherwise such parts are left
out. The exit status is 1 if a part failed. The results that the pages show are in folders below, as h200.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from benchmarks.gpu.parts import PARTS, SHARED, NotHereError

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "results" / "gpu"
PACKAGES = (
    "arpo-gym",
    "torch",
    "triton",
    "transformers",
    "trl",
    "accelerate",
    "peft",
    "deepspeed",
    "vllm",
    "gymnasium",
)
_TAIL = 3000  # characters of a failed part's output that are kept


def facts() -> dict[str, Any]:
    """Return what the numbers depend on: device, driver, versions."""
    import importlib.metadata

    import torch

    versions = {"python": platform.python_version(), "cuda": torch.version.cuda}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    found = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    return {
        "devices": [{"name": one.name, "gb": round(one.total_memory / 1e9, 1)} for one in found],
        "cores": len(os.sched_getaffinity(0)),
        "versions": versions,
        "date": datetime.date.today().isoformat(),
    }


def run_part(name: str, tiny: bool, file: Path) -> None:
    """Run one part in this process and write its result."""
    start, result = time.perf_counter(), {"part": name, "question": PARTS[name].question, "tiny": tiny, **facts()}
    try:
        PARTS[name].check(tiny)
        result |= {"status": "ok", "results": PARTS[name].load()(tiny)}
    except NotHereError as error:
        result |= {"status": "skipped", "why": str(error)}
    except Exception:
        result |= {"status": "failed", "why": traceback.format_exc()[-_TAIL:]}
    result["seconds"] = round(time.perf_counter() - start, 1)
    file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def start_part(name: str, folder: Path, tiny: bool, seconds: float) -> dict[str, Any]:
    """Run one part in a process of its own and return its result, also when that process hangs or dies."""
    file, log = folder / f"{name}.new.json", folder / f"{name}.log"
    file.unlink(missing_ok=True)
    command = [sys.executable, "-m", "benchmarks.gpu", name, "--inside", str(file), *(["--tiny"] if tiny else [])]
    # a part sees the GPUs that it needs, so that its numbers are not those of a machine with more
    seen = ",".join(os.environ.get("CUDA_VISIBLE_DEVICES", "0,1").split(",")[: PARTS[name].gpus])
    surroundings = os.environ | {"CUDA_VISIBLE_DEVICES": seen}
    with log.open("wb") as output:
        child = subprocess.Popen(
            command, cwd=ROOT, stdout=output, stderr=output, start_new_session=True, env=surroundings
        )
        try:
            why = f"exit status {child.wait(seconds)}"
        except subprocess.TimeoutExpired:
            why = f"not done after {seconds:.0f} s"
        finally:  # its launcher, servers and workers with it
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    if file.is_file():
        result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        file.unlink()
    else:
        tail = log.read_text(encoding="utf-8", errors="replace")[-_TAIL:]
        result = {
            "part": name,
            "question": PARTS[name].question,
            "tiny": tiny,
            **facts(),
            "status": "failed",
            "why": f"{why}\n{tail}",
        }
    if result["status"] != "failed":
        log.unlink()
    return result


def keep(result: dict[str, Any], folder: Path) -> None:
    """Write a result, unless one that says more is there."""
    file = folder / f"{result['part']}.json"
    if result["status"] == "ok" or not is_ok(file):
        file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def shown(result: dict[str, Any]) -> str:
    """Return what is printed of a result: its report if there is one, all of an error, the beginning of numbers."""
    if result["status"] != "ok":
        return str(result["why"])
    report = result["results"].get("report")
    return "\n  ".join(["", *report]) if report else json.dumps(result["results"])[:400]


def is_ok(file: Path) -> bool:
    """Say whether a file holds a result of a part that ran to its end."""
    return file.is_file() and json.loads(file.read_text(encoding="utf-8"))["status"] == "ok"


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="default: all")
    parser.add_argument("--list", action="store_true", help="list the parts")
    parser.add_argument("--tiny", action="store_true", help="tiny sizes, also on a CPU; needs --output")
    parser.add_argument("--output", type=Path, help="folder of the results (default docs/results/gpu)")
    parser.add_argument("--seconds", type=float, help="limit of each part (default 570; qwen and qwen-100: 3600)")
    parser.add_argument("--again", action="store_true", help="measure again what has been measured")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.parts if name not in PARTS]:
        parser.error(f"no part {', '.join(unknown)}; there are: {', '.join(PARTS)}")
    if arguments.tiny and not (arguments.output or arguments.inside):
        parser.error("--tiny needs --output FOLDER: its numbers do not belong among the results")
    return arguments


def main() -> int:
    arguments = read_arguments()
    if arguments.list:
        print("\n".join(f"{name:<18}{part.question}" for name, part in PARTS.items()))
        return 0
    if arguments.inside:
        run_part(arguments.parts[0], arguments.tiny, arguments.inside)
        return 0
    folder = arguments.output or RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    with tempfile.TemporaryDirectory() as shared:
        os.environ[SHARED] = shared  # children have it, too
        for name in arguments.parts or PARTS:
            if is_ok(folder / f"{name}.json") and not arguments.again:
                print(f"{name:<18}measured before; --again measures it anew", flush=True)
                continue
            result = start_part(name, folder, arguments.tiny, arguments.seconds or PARTS[name].seconds)
            keep(result, folder)
            failed += result["status"] == "failed"
            print(f"{name:<18}{result['status']:<9}{shown(result)}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
