"""One reader of a feed: catches up from its cursor by itself, then goes along with its channel.

`begin` finds its place and refuses what can't be followed; `events` yields what is to be sent, in order, for
ever. It has no queue: it knows where it stands and takes what follows when the one before is sent. A refusal
(access revoked, the session gone) is raised from `events`.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from sessions_app.access import Access
from sessions_app.errors import TenureError
from sessions_app.feed.channel import Channel
from sessions_app.feed.filters import EVERYTHING, Filter
from sessions_app.feed.previews import Preview
from sessions_app.feed.reading import Frame
from sessions_app.feed.sources import Source
from sessions_app.feed.threads import in_thread

FIRST_PAGE = 20
LARGEST_PAGE = 500
WANTED_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Entries:
    """The next entries, in order."""

    frames: Sequence[Frame]


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """What was there is sent; from here on it is live. Once."""

    cursor: str


@dataclass(frozen=True, slots=True)
class Ping:
    """Nothing new; the connection is alive."""


@dataclass(frozen=True, slots=True)
class Previewed:
    """Pieces of a reply on its way, as frames; never saved."""

    frames: Sequence[str]


type Event = Entries | CaughtUp | Ping | Previewed


class Follower:
    """Made by the hub. `login` is the key of the browser session that it was opened with, if any."""

    def __init__(
        self,
        channel: Channel,
        *,
        access: Access,
        cursor: str,
        only: Filter = EVERYTHING,
        login: str | None = None,
    ) -> None:
        self.channel = channel
        self.access = access
        self.login = login
        self._first_cursor = cursor
        self._only = only
        self._position: Any = None
        self._rest: Sequence[Frame] = ()
        self._page = FIRST_PAGE
        self._refusal: TenureError | None = None
        self._awake = asyncio.Event()
        self.preview = Preview()

    @property
    def source(self) -> Source:
        return self.channel.source

    def wake(self) -> None:
        self._awake.set()

    def refuse(self, error: TenureError) -> None:
        """End this feed with an error."""
        self._refusal = error
        self.wake()

    async def begin(self) -> None:
        """Find the place. Raises `InvalidCursor`, or what keeps the feed from being read."""
        self.source.check(self._first_cursor)
        await self.channel.refresh()
        head = self.channel.end
        rest = await in_thread(lambda: self.source.begin(self._first_cursor, head, only=self._only))
        self._position, self._rest = rest.end, rest.frames
        if self._rest:
            # The page that its cursor was in the middle of may end behind the head of just now.
            await self.channel.refresh()

    async def events(self) -> AsyncGenerator[Event]:
        """What to send, as it comes."""
        if self._rest:
            yield Entries(self._rest)
            self._rest = ()
        caught_up = False
        interval = settings.TENURE.feed_ping_interval
        loop = asyncio.get_running_loop()
        ping_at = loop.time() + interval
        while True:
            self._awake.clear()
            if self._refusal is not None:
                raise self._refusal
            frames = await self._next()
            if frames is not None:
                if frames:
                    yield Entries(frames)
                continue
            if not caught_up:
                caught_up = True
                yield CaughtUp(self.source.cursor(self._position))
                continue
            if self.preview.waiting:
                yield Previewed(self.preview.take())
                continue
            if loop.time() >= ping_at:
                ping_at = loop.time() + interval
                yield Ping()
                continue
            try:
                async with asyncio.timeout_at(ping_at):
                    await self._awake.wait()
            except TimeoutError:
                continue

    async def _next(self) -> Sequence[Frame] | None:
        """The entries of the next batch that are wanted; None at the end of the feed."""
        if self._position == self.channel.end:
            return None
        batch = self.channel.batch_after(self._position)
        if batch is None:
            at, until, limit = self._position, self.channel.end, self._page
            batch = await in_thread(lambda: self.source.page(at, until=until, limit=limit, only=self._only))
            if batch.end == at:
                return None  # the channel's end is behind this place: what follows is not there yet
            self._page = _fitting(limit, batch.size)
            self._position = batch.end
            return batch.frames
        self._position = batch.end
        if self._only is EVERYTHING:
            return batch.frames
        return [frame for frame in batch.frames if self.source.wants(self._only, frame)]


def _fitting(limit: int, size: int) -> int:
    """A number of entries whose page is about as large as wanted."""
    return max(1, min(LARGEST_PAGE, limit * 2, limit * WANTED_BYTES // max(1, size)))
