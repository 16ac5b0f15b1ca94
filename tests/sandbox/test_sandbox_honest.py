"""Honest programs that do what attacks do, too: they have to go on working, also across a fork."""

import time

import pytest
from sandbox_under_test import values

from sandbox import Sandbox

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
    "shared_mapping_of_a_child": (
        """
import mmap, os
area = mmap.mmap(-1, 8 << 20)
if os.fork() == 0:
    area[:2] = b"ab"
    os._exit(0)
os.wait()
try: found = mmap.mmap(-1, 1 << 30)
except OSError as error: found = "Limits.file_size" in str(error)
area[:3], isinstance(area, mmap.mmap), found
""",
        "(b'ab\\x00', True, True)",
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


BUSY_THREADS = {
    "blocked in print to stdout": "for _ in range(300): print('x' * 5000)",
    "blocked in print to stderr": "for _ in range(300): print('x' * 5000, file=sys.stderr)",
    "with locks of the library": "while True: log.warning('y' * 100); box.put(1); box.get()",
}


@pytest.mark.parametrize("work", BUSY_THREADS.values(), ids=BUSY_THREADS)
def test_a_fork_while_threads_are_busy(isolated: Sandbox, work: str) -> None:
    code = f"""
import io, logging, queue, sys, threading, time
log = logging.getLogger("x"); log.addHandler(logging.StreamHandler(io.StringIO()))
box, mine = queue.Queue(), [1]
def talk():
    time.sleep(0.1)
    {work}
for _ in range(3): threading.Thread(target=talk, daemon=True).start()
"""
    with isolated.interpreter_sync() as python:
        assert python.run(code, timeout=5).status == "ok"
        time.sleep(0.5)
        for copy in python.fork(2):
            with copy:
                found = copy.run("log.warning('z'); print('heard'); mine.append(2); mine", timeout=5)
                assert (found.status, found.value) == ("ok", "[1, 2]"), found
                assert found.stdout.endswith("heard\n"), found  # what a thread had not got rid of may stand before it
        assert python.run("mine", timeout=5).value == "[1]"
