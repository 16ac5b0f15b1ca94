#!/usr/bin/env bash
# Makes .venv with the pinned packages; does nothing if that has been done for these pins.
# Usage: scripts/install.sh    (PYTHON=python3.12 chooses another interpreter)
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '== %s\n' "$*"; }
PYTHON=${PYTHON:-python3}
stamp=.venv/.installed
pins=$(cat pyproject.toml constraints.txt | cksum)

if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$pins" ]; then
    exit 0
fi
if ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "error: $PYTHON is not Python 3.11 or newer. Install one (Debian: sudo apt-get install python3 python3-venv)" \
         "or name it: PYTHON=python3.12 make setup" >&2
    exit 1
fi
if [ ! -x .venv/bin/pip ]; then
    say "making the virtual environment .venv with $("$PYTHON" --version)"
    rm -rf .venv
    if ! "$PYTHON" -m venv .venv; then
        rm -rf .venv
        echo "error: could not make a virtual environment. On Debian: sudo apt-get install python3-venv" >&2
        exit 1
    fi
fi
# torch first: whatever is installed after it is content with the build that is there.
say "installing PyTorch (a few minutes the first time)"
# without --no-compile pip compiles every module of every package; Python compiles those that are imported, once
pip() { .venv/bin/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt "$@"; }
pip torch uv
say "installing the project and what it needs"
# uv takes a tenth of pip's time. It does not read pip's settings: where these name another index, pip does it
.venv/bin/uv pip install --quiet --python .venv/bin/python -c constraints.txt -e '.[dev]' || pip -e '.[dev]'
printf '%s' "$pins" > "$stamp"
