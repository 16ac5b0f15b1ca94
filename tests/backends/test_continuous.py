"""The continuous transformers backend: the suite of all backends, and what is its own."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from arpo_trainer.backends import TransformersBackend
from arpo_trainer.generation import Backend
from tests.backends.conformance import BackendConformance, broken
from tests.conftest import tiny_llama


@pytest.fixture(scope="module")
def llama(tokenizer: Any) -> Any:
    return tiny_llama(len(tokenizer)).eval()


class TestTransformersBackend(BackendConformance):
    @pytest.fixture
    def reference(self, llama: Any) -> Any:
        return llama

    @pytest.fixture
    def backend(self, reference: Any, tokenizer: Any, eos_id: int) -> TransformersBackend:
        return TransformersBackend(reference, tokenizer, eos_token_ids={eos_id})

    def breaking(self, backend: Backend) -> contextlib.AbstractContextManager[None]:
        assert isinstance(backend, TransformersBackend)
        return broken(backend.model)
