"""Commands for the backend "command": docker, docker behind ssh, bubblewrap, a pod; each with every wall it can have.

The variable ARPO_TEST_COMMAND names the one that the tests use; without it that is docker.
"""

import contextlib
import os
import shlex
import tempfile
from functools import cache
from pathlib import Path

import pytest
from ssh_server import ssh_server

from sandbox import Limits
from sandbox.backends.processes import _bubblewrap_command, shared_memory, why_no_bubblewrap
from sandbox.images.build import build_image
from sandbox.images.profiles import packages_directory
from sandbox.options import SandboxOptions, parse_size

CHOSEN = os.environ.get("ARPO_TEST_COMMAND", "")
_POD = Path(__file__).parents[2] / "deploy/kubernetes/sandbox-pod.sh"
_DIST_PACKAGES = "/usr/local/lib/python3.11/dist-packages"  # where Debian's Python looks
_closing = contextlib.ExitStack()


def command_for(limits: Limits, sessions: int, profile: str = "math") -> list[str]:
    """The command for a container with these limits."""
    options = SandboxOptions(limits, sessions, profile)
    if CHOSEN == "bubblewrap":
        return _bubblewrap(options)
    if CHOSEN == "kubernetes":  # on the cluster of kubectl
        return ["env", f"SLOTS={sessions}", str(_POD), build_image(profile=profile)]
    return [*_ssh(), shlex.join(_docker(options))] if CHOSEN == "ssh" else _docker(options)


def _docker(options: SandboxOptions) -> list[str]:
    memory = str(parse_size(options.limits.memory))
    words = ["docker", "run", "--interactive", "--rm", "--network=none", "--read-only", "--cap-drop=ALL"]
    words += [f"--cap-add={name}" for name in ("SETUID", "SETGID", "KILL", "SYS_NICE")]
    words += ["--security-opt=no-new-privileges", f"--memory={memory}", f"--memory-swap={memory}"]
    words += ["--pids-limit=8192", "--log-driver=none", "--ulimit=core=1"]
    words += [f"--cpus={options.limits.cpus}"] if options.limits.cpus else []
    words += [f"--tmpfs=/dev/shm:size={shared_memory(options)},mode=1733"]
    slots = (f"--tmpfs=/slots/{number}" for number in range(options.sessions))
    words += [f"{slot}:exec,nosuid,nodev,size={options.limits.disk},nr_inodes=16384" for slot in slots]
    return [*words, build_image(profile=options.profile)]


def _bubblewrap(options: SandboxOptions) -> list[str]:
    fault = why_no_bubblewrap()
    if fault or not os.path.isdir(_DIST_PACKAGES):
        pytest.skip(f"NOT TESTED: {fault or 'Debian has no Python 3.11 here'}")
    words = _bubblewrap_command(options)
    packages = packages_directory(options.profile)
    if packages is not None:
        at = words.index("--proc")
        words[at:at] = ["--ro-bind", str(packages), _DIST_PACKAGES]
    return words


@cache
def _ssh() -> list[str]:
    """One sshd for all tests of a run."""
    place = _closing.enter_context(tempfile.TemporaryDirectory())
    port, config = _closing.enter_context(ssh_server(Path(place)))
    return ["ssh", "-F", str(config), "-p", str(port), "root@127.0.0.1"]


def end_ssh() -> None:
    """End the sshd, if there is one."""
    _closing.close()
