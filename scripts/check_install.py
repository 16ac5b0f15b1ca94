"""Checks that the package installs (`.ci/run install`), in half a minute and without fetching anything large.

- Each extra has a solution under each set of versions, on each Python, made of wheels. A resolver reads the index's
  metadata, so that the set for GPUs is checked without its gigabytes.
- Wheel and source archive hold the files of the packages and no others, and their metadata is fit for an index.
- The wheel, with what it needs and no more, in an environment of its own plays the README's first snippet.

    python scripts/check_install.py [resolve] [build]
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UV = str(ROOT / ".venv" / "bin" / "uv")
PACKAGES = ("sandbox", "envs_registry", "arpo_env", "arpo_gym", "arpo_trainer")
PYTHONS = ("3.11", "3.12", "3.13")
SETS = ("constraints.txt", "constraints-gpu.txt")
# the C library from which on all wheels of the set for GPUs are there: Ubuntu 22.04 and newer, Debian 12 and newer
PLATFORM = "x86_64-manylinux_2_35"
SHOWN = re.compile(r"^((?:torch|transformers|trl|vllm|numpy)==.*)$", re.MULTILINE)


def main(parts: list[str]) -> int:
    """Run the parts that are named, or all; return the exit status."""
    faults = [fault for name, part in PARTS.items() if not parts or name in parts for fault in part()]
    for fault in faults:
        say(f"error: {fault}")
    return bool(faults)


def say(text: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def resolve() -> list[str]:
    """Resolve all extras together, which shows each alone, and the extra `vllm` where nobody names a set."""
    cpu, gpu = SETS
    tried = [(f"all extras, {gpu}", ["--all-extras", "-c", gpu], python) for python in PYTHONS]
    tried += [(f"all extras, {cpu}", ["--all-extras", "-c", cpu], PYTHONS[0])]  # the other Pythons follow from these
    tried += [("the extra vllm, no set", ["--extra", "vllm"], PYTHONS[0])]
    common = [UV, "pip", "compile", "--quiet", "--only-binary", ":all:", "--python-platform", PLATFORM]
    running = [
        subprocess.Popen(
            [*common, "--python-version", python, *arguments, "pyproject.toml"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _, arguments, python in tried
    ]
    faults = []
    for (what, _, python), process in zip(tried, running, strict=True):
        found, told = process.communicate()
        say(f"== Python {python}, {what}: {' '.join(SHOWN.findall(found))}")
        if process.returncode:
            faults.append(f"no solution for {what}, on Python {python}:\n{told}")
    return faults


def build() -> list[str]:
    """Build wheel and source archive, look into them, and use the wheel."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        subprocess.run([UV, "build", "--quiet", "--out-dir", folder, str(ROOT)], check=True)
        [wheel], [source] = place.glob("*.whl"), place.glob("*.tar.gz")
        twine = [UV, "tool", "run", "--constraints", str(ROOT / "constraints.txt"), "twine"]
        subprocess.run([*twine, "check", "--strict", str(wheel), str(source)], check=True)
        return [*_contents(wheel, source), *_use(wheel, place)]


def _contents(wheel: Path, source: Path) -> list[str]:
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *PACKAGES]
    ours = set(subprocess.run(listed, check=True, capture_output=True, text=True, cwd=ROOT).stdout.splitlines())
    ours = {name for name in ours if (ROOT / name).exists()}
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    with tarfile.open(source) as archive:
        names = {entry.name.partition("/")[2] for entry in archive if entry.isfile()}
    carried = {name for name in names if "/" in name and ".egg-info/" not in name}
    faults = [f"the wheel lacks {name}" for name in sorted(ours - held)]
    faults += [f"the wheel should not have {name}" for name in sorted(held - ours)]
    faults += [f"the source archive should not have {name}" for name in sorted(carried - ours)]
    faults += [f"the source archive lacks {name}" for name in sorted({"LICENSE", *SETS} - names)]
    say(f"== {wheel.name}: {len(held)} files, {wheel.stat().st_size / 1e6:.1f} MB")
    return faults


def _use(wheel: Path, place: Path) -> list[str]:
    environment, chosen = place / "environment", ROOT / ".venv" / ".sandbox"
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, str(environment)], check=True)
    python = str(environment / "bin" / "python")
    install = [UV, "pip", "install", "--quiet", "--python", python, "-c", str(ROOT / "constraints.txt"), str(wheel)]
    subprocess.run(install, check=True)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    [snippet] = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)[:1]
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    variables.setdefault("ARPO_SANDBOX", chosen.read_text().strip() if chosen.exists() else "auto")
    for command in (["-m", "arpo_trainer.cli", "envs"], ["-c", snippet]):
        done = subprocess.run([python, *command], capture_output=True, text=True, check=False, cwd=place, env=variables)
        if done.returncode:
            return [f"the wheel fails at {command[:3]}:\n{done.stdout}{done.stderr}"]
    say(f"== the README's first snippet, from the wheel: {done.stdout.split()[-1]}")
    return [] if done.stdout.split()[-1] == "1.0" else [f"the README's first snippet printed:\n{done.stdout}"]


PARTS = {"resolve": resolve, "build": build}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
