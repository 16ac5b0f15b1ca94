"""What generates: one interface (`arpo_trainer.generation.Backend`), one module an implementation."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arpo_trainer.backends.continuous import TransformersBackend
    from arpo_trainer.backends.hosting import trainer_backend
    from arpo_trainer.backends.vllm_engine import VLLMEngineBackend

__all__ = ["TransformersBackend", "VLLMEngineBackend", "trainer_backend"]

_HOMES = {
    "TransformersBackend": "continuous",
    "VLLMEngineBackend": "vllm_engine",
    "trainer_backend": "hosting",
}


def __getattr__(name: str) -> Any:
    """Import a backend when it is first asked for: each needs something heavy of its own."""
    if name not in _HOMES:
        raise AttributeError(f"module 'arpo_trainer.backends' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"arpo_trainer.backends.{_HOMES[name]}"), name)
