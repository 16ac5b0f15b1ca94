"""A script that ends with a sandbox open prints nothing of its own making on the way out, on any Python."""

import subprocess
import sys

import pytest

from sandbox import Sandbox

OPEN = """
import sys, warnings
warnings.simplefilter("ignore", RuntimeWarning)
from sandbox import Sandbox, SandboxError
from sandbox import pool
pool.PING_INTERVAL = 0.01  # seconds from health check to health check
sandbox = Sandbox(sys.argv[1])
"""
RUN = """
python = sandbox.interpreter_sync()
print(python.run("1 + 1").value)
"""
# the interpreter waits for the thread, and the health checks go on meanwhile
DURING_A_CHECK = """
import threading, time
threading.Thread(target=time.sleep, args=(0.5,)).start()
"""
# Python 3.12 starts no threads any more; the request is refused or served, it does not hang
ASKS_WHILE_EXITING = """
import atexit
def ask():
    try:
        print(sandbox.run_sync("1 + 1").value)
    except SandboxError as error:
        assert "Python is exiting" in str(error)
        print(2)
atexit.register(ask)
"""
CLOSED = "sandbox.close_sync()"


@pytest.mark.parametrize(
    "rest",
    [RUN, RUN + CLOSED, RUN + DURING_A_CHECK, ASKS_WHILE_EXITING],
    ids=["left open", "closed", "during a health check", "asks while exiting"],
)
def test_a_script_ends_quietly(sandbox: Sandbox, rest: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OPEN + rest, sandbox.backend], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout, done.stderr, done.returncode) == ("2\n", "", 0)
