#!/usr/bin/env bash
# Makes .venv-deepspeed, the environment of tests/deepspeed: DeepSpeed, and all else from .venv. For tests only: with GPUs
# `pip install deepspeed` is enough. Does nothing if that has been done for this version.
# Usage: scripts/install_deepspeed.sh    (after `make setup`)
set -euo pipefail
cd "$(dirname "$0")/.."

VERSION=0.19.8
venv=.venv-deepspeed
shared=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
stamp=$venv/.installed
[ "$(cat "$stamp" 2>/dev/null)" = "$VERSION $shared" ] && exit 0

printf '== installing DeepSpeed in %s\n' "$venv"
rm -rf $venv
.venv/bin/python -m venv $venv
own=$($venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "$shared" > "$own/project.pth"
install() { $venv/bin/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt "$@"; }
install setuptools wheel
# without isolation the build finds the PyTorch that is there, and downloads none; nothing is compiled
DS_ACCELERATOR=cpu DS_BUILD_OPS=0 install --no-build-isolation "deepspeed==$VERSION"
printf '%s' "$VERSION $shared" > "$stamp"
