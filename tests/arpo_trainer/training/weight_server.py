"""A server in this process with the routes of `vllm serve` that TRL gives weights by, and a wire in place of NCCL."""

import json
import queue
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import torch

from tests.arpo_env.local_server import Call, LocalServer


class Wire(queue.Queue[Any]):
    """What NCCL would send."""

    def __init__(self) -> None:
        super().__init__()
        self.group = SimpleNamespace()  # TRL's client closes its parts when the process ends


class WeightServer(LocalServer):
    """One server. `with WeightServer() as server:` serves at `server.url`.

    Attributes:
        workers: tensor-parallel times data-parallel size.
        asked: routes that were posted to, in order.
        group: what the communication group was made of.
        weights: what it has.
        broken: a route that answers 400.
    """

    wires: ClassVar[dict[int, Wire]] = {}  # by port of the group

    def __init__(self, workers: int = 1) -> None:
        super().__init__(self.respond)
        self.workers, self.broken = workers, ""
        self.group: dict[str, Any] = {}
        self.weights: dict[str, torch.Tensor] = {}

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def asked(self) -> list[str]:
        return [seen.path for seen in self.seen if seen.method == "POST"]

    def respond(self, call: Call) -> None:
        """Answer a request as vLLM does."""
        route, body = call.seen.path, json.loads(call.seen.body or b"{}")
        if route == self.broken:
            call.reply({"error": "no"}, 400)
            return
        if route == "/init_weight_transfer_engine":
            self.group = body["init_info"]
        if route == "/update_weights":
            for name in body["update_info"]["names"]:
                self.weights[name] = self.wires[self.group["master_port"]].get(timeout=10)
        plain = {"success": True, "world_size": self.workers, "vllm_config": {"weight_transfer_config": {}}}
        call.reply(plain | {"data": [{"id": "tiny"}]})


def join_group(init_info: dict[str, Any]) -> Any:
    """Stand in for the trainer's end of an NCCL group."""
    return WeightServer.wires.setdefault(init_info["master_port"], Wire())


def broadcast(iterator: Iterator[tuple[str, torch.Tensor]], group: Any, **_: Any) -> None:
    """Stand in for vLLM's broadcast."""
    for _, value in iterator:
        group.put(value.clone())
