"""Fixtures of the backends: what a random model of 49,152 tokens writes seldom ends by itself."""

from typing import Any

import pytest

from tests.conftest import tiny_llama


@pytest.fixture(scope="session")
def tokenizer(whole_tokenizer: Any) -> Any:
    return whole_tokenizer


@pytest.fixture(scope="module")
def llama(tokenizer: Any) -> Any:
    return tiny_llama(len(tokenizer)).eval()
