"""A script that ends with environments open prints nothing of its own making on the way out, on any Python."""

import subprocess
import sys

ENV = """
import arpo_env, gymnasium as gym
env = gym.make("arpo/Arithmetic-v0", level=3)
env.reset(seed=0)
env.step("<think>I look.</think><python>x = 1</python>")
twin = env.fork()  # left open
import asyncio, tempfile
from arpo_env.grading.check_pool import shared_pool
assert asyncio.run(shared_pool().check("x + 1", "1 + x"))
search = gym.make("arpo/MultiHop-v0", cache=tempfile.mkdtemp() + "/run.sqlite")
search.reset(seed=0)
search.step("<think>I look.</think><search>people</search>")
"""


def test_a_script_ends_quietly(isolation: str) -> None:
    done = subprocess.run([sys.executable, "-c", ENV], capture_output=True, text=True, check=False, timeout=120)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
