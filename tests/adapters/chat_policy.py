"""A local endpoint at which the scripted policy answers, as vLLM does it."""

import json
from typing import Any

from tests.arpo_env.chat_server import Answer

from .scripts import Script


def scripted(script: Script) -> Answer:
    """Return answers of the script; stop strings are cut off, as endpoints do, and named, as vLLM does."""

    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        message = script.message(as_turns(body["messages"]) if body.get("continue_final_message") else body["messages"])
        return 200, completion(message, body)

    return answer


def as_turns(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Take an assistant's message that holds results apart into turns, so that the script can count them."""
    *opening, last = messages
    assert last["role"] == "assistant"
    turns = last["content"].split("<result>")
    return opening + [{"role": role, "content": text} for text in turns[1:] for role in ("assistant", "user")]


def completion(message: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    """Return a message as an answer; its token ids are the bytes of its text and calls."""
    text, ended = message["content"], None
    for stop in body.get("stop") or ():
        if text.endswith(stop):
            text, ended = text.removesuffix(stop), stop
    calls = message.get("tool_calls")
    ids = list((text + (json.dumps(calls) if calls else "")).encode())
    reason = "tool_calls" if calls else "stop"
    choice = {"index": 0, "message": {**message, "content": text}, "finish_reason": reason, "stop_reason": ended}
    if body.get("return_token_ids"):
        choice |= {"token_ids": ids}
    if body.get("logprobs"):
        tokens = [{"token": chr(each), "bytes": [each], "logprob": -each / 256, "top_logprobs": []} for each in ids]
        choice |= {"logprobs": {"content": tokens}}
    prompt = list(json.dumps(body["messages"]).encode())
    usage = {"prompt_tokens": len(prompt), "completion_tokens": len(ids), "total_tokens": len(prompt) + len(ids)}
    ids_of_prompt = {"prompt_token_ids": prompt} if body.get("return_token_ids") else {}
    about = {"id": "x", "object": "chat.completion", "created": 0}
    return {**about, "model": body["model"], "choices": [choice], "usage": usage, **ids_of_prompt}
