"""Fixtures of the backends: what a random model of 49,152 tokens writes seldom ends by itself."""

from typing import Any

import pytest


@pytest.fixture(scope="session")
def tokenizer(whole_tokenizer: Any) -> Any:
    return whole_tokenizer
