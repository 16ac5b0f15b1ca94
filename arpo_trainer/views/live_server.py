"""`arpo view RUN --serve`: the page from a local server, which reads single trees from the trace when they are opened.

Nothing large is in the page, and it follows a run that goes on. The server listens on this machine only and answers
only requests that name it: a page of another site cannot read a run through a name that it points here.

    server = ViewServer(["evals/gsm8k"], port=8300)
    server.address                   # "http://127.0.0.1:8300/"
    server.serve_forever()
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from arpo_trainer.evaluation.episode_store import FACTS, RESULTS, ROWS, EvalRun, UnitRow, load_eval_run
from arpo_trainer.views import run_page

logger = logging.getLogger(__name__)
HOST = "127.0.0.1"


class FollowedRun:
    """A run whose rows are read again when their file has changed; `tokenizer` is as of `write_view`."""

    def __init__(self, folder: str | Path, tokenizer: str | Path | None) -> None:
        self._folder, self._tokenizer = Path(folder), tokenizer
        self._lock = threading.Lock()
        self._seen: list[tuple[int, int]] = []
        self._widths: dict[str, run_page.TokenWidths | None] = {}
        self._by_place: dict[int, UnitRow] = {}
        self._run = self._read()

    def run(self) -> EvalRun:
        """Return the run as it is now."""
        with self._lock:
            if self._state() != self._seen:
                self._run = self._read()
            return self._run

    def tree(self, place: int) -> dict[str, Any]:
        """Return the tree at a place in traces.jsonl as the page draws it."""
        run = self.run()
        row = self._by_place.get(place)
        if row is None:
            raise ValueError(f"no episode has its tree at byte {place}; reload the page")
        return run_page.view_tree(run.tree(row), self._widths.get(row.model))

    def _state(self) -> list[tuple[int, int]]:
        found = [os.stat(path) for name in (ROWS, FACTS, RESULTS) if (path := self._folder / name).is_file()]
        return [(each.st_mtime_ns, each.st_size) for each in found]

    def _read(self) -> EvalRun:
        seen = self._state()  # before reading: what is written meanwhile is read the next time
        run = load_eval_run(self._folder)
        self._widths = self._widths or run_page.model_widths(run, self._tokenizer)
        self._by_place = {row.trace[0]: row for row in run.rows}
        self._seen = seen
        return run


class ViewServer(ThreadingHTTPServer):
    """Serves the page of one or more folders of `arpo eval` on this machine, at `address`; port 0 takes a free one."""

    daemon_threads = True

    def __init__(self, folders: Sequence[str | Path], port: int = 0, tokenizer: str | Path | None = None) -> None:
        self.followed = [FollowedRun(folder, tokenizer) for folder in folders]
        if not 0 <= port < 65536:
            raise ValueError(f"--port {port}: a port is between 0 (any that is free) and 65535")
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            raise OSError(f"cannot listen on port {port} ({error}); give another one with --port, or 0") from error
        self.address = f"http://{HOST}:{self.server_port}/"
        self.names = {f"{name}:{self.server_port}" for name in (HOST, "localhost")}

    def state(self) -> dict[str, Any]:
        """Return what the page shows besides rows and trees."""
        return run_page.page_data([each.run() for each in self.followed], served=True)


class _Handler(BaseHTTPRequestHandler):
    server: ViewServer
    protocol_version = "HTTP/1.1"
    timeout = 60  # a connection that says nothing does not keep its thread

    def do_GET(self) -> None:
        if self.headers.get("Host") not in self.server.names:
            self._send(403, b"this server answers only to its own address", "text/plain")
            return
        parts = urlsplit(self.path)
        answers: dict[str, Callable[[dict[str, list[str]]], bytes]] = {
            "/": lambda _: run_page.render(self.server.state(), policy="connect-src 'self'").encode("utf-8", "replace"),
            "/state": lambda _: run_page.json_bytes(self.server.state()),
            "/rows": lambda query: run_page.json_bytes(
                run_page.compact_rows(self._run(query).run(), lambda _, row: row.trace[0])
            ),
            "/tree": lambda query: run_page.json_bytes(self._run(query).tree(int(query["at"][0]))),
        }
        if parts.path not in answers:
            self._send(404, b"there is no such page", "text/plain")
            return
        try:
            body = answers[parts.path](parse_qs(parts.query))
        except (KeyError, IndexError, ValueError, OSError) as error:
            self._send(404, str(error).encode("utf-8", "replace"), "text/plain")
            return
        self._send(200, body, "text/html" if parts.path == "/" else "application/json")

    def _run(self, query: dict[str, list[str]]) -> FollowedRun:
        number = query["run"][0]
        if not number.isdecimal():
            raise ValueError(f"no run {number}")
        return self.server.followed[int(number)]

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "Cross-Origin-Resource-Policy": "same-origin",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        logger.debug(format, *args)
