"""A server in this process with the routes of `vllm serve` that TRL gives weights by, and a wire in place of NCCL."""

import json
import queue
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any, ClassVar, Self

import torch


class Wire(queue.Queue[Any]):
    """What NCCL would send."""

    def __init__(self) -> None:
        super().__init__()
        self.group = SimpleNamespace()  # TRL's client closes its parts when the process ends


class WeightServer(ThreadingHTTPServer):
    """One server. `with WeightServer() as server:` serves at `server.url`.

    Attributes:
        workers: tensor-parallel times data-parallel size.
        asked: routes that were posted to, in order.
        group: what the communication group was made of.
        weights: what it has.
        broken: a route that answers 400.
    """

    daemon_threads = True
    wires: ClassVar[dict[int, Wire]] = {}  # by port of the group

    def __init__(self, workers: int = 1) -> None:
        super().__init__(("127.0.0.1", 0), _Routes)
        self.workers, self.asked, self.broken = workers, list[str](), ""
        self.group: dict[str, Any] = {}
        self.weights: dict[str, torch.Tensor] = {}
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def answer(self, route: str, body: dict[str, Any]) -> Any:
        """Answer a request as vLLM does; None is an error."""
        if route == self.broken:
            return None
        if route == "/init_weight_transfer_engine":
            self.group = body["init_info"]
        if route == "/update_weights":
            for name in body["update_info"]["names"]:
                self.weights[name] = self.wires[self.group["master_port"]].get(timeout=10)
        plain = {"success": True, "world_size": self.workers, "vllm_config": {"weight_transfer_config": {}}}
        return plain | {"data": [{"id": "tiny"}]}


class _Routes(BaseHTTPRequestHandler):
    server: WeightServer

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        self.server.asked.append(self.path)
        length = int(self.headers.get("content-length") or 0)
        self._answer(json.loads(self.rfile.read(length) or b"{}"))

    def _answer(self, body: dict[str, Any]) -> None:
        found = self.server.answer(self.path.partition("?")[0], body)
        data = json.dumps(found or {"error": "no"}).encode()
        self.send_response(400 if found is None else 200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


def join_group(init_info: dict[str, Any]) -> Any:
    """Stand in for the trainer's end of an NCCL group."""
    return WeightServer.wires.setdefault(init_info["master_port"], Wire())


def broadcast(iterator: Iterator[tuple[str, torch.Tensor]], group: Any, **_: Any) -> None:
    """Stand in for vLLM's broadcast."""
    for _, value in iterator:
        group.put(value.clone())
