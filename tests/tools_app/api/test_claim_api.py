"""`POST /tool-calls/claim`: takes what there is, waits for what comes, and holds nothing meanwhile."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections, transaction
from django.test import AsyncClient

from sessions_app import ids, steps, wakeups
from sessions_app.api import waiting as polls
from sessions_app.log import NewEntry
from sessions_app.models import IdempotencyRecord, Session
from sessions_app.tool_port import Call
from tests import factories
from tests.factories import ACTOR
from tests.sessions_app.api.conftest import Api, ok, problem
from tests.staging import another_connection, eventually
from tests.tools_app.api.conftest import NewCall, at
from tools_app import claims, tool_calls
from tools_app.api import claim_view
from tools_app.models import ToolCall

pytestmark = pytest.mark.django_db(transaction=True)

BODY = {"limit": 10, "lease_seconds": 60}


@pytest.fixture(autouse=True)
def closed_connections() -> Iterator[None]:
    """Views work in asgiref's one thread of tests; it gives its connection back like a server's."""
    yield
    asyncio.run(sync_to_async(connections.close_all)())


async def claim(api: Api, body: Any = BODY, **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    content_type = named.pop("content-type", "application/json")
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await AsyncClient().post(
        "/api/v1/tool-calls/claim",
        data,
        content_type=content_type,
        headers={"Authorization": f"Bearer {api.key}"} | named,
    )


async def elsewhere[R](function: Callable[[], R]) -> R:
    """In a thread of its own, with a connection that it gives back."""

    def run() -> R:
        try:
            return function()
        finally:
            connections.close_all()

    return await asyncio.to_thread(run)


class Looks:
    """Counts the looks of waiting views, to know that they wait."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        look = claims.claim

        def counted(**given: Any) -> Any:
            found = look(**given)
            self.count += 1
            return found

        monkeypatch.setattr(claim_view.claims, "claim", counted)

    async def at_least(self, count: int) -> None:
        await asyncio.to_thread(eventually, lambda: self.count >= count)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    monkeypatch.setattr(claim_view, "FALLBACK_POLL", 50.0)
    return Looks(monkeypatch)


async def test_calls_are_claimed_with_a_token_that_works(api: Api, new_call: NewCall) -> None:
    """T6: the shape of api.md."""
    call, other = await elsewhere(lambda: (new_call(), new_call()))
    answer = await claim(api)
    data = ok(answer)["data"]
    assert [row["id"] for row in data] == [ids.encode("tcl", row.pk) for row in (call, other)]
    shown = await elsewhere(lambda: ok(api.get(at(call))))
    assert data[0] == shown | {"claim": shown["claim"] | {"token": data[0]["claim"]["token"]}}
    assert shown["state"] == "waiting"
    body = {"token": data[0]["claim"]["token"], "lease_seconds": 300}
    await elsewhere(lambda: ok(api.post(at(call, "/extend"), body)))
    assert ok(await claim(api)) == {"data": []}


async def test_names_and_the_limit_are_kept_to(api: Api, other_api: Api, new_call: NewCall) -> None:
    await elsewhere(lambda: [new_call(name=name) for name in ("a", "b", "a", "a")])
    assert ok(await claim(other_api)) == {"data": []}
    taken = ok(await claim(api, BODY | {"names": ["a"], "limit": 2}))["data"]
    assert [row["name"] for row in taken] == ["a", "a"]
    assert [row["name"] for row in ok(await claim(api))["data"]] == ["b", "a"]


async def test_a_repeated_claim_gives_the_same_calls_again(api: Api, new_call: NewCall) -> None:
    """I4: where its answer got lost; the token is not readable in the database."""
    await elsewhere(lambda: (new_call(), new_call()))
    one = BODY | {"limit": 1}
    first = await claim(api, one, Idempotency_Key="k")
    again = await claim(api, one, Idempotency_Key="k")
    assert again["Idempotency-Replayed"] == "true"
    assert ok(again) == ok(first)
    problem(await claim(api, BODY, Idempotency_Key="k"), 409, "idempotency_conflict")
    assert len(ok(await claim(api, one))["data"]) == 1
    stored = await elsewhere(lambda: json.dumps(IdempotencyRecord.objects.get(key="k").body))
    assert ok(first)["data"][0]["claim"]["token"] not in stored


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (BODY | {"limit": 0}, 400, "invalid"),
        (BODY | {"limit": 101}, 400, "invalid"),
        (BODY | {"names": []}, 400, "invalid"),
        (BODY | {"names": "a"}, 400, "invalid"),
        (BODY | {"lease_seconds": 0.5}, 400, "invalid"),
        (BODY | {"wait": -1}, 400, "invalid"),
        (BODY | {"wait": 61}, 400, "invalid"),
        (BODY | {"wait": "soon"}, 400, "invalid"),
        (BODY | {"timeout": 1}, 400, "invalid"),
        ({"limit": 1}, 400, "invalid"),
        (b"", 400, "invalid"),
        (b"{", 400, "malformed"),
        (b'{"limit": NaN}', 400, "invalid"),
        (b"[]", 400, "invalid"),
    ],
)
async def test_a_wrong_question_is_refused(api: Api, body: Any, status: int, code: str) -> None:
    problem(await claim(api, body), status, code)


async def test_who_may_not_claim_is_told_so(api: Api) -> None:
    problem(await claim(Api(key="tnk_" + "x" * 43)), 401, "invalid_key")
    problem(await claim(api, b"limit=1", content_type="text/plain"), 415, "unsupported_media_type")
    problem(await claim(api, Content_Encoding="gzip"), 415, "unsupported_media_type")
    answer = await AsyncClient().get(
        "/api/v1/tool-calls/claim", headers={"Authorization": f"Bearer {api.key}"}
    )
    problem(answer, 405, "method_not_allowed")


# --- waiting ---------------------------------------------------------------------------------------------


async def test_a_wait_ends_with_none_after_its_time(api: Api) -> None:
    began = time.monotonic()
    assert ok(await claim(api, BODY | {"wait": 0.3}, Idempotency_Key="w")) == {"data": []}
    assert 0.3 <= time.monotonic() - began < 10
    again = await claim(api, BODY | {"wait": 0.3}, Idempotency_Key="w")
    assert (ok(again), again["Idempotency-Replayed"]) == ({"data": []}, "true")


def step_with_call(held: Session) -> Callable[[], None]:
    """What a worker does whose model has called a custom tool."""
    call = Call(
        id=ids.new_id(),
        session=held.pk,
        turn=held.turn_id,
        call_id="c",
        name="create_ticket",
        tool_class="custom",
        rerun_safe=False,
        arguments={},
        position=0,
        state="waiting",
    )
    message = NewEntry(kind="assistant_message", data={"content": []}, turn=held.turn_id)
    step = steps.StepWrite(
        session=held.pk, attempt=held.attempt, work_rev=0, entries=[message], message=0, calls=[call]
    )

    def save() -> None:
        (saved,) = steps.commit_steps(held.lease.worker_id, [step])
        assert isinstance(saved, steps.Saved)

    return save


@pytest.fixture
def held(api: Api) -> Session:
    return factories.running(factories.worker(), config=factories.config(project=api.project))


@pytest.fixture
def waits(api: Api, new_call: NewCall) -> ToolCall:
    return new_call()


async def test_a_wait_ends_with_the_call_that_a_worker_saves(api: Api, held: Session, looks: Looks) -> None:
    """T6, L10: woken by the doorbell, not by its own poll."""
    save = step_with_call(held)
    waiting = asyncio.create_task(claim(api, BODY | {"wait": "60s"}, Idempotency_Key="k"))
    await looks.at_least(2)  # its first look, and the one when listening has begun
    await elsewhere(save)
    (row,) = ok(await asyncio.wait_for(waiting, 10))["data"]
    assert (row["name"], row["session"]) == ("create_ticket", ids.encode("ses", held.pk))
    assert row["claim"]["token"]


async def test_a_wait_ends_with_the_call_that_somebody_allows(
    api: Api, in_turn: Session, looks: Looks
) -> None:
    """T7: an approved call of a custom tool waits for its backend at once."""
    call = await elsewhere(
        lambda: factories.tool_call(in_turn, state="awaiting_approval", tool_class="custom")
    )

    def allow() -> None:
        with transaction.atomic():
            tool_calls.allow(call.pk, deadline=None)

    waiting = asyncio.create_task(claim(api, BODY | {"wait": 60}))
    await looks.at_least(2)
    await elsewhere(allow)
    assert len(ok(await asyncio.wait_for(waiting, 10))["data"]) == 1


async def test_a_wait_ends_with_the_call_that_somebody_gives_back(
    api: Api, waits: ToolCall, looks: Looks
) -> None:
    taken = await elsewhere(
        lambda: claims.claim(project=waits.project_id, names=None, limit=1, lease_seconds=60, actor=ACTOR)
    )
    waiting = asyncio.create_task(claim(api, BODY | {"wait": 60}))
    await looks.at_least(3)
    await elsewhere(lambda: claims.release(project=waits.project_id, tool_call=waits.pk, token=taken.token))
    assert len(ok(await asyncio.wait_for(waiting, 10))["data"]) == 1


async def test_a_lost_doorbell_or_a_claim_that_runs_out_costs_one_poll(
    api: Api, waits: ToolCall, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_view, "FALLBACK_POLL", 0.05)
    monkeypatch.setattr(wakeups, "subscribe", lambda kind, callback: lambda: None)
    await elsewhere(
        lambda: claims.claim(project=waits.project_id, names=None, limit=1, lease_seconds=60, actor=ACTOR)
    )
    waiting = asyncio.create_task(claim(api, BODY | {"wait": 60}))
    await looks.at_least(2)
    await elsewhere(
        lambda: ToolCall.objects.filter(pk=waits.pk).update(claim_expires_at=factories.database_now(-1))
    )
    assert len(ok(await asyncio.wait_for(waiting, 10))["data"]) == 1


async def test_of_two_who_wait_for_one_call_one_gets_it(api: Api, held: Session, looks: Looks) -> None:
    """T6."""
    save = step_with_call(held)
    both = [asyncio.create_task(claim(api, BODY | {"wait": 60})) for _ in range(2)]
    await looks.at_least(4)
    await elsewhere(save)
    done, left = await asyncio.wait(both, timeout=10, return_when=asyncio.FIRST_COMPLETED)
    assert len(done) == 1
    assert len(ok(done.pop().result())["data"]) == 1
    await looks.at_least(6)
    assert not any(task.done() for task in left)
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


async def test_many_who_wait_hold_no_connection(api: Api, looks: Looks) -> None:
    """L10: what they share is the process's one listening connection, however many they are."""
    with await asyncio.to_thread(another_connection) as watcher:
        watcher.autocommit = True

        def connected() -> int:
            row = watcher.execute(
                "SELECT count(*) FROM pg_stat_activity "
                "WHERE datname = current_database() AND backend_type = 'client backend'"
            ).fetchone()
            assert row is not None
            return int(row[0])

        before = await asyncio.to_thread(connected)
        waiting = [asyncio.create_task(claim(api, BODY | {"wait": 60})) for _ in range(20)]
        await looks.at_least(20)
        await asyncio.to_thread(eventually, lambda: connected() <= before + 1)
        assert not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    assert polls.FALLBACK_POLL == 5.0
