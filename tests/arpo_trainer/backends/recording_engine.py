"""A stand-in for a vLLM engine that writes down what is done to it; its tokens are a function of the request."""

from types import SimpleNamespace
from typing import Any


class RecordingLLM:
    """As much of `vllm.LLM` and its engine as `VLLMEngineBackend` uses.

    Args:
        fails_at: the step, counted from 0, in which the model fails.
    """

    def __init__(self, fails_at: int | None = None) -> None:
        self.llm_engine = self
        self.model_config = SimpleNamespace(logprobs_mode="processed_logprobs", max_logprobs=20, max_model_len=1000)
        self.fails_at, self.steps = fails_at, 0
        self.log: list[Any] = []
        self.running: dict[str, tuple[Any, int]] = {}

    def reset_prefix_cache(self) -> bool:
        return not self.running

    def has_unfinished_requests(self) -> bool:
        return bool(self.running)

    def add_request(self, name: str, prompt: dict[str, Any], request: Any) -> None:
        self.log.append(["add", name, prompt["prompt_token_ids"]])
        self.running[name] = (request, 0)

    def abort_request(self, names: list[str]) -> None:
        known = [name for name in names if self.running.pop(name, None)]
        self.log.append(["abort", known])

    def step(self) -> list[Any]:
        self.log.append(["step", sorted(self.running)])
        self.steps += 1
        if self.fails_at is not None and self.steps > self.fails_at:
            raise RuntimeError("broken for a test")
        return [self._token(name) for name in list(self.running)]

    def _token(self, name: str) -> Any:
        request, done = self.running[name]
        token = (sum(request.ids) + done) % 50
        finished = done + 1 == request.max_tokens
        self.running[name] = (request, done + 1)
        if finished:
            del self.running[name]
        made = SimpleNamespace(
            token_ids=[token],
            logprobs=[{token: SimpleNamespace(logprob=-1.0), token + 1: SimpleNamespace(logprob=-0.5)}],
            finish_reason="length" if finished else None,
            stop_reason=None,
        )
        return SimpleNamespace(request_id=name, outputs=[made], finished=finished, num_cached_tokens=0)
