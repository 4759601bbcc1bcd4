"""The statements that move calls, for one session and for many, and what the due time is told of them."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import psycopg.errors
import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from sessions_app import ids, leases
from sessions_app.database import hot_cursor, raw_connection
from sessions_app.errors import Conflict
from sessions_app.models import Entry, Session
from sessions_app.tool_port import INTERRUPTED, Call, Completed, ToolOutcome
from tests import factories
from tools_app import call_facts, tool_calls
from tools_app.models import Outcome, ToolCall, ToolCallState

CallOf = Callable[[ToolCall], Call]
DONE = ToolOutcome("succeeded", [{"type": "text", "text": "done"}])
FAILED = ToolOutcome("failed", [{"type": "text", "text": "no"}])


def text(row: ToolCall) -> str:
    row.refresh_from_db()
    return str(row.content[0]["text"])


def complete(*rows: Completed) -> None:
    with transaction.atomic(), hot_cursor() as cursor:
        tool_calls.complete_calls(cursor, rows)


# --- the step commit -------------------------------------------------------------------------------------


def test_calls_of_one_reply_are_stored_in_the_state_they_start_in(
    session: Session, new_call: Callable[..., Call]
) -> None:
    """S5, T2: a running call has its attempt, a refused one its result, a waiting one its deadline."""
    calls = [
        new_call(position=0, state="running"),
        new_call(position=1, state="ready", tool_class="internal"),
        new_call(position=2, state="waiting", tool_class="custom", deadline=60.0),
        new_call(position=3, state="completed", result=FAILED, arguments={"a": [1, None, "ü"]}),
    ]
    before = factories.database_now()
    with hot_cursor() as cursor:
        tool_calls.insert_calls(cursor, [(call, 7, session.attempt) for call in calls])
    running, ready, waiting, refused = ToolCall.objects.order_by("position")
    assert (running.id, running.state, running.attempt) == (calls[0].id, "running", session.attempt)
    assert before < running.started_at < factories.database_now()
    assert (ready.state, ready.attempt, ready.started_at, ready.deadline) == ("ready", None, None, None)
    assert before < waiting.deadline - timedelta(seconds=60) < factories.database_now()
    assert (refused.state, refused.outcome, refused.content) == ("completed", "failed", FAILED.content)
    assert refused.arguments == {"a": [1, None, "ü"]}
    assert refused.completed_at is not None
    assert {row.message_seq for row in (running, ready, waiting, refused)} == {7}


def test_a_ready_call_starts_under_the_attempt_that_starts_it(session: Session) -> None:
    """S5."""
    row = factories.tool_call(session)
    with hot_cursor() as cursor:
        tool_calls.start_calls(cursor, [(row.id, 4)])
    row.refresh_from_db()
    assert (row.state, row.attempt) == ("running", 4)
    assert row.started_at is not None


@pytest.mark.parametrize("state", [state for state in ToolCallState if state != ToolCallState.READY])
def test_a_call_that_is_not_ready_does_not_start(session: Session, state: str) -> None:
    """T1, A67."""
    row = factories.tool_call(session, state=state)
    with pytest.raises(Conflict) as refused, transaction.atomic(), hot_cursor() as cursor:
        tool_calls.start_calls(cursor, [(row.id, 4)])
    assert refused.value.data == {"tool_calls": [ids.encode("tcl", row.id)]}
    row.refresh_from_db()
    assert row.state == state


def test_results_of_many_sessions_are_one_statement(session: Session, call_of: CallOf) -> None:
    """S2: the shared commit writes all results at once."""
    other = factories.running(factories.worker())
    rows = [
        factories.tool_call(session, state="running"),
        factories.tool_call(session, tool_class="internal"),
        factories.tool_call(other, tool_class="internal"),
    ]
    complete(
        Completed(call_of(rows[0]), "running", DONE, session.attempt),
        Completed(call_of(rows[1]), "ready", FAILED),
        Completed(call_of(rows[2]), "ready", DONE),
    )
    for row in rows:
        row.refresh_from_db()
    assert [(row.state, row.outcome) for row in rows] == [
        ("completed", "succeeded"),
        ("completed", "failed"),
        ("completed", "succeeded"),
    ]


def test_the_first_result_stays_for_ever(session: Session, call_of: CallOf) -> None:
    """T1, S3: a second result is refused, whoever brings it and whatever it says it saw."""
    row = factories.tool_call(session, state="running")
    call = call_of(row)
    complete(Completed(call, "running", DONE, session.attempt))
    for from_state in ToolCallState.values:
        with pytest.raises(Conflict):
            complete(Completed(call, from_state, FAILED, session.attempt))
    assert text(row) == "done"


def test_only_the_attempt_that_runs_a_call_brings_its_result(session: Session, call_of: CallOf) -> None:
    """L3, T1."""
    row = factories.tool_call(session, state="running")
    with pytest.raises(Conflict):
        complete(Completed(call_of(row), "running", DONE, session.attempt + 1))
    with pytest.raises(ValueError, match="attempt"):
        complete(Completed(call_of(row), "running", DONE))
    row.refresh_from_db()
    assert row.state == "running"


@pytest.mark.parametrize("tool_class", ["custom", "human", "command"])
@pytest.mark.parametrize("state", ["waiting", "awaiting_approval"])
def test_a_worker_can_not_complete_what_waits_for_others(
    session: Session, call_of: CallOf, state: str, tool_class: str
) -> None:
    """A85: whatever it believes; the result of a custom call comes from its backend."""
    row = factories.tool_call(session, state=state, tool_class=tool_class)
    with pytest.raises(Conflict):
        complete(Completed(call_of(row), state, DONE, session.attempt))
    row.refresh_from_db()
    assert row.state == state


def test_one_wrong_state_leaves_all_rows_as_they_were(session: Session, call_of: CallOf) -> None:
    """S2: a step is saved whole or not at all."""
    good, bad = factories.tool_call(session, state="running"), factories.tool_call(session)
    with pytest.raises(Conflict):
        complete(
            Completed(call_of(good), "running", DONE, session.attempt),
            Completed(call_of(bad), "running", DONE, session.attempt),
        )
    good.refresh_from_db()
    assert good.state == "running"


def test_a_result_for_another_sessions_call_is_refused(session: Session, call_of: CallOf) -> None:
    """L3: the lock that a step holds is that of its own session."""
    row = factories.tool_call(factories.running(factories.worker()), tool_class="internal")
    call = call_of(row)
    foreign = Call(**{name: getattr(call, name) for name in Call.__slots__} | {"session": session.id})
    with pytest.raises(Conflict):
        complete(Completed(foreign, "ready", DONE))


def test_a_pipeline_learns_of_the_refusal_without_asking(session: Session, call_of: CallOf) -> None:
    """S2, S10: the statement fails by itself, so a step needs no round trip to count rows."""
    row = factories.tool_call(session)
    call = call_of(row)
    raw = raw_connection()
    with pytest.raises(psycopg.errors.RestrictViolation, match="tool calls were in the state"):  # noqa: SIM117
        with raw.pipeline(), raw.transaction(), psycopg.Cursor(raw) as cursor:
            tool_calls.complete_calls(cursor, [Completed(call, "running", DONE, 1)])
    row.refresh_from_db()
    assert row.state == "ready"


def test_nothing_to_write_sends_nothing(db: None) -> None:
    """The hot path: an empty batch costs no statement."""
    with CaptureQueriesContext(connection) as queries, hot_cursor() as cursor:
        tool_calls.insert_calls(cursor, [])
        tool_calls.start_calls(cursor, [])
        tool_calls.complete_calls(cursor, [])
        assert cursor.pgresult is None
    assert len(queries) == 0


# --- the end of a lease ----------------------------------------------------------------------------------


def test_the_end_of_a_lease_interrupts_what_ran_and_lets_the_rest_be(session: Session) -> None:
    """T4, C77: dangerous calls get the sentence, rerun_safe ones run again, waiting ones do not notice."""
    dangerous = factories.tool_call(session, state="running")
    safe = factories.tool_call(session, state="running", name="dev_lookup", rerun_safe=True)
    waiting = factories.tool_call(session, state="waiting", name="ask_backend")
    ready = factories.tool_call(session, state="ready", name="set_label", tool_class="internal")
    settled = tool_calls.settle(session.id, attempt=session.attempt)

    assert [(call.id, call.state) for call, _ in settled.results] == [(dangerous.id, "completed")]
    assert settled.results[0][1] == ToolOutcome("interrupted", [{"type": "text", "text": INTERRUPTED}])
    assert [(call.id, call.state) for call in settled.rerun] == [(safe.id, "ready")]
    for row, state in ((dangerous, "completed"), (safe, "ready"), (waiting, "waiting"), (ready, "ready")):
        row.refresh_from_db()
        assert row.state == state
    assert (dangerous.outcome, text(dangerous)) == ("interrupted", INTERRUPTED)


def test_settling_twice_writes_once(session: Session) -> None:
    """T4: written once, by whoever ends the lease."""
    factories.tool_call(session, state="running")
    assert len(tool_calls.settle(session.id, attempt=session.attempt).results) == 1
    again = tool_calls.settle(session.id, attempt=session.attempt)
    assert (again.results, again.rerun) == ([], [])


def test_a_lease_that_ended_long_ago_settles_nothing_of_the_next(session: Session) -> None:
    """T4, L1."""
    row = factories.tool_call(session, state="running")
    assert tool_calls.settle(session.id, attempt=session.attempt - 1).results == []
    row.refresh_from_db()
    assert row.state == "running"


def test_a_call_that_runs_again_keeps_its_id(session: Session) -> None:
    """T4: the id is the idempotency token."""
    row = factories.tool_call(session, state="running", rerun_safe=True)
    tool_calls.settle(session.id, attempt=session.attempt)
    (call,) = call_facts.open_calls([session.id])[session.id]
    assert (call.id, call.state) == (row.id, "ready")


# --- the end of a turn -----------------------------------------------------------------------------------


def test_closing_cancels_every_open_call_and_says_what_is_unknown(session: Session) -> None:
    """I6: all open calls, from every state; only the one that ran outside has an unknown outcome."""
    rows = {state: factories.tool_call(session, state=state) for state in ToolCallState}
    closed = tool_calls.close(session.id, reason="cancelled")
    assert [call.position for call, _ in closed.results] == [0, 1, 2, 3]
    assert closed.rerun == []
    for state, row in rows.items():
        row.refresh_from_db()
        assert row.state == "completed"
        assert row.outcome == ("succeeded" if state == "completed" else "cancelled")
    assert "external outcome is unknown" in text(rows[ToolCallState.RUNNING])
    for state in (ToolCallState.AWAITING_APPROVAL, ToolCallState.READY, ToolCallState.WAITING):
        assert "unknown" not in text(rows[state])
        assert "the turn was cancelled" in text(rows[state])


@pytest.mark.parametrize("reason", ["cancelled", "archived", "crash_limit", "limit"])
def test_closing_says_why(session: Session, reason: str) -> None:
    """I6."""
    row = factories.tool_call(session)
    tool_calls.close(session.id, reason=reason)
    words = {
        "archived": "archived",
        "crash_limit": "died too often",
        "limit": "(limit)",
        "cancelled": "cancelled",
    }
    assert words[reason] in text(row)


def test_a_late_result_does_not_replace_a_cancellation(session: Session, call_of: CallOf) -> None:
    """I6, A71: the tool that was still running comes too late."""
    row = factories.tool_call(session, state="running")
    call = call_of(row)
    tool_calls.close(session.id, reason="cancelled")
    with pytest.raises(Conflict):
        complete(Completed(call, "running", DONE, session.attempt))
    row.refresh_from_db()
    assert row.outcome == "cancelled"


def test_closing_leaves_other_sessions_alone(session: Session) -> None:
    """I6."""
    row = factories.tool_call(factories.running(factories.worker()), state="waiting")
    assert tool_calls.close(session.id, reason="archived").results == []
    row.refresh_from_db()
    assert row.state == "waiting"


@pytest.mark.parametrize("function", [tool_calls.close, tool_calls.settle, tool_calls.expire])
def test_calls_are_settled_under_the_sessions_lock_only(function: Callable[..., Any]) -> None:
    """L11: outside of a transaction there is no lock."""
    arguments = {"close": {"reason": "cancelled"}, "settle": {"attempt": 1}}.get(function.__name__, {})
    with pytest.raises(RuntimeError, match="lock"):
        function(ids.new_id(), **arguments)


def test_a_deadline_that_passed_fails_the_waiting_call(session: Session) -> None:
    """S12: only what is late, and only what waits."""
    late = factories.tool_call(session, state="waiting", deadline=factories.database_now(-1))
    early = factories.tool_call(session, state="waiting", deadline=factories.database_now(60))
    expired = tool_calls.expire(session.id)
    assert [(call.id, result.outcome) for call, result in expired.results] == [(late.id, "failed")]
    assert "deadline" in text(late)
    early.refresh_from_db()
    assert early.state == "waiting"
    assert tool_calls.expire(session.id).results == []


def test_a_session_that_waited_past_a_deadline_goes_on_at_once(session: Session) -> None:
    """S11, S12: the end of its lease settles the late call, so nobody is woken for the same deadline twice."""
    late = factories.tool_call(session, state="waiting", deadline=factories.database_now(-1))
    assert leases.release(session.id, worker=session.lease.worker_id, attempt=session.attempt)
    row = factories.reread(session)
    assert (row.status, row.waiting_on) == ("queued", [])
    assert row.wake_at <= factories.database_now()
    (entry,) = Entry.objects.filter(session=session, kind="tool_result")
    assert (entry.data["tool_call"], entry.data["outcome"]) == (ids.encode("tcl", late.id), "failed")


def test_a_session_that_waits_for_a_deadline_is_due_then(session: Session) -> None:
    """S11: the nearest one."""
    factories.tool_call(session, state="waiting", deadline=factories.database_now(600))
    near = factories.tool_call(session, state="waiting", deadline=factories.database_now(300))
    leases.release(session.id, worker=session.lease.worker_id, attempt=session.attempt)
    row = factories.reread(session)
    assert (row.status, row.wake_at) == ("waiting", near.deadline)
    assert len(row.waiting_on) == 2


# --- what others read ------------------------------------------------------------------------------------


def test_open_calls_come_in_call_order_with_their_limits(session: Session) -> None:
    """T2, T5: in the order of the reply, with the limits that they were made with."""
    factories.tool_call(session, state="completed")
    second = factories.tool_call(session, position=5, name="dev_lookup", rerun_safe=True, time_limit=90.0)
    first = factories.tool_call(session, position=4, name="dev_append", state="running", time_limit=600.0)
    later = factories.tool_call(session, message_seq=9, position=0, name="set_label", tool_class="internal")
    idle = factories.session()
    found = call_facts.open_calls([session.id, idle.id])
    assert list(found) == [session.id]
    assert [call.id for call in found[session.id]] == [first.id, second.id, later.id]
    assert [call.time_limit for call in found[session.id]] == [600.0, 90.0, None]


def test_the_facts_of_many_sessions_cost_one_query(session: Session) -> None:
    """S11."""
    waiting = factories.tool_call(session, state="waiting", deadline=factories.database_now(60))
    factories.tool_call(session, state="waiting", deadline=factories.database_now(30))
    factories.tool_call(session, state="running")
    factories.tool_call(session, state="completed")
    ready, quiet = factories.running(factories.worker()), factories.running(factories.worker())
    factories.tool_call(ready)
    with CaptureQueriesContext(connection) as queries:
        found = call_facts.facts([session.id, ready.id, quiet.id])
    assert len(queries) == 1
    assert set(found) == {session.id, ready.id}
    facts = found[session.id]
    assert (facts.open_calls, facts.ready) == (3, False)
    assert facts.deadline is not None
    assert facts.deadline < waiting.deadline
    assert [item["kind"] for item in facts.awaiting] == ["tool", "tool"]
    assert facts.awaiting[0]["id"] == ids.encode("tcl", waiting.id)
    assert facts.awaiting[0]["since"].endswith("Z")
    assert found[ready.id].ready


def test_the_sweeper_sees_ready_calls_and_past_deadlines_through_its_indexes(session: Session) -> None:
    """S11, S12, A145: its cost does not grow with calls that wait or are done."""
    late = factories.running(factories.worker())
    factories.tool_call(late, state="waiting", deadline=factories.database_now(-1))
    factories.tool_call(session)
    factories.tool_call(
        factories.running(factories.worker()), state="waiting", deadline=factories.database_now(60)
    )
    factories.tool_call(factories.running(factories.worker()), state="completed")
    with connection.cursor() as cursor:
        cursor.execute(call_facts.undue_sql())
        assert {row[0] for row in cursor.fetchall()} == {session.id, late.id}
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("EXPLAIN " + call_facts.undue_sql())
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "tool_call_ready" in plan
    assert "tool_call_deadline" in plan
    assert "Index Cond: (deadline <=" in plan


def test_results_are_stored_as_text_can_be_stored(session: Session, call_of: CallOf) -> None:
    """S8: U+0000 and lone surrogates never reach the database."""
    row = factories.tool_call(session, state="running")
    dirty = ToolOutcome("succeeded", [{"type": "text", "text": "a\x00b\ud800"}])
    complete(Completed(call_of(row), "running", dirty, session.attempt))
    assert text(row) == "a\ufffdb\ufffd"
    assert row.outcome == Outcome.SUCCEEDED
