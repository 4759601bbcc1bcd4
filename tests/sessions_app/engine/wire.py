"""The fault server and the mock's relay for tests that are not asynchronous themselves."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager


@contextmanager
def in_background[T](server: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """The server, running on an event loop of its own thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        running = asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(10)
        try:
            yield running
        finally:
            asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
