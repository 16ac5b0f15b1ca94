"""Generation backends: the interface is `arpo_trainer.backends.base.Backend`; each implementation has a module."""

from typing import TYPE_CHECKING

from arpo_env.lazy_names import lazy_names
from arpo_trainer.optional_dependencies import naming_extras

if TYPE_CHECKING:
    from arpo_trainer.backends.in_process import PaddedBackend, TransformersBackend, transformers_backend
    from arpo_trainer.backends.recorded import RecordedBackend
    from arpo_trainer.backends.servers import EndpointBackend, VLLMServerBackend
    from arpo_trainer.backends.vllm_engine import VLLMEngineBackend

__all__ = [
    "EndpointBackend",
    "PaddedBackend",
    "RecordedBackend",
    "TransformersBackend",
    "VLLMEngineBackend",
    "VLLMServerBackend",
    "transformers_backend",
]

__getattr__ = lazy_names(__name__, naming_extras)
