"""A recording is one file: whoever gets FILE alone has all of it, however its recorder ended."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from arpo_env import ToolEnv, sqlite_store
from arpo_env.cache import Cache
from arpo_env.sqlite_store import CHECKPOINT_SECONDS, CacheError, on_network

RECORDER = """
import asyncio, os, sys, time
from arpo_env.cache import Cache

def put(cache, number):
    cache.store.put([cache.record("search", "serper", 1, {"query": str(number)}, number)])

def get(cache, number):
    async def nobody():
        raise LookupError(number)
    return asyncio.run(cache.through("search", "serper", 1, {"query": str(number)}, nobody))

cache = Cache(sys.argv[1])
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cache.sqlite"


def put(cache: Cache, number: int) -> None:
    cache.store.put([cache.record("search", "serper", 1, {"query": str(number)}, number)])


def numbers(file: Path) -> list[Any]:
    """Copy the file alone to another folder, and replay it from there."""
    folder = file.parent / "copy"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    copy = shutil.copy(file, folder / "other.sqlite")
    cache = Cache(copy, mode="replay")
    found = [cache.store.unpack(record) for record in cache.store.records()]
    cache.close()
    return found


def recorded(file: Path, code: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", RECORDER + code, str(file)], stdout=subprocess.PIPE)


@pytest.mark.parametrize("last", ["record", "replay"])
def test_after_close_the_file_alone_is_the_recording(file: Path, last: str) -> None:
    record = Cache(file)
    for number in range(20):
        put(record, number)
    replay = Cache(file, mode="replay")
    assert len(list(replay.store.records())) == 20
    for cache in (replay, record) if last == "record" else (record, replay):
        cache.close()
    assert numbers(file) == list(range(20))


def test_a_replay_in_the_recording_process_completes_the_file(file: Path) -> None:
    record = Cache(file)
    put(record, 1)
    Cache(file, mode="replay")
    assert numbers(file) == [1]


def test_closing_the_environment_completes_its_recording(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text(json.dumps({"id": "1", "title": "Oslo", "text": "Oslo is in Norway."}) + "\n")
    (tmp_path / "test.jsonl").write_text(json.dumps({"question": "Where is Oslo?", "answer": ["Norway"]}) + "\n")
    options: dict[str, Any] = {"data": tmp_path / "test.jsonl", "search": tmp_path / "c.jsonl"}

    def played(**more: Any) -> str:
        env = ToolEnv("arpo/Bamboogle-v0", **options, **more)
        env.reset(seed=0)
        try:
            return env.step("<think>I search.</think><search>Oslo</search>")[0]
        finally:
            env.close()

    first = played(cache=tmp_path / "run.sqlite")
    played(cache=tmp_path / "run.sqlite", cache_mode="replay")
    shutil.copy(tmp_path / "run.sqlite", tmp_path / "alone.sqlite")
    assert played(cache=tmp_path / "alone.sqlite", cache_mode="replay") == first


@pytest.mark.parametrize(
    "code",
    [
        "put(cache, 1)",
        "put(cache, 1); replay = Cache(sys.argv[1], mode='replay'); get(replay, 1)",
        "put(cache, 1); put(cache, 1); raise SystemExit(3)",
        "import multiprocessing as m; p = m.get_context('fork').Process(target=put, args=(cache, 1)); p.start()",
        "import multiprocessing as m\nif not os.fork():\n    put(cache, 1); sys.exit()\nos.wait()",
    ],
)
def test_after_the_interpreter_ended_the_file_alone_is_the_recording(file: Path, code: str) -> None:
    recorded(file, code).wait(60)
    assert numbers(file) == [1]


def test_a_second_after_a_write_a_killed_process_leaves_it_in_the_file(file: Path) -> None:
    process = recorded(file, "[put(cache, n) for n in range(50)]; print(flush=True); time.sleep(60)")
    assert process.stdout
    process.stdout.readline()
    end = time.monotonic() + CHECKPOINT_SECONDS + 10
    while len(numbers(file)) < 50 and time.monotonic() < end:
        time.sleep(0.1)
    process.kill()
    process.wait()
    assert numbers(file) == list(range(50))


def test_from_its_first_record_on_a_killed_recording_is_a_cache(file: Path) -> None:
    process = recorded(file, "put(cache, 1); print(flush=True); time.sleep(60)")
    assert process.stdout
    process.stdout.readline()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert numbers(file) in ([], [1])
    whole = Cache(file, mode="replay")
    assert [whole.store.unpack(record) for record in whole.store.records()] == [1]


def test_a_reader_that_holds_an_old_view_only_delays_it(file: Path) -> None:
    cache = Cache(file)
    put(cache, 0)
    reader = sqlite3.connect(file)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM records").fetchall()
    put(cache, 1)
    time.sleep(CHECKPOINT_SECONDS * 1.5)
    put(cache, 2)  # others are not kept from writing
    reader.rollback()
    end = time.monotonic() + CHECKPOINT_SECONDS + 10
    while len(numbers(file)) < 3 and time.monotonic() < end:
        time.sleep(0.1)
    assert numbers(file) == [0, 1, 2]
    reader.close()


def test_the_log_does_not_grow_and_threads_do_not_gather(file: Path) -> None:
    cache = Cache(file)
    before, end, number = threading.active_count(), time.monotonic() + 2.5 * CHECKPOINT_SECONDS, 0
    while time.monotonic() < end:
        put(cache, number)
        number += 1
        assert threading.active_count() <= before + 2  # one that ends, and the next
        time.sleep(0.002)
    deadline = time.monotonic() + 10
    while Path(f"{file}-wal").stat().st_size and time.monotonic() < deadline:
        time.sleep(0.1)
    assert Path(f"{file}-wal").stat().st_size == 0
    cache.close()
    assert [path.name for path in file.parent.iterdir()] == ["cache.sqlite"]


# what is not whole


def test_a_log_without_its_file_is_kept_and_named(file: Path) -> None:
    cache = Cache(file)
    put(cache, 1)
    folder = file.parent / "copy"
    folder.mkdir()
    log = shutil.copy(f"{file}-wal", folder / "cache.sqlite-wal")
    before = log.read_bytes()
    assert before
    for mode in ("record", "replay"):
        with pytest.raises(CacheError, match=r"cache\.sqlite-wal is in .* without its file .*Copy cache\.sqlite there"):
            list(Cache(folder / "cache.sqlite", mode=mode).store.records())
    assert log.read_bytes() == before
    shutil.copy(file, folder)
    assert len(list(Cache(folder / "cache.sqlite").store.records())) == 1


def test_a_file_that_an_older_recorder_left_empty_says_where_its_records_are(file: Path) -> None:
    old = sqlite3.connect(file)
    old.execute("PRAGMA journal_mode = wal")
    old.close()
    with pytest.raises(CacheError, match=r"is empty\. .*cache\.sqlite-wal beside the original"):
        list(Cache(file, mode="replay").store.records())


# other disks


def test_a_full_disk_is_named_and_what_was_recorded_stays(file: Path) -> None:
    cache = Cache(file)
    put(cache, 1)
    with cache.store._writer.use() as connection:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + 1}")
    large = cache.record("page", "web", 1, {"url": "u"}, os.urandom(100_000).hex())
    for _ in range(2):
        with pytest.raises(CacheError, match=r"the disk is full\. Free some space"):
            cache.store.put([large])
    cache.close()
    assert numbers(file) == [1]
    cache.store.put([large])


def test_a_log_that_does_not_fit_is_kept_and_the_file_stays_sound(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(file)
    put(cache, 0)
    cache.close()
    with monkeypatch.context() as patch:
        patch.setattr(sqlite_store, "_has_room", lambda _: False)
        cache.store.put([cache.record("page", "web", 1, {"url": str(n)}, os.urandom(5000).hex()) for n in range(900)])
        put(cache, 1)
        with pytest.warns(RuntimeWarning, match=r"full: the latest records are in cache\.sqlite-wal"):
            cache.close()
        assert numbers(file) == [0]
    put(cache, 2)
    cache.close()
    assert [found for found in numbers(file) if isinstance(found, int)] == [0, 1, 2]


def test_on_a_network_disk_each_record_is_in_the_file_at_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(Cache(file), 0)  # as an older recorder did it, with a log
    monkeypatch.setattr(sqlite_store, "on_network", lambda _: True)
    cache, beside = Cache(file), Cache(file)
    for number in (1, 2):
        put(cache if number == 1 else beside, number)
        assert numbers(file) == list(range(number + 1))
    assert not Path(f"{file}-wal").exists()


def test_network_disks_are_known_by_their_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / "with space" / "deep"
    deep.mkdir(parents=True)
    escaped = str(deep.parent).replace(" ", "\\040")
    mounts = [
        "22 1 0:21 / / rw - ext4 /dev/sda rw",
        f"23 22 0:22 / {tmp_path} rw - nfs4 host:/x rw",
        f"24 23 0:23 / {escaped} rw shared:1 - ext4 /dev/sdb rw",
    ]
    real = Path.read_text
    monkeypatch.setattr(
        Path, "read_text", lambda self, *a, **k: "\n".join(mounts) if self.name == "mountinfo" else real(self, *a, **k)
    )
    assert on_network(tmp_path / "run.sqlite")
    assert not on_network(deep / "run.sqlite")
    assert not on_network(Path("/run.sqlite"))
    mounts.append(f"25 24 0:24 / {escaped} rw - fuse.sshfs host: rw")
    assert on_network(deep / "run.sqlite")
