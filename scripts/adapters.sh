#!/usr/bin/env bash
# Runs the tests of the adapters with the real frameworks, each in an environment of its own, .venv-peers/NAME: some of
# them exclude each other, or the versions that this project needs.
# What a framework needs is in tests/adapters/requirements/NAME.txt; its tests are tests/adapters/test_NAME.py, and those
# that a line `#tests: FILE ...` of that file names, for frameworks that share an environment.
# Usage: scripts/adapters.sh [NAME ...]    (all by default; PYTHON=python3.12 chooses the interpreter)
set -euo pipefail
cd "$(dirname "$0")/.."

NEEDS=tests/adapters/requirements
# what the environments themselves need, without PyTorch
BASE=('gymnasium>=1.2,<2' 'docker>=7' 'pyyaml>=6' pytest tantivy docstring-parser httpx2 mpmath)

say() { printf '== %s\n' "$*"; }

install() {  # name: does nothing if that has been done for these pins
    local folder=.venv-peers/$1 pins
    pins=$(cat "$NEEDS/$1.txt" constraints.txt scripts/adapters.sh | cksum)
    [ "$(cat "$folder/.installed" 2>/dev/null)" = "$pins" ] && return
    say "making $folder"
    rm -rf "$folder"
    .venv/bin/uv venv --quiet --python "${PYTHON:-python3}" "$folder"
    # The lines `#! OPTIONS` of a file are calls of pip, before the file itself: PyTorch first, --no-deps, ...
    while read -r line; do
        eval ".venv/bin/pip --python $folder/bin/python install --quiet --disable-pip-version-check --no-compile $line"
    done < <(sed -n 's/^#! //p' "$NEEDS/$1.txt")
    .venv/bin/uv pip install --quiet --python "$folder/bin/python" "${BASE[@]}" -r "$NEEDS/$1.txt"
    .venv/bin/uv pip install --quiet --python "$folder/bin/python" --no-deps -e .
    printf '%s' "$pins" > "$folder/.installed"
}

[ $# -gt 0 ] || set -- $(cd "$NEEDS" && ls -- *.txt | sed 's/\.txt$//')
failed=()
for name in "$@"; do
    if [ ! -f "$NEEDS/$name.txt" ]; then
        say "there is no adapter '$name'. The adapters are: $(cd "$NEEDS" && ls -- *.txt | sed 's/\.txt$//' | xargs)"
        exit 2
    fi
    install "$name"
    say "running the tests of the adapter for $name"
    # frameworks that go together are in one environment; with their pages of the documentation, whose code needs them
    names=("$name" $(sed -n 's/^#also: *//p' "$NEEDS/$name.txt"))
    tests=() pages=()
    for each in "${names[@]}"; do
        tests+=("tests/adapters/test_$each.py")
        pages+=(or "adapters/${each//_/-}.md")
    done
    PYTHONPATH=$PWD ".venv-peers/$name/bin/python" -m pytest -q -r fEs "${tests[@]}" tests/test_docs.py \
        -k "not test_docs or (code_of_the_docs and (${pages[*]:1}))" || failed+=("$name")
done
[ ${#failed[@]} = 0 ] || { say "tests failed for ${failed[*]}"; exit 1; }
