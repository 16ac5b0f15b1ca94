"""A local server that speaks /chat/completions and answers what a test tells it to."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[dict[str, Any]], tuple[int, Any]]


@dataclass
class ChatServer:
    """What was asked of the server, and where it is."""

    address: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    busiest: int = 0

    @property
    def prompts(self) -> list[str]:
        """The last message of each request."""
        return [body["messages"][-1]["content"] for body in self.bodies]


def reply(content: str | None, **message: Any) -> dict[str, Any]:
    """A reply as vLLM and OpenAI write it (the fields that clients look at)."""
    finish = message.pop("finish_reason", "stop")
    choice = {"index": 0, "message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}
    return {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


def saying(*contents: str) -> Answer:
    """Answer with these texts in turn, the last one again and again."""
    left = list(contents)
    return lambda _: (200, reply(left.pop(0) if len(left) > 1 else left[0]))


@contextmanager
def chat_server(answer: Answer, seconds: float = 0.0) -> Iterator[ChatServer]:
    """Serve until the block ends; each answer takes some time."""
    server, lock, busy = ChatServer(), threading.Lock(), [0]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                server.bodies.append(body)
                server.keys.append(self.headers["Authorization"])
                busy[0] += 1
                server.busiest = max(server.busiest, busy[0])
            time.sleep(seconds)
            status, content = answer(body) if self.path == "/v1/chat/completions" else (404, {"error": self.path})
            with lock:
                busy[0] -= 1
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/html" if isinstance(content, bytes) else "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    server.address = f"http://127.0.0.1:{http.server_address[1]}/v1"
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
