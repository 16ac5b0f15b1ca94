"""The storage of a cache: one SQLite database in WAL mode that processes and threads read and write concurrently.

It stores records by key. `arpo_env.cache.cache` decides what is looked up and stored.
"""

from __future__ import annotations

import hashlib
import json
import time
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from arpo_env.cache.sqlite_connections import PATIENCE, Connection
from arpo_env.cache.sqlite_open import CURE, CacheError

STATUSES = ("found", "nothing")
_COLUMNS = "kind, provider, version, request, value, created, expires, status"


@dataclass(frozen=True)
class Record:
    """A request and its answer.

    Attributes:
        kind: "search", "page", ...
        provider: who answered.
        version: version of the adapter or prompt.
        request: canonical JSON.
        value: JSON, compressed with zlib.
        created: seconds since 1970.
        expires: seconds since 1970, or None.
        status: "found" or "nothing".
    """

    kind: str
    provider: str
    version: str
    request: str
    value: bytes
    created: float
    expires: float | None = None
    status: str = "found"

    @property
    def key(self) -> bytes:
        """Hash of the request."""
        return key_of(self.kind, self.provider, self.version, self.request)


def canonical(request: Any) -> str:
    """Return JSON that is equal for equal data.

    Raises:
        TypeError: the data contains a value that JSON does not have.
        ValueError: the data contains nan or infinity.
    """
    return json.dumps(request, sort_keys=True, separators=(",", ":"), allow_nan=False)


def key_of(kind: str, provider: str, version: str, request: str) -> bytes:
    """Return the SHA-256 key of a record; `request` is canonical JSON."""
    return hashlib.sha256(canonical([kind, provider, version, request]).encode()).digest()


class Store:
    """The database; opened at first use.

    Args:
        path: path of the file.
        read_only: never write or create the file; works on a read-only file system.
    """

    def __init__(self, path: Path, read_only: bool = False) -> None:
        self.path, self.read_only = path, read_only
        self._reader, self._writer = Connection(path, read_only), Connection(path, read_only)

    def get(self, key: bytes) -> Record | None:
        """Return a record, even if it has expired."""
        with self._reader.use() as connection:
            # fetch all rows, so that the statement ends and releases its snapshot of the file
            rows = connection.execute(f"SELECT {_COLUMNS} FROM records WHERE key = ?", (key,)).fetchall()
        return Record(*rows[0]) if rows else None

    def put(self, records: Iterable[Record], replace: bool = True) -> int:
        """Write records in one durable transaction; return the number of written records."""
        verb = "REPLACE" if replace else "IGNORE"
        statement = f"INSERT OR {verb} INTO records (key, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        rows = [(record.key, *astuple(record)) for record in records]
        with self._writer.use() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                written = connection.executemany(statement, rows).rowcount
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            self._writer.checkpoint_soon()
        return written

    def records(self) -> Iterator[Record]:
        """Iterate over all records in insertion order, in batches of 1,000."""
        last = 0
        while True:
            with self._reader.use() as connection:
                statement = f"SELECT rowid, {_COLUMNS} FROM records WHERE rowid > ? ORDER BY rowid LIMIT 1000"
                rows = connection.execute(statement, (last,)).fetchall()
            if not rows:
                return
            last = rows[-1][0]
            yield from (Record(*row[1:]) for row in rows)

    def count(self) -> list[dict[str, Any]]:
        """Return a row per kind, provider and version: number of records, bytes, status counts and dates."""
        statement = (
            "SELECT kind, provider, version, count(*) AS records, sum(status = 'nothing') AS 'nothing',"
            " sum(coalesce(expires <= ?, 0)) AS expired, sum(length(value)) AS bytes,"
            " min(created) AS oldest, max(created) AS newest"
            " FROM records GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
        )
        with self._reader.use() as connection:
            cursor = connection.execute(statement, (time.time(),))
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def known(self, kind: str) -> list[tuple[str, str, str | None, int]]:
        """Return provider, version, server and count of the three largest groups of records of a kind."""
        statement = (
            "SELECT provider, version, json_extract(request, '$.server') AS server, count(*) FROM records"
            " WHERE kind = ? GROUP BY 1, 2, 3 ORDER BY 4 DESC, 1, 2, 3 LIMIT 3"
        )
        with self._reader.use() as connection:
            return connection.execute(statement, (kind,)).fetchall()

    def unpack(self, record: Record) -> Any:
        """Return the value of a record.

        Raises:
            CacheError: the value is damaged.
        """
        try:
            return json.loads(zlib.decompress(record.value))
        except (zlib.error, ValueError) as error:
            raise CacheError(
                f"a record in {self.path} is damaged ({error}; request {record.request[:200]}). "
                f"{CURE.format(path=self.path)}"
            ) from error

    def close(self) -> None:
        """Close the connections; the next use opens them again."""
        for connection in (self._reader, self._writer):
            with connection.lock:
                connection.close(PATIENCE)
