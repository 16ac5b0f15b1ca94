"""Sandboxes in pods, on a stand-in for kubectl whose node is Docker; no cluster is needed, and none is tried."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_kubectl import REFUSED

from arpo_trainer.cli.arpo_command import main
from sandbox import Limits, Sandbox, SandboxError, SandboxUnavailable
from sandbox.backends import kubernetes
from sandbox.backends.kubernetes import LEVELS, Kubectl, pod_manifest, pods, prune_pods
from sandbox.images.build import build_image
from sandbox.options import ServerOptions

FAKE = str(Path(__file__).with_name("fake_kubectl.py"))
LIMITS = Limits(memory="1g", disk=16 << 20)
SESSIONS = 4


class Cluster:
    """A directory of pods, and the words that stand for kubectl."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.command = [sys.executable, FAKE, str(directory)]

    def trouble(self, kind: str) -> None:
        (self.directory / "trouble").write_text(kind)

    def names(self) -> list[str]:
        return [path.stem for path in self.directory.glob("arpo-*.json")]

    def open(self, **options: Any) -> Sandbox:
        given = {"image": build_image(), "sessions": SESSIONS, "containers": 1, "start_wait": 20, **options}
        return Sandbox.open_sync("kubernetes", LIMITS, command=self.command, **given)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(tmp_path)
    yield found
    for name in found.names():
        Kubectl(found.command).delete_pod(name)


@pytest.mark.docker
@pytest.mark.parametrize(
    ("level", "isolation"),
    [
        ("baseline", "kubernetes(default)+uid+landlock+seccomp+no(pids,network)"),
        ("restricted", "kubernetes(default)+landlock+seccomp+no(pids,disk,network)"),
    ],
)
def test_a_pod_holds_sessions_and_their_forks(
    cluster: Cluster, level: str, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(kubernetes.SECURITY_VARIABLE, level)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # each comes once in a process
        sandbox = cluster.open()
    with sandbox:
        walls = set(isolation.split("+")) - {"landlock"}  # older kernels lack it
        assert walls <= set(sandbox.isolation.split("+"))
        pythons = [sandbox.interpreter_sync(f"x = {n}") for n in range(SESSIONS)]
        (fork,) = pythons[1].fork()
        assert fork.run("x += 10; x").value == "11"
        assert [python.run("x").value for python in pythons] == [str(n) for n in range(SESSIONS)]
        assert "not supported" in str(pythons[0].run("import socket; socket.socket()").error)
        assert [(one.state, one.orphan, one.client) for one in pods(cluster.command)] == [
            ("running", False, os.getpid())
        ]
    assert not cluster.names()


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        (
            "unschedulable",
            r"has not started within 0.5 s: Unschedulable: 0/3 nodes are available: 3 Insufficient memory",
        ),
        ("no-image", r"ImagePullBackOff Back-off.*pull secret.*Failed: Failed to pull image .* not found"),
        ("quota", r"exceeded quota.*to fix it: ask for less.*the namespace has sandbox pods"),
        ("forbidden", r'User "trainer" cannot create.*to fix it: the role that sandboxes need'),
    ],
)
def test_what_the_cluster_says_is_the_error_and_nothing_is_left(cluster: Cluster, trouble: str, words: str) -> None:
    cluster.trouble(trouble)
    with pytest.raises(SandboxError, match=f"(?s){words}"):
        cluster.open(image="registry/none:1", start_wait=0.5)
    assert not cluster.names()


def test_every_refusal_of_the_stand_in_is_tested() -> None:
    assert set(REFUSED) == {"quota", "forbidden"}


def test_without_an_image_or_kubectl_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(kubernetes.IMAGE_VARIABLE, raising=False)
    with pytest.raises(SandboxUnavailable, match=r"arpo sandbox build.*registry"):
        Sandbox.open_sync("kubernetes")
    with pytest.raises(SandboxUnavailable, match="install kubectl"):
        Sandbox.open_sync("kubernetes", image="x", command="no-such-kubectl")
    monkeypatch.setenv(kubernetes.SECURITY_VARIABLE, "restrictd")
    with pytest.raises(ValueError, match="baseline, restricted"):
        Sandbox.open_sync("kubernetes", image="x")


def _left_pod(cluster: Cluster, client: int) -> str:
    """A pod that waits for a node, of a client on this machine."""
    cluster.trouble("unschedulable")
    options = ServerOptions(sessions=1)
    manifest = pod_manifest(f"arpo-sandbox-{client}", options, "image", "baseline", ["python3"], 1, {"/slots": 1})
    manifest["metadata"]["annotations"]["arpo.sandbox/client"] = str(client)
    Kubectl(cluster.command).ask("create", "--filename=-", given=json.dumps(manifest))
    return f"arpo-sandbox-{client}"


def test_pods_whose_client_is_gone_are_deleted_and_no_others(cluster: Cluster) -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    mine, left = _left_pod(cluster, os.getpid()), _left_pod(cluster, process.pid)
    assert {one.id: one.orphan for one in pods(cluster.command)} == {mine: False, left: True}
    assert prune_pods(command=cluster.command) == [f"pod {left}"]
    assert cluster.names() == [mine]


def test_ps_and_prune_from_the_terminal_show_pods(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ARPO_SANDBOX_COMMAND", shlex.join(cluster.command))
    name = _left_pod(cluster, os.getpid())
    assert main(["sandbox", "ps", "--pods"]) == 0
    heading, line = capsys.readouterr().out.splitlines()
    assert heading.split()[0] == "POD"
    assert line.startswith(name)
    assert "Unschedulable" in line
    assert main(["sandbox", "prune", "--pods", "--all"]) == 0
    assert f"removed pod {name}" in capsys.readouterr().out


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="NOT TESTED: kubectl is not installed")
def test_a_patch_is_merged_into_the_pod(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patch = tmp_path / "patch.yaml"
    patch.write_text(
        "spec:\n  nodeSelector: {pool: sandboxes}\n  containers:\n  - name: sandbox\n"
        '    resources: {requests: {cpu: "2"}}\n'
    )
    monkeypatch.setenv(kubernetes.PATCH_VARIABLE, str(patch))
    kept: list[str] = []
    monkeypatch.setattr(Kubectl, "ask", lambda self, *arguments, given: kept.append(given))
    manifest = pod_manifest("x", ServerOptions(sessions=1), "image", "baseline", ["python3"], 1, {"/slots": 1})
    kubernetes._create(Kubectl(["kubectl", "--kubeconfig=/dev/null"]), json.dumps(manifest))
    spec = json.loads(kept[0])["spec"]
    assert spec["nodeSelector"] == {"pool": "sandboxes"}
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "2", "memory": str(4 << 30)}
    assert spec["containers"][0]["securityContext"] == manifest["spec"]["containers"][0]["securityContext"]


@pytest.mark.parametrize("level", LEVELS)
def test_the_pod_keeps_to_its_level_of_the_pod_security_standards(level: str) -> None:
    places = kubernetes._places(ServerOptions(sessions=2), level)
    spec = pod_manifest("x", ServerOptions(sessions=2), "image", level, ["python3"], 5, places)["spec"]
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
