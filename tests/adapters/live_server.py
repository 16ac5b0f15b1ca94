"""An ASGI application served by uvicorn on a thread of this process."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from arpo_env.adapters.hosted_episodes import address, bind, uvicorn_server
from tests.waiting import wait_for


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
