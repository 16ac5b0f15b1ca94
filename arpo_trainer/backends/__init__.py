"""Generation backends: the interface is `arpo_trainer.backends.base.Backend`; each implementation has a module."""

from typing import TYPE_CHECKING

from arpo_env.lazy_names import lazy_names
from arpo_trainer.optional_dependencies import naming_extras

if TYPE_CHECKING:
    from arpo_trainer.backends.endpoint import EndpointBackend
    from arpo_trainer.backends.in_process import PaddedBackend, TransformersBackend, transformers_backend
    from arpo_trainer.backends.recorded import RecordedBackend
    from arpo_trainer.backends.vllm_engine import VLLMEngineBackend
    from arpo_trainer.backends.vllm_server import VLLMServerBackend

__all__ = [
    "EndpointBackend",
    "PaddedBackend",
    "RecordedBackend",
    "TransformersBackend",
    "VLLMEngineBackend",
    "VLLMServerBackend",
    "transformers_backend",
]

_HOMES = {
    "EndpointBackend": "endpoint",
    "PaddedBackend": "in_process",
    "RecordedBackend": "recorded",
    "TransformersBackend": "in_process",
    "VLLMEngineBackend": "vllm_engine",
    "VLLMServerBackend": "vllm_server",
    "transformers_backend": "in_process",
}

__getattr__ = lazy_names("arpo_trainer.backends", _HOMES, naming_extras)
