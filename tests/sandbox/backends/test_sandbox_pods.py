"""Sandboxes in pods (deploy/kubernetes), on a stand-in for kubectl whose node is Docker."""

import shlex
import sys
from pathlib import Path

import pytest
import yaml

from sandbox import Limits, Sandbox, SandboxError
from sandbox.images.build import build_image

DEPLOY = Path(__file__).parents[3] / "deploy/kubernetes"
FAKE = Path(__file__).with_name("fake_kubectl.py")
SESSIONS = 4
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def pod_command(directory: Path, level: str, image: str, wait: int = 20) -> list[str]:
    kubectl = shlex.join([sys.executable, str(FAKE), str(directory)])
    settings = [f"KUBECTL={kubectl}", f"POD={DEPLOY}/pods/{level}.yaml", f"SLOTS={SESSIONS}", f"WAIT={wait}"]
    return ["env", *settings, str(DEPLOY / "sandbox-pod.sh"), image]


@pytest.mark.docker
@pytest.mark.parametrize(
    ("level", "walls"),
    [("baseline", "uid+seccomp+no(pids,network)"), ("restricted", "seccomp+no(pids,disk,network)")],
)
def test_a_pod_holds_sessions_and_their_forks(level: str, walls: str, tmp_path: Path) -> None:
    command = pod_command(tmp_path, level, build_image())
    with Sandbox.open_sync("command", Limits(memory="1g"), command=command, sessions=SESSIONS) as sandbox:
        assert set(walls.split("+")) <= set(sandbox.isolation.split("+"))
        pythons = [sandbox.interpreter_sync(f"x = {n}") for n in range(SESSIONS)]
        (fork,) = pythons[1].fork()
        assert fork.run("x += 10; x").value == "11"
        assert [python.run("x").value for python in pythons] == [str(n) for n in range(SESSIONS)]
        assert "not supported" in str(pythons[0].run("import socket; socket.socket()").error)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ("unschedulable", "Pending 0/3 nodes are available: 3 Insufficient memory"),
        ("no-image", "ImagePullBackOff Back-off.*Failed: Failed to pull image .* not found"),
        ("quota", "exceeded quota"),
    ],
)
def test_what_the_cluster_says_is_the_error_and_nothing_is_left(tmp_path: Path, trouble: str, words: str) -> None:
    (tmp_path / "trouble").write_text(trouble)
    with pytest.raises(SandboxError, match=f"(?s){words}"):
        Sandbox.open_sync("command", command=pod_command(tmp_path, "baseline", "registry/none:1", wait=0))
    assert [path.name for path in tmp_path.iterdir()] == ["trouble"]


@pytest.mark.parametrize("level", ["baseline", "restricted"])
def test_the_pod_keeps_to_its_level_of_the_pod_security_standards(level: str) -> None:
    text = (DEPLOY / f"pods/{level}.yaml").read_text()
    spec = yaml.safe_load(text.replace("MOUNTS", "").replace("VOLUMES", ""))["spec"]
    security = {**spec["securityContext"], **spec["containers"][0]["securityContext"]}
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert security["capabilities"]["drop"] == ["ALL"]
    assert (security["allowPrivilegeEscalation"], security["readOnlyRootFilesystem"]) == (False, True)
    assert not spec["automountServiceAccountToken"]
    assert all("emptyDir" in volume for volume in spec["volumes"])
    assert not {"hostNetwork", "hostPID", "hostIPC", "hostPath"} & set(str(spec).split("'"))
    added = set(security["capabilities"].get("add", []))
    assert added == ({"SETUID", "SETGID", "KILL"} if level == "baseline" else set())
    assert security.get("runAsNonRoot", False) == (level == "restricted")
