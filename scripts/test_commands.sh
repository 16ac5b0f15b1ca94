#!/usr/bin/env bash
# Runs the tests of the sandbox, attacks included, through the backend "command" with each of three commands, and
# stores how many passed: benchmarks/results/sandbox_commands.json. Needs Docker, bubblewrap, an sshd and root.
#
#     scripts/test_commands.sh [docker|ssh|bubblewrap ...]
set -uo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
result=benchmarks/results/sandbox_commands.json
commands=("$@")
[ ${#commands[@]} -gt 0 ] || commands=(docker ssh bubblewrap)
status=0
for command in "${commands[@]}"; do
    for part in conformance attacks; do
        tests=(tests/sandbox --ignore=tests/sandbox/security)
        [ "$part" = attacks ] && tests=(tests/sandbox/security)
        report=$(mktemp)
        ARPO_SANDBOX=docker ARPO_TEST_COMMAND=$command "$python" -m pytest -q "${tests[@]}" --junitxml="$report" || status=1
        "$python" - "$result" "$command" "$part" "$report" <<'PYTHON'
import json, pathlib, sys, xml.etree.ElementTree as xml
path, command, part, report = pathlib.Path(sys.argv[1]), *sys.argv[2:]
suite = xml.parse(report).getroot().find("testsuite").attrib
number = {name: int(suite[name]) for name in ("tests", "failures", "errors", "skipped")}
row = {"passed": number["tests"] - number["failures"] - number["errors"] - number["skipped"], **number}
stored = json.loads(path.read_text()) if path.exists() else {}
stored.setdefault(command, {})[part] = {**row, "seconds": round(float(suite["time"]))}
path.write_text(json.dumps(stored, indent=2) + "\n")
PYTHON
        rm -f "$report"
    done
done
cat "$result"
exit $status
