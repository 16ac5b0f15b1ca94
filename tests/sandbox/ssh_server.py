"""A real sshd on this machine, for tests."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import free_port, listens, wait_for


@contextlib.contextmanager
def ssh_server(place: Path) -> Iterator[tuple[int, Path]]:
    """Run an sshd; gives its port on 127.0.0.1 and a configuration of ssh that can log in there as root."""
    daemon = shutil.which("sshd")
    if daemon is None or os.getuid() != 0:
        pytest.skip("NOT TESTED: an sshd of one's own needs openssh-server and root")
    Path("/run/sshd").mkdir(exist_ok=True)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", place / name], check=True)
    port = free_port()
    options = [f"AuthorizedKeysFile={place}/user.pub", "StrictModes=no", "PidFile=none", "PermitRootLogin=yes"]
    command = [daemon, "-D", "-e", "-f", "/dev/null", "-h", str(place / "host"), "-p", str(port)]
    command += ["-o", "ListenAddress=127.0.0.1"] + [word for option in options for word in ("-o", option)]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    (place / "config").write_text(
        f"IdentityFile {place}/user\nIdentitiesOnly yes\nUserKnownHostsFile /dev/null\n"
        "StrictHostKeyChecking no\nLogLevel ERROR\n"
    )
    try:
        wait_for(lambda: listens(port))
        yield port, place / "config"
    finally:
        server.terminate()
        server.wait(10)
