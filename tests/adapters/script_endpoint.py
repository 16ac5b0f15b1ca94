"""An OpenAI-compatible server on this machine that speaks for the scripted policy."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from .scripts import Script


@contextmanager
def endpoint(script: Script) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """An OpenAI-compatible server that answers with the script; its address and the requests that it has seen."""
    requests: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            requests.append(request)
            message = script.message(request["messages"])
            for stop in request.get("stop", ()):  # which a server does not send
                message["content"] = message["content"].removesuffix(stop)
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            usage = {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}
            answer = {"id": "x", "object": "chat.completion", "created": 0, "model": "stub", "usage": usage}
            body = json.dumps({**answer, "choices": [choice]}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 256

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", requests
    finally:
        server.shutdown()
        server.server_close()
