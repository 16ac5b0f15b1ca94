"""Opens the tools of an evaluation: `open_inference_tools(settings, cache)`."""

from __future__ import annotations

from arpo_env.cache import Cache
from arpo_env.chat_model import ChatModel
from arpo_trainer.inference_tools.helper_model import ChatHelper, InferenceTools
from arpo_trainer.inference_tools.inference_settings import InferenceSettings


def open_inference_tools(settings: InferenceSettings, cache: Cache | None = None) -> InferenceTools | None:
    """Return the tools with their helping model; None where all are off.

    Args:
        settings: which tools, and which model helps.
        cache: records and replays what the model says.

    Raises:
        ValueError: the address of the model is not valid.
    """
    if not settings:
        return None
    if not settings.model:
        return InferenceTools(settings, None, cache)
    chat = ChatModel(settings.model, base_url=settings.url)
    return InferenceTools(settings, ChatHelper(chat, settings.helper_tokens), cache)
