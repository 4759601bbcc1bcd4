"""One per event loop, so one per web process: brings doorbells to channels, and goes round in case none rang.

The listener's thread calls `_heard` for every entry written anywhere; it keeps what concerns somebody here and
wakes the loop once for all of it. A doorbell names a session; a project's channel is rung for those of its
sessions, and which session is whose never changes, so it is asked once.

Going round: all followed sessions are looked at in one statement every few seconds, and the right of all followers
to go on in a few statements every half minute, however many there are. While nobody follows anything, nothing
runs.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

import structlog
from django.conf import settings
from django.db import Error as DjangoDatabaseError

from sessions_app import wakeups
from sessions_app.access import Access
from sessions_app.feed import reading, standing
from sessions_app.feed.channel import Channel, observed
from sessions_app.feed.filters import EVERYTHING, Filter
from sessions_app.feed.follower import Follower
from sessions_app.feed.previews import Previews
from sessions_app.feed.sources import ProjectSource, SessionSource, Source
from sessions_app.feed.threads import in_thread

logger = structlog.get_logger(__name__)

_KNOWN_SESSIONS = 50_000

_hubs: WeakKeyDictionary[asyncio.AbstractEventLoop, "Hub"] = WeakKeyDictionary()


def hub() -> "Hub":
    """The hub of the running loop."""
    loop = asyncio.get_running_loop()
    found = _hubs.get(loop)
    if found is None:
        found = _hubs[loop] = Hub(loop)
    return found


class Hub:
    """Its methods belong to the loop; only `_heard` is called from elsewhere."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._channels: dict[Any, Channel] = {}
        self._followed_projects = 0
        self._project_of: dict[UUID, UUID] = {}
        self._unsubscribe: Callable[[], None] | None = None
        self._rounds: list[asyncio.Task[None]] = []
        self._lock = threading.Lock()
        self._words: set[str | None] = set()
        self._previews = Previews(loop)

    @property
    def followers(self) -> list[Follower]:
        return [follower for channel in self._channels.values() for follower in channel.followers]

    @asynccontextmanager
    async def follow(
        self,
        source: Source,
        *,
        access: Access,
        cursor: str,
        only: Filter = EVERYTHING,
        login: str | None = None,
        deltas: bool = False,
    ) -> AsyncIterator[Follower]:
        """A follower that has found its place; with `deltas` it gets previews too.

        Raises `InvalidCursor` and `NotFound`.
        """
        channel = self._channels.get(source.key)
        if channel is None:
            channel = self._channels[source.key] = Channel(source, on_batch=self._previews.entries_came)
            self._followed_projects += isinstance(source, ProjectSource)
        follower = Follower(channel, access=access, cursor=cursor, only=only, login=login)
        channel.followers.add(follower)
        self._start()
        try:
            await follower.begin()
            if deltas and isinstance(source, SessionSource):
                self._previews.add(source.session, follower)
            yield follower
        finally:
            if isinstance(source, SessionSource):
                self._previews.remove(source.session, follower)
            channel.followers.discard(follower)
            if not channel.followers:
                channel.close()
                del self._channels[source.key]
                self._followed_projects -= isinstance(source, ProjectSource)
            if not self._channels:
                self._stop()

    # --- doorbells -----------------------------------------------------------------------------------

    def _heard(self, word: str | None) -> None:
        """In the listener's thread."""
        if word is not None and not self._followed_projects and UUID(word) not in self._channels:
            return
        with self._lock:
            waiting = bool(self._words)
            self._words.add(word)
        if not waiting and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ring)

    def _ring(self) -> None:
        with self._lock:
            words, self._words = self._words, set()
        if None in words:
            self._ring_all()
            return
        sessions = [UUID(word) for word in words if word is not None]
        for session in sessions:
            channel = self._channels.get(session)
            if channel is not None:
                channel.ring()
        if self._followed_projects:
            self._ring_projects(sessions)

    def _ring_projects(self, sessions: list[UUID]) -> None:
        unknown = [session for session in sessions if session not in self._project_of]
        if unknown and self._followed_projects > 1:
            # Rather one look at whose they are than a reading of every project.
            task = self._loop.create_task(self._learn(unknown))
            task.add_done_callback(observed)
        for channel in self._channels.values():
            source = channel.source
            if isinstance(source, ProjectSource) and (
                self._followed_projects == 1
                or any(self._project_of.get(session) == source.project for session in sessions)
            ):
                channel.ring()

    async def _learn(self, sessions: list[UUID]) -> None:
        if len(self._project_of) > _KNOWN_SESSIONS:
            self._project_of.clear()
        try:
            found = await in_thread(lambda: reading.projects_of(sessions))
        except DjangoDatabaseError:
            self._ring_all()  # their own readings come back to it
            return
        self._project_of |= found
        for project in set(found.values()):
            channel = self._channels.get(("project", project))
            if channel is not None:
                channel.ring()

    def _ring_all(self) -> None:
        for channel in self._channels.values():
            channel.ring()

    # --- rounds --------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._unsubscribe is None:
            self._unsubscribe = wakeups.subscribe(wakeups.ENTRIES, self._heard)
            self._rounds = [
                self._loop.create_task(
                    self._going_round(lambda: settings.TENURE.feed_poll_interval, self._poll)
                ),
                self._loop.create_task(
                    self._going_round(lambda: settings.TENURE.feed_recheck_interval, self._check_access)
                ),
            ]

    def _stop(self) -> None:
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        for task in self._rounds:
            task.cancel()
        self._rounds = []

    async def _going_round(
        self, interval: Callable[[], float], act: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        while True:
            await asyncio.sleep(interval())
            try:
                await act()
            except DjangoDatabaseError as error:
                logger.warning("feed.round_failed", error=str(error).partition("\n")[0])

    async def _poll(self) -> None:
        """Ring whatever has grown without a doorbell."""
        followed = [key for key in self._channels if isinstance(key, UUID)]
        if followed:
            for session, last in (await in_thread(lambda: reading.last_seqs(followed))).items():
                channel = self._channels.get(session)
                if channel is not None and channel.end != last:
                    channel.ring()
        for channel in self._channels.values():
            if isinstance(channel.source, ProjectSource):
                channel.ring()

    async def _check_access(self) -> None:
        """Refuse those who may not go on: a revoked key, a user who left, a session that is gone (F6)."""
        followers = self.followers
        subjects = [
            standing.Subject(
                access=follower.access,
                login=follower.login,
                session=source.session if isinstance(source := follower.source, SessionSource) else None,
            )
            for follower in followers
        ]
        refusals = await in_thread(lambda: standing.refusals(subjects))
        for follower, refusal in zip(followers, refusals, strict=True):
            if refusal is not None:
                follower.refuse(refusal)
