"""The file under the cache: killed writers lose nothing, damage is named and kept, reading needs no writing."""

import multiprocessing
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from arpo_env import cache as module
from arpo_env.cache import Cache, CacheError, Record, canonical
from tests.arpo_env.forks import holds_in_a_child
from tests.waiting import wait_for

VALUE = "word " * 300
RECORDER = """
import sys, time, os
from arpo_env.cache import Cache

def put(number):
    cache.store.put([cache.record("search", "serper", 1, {"query": str(number)}, number)])

cache = Cache(sys.argv[1])
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cache.sqlite"


def put(cache: Cache, query: str, value: Any = VALUE) -> None:
    cache.store.put([cache.record("search", "serper", 1, {"query": query}, value)])


def read(cache: Cache, query: str) -> Any:
    found = cache.store.get(Record("search", "serper", "1", canonical({"query": query}), b"", 0.0).key)
    return found and cache.store.unpack(found)


def values(file: Path) -> list[Any]:
    """Copy the file alone to another folder, and replay it from there."""
    folder = file.parent / "copy"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    cache = Cache(shutil.copy(file, folder / "other.sqlite"), mode="replay")
    found = [cache.store.unpack(record) for record in cache.store.records()]
    cache.close()
    return found


def _write_for_ever(file: Path, name: int, told: Path) -> None:
    cache = Cache(file)
    with open(told, "ab", buffering=0) as acknowledged:
        for number in range(1_000_000):
            put(cache, f"{name}-{number}", f"{name}-{number} {VALUE}")
            acknowledged.write(b"x")


def test_killed_writers_lose_no_acknowledged_write(file: Path, tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    told = [tmp_path / f"told-{name}" for name in range(3)]
    writers = [spawn.Process(target=_write_for_ever, args=(file, name, told[name])) for name in range(3)]
    for writer in writers:
        writer.start()
    wait_for(lambda: all(path.exists() and path.stat().st_size > 50 for path in told), 30)
    for writer in writers:
        writer.kill()
        writer.join()
    counts = [path.stat().st_size for path in told]
    cache = Cache(file, mode="replay")
    names = [f"{n}-{i}" for n, count in enumerate(counts) for i in range(count)]
    assert [name for name in names if not read(cache, name).startswith(f"{name} ")] == []
    assert sqlite3.connect(file).execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_threads_write_and_read_one_cache_and_an_open_replay_sees_it(file: Path) -> None:
    cache = Cache(file)
    put(cache, "first")
    replay = Cache(file, mode="replay")
    assert read(replay, "first") == VALUE

    def work(name: int) -> None:
        for number in range(20):
            put(cache, f"{name}-{number}")
            assert read(cache, f"{name}-{number}") == read(replay, f"{name}-{number}") == VALUE

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    assert cache.store.stats()[0]["records"] == 161


def test_forks_amid_writes_lose_nothing(file: Path) -> None:
    cache, stop, written = Cache(file), threading.Event(), []

    def write() -> None:
        while not stop.is_set():
            put(cache, f"p{len(written)}")
            written.append(f"p{len(written)}")

    thread = threading.Thread(target=write)
    thread.start()
    for number in range(10):
        time.sleep(0.02)
        assert holds_in_a_child(lambda name=f"c{number}": put(cache, name) is None)
    stop.set()
    thread.join()
    kept = {record.request.split('"query":"')[1].rstrip('"}') for record in Cache(file).store.records()}
    assert kept == set(written) | {f"c{n}" for n in range(10)}


@pytest.mark.parametrize(
    "code",
    [
        "put(1); replay = Cache(sys.argv[1], mode='replay'); list(replay.store.records()); raise SystemExit(3)",
        "put(1)\nif not os.fork():\n    put(1); sys.exit()\nos.wait()",
        "put(1); replay = Cache(sys.argv[1], mode='replay'); list(replay.store.records())\n"
        "replay.close(); cache.close(); os._exit(0)",
    ],
    ids=["exit", "fork", "close"],
)
def test_after_the_end_or_close_the_file_alone_is_the_recording(file: Path, code: str) -> None:
    subprocess.run([sys.executable, "-c", RECORDER + code, str(file)], timeout=60)
    assert values(file) == [1]
    assert [path.name for path in file.parent.glob("cache*")] == ["cache.sqlite"]


@pytest.mark.parametrize("mode", ["record", "replay"])
def test_a_file_of_something_else_is_named_and_kept(file: Path, mode: str, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "wages") as other:
        other.execute("CREATE TABLE wages (name TEXT)")
    wages = (tmp_path / "wages").read_bytes()
    for content, said in ((b"my thesis " * 1000, "not a cache .*nothing was deleted"), (wages, "another application")):
        file.write_bytes(content)
        with pytest.raises(CacheError, match=rf"cache\.sqlite is .*{said}"):
            read(Cache(file, mode=mode), "q")
        assert file.read_bytes() == content


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


def test_a_full_disk_is_named_and_what_was_recorded_stays(file: Path) -> None:
    cache = Cache(file)
    put(cache, "1", 1)
    with cache.store._writer.use() as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 1}")
    large = cache.record("page", "web", 1, {"url": "u"}, os.urandom(100_000).hex())
    with pytest.raises(CacheError, match=r"the disk is full\. Free some space"):
        cache.store.put([large])
    cache.close()
    assert values(file) == [1]
    cache.store.put([large])


@pytest.fixture
def others() -> Iterator[Path]:
    """A folder that another user can reach but not write."""
    folder = Path(tempfile.mkdtemp(prefix="arpo-cache-test-"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


@contextmanager
def another_user() -> Iterator[None]:
    """One who may not write."""
    before = os.geteuid()
    if before == 0:  # who may write anywhere
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


def test_a_replay_needs_no_permission_to_write(others: Path) -> None:
    file = others / "cache.sqlite"
    put(cache := Cache(file), "q", "kept")
    cache.close()
    file.chmod(0o444)
    others.chmod(0o555)
    with another_user():
        assert read(Cache(file, mode="replay"), "q") == "kept"
    assert [path.name for path in others.iterdir()] == ["cache.sqlite"]


def test_fresh_records_that_can_not_be_read_are_no_silent_miss(others: Path) -> None:
    file, copy = others / "cache.sqlite", others / "copy.sqlite"
    put(cache := Cache(file), "q", "kept")
    shutil.copy(file, copy)
    shutil.copy(f"{file}-wal", f"{copy}-wal")
    others.chmod(0o555)
    with another_user(), pytest.raises(CacheError, match=r"copy\.sqlite has recent records in copy\.sqlite-wal"):
        read(Cache(copy, mode="replay"), "q")
    cache.close()


def test_on_a_network_disk_each_record_is_in_the_file_at_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(Cache(file), "0", 0)  # as another machine did it, with a log
    mounts = f"22 1 0:21 / / rw - ext4 /dev/sda rw\n23 22 0:22 / {file.parent} rw - nfs4 host:/x rw"
    monkeypatch.setattr(Path, "read_text", lambda path, *_, **__: mounts)
    assert not module._on_network(Path("/run.sqlite"))
    for number, cache in ((1, Cache(file)), (2, Cache(file))):
        put(cache, str(number), number)
        assert values(file) == list(range(number + 1))
    assert not Path(f"{file}-wal").exists()
