"""A stand-in for kubectl and a cluster of one node: pods are Docker containers with what the manifest asks for.

    python fake_kubectl.py DIRECTORY SUBCOMMAND ...

DIRECTORY holds the pods' manifests, and may hold a file "trouble": "quota", "unschedulable" or "no-image".
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

STATES = {
    "unschedulable": "Pending 0/3 nodes are available: 3 Insufficient memory.",
    "no-image": 'Pending  ImagePullBackOff Back-off pulling image "registry/none:1"',
}


def docker(*arguments: str) -> str:
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False).stdout


def options(pod: dict[str, Any]) -> list[str]:
    """What a kubelet would ask of its container runtime."""
    spec = pod["spec"]
    (container,) = spec["containers"]
    security = {**spec["securityContext"], **container["securityContext"]}
    words = [f"--user={security['runAsUser']}:{security['runAsGroup']}", f"--workdir={container['workingDir']}"]
    words += ["--log-driver=none", f"--memory={container['resources']['limits']['memory'].removesuffix('i')}"]
    words += ["--read-only"] * security["readOnlyRootFilesystem"]
    words += ["--security-opt=no-new-privileges"] * (not security["allowPrivilegeEscalation"])
    for kind, names in security["capabilities"].items():
        words += [f"--cap-{kind}={name}" for name in names]
    words += [f"--env={one['name']}={one['value']}" for one in container["env"]]
    sizes = {one["name"]: one["emptyDir"]["sizeLimit"].removesuffix("i") for one in spec["volumes"]}
    for mount in container["volumeMounts"]:
        words.append(f"--tmpfs={mount['mountPath']}:exec,mode=777,size={sizes[mount['name']]}")
    program, *arguments = container["command"]
    return [*words, f"--entrypoint={program}", container["image"], *arguments]


def main(directory: Path, subcommand: str, *arguments: str) -> None:
    trouble = (directory / "trouble").read_text() if (directory / "trouble").exists() else ""
    names = [word for word in arguments if not word.startswith("-")]
    if subcommand == "create":
        if trouble == "quota":
            sys.exit('Error from server (Forbidden): pods "x" is forbidden: exceeded quota: sandboxes')
        pod = yaml.safe_load(sys.stdin)
        name = pod["metadata"]["name"]
        (directory / f"{name}.json").write_text("")
        if not trouble:
            docker("create", "-i", "-a", "stdin", "-a", "stdout", "-a", "stderr", "--name", name, *options(pod))
            docker("start", name)
    elif subcommand == "attach":
        sys.exit(subprocess.call(["docker", "attach", "--sig-proxy=false", names[-1]]))
    elif subcommand == "delete":
        docker("rm", "--force", names[1])
        (directory / f"{names[1]}.json").unlink(missing_ok=True)
    elif names[0] == "events":
        sys.stdout.write('Failed: Failed to pull image "registry/none:1": not found\n' * (trouble == "no-image"))
    else:
        sys.stdout.write(STATES.get(trouble, "Running"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
