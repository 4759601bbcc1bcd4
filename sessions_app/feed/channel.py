"""One session or project that somebody follows: it is read once for all of its followers.

A doorbell asks for a reading; doorbells during a reading make one more, however many they were. What is new is
kept in a ring of bounded size, from which followers at the end of the feed go on; `batch_after` gives None to
those who stand elsewhere, and they read for themselves up to `end`.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import structlog
from django.db import Error as DjangoDatabaseError

from sessions_app import own_connection
from sessions_app.errors import TenureError
from sessions_app.feed.filters import EVERYTHING
from sessions_app.feed.reading import Batch
from sessions_app.feed.sources import Source
from sessions_app.feed.threads import in_thread

if TYPE_CHECKING:
    from sessions_app.feed.follower import Follower

logger = structlog.get_logger(__name__)

PAGE = 200
RING_BATCHES = 256
RING_BYTES = 2 * 2**20


class Channel:
    """Lives on the event loop, as long as it has followers. Nothing of it runs while nothing happens."""

    def __init__(self, source: Source, *, on_batch: Callable[[Batch[Any]], None] = lambda _: None) -> None:
        self.source = source
        self._on_batch = on_batch
        self.followers: set[Follower] = set()
        self.end: Any = None
        """The position up to which it was read; None until it was read for the first time."""
        self._ring: deque[Batch[Any]] = deque()
        self._ring_bytes = 0
        self._asked = 0
        self._answered = 0
        self._reader: asyncio.Task[None] | None = None
        self._failure: TenureError | None = None
        self._waiting: set[asyncio.Future[None]] = set()

    def ring(self) -> None:
        """There may be more: read, if not now then again."""
        self._asked += 1
        if self._reader is None:
            self._reader = asyncio.get_running_loop().create_task(self._read())
            self._reader.add_done_callback(observed)

    async def refresh(self) -> None:
        """Wait for a reading that began after this call. Raises what keeps it from being read."""
        self.ring()
        wanted = self._asked
        while self._answered < wanted:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(done)
            try:
                await done
            finally:
                self._waiting.discard(done)
        if self._failure is not None:
            raise self._failure

    def batch_after(self, position: Any) -> Batch[Any] | None:
        """The batch that begins there, if it is still in the ring."""
        if position == self.end:
            return None
        return next((batch for batch in reversed(self._ring) if batch.start == position), None)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.cancel()

    async def _read(self) -> None:
        try:
            await self._read_while_asked()
        finally:
            self._reader = None

    async def _read_while_asked(self) -> None:
        failures = 0
        while self._answered < self._asked:
            wanted = self._asked
            try:
                await self._read_on()
                self._failure = None
            except TenureError as error:
                self._failure = error  # it is gone: whoever joins is told, the checks tell the others
            except DjangoDatabaseError as error:
                failures += 1
                if failures == 1:
                    logger.warning("feed.database_lost", error=str(error).partition("\n")[0])
                await asyncio.sleep(own_connection.backoff(failures))
                continue
            failures = 0
            self._answered = wanted
            self._tell()

    async def _read_on(self) -> None:
        if self.end is None:
            self.end = await in_thread(self.source.head)
            return
        more = True
        while more:
            at = self.end
            batch = await in_thread(
                lambda at=at: self.source.page(at, until=None, limit=PAGE, only=EVERYTHING)  # type: ignore[misc]
            )
            more = batch.more
            if batch.end != at:
                self._keep(batch)
            if more:
                self._tell()

    def _keep(self, batch: Batch[Any]) -> None:
        self.end = batch.end
        self._on_batch(batch)
        self._ring.append(batch)
        self._ring_bytes += batch.size
        while len(self._ring) > 1 and (len(self._ring) > RING_BATCHES or self._ring_bytes > RING_BYTES):
            self._ring_bytes -= self._ring.popleft().size

    def _tell(self) -> None:
        for follower in self.followers:
            follower.wake()
        for done in self._waiting:
            if not done.done():
                done.set_result(None)


def observed(task: asyncio.Task[None]) -> None:
    """A task that nobody waits for: its error is the loop's to report."""
    if not task.cancelled():
        task.result()
