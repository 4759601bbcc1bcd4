"""The hub inside one process: who is read when, what followers get, and that nothing is left behind."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from django.conf import settings
from django.db import OperationalError, connections, transaction
from django.test import override_settings

from sessions_app import log, wakeups
from sessions_app.access import Access
from sessions_app.feed import channel, reading
from sessions_app.feed.follower import CaughtUp, Entries, Follower
from sessions_app.feed.gate import Gate, SlowConsumer
from sessions_app.feed.hub import Hub, hub
from sessions_app.feed.sources import ProjectSource, SessionSource, Source
from sessions_app.models import Entry, Project, Session
from tests import factories
from tests.factories import ACTOR

pytestmark = pytest.mark.django_db(transaction=True)


def shape(row: Entry) -> Any:
    return {"text": row.data["text"]}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """No fallback poll: what arrives does so by its doorbell."""
    with override_settings(TENURE=dataclasses.replace(settings.TENURE, feed_poll_interval=60.0)):
        yield


@pytest.fixture
def session() -> Session:
    return factories.session()


async def written(session: Session, *texts: str) -> None:
    """In a thread, with its doorbell."""

    def write() -> None:
        try:
            with transaction.atomic():
                row = Session.objects.select_for_update().get(pk=session.pk)
                log.append(row, *(log.NewEntry(kind="note", data={"text": text}) for text in texts))
                row.save()
        finally:
            connections.close_all()
        wakeups.ring_entries([session.pk])

    await asyncio.to_thread(write)


class Reader:
    """Follows, and keeps what came."""

    def __init__(self, follower: Follower) -> None:
        self.follower = follower
        self.events = follower.events()

    async def next(self) -> Any:
        async with asyncio.timeout(10):
            return await anext(self.events)

    async def texts(self, count: int) -> list[str]:
        found: list[str] = []
        while len(found) < count:
            event = await self.next()
            if isinstance(event, Entries):
                found += [frame.body for frame in event.frames]
        return [body.split('"')[3] for body in found]


@pytest.fixture
async def follow(session: Session) -> AsyncIterator[Any]:
    async with AsyncExitStack() as stack:

        async def one(source: Source, *, of: Session = session, cursor: str = "0", **how: Any) -> Reader:
            project = await asyncio.to_thread(_elsewhere, lambda: Project.objects.get(pk=of.project_id))
            access = Access(project=project, role="member", actor=ACTOR)  # type: ignore[arg-type]
            following = hub().follow(source, access=access, cursor=cursor, **how)
            reader = Reader(await stack.enter_async_context(following))
            stack.push_async_callback(reader.events.aclose)
            return reader

        yield one
    assert hub()._channels == {}
    assert hub()._rounds == []
    assert hub()._unsubscribe is None


async def test_several_projects_are_each_read_for_their_own_doorbells(session: Session, follow: Any) -> None:
    """F2: and a session's doorbell finds its project also when the hub never heard of the session."""
    other = await asyncio.to_thread(_elsewhere, factories.session)
    ours = await follow(ProjectSource(session.project_id, shape))
    theirs = await follow(ProjectSource(other.project_id, shape), of=other)
    for reader in (ours, theirs):
        assert isinstance(await reader.next(), CaughtUp)
    for number in range(3):
        await written(session, f"ours {number}")
        assert await ours.texts(1) == [f"ours {number}"]
        await written(other, f"theirs {number}")
        assert await theirs.texts(1) == [f"theirs {number}"]


def _elsewhere(function: Any) -> Any:
    try:
        return function()
    finally:
        connections.close_all()


async def test_what_is_new_is_read_once_for_all_who_follow(
    session: Session, follow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = SessionSource(session.pk, shape)
    readers = [await follow(source) for _ in range(5)]
    for reader in readers:
        assert isinstance(await reader.next(), CaughtUp)
    reads = []
    page = reading.session_page

    def counted(*args: Any, **kwargs: Any) -> Any:
        found = page(*args, **kwargs)
        reads.append(len(found.frames))
        return found

    monkeypatch.setattr(reading, "session_page", counted)
    await written(session, "one")
    for reader in readers:
        assert await reader.texts(1) == ["one"]
    assert [count for count in reads if count] == [1]


async def test_a_follower_behind_the_ring_reads_for_itself_and_misses_nothing(
    session: Session, follow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F4: however far it lags, memory is that of the ring."""
    monkeypatch.setattr(channel, "RING_BATCHES", 2)
    for source in (SessionSource(session.pk, shape), ProjectSource(session.project_id, shape)):
        quick, slow = await follow(source, cursor="now"), await follow(source, cursor="now")
        for reader in (quick, slow):
            assert isinstance(await reader.next(), CaughtUp)
        wanted = [f"{type(source).__name__} {number}" for number in range(8)]
        for text in wanted:
            await written(session, text)
            assert await quick.texts(1) == [text]
        assert len(quick.follower.channel._ring) <= 2
        assert await slow.texts(8) == wanted


async def test_a_database_that_is_away_for_a_moment_ends_no_feed(
    session: Session, follow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F3"""
    reader = await follow(SessionSource(session.pk, shape))
    assert isinstance(await reader.next(), CaughtUp)
    page, failures = reading.session_page, iter(range(3))

    def away(*args: Any, **kwargs: Any) -> Any:
        if next(failures, None) is not None:
            raise OperationalError("the connection is closed")
        return page(*args, **kwargs)

    monkeypatch.setattr(reading, "session_page", away)
    await written(session, "all the same")
    assert await reader.texts(1) == ["all the same"]


async def test_a_hub_that_nobody_follows_does_nothing(session: Session) -> None:
    assert Hub(asyncio.get_running_loop()).followers == []
    assert hub()._rounds == []


async def test_a_gate_that_stays_shut_is_a_slow_consumer() -> None:
    """F4"""
    gate = Gate()
    await gate.passable()
    gate.pauseProducing()
    with (
        override_settings(TENURE=dataclasses.replace(settings.TENURE, feed_slow_after=0.1)),
        pytest.raises(SlowConsumer),
    ):
        await gate.passable()
    gate.resumeProducing()
    await gate.passable()
