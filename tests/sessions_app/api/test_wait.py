"""The long poll: answers when the status is there, at the latest after its timeout, and holds nothing meanwhile."""

import asyncio
import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections
from django.test import AsyncClient

from sessions_app import control, ids, inputs, wakeups
from sessions_app.api import wait_view
from sessions_app.models import Session
from tests import factories
from tests.factories import ACTOR
from tests.sessions_app.api.conftest import Api, problem
from tests.staging import another_connection, eventually

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def session(api: Api) -> Session:
    return factories.session(config=factories.config(project=api.project))


@pytest.fixture(autouse=True)
def closed_connections() -> Iterator[None]:
    """Views and `elsewhere` work in asgiref's one thread of tests; it gives its connection back like a server's."""
    yield
    asyncio.run(sync_to_async(connections.close_all)())


async def ask(api: Api, session: Session, query: str = "for=idle,waiting") -> Any:
    path = f"/api/v1/sessions/{ids.encode('ses', session.pk)}/wait?{query}"
    return await AsyncClient().get(path, headers={"Authorization": f"Bearer {api.key}"})


async def elsewhere(function: Callable[[], Any]) -> Any:
    """In a thread of its own, with a connection that it gives back."""

    def run() -> Any:
        try:
            return function()
        finally:
            connections.close_all()

    return await asyncio.to_thread(run)


class Looks:
    """Counts the looks of waiting views, to know that they wait."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        look = wait_view._status

        def counted(*args: Any) -> str:
            found = look(*args)
            self.count += 1
            return found

        monkeypatch.setattr(wait_view, "_status", counted)

    async def at_least(self, count: int) -> None:
        await asyncio.to_thread(eventually, lambda: self.count >= count)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


async def test_a_status_that_is_there_is_answered_at_once(api: Api, session: Session) -> None:
    answer = await ask(api, session, "for=idle&timeout=60")
    assert answer.status_code == 200
    assert answer.json() == (await elsewhere(lambda: api.get(f"/sessions/{answer.json()['id']}"))).json()


async def test_the_wait_ends_with_the_status_it_waits_for(
    api: Api, session: Session, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L10: woken by the log's doorbell, not by its own poll."""
    monkeypatch.setattr(wait_view, "FALLBACK_POLL", 50.0)

    def work() -> None:
        factories.open_turn(session)
        factories.leased(session, factories.worker())

    await elsewhere(work)
    waiting = asyncio.create_task(ask(api, session, "for=idle&timeout=60"))
    await looks.at_least(2)  # its first look, and the one when listening has begun
    await elsewhere(lambda: control.cancel(session=session.pk, actor=ACTOR))
    answer = await asyncio.wait_for(waiting, 10)
    assert (answer.status_code, answer.json()["status"]) == (200, "idle")
    assert answer.json()["last_turn"]["status"] == "cancelled"


async def test_a_lost_doorbell_costs_one_poll(
    api: Api, session: Session, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait_view, "FALLBACK_POLL", 0.05)
    monkeypatch.setattr(wakeups, "subscribe", lambda kind, callback: lambda: None)
    waiting = asyncio.create_task(ask(api, session, "for=queued&timeout=60"))
    await looks.at_least(1)
    content = [{"type": "text", "text": "hello"}]
    await elsewhere(lambda: inputs.submit_input(session=session.pk, content=content, actor=ACTOR))
    assert (await asyncio.wait_for(waiting, 10)).json()["status"] == "queued"


async def test_after_the_timeout_it_answers_with_the_session_as_it_is(api: Api, session: Session) -> None:
    began = time.monotonic()
    answer = await ask(api, session, "for=waiting&timeout=0.3")
    assert (answer.status_code, answer.json()["status"]) == (200, "idle")
    assert 0.3 <= time.monotonic() - began < 5
    assert (await ask(api, session, "for=waiting&timeout=0")).status_code == 200


@pytest.mark.parametrize(
    ("query", "path", "code"),
    [
        ("", "/for", "required"),
        ("for=", "/for", "not_allowed"),
        ("for=busy", "/for", "not_allowed"),
        ("for=idle,", "/for", "not_allowed"),
        ("for=idle&for=waiting", "/for", "repeated"),
        ("for=idle&timeout=-1", "/timeout", "out_of_range"),
        ("for=idle&timeout=nan", "/timeout", "out_of_range"),
        ("for=idle&timeout=inf", "/timeout", "out_of_range"),
        ("for=idle&timeout=61", "/timeout", "out_of_range"),
        ("for=idle&timeout=soon", "/timeout", "malformed"),
        ("for=idle&until=1", "/until", "unknown_field"),
    ],
)
async def test_a_wrong_question_is_refused_at_once(
    api: Api, session: Session, query: str, path: str, code: str
) -> None:
    errors = problem(await ask(api, session, query), 400, "invalid")["errors"]
    assert (errors[0]["path"], errors[0]["code"]) == (path, code)


async def test_the_longest_wait_is_a_setting(api: Api, session: Session, settings: Any) -> None:
    settings.TENURE = dataclasses.replace(settings.TENURE, wait_max=1.0)
    problem(await ask(api, session, "for=waiting&timeout=2"), 400, "invalid")
    began = time.monotonic()
    assert (await ask(api, session, "for=waiting")).status_code == 200  # the default timeout is cut to it
    assert time.monotonic() - began < 10


async def test_sessions_of_others_and_missing_ones_are_not_found(
    api: Api, other_api: Api, session: Session
) -> None:
    problem(await ask(other_api, session), 404, "not_found")
    problem(await ask(api, Session(pk=ids.new_id())), 404, "not_found")
    problem(await ask(Api(key="tnk_" + "x" * 43), session), 401, "invalid_key")


async def test_many_who_wait_hold_no_connection(api: Api, session: Session, looks: Looks) -> None:
    """L10: what they share is the process's one listening connection, however many they are."""
    with await asyncio.to_thread(another_connection) as watcher:
        watcher.autocommit = True

        def held() -> int:
            row = watcher.execute(
                "SELECT count(*) FROM pg_stat_activity "
                "WHERE datname = current_database() AND backend_type = 'client backend'"
            ).fetchone()
            assert row is not None
            return int(row[0])

        before = await asyncio.to_thread(held)
        waiting = [asyncio.create_task(ask(api, session, "for=waiting&timeout=60")) for _ in range(20)]
        # All 20 look: with a synchronous middleware around them, 19 would stand behind the first one's thread.
        await looks.at_least(20)
        await asyncio.to_thread(eventually, lambda: held() <= before + 1)
        assert not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_client_that_goes_away_is_forgotten(
    api: Api, session: Session, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []
    subscribe = wakeups.subscribe

    def watched(kind: str, callback: Any) -> Callable[[], None]:
        close = subscribe(kind, callback)

        def end() -> None:
            closed.append(kind)
            close()

        return end

    monkeypatch.setattr(wakeups, "subscribe", watched)
    waiting = asyncio.create_task(ask(api, session, "for=waiting&timeout=60"))
    await looks.at_least(1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert closed == [wakeups.ENTRIES]
