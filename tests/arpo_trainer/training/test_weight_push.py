"""Weights for vLLM servers: TRL's own client and push, with a wire in place of NCCL; several servers, and adapters."""

import contextlib
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import trl.generation.vllm_client as client
import trl.generation.vllm_generation as generation
from accelerate import Accelerator

from arpo_trainer.backends.base import GenerationError
from arpo_trainer.training.devices import planning
from arpo_trainer.training.policy_backend import connect_servers, push_weights, weights_are_old
from tests.arpo_trainer.training.test_trainer import config
from tests.arpo_trainer.training.weight_server import WeightServer, broadcast, join_group
from tests.conftest import tiny_llama


class OnGPU(Accelerator):  # type: ignore[misc]
    """TRL's client asks only whether the device is a GPU."""

    device = torch.device("cuda")


class Trainer:
    """As much of a trainer as pushes weights."""

    def __init__(self, url: str, model: Any = None) -> None:
        self.model = model or torch.nn.Linear(2, 3)
        self.accelerator, self.is_fsdp_enabled = OnGPU(cpu=True), False
        self.vllm_generation = generation.VLLMGeneration(
            self.model, self.accelerator, None, mode="server", server_base_url=url, group_port=7000, server_timeout=1.0
        )
        self.state, self.is_in_train, self._last_loaded_step = type("State", (), {"global_step": 0})(), True, -1


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[WeightServer]]:
    doubles = {"open_trainer_endpoint": join_group, "packed_nccl_broadcast_producer": broadcast}
    doubles |= dict.fromkeys(("_HAS_STATEFUL_TRAINER_ENGINE", "_HAS_RESET_PREFIX_CACHE_SUCCESS"), True)
    for name, value in {**doubles, "get_ip": lambda: "127.0.0.1"}.items():
        monkeypatch.setattr(client, name, value, raising=False)
    for module in (client, generation):
        monkeypatch.setattr(module, "is_vllm_available", lambda **_: True)
    with WeightServer() as first, WeightServer(workers=4) as second, WeightServer() as third:
        yield [first, second, third]


def connected(servers: list[WeightServer]) -> Any:
    trainer = Trainer(servers[0].url)
    connect_servers(trainer, [server.url for server in servers])
    return trainer


def test_each_server_gets_each_push_over_a_group_of_its_own(servers: list[WeightServer]) -> None:
    trainer = connected(servers)
    for step in range(2):
        trainer.state.global_step = step
        torch.nn.init.constant_(trainer.model.weight, float(step))
        assert weights_are_old(trainer)
        push_weights(trainer)
        for server in servers:
            assert server.weights.keys() == {"weight", "bias"}
            assert all(torch.equal(server.weights[name], value) for name, value in trainer.model.named_parameters())
    one_push = ["/start_weight_update", "/update_weights", "/finish_weight_update", "/reset_prefix_cache"]
    assert all(server.asked == ["/init_weight_transfer_engine", *one_push, *one_push] for server in servers)
    groups = [(server.group["master_port"], server.group["world_size"]) for server in servers]
    assert groups == [(7000, 2), (7001, 5), (7002, 2)]  # the workers of all data-parallel ranks are in one group


def test_a_server_that_fails_is_named(servers: list[WeightServer]) -> None:
    assert "sync_weights" not in vars(connected(servers[:1]).vllm_generation)  # one server is left to TRL
    trainer = connected(servers)
    servers[1].broken = "/start_weight_update"
    with pytest.raises(GenerationError, match=rf"{servers[1].url} could not be given the weights.*resume"):
        push_weights(trainer)
    assert weights_are_old(trainer)
    assert trainer.vllm_generation.vllm_client.base_url == servers[0].url
    servers[2].broken = "/server_info"
    with pytest.raises(GenerationError, match=rf"{servers[2].url} cannot be used"):
        connected(servers)


@pytest.mark.parametrize(
    "adapters",
    [
        peft.LoraConfig(r=4, lora_alpha=6, target_modules=["0", "2"], lora_bias=True),
        peft.LoraConfig(r=4, target_modules=["0"], use_dora=True),
        peft.LoKrConfig(r=2, target_modules=["0"]),
    ],
    ids=["lora", "dora", "lokr"],
)
def test_adapters_are_pushed_merged_and_leave_the_base_as_it_is(servers: Any, adapters: peft.PeftConfig) -> None:
    plain = torch.nn.Sequential(torch.nn.Linear(48, 64), torch.nn.ReLU(), torch.nn.Linear(64, 3)).bfloat16()
    names = set(dict(plain.named_parameters()))
    trainer = Trainer(servers[0].url, peft.get_peft_model(plain, adapters))
    trainer.vllm_generation.vllm_client.init_communicator(device=trainer.accelerator.device)
    base = {name: value.clone() for name, value in trainer.model.named_parameters() if not value.requires_grad}
    for step in range(20):
        with torch.no_grad():
            for value in trainer.model.parameters():
                if value.requires_grad:
                    value.add_(torch.randn_like(value) / 50)
        trainer.state.global_step = step
        push_weights(trainer)
        merged = copy.deepcopy(trainer.model)
        if isinstance(adapters, peft.LoraConfig):  # what is formed in float32, rounded once
            merged.base_model.model.float()
        wanted = merged.merge_and_unload().bfloat16().state_dict()
        assert servers[0].weights.keys() == wanted.keys() == names
        assert all(torch.equal(servers[0].weights[name], value) for name, value in wanted.items())
    assert not torch.equal(wanted["0.weight"], base["base_model.model.0.base_layer.weight"])
    now = dict(trainer.model.named_parameters())
    assert all(torch.equal(now[name], value) for name, value in base.items())
    assert not any(getattr(layer, "merged", False) for layer in trainer.model.modules())


@pytest.mark.parametrize("target", ["lm_head", "embed_tokens", "q_proj"])
def test_adapters_of_weights_that_two_layers_share_are_refused(servers: list[WeightServer], target: str) -> None:
    """vLLM has one matrix for both, and the adapter is of one of them."""
    plain = tiny_llama(64)
    plain.lm_head.weight = plain.model.embed_tokens.weight
    trainer = Trainer(servers[0].url, peft.get_peft_model(plain, peft.LoraConfig(r=2, target_modules=[target])))
    trainer.vllm_generation.vllm_client.init_communicator(device=trainer.accelerator.device)
    refused = target != "q_proj"
    with pytest.raises(GenerationError, match="lora_target_modules") if refused else contextlib.nullcontext():
        push_weights(trainer)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"vllm_server_urls": ["http://a:1", "http://a:1/"]}, "names a server twice"),
        ({"vllm_server_urls": []}, "give a list of addresses"),
        ({"vllm_server_urls": ["a:1"]}, "needs an address like"),
        ({"vllm_server_urls": ["http://a:1"], "vllm_server_base_url": "http://b:1"}, "not both"),
        ({"vllm_server_urls": ["http://a:1"], "vllm_mode": "colocate"}, "needs use_vllm: true and vllm_mode: server"),
        ({"max_staleness": 1, "vllm_mode": "colocate"}, "vllm_mode: server"),
    ],
)
def test_addresses_that_cannot_be(tmp_path: Path, settings: dict[str, Any], words: str) -> None:
    usual = {"use_vllm": True, "vllm_mode": "server"}
    with planning(1):  # vLLM need not be installed
        first = config(tmp_path, **usual, vllm_server_urls=["http://a:8000/", "http://b:8000/v1"])
        with pytest.raises(ValueError, match=words):
            config(tmp_path, **usual | settings)
    assert first.vllm_server_base_url == "http://a:8000"
    assert first.vllm_server_urls == ["http://a:8000", "http://b:8000"]
