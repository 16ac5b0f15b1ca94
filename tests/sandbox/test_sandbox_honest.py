"""Honest programs that do what attacks do, too: they have to go on working, also across a fork."""

import time

import pytest

from sandbox import Sandbox, SyncInterpreter

WITHIN = 15.0

PROGRAMS = {
    "sqlite_with_a_log_of_writes": (
        """
import sqlite3
one, two = sqlite3.connect("wal.db"), sqlite3.connect("wal.db")
one.execute("pragma journal_mode=wal")
one.execute("create table t (n)"); one.execute("insert into t values (7)"); one.commit()
two.execute("select n from t").fetchall()
""",
        "[(7,)]",
    ),
    "queue_and_lock_and_value": (
        """
import multiprocessing as mp
context = mp.get_context("fork")
queue, lock, value = context.Queue(), context.Lock(), context.Value("i", 0)
def add():
    with lock:
        value.value += 1
        queue.put(value.value)
workers = [context.Process(target=add) for _ in range(3)]
for one in workers: one.start()
found = sorted(queue.get(timeout=5) for _ in workers)
for one in workers: one.join()
found, value.value
""",
        "([1, 2, 3], 3)",
    ),
    "shared_memory": (
        """
from multiprocessing import shared_memory
one = shared_memory.SharedMemory(create=True, size=100)
two = shared_memory.SharedMemory(name=one.name)
one.buf[:2] = b"ab"
found = bytes(two.buf[:2])
two.close(); one.close(); one.unlink()
found
""",
        "b'ab'",
    ),
    "shared_mapping_of_a_child": (
        """
import mmap, os
area = mmap.mmap(-1, 8 << 20)
if os.fork() == 0:
    area[:2] = b"ab"
    os._exit(0)
os.wait()
private = mmap.mmap(-1, 4096, access=mmap.ACCESS_COPY)
try: found = mmap.mmap(-1, 1 << 30)
except OSError as error: found = "Limits.file_size" in str(error)
area[:3], area.size(), isinstance(area, mmap.mmap), len(private), found
""",
        "(b'ab\\x00', 8388608, True, 4096, True)",
    ),
    "subprocess": (
        """
import subprocess, sys
first = subprocess.run([sys.executable, "-c", "print(input())"], input="text", capture_output=True, text=True).stdout
second = subprocess.run(["/bin/sh", "-c", "echo $((6 * 7)) > made; read x < made; echo $x"], capture_output=True)
first, second.stdout
""",
        "('text\\n', b'42\\n')",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_works_before_and_after_a_fork(isolated: Sandbox, name: str) -> None:
    code, expected = PROGRAMS[name]
    with isolated.interpreter_sync() as python:
        (early,) = python.fork(1)
        first = python.run(code, timeout=WITHIN)
        assert (first.status, first.value) == ("ok", expected), first
        for session in (early, *python.fork(2)):
            with session:
                session.run("import os; [os.unlink(name) for name in os.listdir('.')]")
                again = session.run(code, timeout=WITHIN)
                assert (again.status, again.value, again.stderr) == ("ok", expected, ""), again


def values(sessions: list[SyncInterpreter], code: str) -> list[str | None]:
    executions = [session.run(code, timeout=WITHIN) for session in sessions]
    assert [execution.status for execution in executions] == ["ok"] * len(executions), executions
    return [execution.value for execution in executions]


def test_a_database_that_is_open_is_read_on_in_each_and_can_be_opened_anew(isolated: Sandbox) -> None:
    setup = "import sqlite3\nbase = sqlite3.connect('base.db')\nbase.execute('create table t (n)'); base.commit()"
    with isolated.interpreter_sync(setup) as python:
        python.run("base.execute('insert into t values (7)'); base.commit()")
        family = [python, *python.fork(2)]
        assert values(family, "base.execute('select n from t').fetchall()") == ["[(7,)]"] * 3
        for number, session in enumerate(family):
            session.run(f"base = sqlite3.connect('base.db'); base.execute('insert into t values ({number})')")
            session.run("base.commit()")
        found = values(family, "sqlite3.connect('base.db').execute('select n from t').fetchall()")
        assert found == [f"[(7,), ({number},)]" for number in range(3)]


BLOCKED_IN_PRINT = """
import sys, threading, time
def talk():
    time.sleep(0.1)
    for _ in range(1000): print("x" * 5000, file=sys.STREAM)
mine = [1]
threading.Thread(target=talk, daemon=True).start()
"""


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_fork_while_a_thread_is_blocked_in_print(isolated: Sandbox, stream: str) -> None:
    with isolated.interpreter_sync() as python:
        execution = python.run(BLOCKED_IN_PRINT.replace("STREAM", stream), timeout=5)
        assert execution.status == "ok", execution
        time.sleep(0.5)
        copies = python.fork(2)
        for copy in copies:
            found = copy.run("print('heard'); mine.append(2); mine", timeout=5)
            assert (found.status, found.value) == ("ok", "[1, 2]"), found
            assert found.stdout.endswith("heard\n"), found  # what the thread had not got rid of may stand before it
            copy.close()
        assert python.run("mine", timeout=5).value == "[1]"


def test_a_fork_while_a_thread_holds_locks_of_the_library(isolated: Sandbox) -> None:
    code = """
import io, logging, queue, threading, time
log = logging.getLogger("x"); log.addHandler(logging.StreamHandler(io.StringIO()))
box = queue.Queue()
def work():
    while True: log.warning("y" * 100); box.put(1); box.get()
for _ in range(3): threading.Thread(target=work, daemon=True).start()
time.sleep(0.05)
"""
    with isolated.interpreter_sync() as python:
        assert python.run(code).status == "ok"
        for copy in python.fork(3):
            with copy:
                assert copy.run("log.warning('z'); print('heard')", timeout=5).stdout == "heard\n"
