"""What long polls share: a doorbell on the event loop, and looks that hold no database connection in between.

Whoever waits subscribes before it looks, so nothing that happens between the two is missed. Each look borrows one
of a few threads for a short query and gives its database connection back, so any number of clients can wait.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from asgiref.sync import sync_to_async
from django.db import connection

from sessions_app import wakeups

FALLBACK_POLL = 5.0
"""Seconds until somebody who waits looks again without having heard anything."""

_threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="wait")


class Bell:
    """Rung from the listener's thread when a bell of `kind` rings with `word`, or with none."""

    def __init__(self, kind: str, word: str) -> None:
        loop = asyncio.get_running_loop()
        rung = self._rung = asyncio.Event()
        mine = {None, word}

        def ring(word: str | None) -> None:
            if word in mine and not loop.is_closed():
                loop.call_soon_threadsafe(rung.set)

        self.close = wakeups.subscribe(kind, ring)

    def clear(self) -> None:
        self._rung.clear()

    async def ring_within(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        except TimeoutError:
            return


async def look[**P, R](function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a function that uses the database, and give the connection back."""

    def run() -> R:
        try:
            return function(*args, **kwargs)
        finally:
            _give_back()

    return await asyncio.get_running_loop().run_in_executor(_threads, run)


async def give_back() -> None:
    """Authentication used the request's own thread; its connection would be held as long as the request."""
    await sync_to_async(_give_back)()


def _give_back() -> None:
    if not connection.in_atomic_block:
        connection.close()
