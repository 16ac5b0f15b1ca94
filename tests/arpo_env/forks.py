"""What tests do in the child of a fork."""

import os
import signal
from collections.abc import Callable


def holds_in_a_child(check: Callable[[], bool]) -> bool:
    """Whether a check returns true in the child of a fork, within 30 seconds."""
    if (child := os.fork()) == 0:
        signal.alarm(30)
        try:
            os._exit(0 if check() else 1)
        finally:
            os._exit(2)
    return os.waitpid(child, 0)[1] == 0
