"""An ASGI application served by uvicorn on a thread of this process."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from arpo_env.adapters.hosted_episodes import address, bind, uvicorn_server


@contextlib.contextmanager
def served(app: Any, token: str = "") -> Iterator[str]:
    with bind("127.0.0.1", 0, token) as listener:
        server = uvicorn_server(app)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        wait_for(lambda: server.started)
        try:
            yield address(listener)
        finally:
            server.should_exit = True
            thread.join()


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            raise TimeoutError(f"the condition did not hold within {seconds:g} s")
        time.sleep(0.02)
