"""What generates: one interface (`arpo_trainer.generation.Backend`), one module an implementation."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arpo_trainer.backends.choice import transformers_backend
    from arpo_trainer.backends.continuous import TransformersBackend
    from arpo_trainer.backends.endpoint import EndpointBackend
    from arpo_trainer.backends.hosting import trainer_backend
    from arpo_trainer.backends.padded import PaddedBackend
    from arpo_trainer.backends.vllm_engine import VLLMEngineBackend
    from arpo_trainer.backends.vllm_server import VLLMServerBackend

__all__ = [
    "EndpointBackend",
    "PaddedBackend",
    "TransformersBackend",
    "VLLMEngineBackend",
    "VLLMServerBackend",
    "trainer_backend",
    "transformers_backend",
]

_HOMES = {
    "EndpointBackend": "endpoint",
    "PaddedBackend": "padded",
    "TransformersBackend": "continuous",
    "VLLMEngineBackend": "vllm_engine",
    "VLLMServerBackend": "vllm_server",
    "trainer_backend": "hosting",
    "transformers_backend": "choice",
}


def __getattr__(name: str) -> Any:
    """Import a backend when it is first asked for: each needs something heavy of its own."""
    from arpo_trainer.extras import public_name

    return public_name(__name__, _HOMES, name)
