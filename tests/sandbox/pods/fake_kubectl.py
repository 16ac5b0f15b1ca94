"""A stand-in for kubectl and a cluster of one node: pods are Docker containers with what the manifest asks for.

    python fake_kubectl.py DIRECTORY SUBCOMMAND ...

DIRECTORY holds the pods' manifests, and may hold a file "trouble" that says what the cluster answers instead: "quota",
"unschedulable", "no-image" or "forbidden".
"""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

REFUSED = {
    "quota": 'Error from server (Forbidden): pods "x" is forbidden: exceeded quota: sandboxes, requested: pods=1, '
    "used: pods=10, limited: pods=10",
    "forbidden": 'Error from server (Forbidden): pods is forbidden: User "trainer" cannot create resource "pods"',
}
_UNSCHEDULED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available: 3 Insufficient memory.",
}
_NO_IMAGE = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "registry/none:1"'}
_EVENT = {"type": "Warning", "reason": "Failed", "message": 'Failed to pull image "registry/none:1": not found'}


def show(found: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(found))


def docker(*arguments: str) -> str:
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False).stdout


def create(directory: Path, trouble: str) -> None:
    if trouble in REFUSED:
        sys.exit(REFUSED[trouble])
    pod = json.load(sys.stdin)
    pod["metadata"] |= {"creationTimestamp": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", "namespace": "sandboxes"}
    name = pod["metadata"]["name"]
    (directory / f"{name}.json").write_text(json.dumps(pod))
    if not trouble:
        docker("create", "-i", "-a", "stdin", "-a", "stdout", "-a", "stderr", "--name", name, *_options(pod))
        docker("start", name)
    show(pod)


def _options(pod: dict[str, Any]) -> list[str]:
    """What a kubelet would ask of its container runtime."""
    spec = pod["spec"]
    (container,) = spec["containers"]
    security = {**spec["securityContext"], **container["securityContext"]}
    words = [f"--user={security['runAsUser']}:{security['runAsGroup']}", f"--workdir={container['workingDir']}"]
    words += ["--log-driver=none", f"--memory={container['resources']['limits']['memory']}"]
    words += ["--read-only"] * security["readOnlyRootFilesystem"]
    words += ["--security-opt=no-new-privileges"] * (not security["allowPrivilegeEscalation"])
    for kind, names in security["capabilities"].items():
        words += [f"--cap-{kind}={name}" for name in names]
    words += [f"--env={one['name']}={one['value']}" for one in container["env"]]
    sizes = {volume["name"]: volume["emptyDir"]["sizeLimit"] for volume in spec["volumes"]}
    for mount in container["volumeMounts"]:
        words.append(f"--tmpfs={mount['mountPath']}:exec,mode=777,size={sizes[mount['name']]}")
    program, *arguments = container["command"]
    return [*words, f"--entrypoint={program}", container["image"], *arguments]


def with_status(pod: dict[str, Any], trouble: str) -> dict[str, Any]:
    if trouble == "unschedulable":
        return {**pod, "status": {"phase": "Pending", "conditions": [_UNSCHEDULED]}}
    if trouble == "no-image":
        return {**pod, "status": {"phase": "Pending", "containerStatuses": [{"state": {"waiting": _NO_IMAGE}}]}}
    found = json.loads(docker("inspect", pod["metadata"]["name"]) or "[]")
    state = found[0]["State"] if found else {"Running": False, "ExitCode": 137}
    if state["Running"]:
        return {**pod, "status": {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}}
    code = state["ExitCode"]
    ended = {"exitCode": code, "reason": "Error" if code else "Completed"}
    phase = "Failed" if code else "Succeeded"
    return {**pod, "status": {"phase": phase, "containerStatuses": [{"state": {"terminated": ended}}]}}


def main(directory: Path, subcommand: str, *arguments: str) -> None:
    trouble = (directory / "trouble").read_text() if (directory / "trouble").exists() else ""
    names = [word for word in arguments if not word.startswith("-")]
    if subcommand == "create":
        create(directory, trouble)
    elif subcommand == "attach":
        sys.exit(subprocess.call(["docker", "attach", "--sig-proxy=false", names[-1]]))
    elif subcommand == "delete":
        docker("rm", "--force", names[1])
        (directory / f"{names[1]}.json").unlink(missing_ok=True)
    elif names == ["events"]:
        show({"items": [_EVENT] if trouble == "no-image" else []})
    else:
        wanted = names[1] if len(names) > 1 else "*"
        found = [json.loads(path.read_text()) for path in directory.glob(f"{wanted}.json")]
        pods = [with_status(pod, trouble) for pod in found]
        if wanted != "*" and not pods:
            sys.exit(f'Error from server (NotFound): pods "{wanted}" not found')
        show({"items": pods} if wanted == "*" else pods[0])


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
