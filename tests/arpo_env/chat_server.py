"""A local server that speaks /chat/completions and answers what a test tells it to."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.arpo_env.local_server import Call, LocalServer

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

    def respond(call: Call) -> None:
        body, path = call.seen.json(), call.seen.path
        with lock:
            server.bodies.append(body)
            server.keys.append(call.seen.headers.get("authorization"))
            busy[0] += 1
            server.busiest = max(server.busiest, busy[0])
        time.sleep(seconds)
        status, content = answer(body) if path == "/v1/chat/completions" else (404, {"error": path})
        with lock:
            busy[0] -= 1
        kind = "text/html" if isinstance(content, bytes) else "application/json"
        call.reply(content, status, Connection="close", Content_Type=kind)

    with LocalServer(respond) as http:
        server.address = f"http://127.0.0.1:{http.port}/v1"
        yield server
