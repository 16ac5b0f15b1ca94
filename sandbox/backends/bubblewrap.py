"""The backend "bubblewrap": the server in namespaces of its own, without any daemon.

The sandbox has no network, sees only its own processes, and of the file system only the Python that runs this
program and the system libraries, read-only. Home directories, /etc and everything else are not there. Compared with
Docker it lacks the kernel's limit on the memory of all sessions together, which only the supervisor's watchdog
enforces, and, unless it is started by root, a user for each group of sessions.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from functools import cache
from pathlib import Path, PurePath

from sandbox.backends.local_process import ProcessStream, base_python, random_uids, server_config, shared_memory
from sandbox.images.profiles import packages_directory, preload
from sandbox.options import SandboxOptions, warn_of_unenforced_limits
from sandbox.server.bundle import BOOTSTRAP

_SYSTEM = ("/usr", "/bin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/alternatives", "/etc/ld.so.cache")
_ROOT = "/slots"
_PACKAGES = "/opt/packages"
_SYS_NICE = 1 << 23

# for root, the trial also changes the user, as the server will have to
_TRIAL = """
import os, sys
if os.getuid() == 0:
    os.setresuid(65534, 65534, 65534)
os.execv(sys.executable, [sys.executable, "-I", "-c", "print(6 * 7)"])
"""


@cache
def why_no_bubblewrap() -> str:
    """Try bubblewrap; return what is wrong with it and how to fix it, or nothing."""
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed. To fix it: sudo apt-get install bubblewrap"
    command = [*_command(SandboxOptions(sessions=1)), base_python(), "-I", "-c", _TRIAL]
    try:
        trial = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not work: {error}"
    if trial.stdout.strip() == "42":
        return ""
    return (
        f"bubblewrap does not work here: {trial.stderr.strip()[:300] or f'exit code {trial.returncode}'}. "
        "It needs user namespaces; where AppArmor restricts them: "
        "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0"
    )


def start_bubblewrap(options: SandboxOptions) -> ProcessStream:
    """Start the server in bubblewrap.

    As root, each group gets a user of its own that is used for nothing else; otherwise there is only one user.
    """
    first = random_uids() if os.geteuid() == 0 else 0
    packages = packages_directory(options.software)
    config = server_config(
        options,
        _ROOT,
        first_uid=first,
        chown=bool(first),
        own_user=not first and _counts_by_namespace(),
        packages=_PACKAGES if packages else "",
        preload=preload(options.profile),
    )
    command = [*_command(options, packages), base_python(), "-I", "-c", BOOTSTRAP]
    return ProcessStream(command, "bubblewrap", config, warn_of_unenforced_limits("bubblewrap", options.limits))


def _counts_by_namespace() -> bool:
    """Whether this kernel counts a user's processes separately for each user namespace (Linux 5.14)."""
    version = re.match(r"(\d+)\.(\d+)", platform.release())
    return version is not None and (int(version[1]), int(version[2])) >= (5, 14)


def _command(options: SandboxOptions, packages: Path | None = None) -> list[str]:
    namespaces = ["--unshare-all", "--die-with-parent", "--new-session", "--as-pid-1", "--clearenv"]
    rights = ["--cap-drop", "ALL"]
    if os.geteuid() == 0:
        # no user namespace: root may change to the users of the groups only without one
        namespaces[:1] = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
        administer = ("CAP_CHOWN", "CAP_SYS_ADMIN")  # until /proc and the slots are ready
        nice = ("CAP_SYS_NICE",) if _may_set_priorities() else ()
        for right in ("CAP_SETUID", "CAP_SETGID", "CAP_KILL", *administer, *nice):
            rights += ["--cap-add", right]
    binds = [argument for path in _needed() for argument in _bind(path)]
    if packages is not None:
        binds += [*_parents(_PACKAGES), "--ro-bind", str(packages), _PACKAGES]
    size = ["--perms", "1733", "--size", str(options.limits.disk)]
    if os.geteuid() == 0:
        # users of the groups may pass through /slots, and cannot list it
        slots = ["--perms", "0711", "--size", str(1 << 20), "--tmpfs", _ROOT]
        for number in range(options.sessions):
            slots += [*size, "--tmpfs", f"{_ROOT}/{number}"]
    else:
        slots = [*size, "--tmpfs", _ROOT]
    slots += ["--perms", "1733", "--size", str(shared_memory(options)), "--tmpfs", "/dev/shm"]
    # sessions keep their own directory open as descriptor 200
    links = ["--symlink", "/proc/self/fd/200", "/work", "--symlink", "/work", "/tmp"]
    # bubblewrap works in this order: / becomes read-only when everything in it exists
    rest = ["--proc", "/proc", "--dev", "/dev", *slots, *links, "--remount-ro", "/", "--chdir", "/"]
    return ["bwrap", *namespaces, *rights, *binds, *rest, "--setenv", "PATH", "/usr/local/bin:/usr/bin:/bin"]


def _may_set_priorities() -> bool:
    """Whether this root has the capability, which root in a container usually has not."""
    status = Path("/proc/self/status").read_text()
    held = next((int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:")), 0)
    return bool(held & _SYS_NICE)


def _bind(path: str) -> list[str]:
    if os.path.islink(path):
        # a link such as /bin -> usr/bin stays one, so that paths mean the same as on this machine
        return ["--symlink", os.readlink(path), path]
    return [*_parents(path), "--ro-bind", path, path]


def _parents(path: str) -> list[str]:
    parents = [str(parent) for parent in reversed(PurePath(path).parents)][1:]
    return [argument for parent in parents for argument in ("--perms", "0755", "--dir", parent)]


def _needed() -> list[str]:
    """Return the directories of the system and of this Python, without its virtual environment."""
    paths = [path for path in _SYSTEM if os.path.lexists(path)]
    for path in (sys.base_prefix, sys.base_exec_prefix, sysconfig.get_path("stdlib")):
        if not any(path == one or path.startswith(one + "/") for one in paths):
            paths.append(path)
    return paths
