#!/usr/bin/env bash
# Tries the releases of TRL that we say we work with, the oldest with the oldest transformers and the newest also with the
# newest one that was tried: the tests of the hooks, of the losses that go through them, and of the trainer. Each release
# is laid over .venv, which stays as it is. About 5 minutes a release.
# Usage: scripts/trl_versions.sh [TRL[/TRANSFORMERS] ...]    (TRL_OVERLAYS=folder keeps what was downloaded)
set -euo pipefail
cd "$(dirname "$0")/.."

PY=${PY:-.venv/bin/python}
tests=(tests/arpo_trainer/training/test_trl_hooks.py tests/arpo_trainer/training/test_trl_losses.py tests/arpo_trainer/training/test_trainer.py
       tests/arpo_trainer/training/test_overlap.py)
overlays=${TRL_OVERLAYS:-$(mktemp -d)}
[ -n "${TRL_OVERLAYS:-}" ] || trap 'rm -rf "$overlays"' EXIT
export OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false ARPO_SANDBOX=${ARPO_SANDBOX:-$(cat .venv/.sandbox)}

if [ $# -eq 0 ]; then
    read -ra tested < <(sed -n '/^TESTED = /s/[^0-9. ]//gp' arpo_trainer/training/trl_hooks.py)
    oldest=$(sed -n 's/^train = .*"transformers>=\([0-9.]*\),.*/\1.0/p' pyproject.toml)
    set -- "${tested[0]}/$oldest" "${tested[@]:1}" "${tested[-1]}/5.24.0"
fi
overlay() {  # package, version, options of pip: its folder
    if [ ! -d "$overlays/$1-$2/$1" ]; then
        "$PY" -m pip install --quiet --disable-pip-version-check --target "$overlays/$1-$2" "$1==$2" "${@:3}" >&2
    fi
    echo "$overlays/$1-$2"
}
here=$("$PY" -c 'import importlib.metadata; print(importlib.metadata.version("transformers"))')
table="TRL       transformers  result"
failed=0
for pair in "$@"; do
    version=${pair%/*} transformers=$here
    path=$(overlay trl "$version" --no-deps):$PWD
    if [[ $pair == */* ]]; then
        transformers=${pair#*/}
        path=$(overlay transformers "$transformers"):$path # with what it needs: before 5.18 another huggingface_hub
    fi
    log=$overlays/$version-$transformers.log
    echo "== TRL $version, transformers $transformers"
    if PYTHONPATH=$path "$PY" -m pytest -q "${tests[@]}" >"$log" 2>&1; then :; else failed=1; tail -n 30 "$log"; fi
    table+=$(printf '\n%-9s %-13s %s' "$version" "$transformers" "$(tail -n 1 "$log")")
done
echo "$table"
exit $failed
