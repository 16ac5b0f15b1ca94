"""Errors that void a sample: something outside the policy failed, so the sample must not be scored as wrong."""

from __future__ import annotations

import copyreg
from typing import Any


class ServiceError(RuntimeError):
    """Raised when an external service failed: a search provider, page, model server, MCP server or cache file.

    Attributes:
        service: name of the service.
        message: what failed, without that name.
        status: HTTP status, or None if there was no response.
    """

    def __init__(self, service: str, message: str, status: int | None = None) -> None:
        super().__init__(f"{service}: {message}")
        self.service, self.message, self.status = service, message, status

    def __reduce__(self) -> tuple[Any, ...]:
        # between processes as it is: BaseException's calls the constructor, which takes other arguments, with the text
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]


class GradingError(RuntimeError):
    """Raised when a grader could not decide because of a time-out, a crash or a missing reply."""
