"""Two pretended GPUs are switched on where `make test-pretended` asks for them; elsewhere nothing here is collected.

One of them is visible, where a test does not ask for both.
"""

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

if os.environ.get("PRETENDED_GPUS"):
    from tests.pretended import device

    device.start(int(os.environ["PRETENDED_GPUS"]))
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    # the CPU's own attention kernel rounds in another way than the plain one, which the pretended GPU has
    torch.backends.cuda.enable_flash_sdp(False)
else:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(autouse=True)
def ordered() -> Iterator[list[str]]:
    """Streams that use the same memory wait for each other; a test that plants a race empties the list."""
    from tests.pretended.streams import races

    races.clear()
    yield races
    gc.collect()
    found, races[:] = races[:], []
    assert not found


@pytest.fixture(scope="session")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.pretended.world import learn_to_walk

    return learn_to_walk(tmp_path_factory.mktemp("policy"))


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Packed trees take FlexAttention, as where Triton is installed; the lengths of the rows that it got.

    Its kernels need a GPU. Here attention is dense; its blocks are tested in test_layout.py.
    """
    import arpo_trainer.packing as forward

    lengths: list[int] = []

    def dense(module: Any, query: torch.Tensor, key: Any, value: Any, mask: Any, scaling: Any = None, **_: Any) -> Any:
        place = torch.arange(query.shape[2], device=query.device)
        seen = mask.mask_mod(None, None, place[:, None], place[None, :])
        lengths.append(len(place))
        key, value = (one.repeat_interleave(query.shape[1] // one.shape[1], dim=1) for one in (key, value))
        out = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=seen, scale=scaling)
        return out.transpose(1, 2).contiguous(), None

    monkeypatch.setattr(forward, "flex_attention_forward", dense)
    monkeypatch.setattr(forward, "find_spec", lambda name: True)
    return lengths
