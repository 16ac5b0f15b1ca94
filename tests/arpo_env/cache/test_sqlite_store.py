"""The file under the cache: killed writers lose nothing, damage is named and kept, reading needs no writing."""

from __future__ import annotations

import asyncio
import dataclasses
import multiprocessing
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arpo_env.cache import Cache
from arpo_env.sqlite_store import CacheError, Connection

VALUE = "word " * 300


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cache.sqlite"


def put(cache: Cache, query: str, value: Any = VALUE) -> None:
    cache.store.put([cache.record("search", "serper", 1, {"query": query}, value)])


def read(cache: Cache, query: str) -> Any:
    async def nobody() -> None:
        raise LookupError(query)

    return asyncio.run(cache.through("search", "serper", 1, {"query": query}, nobody))


def _write_for_ever(file: Path, name: int, told: Path) -> None:
    cache = Cache(file)
    with open(told, "ab", buffering=0) as acknowledged:
        for number in range(1_000_000):
            put(cache, f"{name}-{number}", f"{name}-{number} {VALUE}")
            acknowledged.write(b"x")


def test_killed_writers_lose_no_acknowledged_write(file: Path, tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    told = [tmp_path / f"told-{name}" for name in range(4)]
    writers = [spawn.Process(target=_write_for_ever, args=(file, name, told[name])) for name in range(4)]
    for writer in writers:
        writer.start()
    end = time.monotonic() + 30
    while not all(path.exists() and path.stat().st_size > 50 for path in told) and time.monotonic() < end:
        time.sleep(0.02)
    for writer in writers:
        assert writer.pid
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
    counts = [path.stat().st_size for path in told]
    assert min(counts) > 50
    cache = Cache(file, mode="replay")
    lost = [
        f"{n}-{i}" for n in range(4) for i in range(counts[n]) if not read(cache, f"{n}-{i}").startswith(f"{n}-{i} ")
    ]
    assert lost == []
    assert sqlite3.connect(file).execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def _open_and_write(file: Path, barrier: Any, name: int) -> None:
    barrier.wait()
    put(Cache(file), str(name))


def test_processes_that_make_the_file_at_the_same_moment_agree(file: Path) -> None:
    fork = multiprocessing.get_context("fork")
    barrier = fork.Barrier(8)
    processes = [fork.Process(target=_open_and_write, args=(file, barrier, name)) for name in range(8)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 8
    assert len(list(Cache(file).store.records())) == 8


def test_threads_write_and_read_one_cache(file: Path) -> None:
    cache, errors = Cache(file), []

    def work(name: int) -> None:
        try:
            for number in range(30):
                put(cache, f"{name}-{number}")
                assert read(cache, f"{name}-{number}") == VALUE
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert cache.stats()[0]["records"] == 240


def test_what_one_process_writes_an_open_replay_finds(file: Path) -> None:
    put(Cache(file), "first")
    replay = Cache(file, mode="replay")
    read(replay, "first")
    put(Cache(file), "second")
    assert read(replay, "second") == VALUE


@pytest.mark.parametrize("mode", ["record", "replay"])
def test_a_file_of_something_else_is_named_and_kept(file: Path, mode: str) -> None:
    file.write_bytes(b"my thesis " * 1000)
    with pytest.raises(CacheError, match=r"cache\.sqlite is not a cache .*nothing was deleted"):
        read(Cache(file, mode=mode), "q")
    assert file.read_bytes() == b"my thesis " * 1000


def test_another_program_s_data_base_is_left_alone(file: Path) -> None:
    other = sqlite3.connect(file)
    other.execute("CREATE TABLE wages (name TEXT)")
    other.commit()
    before = file.read_bytes()
    with pytest.raises(CacheError, match=r"cache\.sqlite is an SQLite file of another application, not a cache"):
        put(Cache(file), "q")
    assert file.read_bytes() == before


@pytest.mark.parametrize("mode", ["record", "replay"])
def test_another_format_is_named(file: Path, mode: str) -> None:
    put(Cache(file), "q")
    sqlite3.connect(file).execute("PRAGMA user_version = 9")
    with pytest.raises(CacheError, match=r"cache\.sqlite has format 9, but this version of arpo reads format 1"):
        read(Cache(file, mode=mode), "q")


def test_a_damaged_file_is_named_and_kept(file: Path) -> None:
    cache = Cache(file)
    for number in range(200):
        put(cache, str(number), os.urandom(1000).hex())
    cache.close()
    whole = file.read_bytes()
    file.write_bytes(whole[:4096] + os.urandom(len(whole) - 4096))
    with pytest.raises(CacheError, match=r"cache\.sqlite is damaged"):
        list(Cache(file).store.records())
    assert file.stat().st_size >= len(whole)


def test_a_damaged_record_is_named(file: Path) -> None:
    put(Cache(file), "q")
    sqlite3.connect(file, isolation_level=None).execute("UPDATE records SET value = x'00'")
    with pytest.raises(CacheError, match=r"a record in .*cache\.sqlite is damaged .*\"query\":\"q\""):
        read(Cache(file), "q")


def test_a_batch_is_written_whole_or_not_at_all(file: Path) -> None:
    cache = Cache(file)
    good = cache.record("search", "serper", 1, {"query": "q"}, 1)
    bad = dataclasses.replace(cache.record("search", "serper", 1, {"query": "r"}, 1), value=None)  # type: ignore[arg-type]
    with pytest.raises(CacheError, match="NOT NULL"):
        cache.store.put([good, bad])
    assert list(cache.store.records()) == []
    put(cache, "q")


# where nothing can be written


@pytest.fixture
def others(tmp_path: Path) -> Iterator[Path]:
    """A folder that another user can reach but not write."""
    folder = Path(tempfile.mkdtemp(prefix="arpo-cache-test-"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def _replay(file: Path, answers: Any) -> None:
    if os.geteuid() == 0:  # who may write anywhere
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    try:
        answers.put(read(Cache(file, mode="replay"), "q"))
    except CacheError as error:
        answers.put(str(error))


def replay_as_another(file: Path) -> str:
    """Look "q" up as a user who may not write; return the value or the error."""
    fork = multiprocessing.get_context("fork")
    answers = fork.SimpleQueue()
    process = fork.Process(target=_replay, args=(file, answers))
    process.start()
    process.join()
    assert process.exitcode == 0
    return str(answers.get())


def test_a_replay_needs_no_permission_to_write(others: Path) -> None:
    file = others / "cache.sqlite"
    cache = Cache(file)
    put(cache, "q", "kept")
    cache.close()
    file.chmod(0o444)
    others.chmod(0o555)
    assert replay_as_another(file) == "kept"
    assert [path.name for path in others.iterdir()] == ["cache.sqlite"]


def test_fresh_records_that_can_not_be_read_are_no_silent_miss(others: Path) -> None:
    file = others / "cache.sqlite"
    cache = Cache(file)
    put(cache, "q", "kept")
    copy = others / "copy.sqlite"
    shutil.copy(file, copy)
    shutil.copy(f"{file}-wal", f"{copy}-wal")
    others.chmod(0o555)
    assert "copy.sqlite has recent records in copy.sqlite-wal" in replay_as_another(copy)


def test_recording_where_nothing_can_be_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="/proc/arpo cannot be created"):
        put(Cache("/proc/arpo/cache.sqlite"), "q")


def test_a_fork_waits_for_a_forgotten_connection_to_close(file: Path) -> None:
    events = []

    class Slow:
        def close(self) -> None:
            time.sleep(0.2)  # SQLite holds locks of its own meanwhile, which a child would find held for ever
            events.append("closed")

    forgotten = [Connection(file, read_only=True)]
    forgotten[0]._open = Slow()  # type: ignore[assignment]
    thread = threading.Thread(target=forgotten.clear)
    thread.start()
    time.sleep(0.05)
    child = os.fork()
    if child == 0:
        os._exit(len(events))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    thread.join()


def test_a_connection_that_is_forgotten_amid_a_fork_does_not_stop_it(file: Path) -> None:
    code = (
        "import os, sys, pathlib, faulthandler; faulthandler.dump_traceback_later(20, exit=True)\n"
        "from arpo_env.sqlite_store import Connection\n"
        "import arpo_env.sqlite_store as ours\n"
        "real = list\n"
        "def listed(known):\n"
        "    found = real(known); kept[:] = []; return found\n"
        "kept = [Connection(pathlib.Path(sys.argv[1]), False)]\n"
        "ours.list = listed\n"
        "if not os.fork(): os._exit(0)\n"
        "os.wait(); print('done')"
    )
    done = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True, timeout=60)
    assert done.stdout == "done\n", done.stderr
