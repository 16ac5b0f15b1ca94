#!/usr/bin/env bash
# Runs the tests that need no PyTorch on each version of Python that the project supports, each in an environment of its
# own, .venv-pythons/3.12. A Python that is not here (`python3.12` on the path, or under pyenv) is named and left out.
# Usage: scripts/test_pythons.sh [TEST ...]    (PYTHONS="3.12 3.13" chooses the versions; quick tests by default)
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHONS=${PYTHONS:-3.11 3.12 3.13}
QUICK=(tests/test_layers.py tests/envs_registry tests/arpo_env
    tests/sandbox/test_sandbox_{session,fresh,parts}.py tests/sandbox/pool/test_sandbox_{exit,lifetime,pool}.py
    tests/sandbox/files/test_sandbox_files.py tests/sandbox/server/test_sandbox_fork.py)
# of the packages that the tests use, those that are PyTorch, need it, check types or install
WITHOUT='^(torch|transformers|trl|accelerate|peft|gguf|mypy|ruff|types-.*|uv)$'

say() { printf '== %s\n' "$*"; }

find_python() {  # version: an interpreter that runs, for pyenv leaves names on the path that do not
    local candidate
    for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python; do
        if "$candidate" -c "import sys, ensurepip; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    return 1
}

needs() {  # python: what `pip install '.[dev]'` would install, less WITHOUT
    "$1" - "$WITHOUT" <<'PYTHON'
import re, sys, tomllib

with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)["project"]
lines, extras, seen = list(project["dependencies"]), ["dev"], {"dev"}
while extras:
    lines += project["optional-dependencies"][extras.pop()]
    for line in [line for line in lines if line.startswith("arpo-gym[")]:
        lines.remove(line)
        new = set(line.partition("[")[2].rstrip("]").split(",")) - seen
        seen |= new
        extras += new
name = re.compile(r"[\w.-]+")
print("\n".join(sorted(line for line in set(lines) if not re.search(sys.argv[1], name.match(line)[0]))))
PYTHON
}

install() {  # python, folder: does nothing if that has been done for these pins
    local pins needed
    pins=$(cat pyproject.toml constraints.txt scripts/test_pythons.sh | cksum)
    [ "$(cat "$2/.installed" 2>/dev/null)" = "$pins" ] && return
    say "making $2 with $("$1" --version)"
    rm -rf "$2"
    .venv/bin/uv venv --quiet --python "$1" "$2"
    mapfile -t needed < <(needs "$1")
    .venv/bin/uv pip install --quiet --python "$2/bin/python" -c constraints.txt "${needed[@]}"
    .venv/bin/uv pip install --quiet --python "$2/bin/python" --no-deps -e .
    printf '%s' "$pins" > "$2/.installed"
}

[ $# -gt 0 ] || set -- "${QUICK[@]}"
failed=()
for version in $PYTHONS; do
    if ! python=$(find_python "$version"); then
        say "Python $version is not here, so nothing is tested on it. Install python$version and python$version-venv, or: pyenv install $version"
        continue
    fi
    install "$python" ".venv-pythons/$version"
    say "running tests on $("$python" --version)"
    ".venv-pythons/$version/bin/python" -m pytest -q -r fE -n "${WORKERS:-2}" --dist loadscope "$@" || failed+=("$version")
done
[ ${#failed[@]} = 0 ] || { say "tests failed on Python ${failed[*]}"; exit 1; }
