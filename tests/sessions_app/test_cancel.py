"""Cancel: one transaction that ends the turn, whoever works on it and whatever it waits for (I6)."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from sessions_app import control, due, entries, ids, inputs, leases, steps, tool_port
from sessions_app.errors import LeaseLost, NotFound, SessionArchived
from sessions_app.log import NewEntry
from sessions_app.models import Entry, Lease, ModelCall, Session, Turn, Worker
from sessions_app.tool_port import Call, Completed, ToolOutcome
from tests import factories
from tests.factories import ACTOR
from tests.staging import Contender, holding, wait_until_blocked
from tools_app.models import ToolCall

pytestmark = pytest.mark.django_db
LOCK = "SELECT FROM sessions_app_session WHERE id = %s FOR UPDATE"
DONE = {"status": "succeeded", "reason": "done", "error": None}


def cancel(session: Session) -> Session:
    return control.cancel(session=session.pk, actor=ACTOR)


def kinds(session: Session) -> list[str]:
    return list(Entry.objects.filter(session=session).order_by("seq").values_list("kind", flat=True))


def call_in(session: Session, state: str, *, tool_class: str = "outside") -> Call:
    """A call of the open turn, stored by the runtime itself."""
    assert session.turn_id is not None
    call = Call(
        id=ids.new_id(),
        session=session.pk,
        turn=session.turn_id,
        call_id=f"call_{state}",
        name="dev_append",
        tool_class=tool_class,
        rerun_safe=False,
        arguments={},
        position=0,
        state=state,
        time_limit=60.0 if tool_class == "outside" else None,
    )
    from sessions_app.database import hot_cursor

    with transaction.atomic(), hot_cursor() as cursor:
        tool_port.runtime().insert_calls(cursor, [(call, 1, session.attempt)])
    return call


def finish(session: Session) -> steps.StepWrite:
    assert session.turn_id is not None
    ended = entries.turn_ended(turn=session.turn_id, number=session.turn_count, **DONE)
    reply = NewEntry(kind="note", data={"text": "the reply"}, turn=session.turn_id)
    end = steps.TurnEnd(id=session.turn_id, **DONE)
    return steps.StepWrite(
        session=session.pk,
        attempt=session.attempt,
        work_rev=session.work_rev,
        entries=(reply,),
        then=steps.Then(entries=(ended,), turn_end=end, release=due.Due(None, "idle")),
    )


def test_cancel_ends_lease_turn_and_model_call_at_once() -> None:
    """I6, L7: nothing is left pending, and the session is usable again."""
    session = factories.running(factories.worker())
    call = ModelCall.objects.create(
        session=session, turn_id=session.turn_id, config=session.config, attempt=1, covers_seq=0
    )
    cancel(session)
    row = factories.reread(session)
    assert (row.status, row.turn_id, row.wake_at, row.lease_end) == ("idle", None, None, None)
    assert not Lease.objects.exists()
    turn = Turn.objects.get()
    assert (turn.status, turn.reason) == ("cancelled", "cancelled")
    assert turn.ended_at is not None
    assert row.last_turn_id == turn.pk
    call.refresh_from_db()
    assert (call.state, call.may_be_billed) == ("interrupted", True)
    entry = Entry.objects.get()
    assert (entry.kind, entry.actor, entry.data["status"]) == ("turn_ended", ACTOR, "cancelled")  # I8
    inputs.submit_input(session=session.pk, content=[{"type": "text", "text": "go on"}], actor=ACTOR)
    assert factories.reread(session).status == "queued"


@pytest.mark.parametrize("state", ["ready", "running", "waiting"])
def test_cancel_settles_every_call_of_the_turn(state: str) -> None:
    """I6, A71: each open call is completed as cancelled with its result in the log; none can complete later."""
    session = factories.running(factories.worker())
    call = call_in(
        session, state, tool_class={"running": "outside", "waiting": "custom"}.get(state, "internal")
    )
    cancel(session)
    stored = ToolCall.objects.get(pk=call.id)
    assert (stored.state, stored.outcome) == ("completed", "cancelled")
    assert kinds(session) == ["tool_result", "turn_ended"]
    said = Entry.objects.get(kind="tool_result").data
    assert said["outcome"] == "cancelled"
    unknown = "outcome is unknown" in said["content"][0]["text"]
    assert unknown == (state == "running")
    row = factories.reread(session)
    assert (row.status, row.wake_at) == ("idle", None)


def test_cancel_works_without_a_lease() -> None:
    """I6: also for a session that waits, or backs off."""
    waiting = factories.session(status="waiting")
    factories.open_turn(waiting)
    call_in(waiting, "waiting", tool_class="custom")
    backing_off = factories.session(status="backing_off", retry_at=factories.database_now(60))
    factories.open_turn(backing_off)
    for session in (waiting, backing_off):
        cancel(session)
        row = factories.reread(session)
        assert (row.status, row.turn_id, row.retry_at, row.waiting_on) == ("idle", None, None, [])


def test_queued_input_starts_the_next_turn_after_a_cancel() -> None:
    """I6, A47: the queue is not cancelled with the turn."""
    session = factories.running(factories.worker())
    factories.received_input(session)
    cancel(session)
    row = factories.reread(session)
    assert row.status == "queued"
    assert row.wake_at <= factories.database_now()


def test_cancel_can_be_repeated() -> None:
    """I6: no turn, nothing to do; no second entry and no cancel that waits for the next turn."""
    session = factories.running(factories.worker())
    for _ in range(3):
        cancel(session)
    assert kinds(session) == ["turn_ended"]
    idle = factories.session()
    cancel(idle)
    assert kinds(idle) == []


def test_cancel_of_nothing_and_of_an_archived_session() -> None:
    with pytest.raises(NotFound):
        control.cancel(session=ids.new_id(), actor=ACTOR)
    with pytest.raises(SessionArchived):
        cancel(factories.session(status="archived", archived_at=factories.database_now()))


def test_cancelling_one_of_two_sessions_leaves_the_other_alone() -> None:
    """A15: two sessions on one worker, cancel one: only that one stops."""
    worker = factories.worker()
    first, second = factories.running(worker), factories.running(worker)
    cancel(first)
    assert list(Lease.objects.values_list("pk", flat=True)) == [second.pk]
    assert (factories.reread(second).status, kinds(second)) == ("running", [])


def late_reply(session: Session, worker: Worker) -> Any:
    (result,) = steps.commit_steps(worker.pk, [finish(session)])
    return result


def late_tool(session: Session, worker: Worker) -> Any:
    call = call_in(session, "running")
    cancel(session)
    outcome = ToolOutcome("succeeded", [{"type": "text", "text": "late"}])
    done = Completed(call, "running", outcome, attempt=session.attempt)
    step = steps.StepWrite(
        session=session.pk,
        attempt=session.attempt,
        work_rev=session.work_rev,
        entries=(entries.tool_result(call, outcome),),
        results=(done,),
    )
    (result,) = steps.commit_steps(worker.pk, [step])
    return result


@pytest.mark.parametrize("late", [late_reply, late_tool])
def test_what_comes_after_a_cancel_fails_at_the_fence(late: Callable[[Session, Worker], Any]) -> None:
    """A45, A71, L3: a late reply or tool result is lost, and nothing of it is stored."""
    worker = factories.worker()
    session = factories.running(worker)
    if late is late_reply:
        cancel(session)
    assert late(session, worker) == steps.Lost("cancelled")
    assert kinds(session)[-1] == "turn_ended"
    assert not Entry.objects.filter(kind="note").exists()
    with pytest.raises(LeaseLost), leases.fence(session.pk, worker=worker.pk, attempt=session.attempt):
        pass


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("first", ["cancel", "finish"])
def test_a_cancel_that_races_a_finish_ends_in_exactly_one_of_the_two(first: str) -> None:
    """I6, A45: whoever gets the lock first; one end of the turn either way."""
    worker = factories.worker()
    session = factories.running(worker)
    step = finish(session)
    acts = {"cancel": lambda: cancel(session), "finish": lambda: steps.commit_steps(worker.pk, [step])}
    second = "finish" if first == "cancel" else "cancel"
    with holding(LOCK, session.pk):
        contenders = {first: Contender(acts[first])}
        wait_until_blocked()
        contenders[second] = Contender(acts[second])
        wait_until_blocked(2)
    contenders["cancel"].result()
    (result,) = contenders["finish"].result()
    turn = Turn.objects.get(session=session)
    if first == "cancel":
        assert result == steps.Lost("cancelled")
        assert turn.status == "cancelled"
        assert kinds(session) == ["turn_ended"]
    else:
        assert not result.moved
        assert turn.status == "succeeded"
        assert kinds(session) == ["note", "turn_ended"]
    row = factories.reread(session)
    assert (row.status, row.turn_id) == ("idle", None)
    assert not Lease.objects.exists()
