"""The only module that moves a tool call's state (T1). What the engine knows of open calls is in `call_facts`.

Two kinds of functions. `insert_calls`, `start_calls` and `complete_calls` belong to the step commit: one
statement for any number of rows of any number of sessions that its transaction has locked, sent in a
pipeline. Each says from which state a call moves; where one is not in that state the statement fails as a
whole, inside the database, so that nobody has to wait for a row count. The rest runs once per session, under
its lock, and uses the ORM.

A running call belongs to the attempt that started it. When that attempt's lease ends, whoever ends it calls
`settle` (T4); when the turn ends, `close` (I6); when a deadline has passed, `expire` (S12). What people decide
moves a call with `allow`, `complete_unapproved` and `complete_waiting`, what a backend brings with
`complete_by_backend`. What belongs to a call in other tables is written by their own modules; `prompts` puts the
two together.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal
from uuid import UUID

import psycopg
import psycopg.errors
from django.db import connection, transaction
from django.db.models import BooleanField, ExpressionWrapper, F, Q, QuerySet

from sessions_app import ids, wakeups
from sessions_app.database import dumps
from sessions_app.entry_kinds import Actor
from sessions_app.errors import Conflict, NotFound
from sessions_app.models.fields import ClockTimestamp
from sessions_app.tool_port import INTERRUPTED, Blocks, Call, Completed, Settled, ToolOutcome
from tools_app.call_facts import in_order
from tools_app.models import Outcome, ToolCall, ToolCallState, ToolClass

# --- the step commit's statements ------------------------------------------------------------------------

# One statement for any number of calls: the ORM's bulk_create costs several times as much (see database.py).
INSERT_CALLS = """
INSERT INTO tools_app_toolcall (id, project_id, session_id, turn_id, message_seq, position, call_id, name, tool_class,
    rerun_safe, config_id, time_limit, arguments, state, outcome, content, attempt, deadline, started_at,
    completed_at)
SELECT id, (SELECT s.project_id FROM sessions_app_session s WHERE s.id = row.session_id),
    session_id, turn_id, message_seq, position, call_id, name, tool_class,
    rerun_safe, config_id, time_limit, arguments, state, outcome, content, attempt,
    now + make_interval(secs => deadline), CASE WHEN state = 'running' THEN now END,
    CASE WHEN state = 'completed' THEN now END
FROM (SELECT *, clock_timestamp() AS now FROM jsonb_to_recordset(%s::jsonb) AS r (
    id uuid, session_id uuid, turn_id uuid, message_seq bigint, position int, call_id text, name text,
    tool_class text, rerun_safe boolean, config_id uuid, time_limit float8, arguments jsonb, state text,
    outcome text, content jsonb, attempt int, deadline float8)) row
"""

START_CALLS = """
WITH wanted AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(%s::jsonb) AS r (id uuid, attempt int)
), changed AS (
    UPDATE tools_app_toolcall c
    SET state = 'running', attempt = wanted.attempt, started_at = clock_timestamp()
    FROM wanted WHERE c.id = wanted.id AND c.state = 'ready' RETURNING 1
)
SELECT tool_calls_expected((SELECT count(*) FROM changed), (SELECT count(*) FROM wanted))
"""

COMPLETE_CALLS = """
WITH wanted AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(%s::jsonb) AS r (
        id uuid, session_id uuid, from_state text, attempt int, outcome text, content jsonb)
), changed AS (
    UPDATE tools_app_toolcall c
    SET state = 'completed', outcome = wanted.outcome, content = wanted.content,
        completed_at = clock_timestamp()
    FROM wanted
    WHERE c.id = wanted.id AND c.session_id = wanted.session_id AND c.state = wanted.from_state
        AND (c.state = 'ready' OR c.state = 'running' AND c.attempt = wanted.attempt)
    RETURNING 1
)
SELECT tool_calls_expected((SELECT count(*) FROM changed), (SELECT count(*) FROM wanted))
"""


def insert_calls(cursor: psycopg.Cursor[Any], rows: Sequence[tuple[Call, int, int]]) -> None:
    """Store new calls: (call, seq of the message it stands in, attempt)."""
    if not rows:
        return
    document = [
        {
            "id": str(call.id),
            "session_id": str(call.session),
            "turn_id": str(call.turn),
            "message_seq": message_seq,
            "position": call.position,
            "call_id": call.call_id,
            "name": call.name,
            "tool_class": call.tool_class,
            "rerun_safe": call.rerun_safe,
            "config_id": str(call.config) if call.config else None,
            "time_limit": call.time_limit,
            "arguments": call.arguments,
            "state": call.state,
            "outcome": call.result.outcome if call.result else None,
            "content": call.result.content if call.result else None,
            "attempt": attempt if call.state == ToolCallState.RUNNING else None,
            "deadline": call.deadline,
        }
        for call, message_seq, attempt in rows
    ]
    cursor.execute(INSERT_CALLS, (dumps(document),))


def start_calls(cursor: psycopg.Cursor[Any], rows: Sequence[tuple[UUID, int]]) -> None:
    """`ready` -> `running` for (call id, attempt). Outside tools start after this is committed (S5)."""
    if not rows:
        return
    document = [{"id": str(call), "attempt": attempt} for call, attempt in rows]
    with _conflicts(call for call, _ in rows):
        cursor.execute(START_CALLS, (dumps(document),))


def complete_calls(cursor: psycopg.Cursor[Any], rows: Sequence[Completed]) -> None:
    """Store results, each from the state (and, if running, the attempt) that it names.

    A worker completes what it runs. What waits for a person or a backend is none of that, so it is refused.
    `Conflict` where one is in another state; in a pipeline `psycopg.errors.RestrictViolation`, later.
    """
    if not rows:
        return
    for row in rows:
        if row.from_state == ToolCallState.RUNNING and row.attempt is None:
            raise ValueError("a running call is completed by the attempt that runs it")
    document = [
        {
            "id": str(row.call.id),
            "session_id": str(row.call.session),
            "from_state": row.from_state,
            "attempt": row.attempt,
            "outcome": row.result.outcome,
            "content": row.result.content,
        }
        for row in rows
    ]
    with _conflicts(row.call.id for row in rows):
        cursor.execute(COMPLETE_CALLS, (dumps(document),))


@contextmanager
def _conflicts(calls: Iterable[UUID]) -> Iterator[None]:
    try:
        yield
    except psycopg.errors.RestrictViolation as error:
        if error.diag.constraint_name != "tool_call_expected_state":
            raise
        named = [ids.encode("tcl", call) for call in calls]
        raise Conflict("a tool call is no longer in the state it was in", tool_calls=named) from error


# --- reading ---------------------------------------------------------------------------------------------


def rows() -> QuerySet[ToolCall]:
    """Calls as the API shows them, with `claim_holds`: whether somebody is at one right now."""
    holds = Q(state=ToolCallState.WAITING, claim_expires_at__gt=ClockTimestamp())
    return ToolCall.objects.select_related("approval").annotate(
        claim_holds=ExpressionWrapper(holds, output_field=BooleanField())
    )


def read(*, project: UUID, tool_call: UUID) -> ToolCall:
    """The call as it is now; `NotFound` also where it is another project's."""
    row = rows().filter(pk=tool_call, project_id=project).first()
    if row is None:
        raise NotFound("no such tool call")
    return row


# --- the ends that others bring about --------------------------------------------------------------------

_AFTER = {
    "cancelled": "the turn was cancelled",
    "archived": "the session was archived",
    "superseded": "a newer message came instead of an answer",
    "crash_limit": "the turn was ended because its worker died too often",
}


def settle(session_id: UUID, *, attempt: int) -> Settled:
    """The lease of `attempt` ended: its running calls are interrupted, or ready again if rerun_safe (T4)."""
    running = in_order(_open(session_id).filter(state=ToolCallState.RUNNING, attempt__lte=attempt))
    settled = Settled()
    result = ToolOutcome(Outcome.INTERRUPTED.value, _text(INTERRUPTED))
    for call in running:
        if call.rerun_safe:
            settled.rerun.append(replace(call, state=ToolCallState.READY.value))
        else:
            settled.results.append((call, result))
    if settled.rerun:
        again = _open(session_id).filter(pk__in=[call.id for call in settled.rerun])
        again.filter(state=ToolCallState.RUNNING).update(state=ToolCallState.READY)
    return _complete(session_id, settled)


def close(session_id: UUID, *, reason: str, only: Literal["open_prompts"] | None = None) -> Settled:
    """The turn ends: every open call is completed as cancelled (I6). `reason` is cancelled, archived, …

    With `only="open_prompts"` just those that wait for a person: open approvals and questions.
    """
    why = _AFTER.get(reason, f"the turn ended ({reason})")
    not_run = ToolOutcome(Outcome.CANCELLED.value, _text(f"Cancelled before it ran: {why}."))
    unanswered = ToolOutcome(
        Outcome.CANCELLED.value, _text(f"Cancelled while it waited for its result: {why}.")
    )
    started = ToolOutcome(
        Outcome.CANCELLED, _text(f"Cancelled while it ran: {why}. Its external outcome is unknown.")
    )
    results = {ToolCallState.RUNNING: started, ToolCallState.WAITING: unanswered}
    rows = _open(session_id)
    if only == "open_prompts":
        asks = Q(state=ToolCallState.WAITING, tool_class=ToolClass.HUMAN)
        rows = rows.filter(asks | Q(state=ToolCallState.AWAITING_APPROVAL))
    calls = in_order(rows)
    return _complete(
        session_id, Settled([(call, results.get(ToolCallState(call.state), not_run)) for call in calls])
    )


EXPIRED = (
    "No result arrived before the deadline of this call. What it asked for may have happened all the same."
)


def expire(session_id: UUID) -> Settled:
    """Complete the calls that waited for longer than their deadline (S12); silence is no consent (H4)."""
    states = [ToolCallState.WAITING, ToolCallState.AWAITING_APPROVAL]
    late = in_order(_open(session_id).filter(state__in=states, deadline__lte=ClockTimestamp()))
    return _complete(session_id, Settled([(call, _too_late(call)) for call in late]))


def _too_late(call: Call) -> ToolOutcome:
    if call.state == ToolCallState.AWAITING_APPROVAL:
        text = f"{call.name} was not called: nobody allowed it in time."
        return ToolOutcome(Outcome.DENIED.value, _text(text))
    if call.tool_class == ToolClass.HUMAN:
        return ToolOutcome(Outcome.FAILED.value, _text("Nobody answered in time."))
    return ToolOutcome(Outcome.FAILED.value, _text(EXPIRED))


# --- what people and backends decide ---------------------------------------------------------------------


def allow(call_id: UUID, *, deadline: float | None) -> Call:
    """A person allowed it: `ready`, and at once `waiting` where it waits for a backend or a person.

    `deadline` is how long it may wait then, seconds. Raises `Conflict` if it does not await an approval.
    """
    _move(call_id, ToolCallState.AWAITING_APPROVAL, state=ToolCallState.READY, deadline=None)
    call = one(call_id)
    if call.tool_class not in {ToolClass.CUSTOM, ToolClass.HUMAN}:
        return call
    until = None if deadline is None else ClockTimestamp() + timedelta(seconds=deadline)
    _move(call_id, ToolCallState.READY, state=ToolCallState.WAITING, deadline=until)
    if call.tool_class == ToolClass.CUSTOM:
        project = ToolCall.objects.values_list("project_id", flat=True).get(pk=call_id)
        transaction.on_commit(lambda: wakeups.ring_calls([project]), robust=True)
    return replace(call, state=ToolCallState.WAITING.value, deadline=deadline)


def begin_to_wait(call_id: UUID) -> None:
    """A call that could run waits for something instead; raises `Conflict` if it is not ready."""
    _move(call_id, ToolCallState.READY, state=ToolCallState.WAITING)


def complete_unapproved(call_id: UUID, result: ToolOutcome) -> Call:
    """It is not allowed; raises `Conflict` if it does not await an approval."""
    return _complete_one(call_id, ToolCallState.AWAITING_APPROVAL, result)


def complete_waiting(call_id: UUID, result: ToolOutcome) -> Call:
    """What it waited for has come; raises `Conflict` if it does not wait."""
    return _complete_one(call_id, ToolCallState.WAITING, result)


def complete_by_backend(row: ToolCall, result: ToolOutcome, *, by: Actor) -> Call:
    """The backend of a custom tool has brought its result; raises `Conflict` if the call does not wait."""
    _move(
        row.pk,
        ToolCallState.WAITING,
        state=ToolCallState.COMPLETED,
        outcome=result.outcome,
        content=result.content,
        completed_at=ClockTimestamp(),
        answered_by=by,
    )
    return replace(_custom_call(row), state=ToolCallState.COMPLETED.value, result=result)


def name_late_answer(row: ToolCall, *, by: Actor) -> Call:
    """Note who answered a call that was over before; under the session's lock, once."""
    over = ToolCall.objects.filter(pk=row.pk, state=ToolCallState.COMPLETED, answered_by__isnull=True)
    if over.update(answered_by=by) != 1:
        raise Conflict("the tool call was answered", current=row)
    return _custom_call(row)


def count_update(row: ToolCall) -> None:
    """One more report of progress; under the session's lock."""
    ToolCall.objects.filter(pk=row.pk).update(updates=F("updates") + 1)


def _custom_call(row: ToolCall) -> Call:
    """A custom call as the engine holds it; those have no time limit that would have to be looked up."""
    return Call(
        id=row.pk,
        session=row.session_id,
        turn=row.turn_id,
        call_id=row.call_id,
        name=row.name,
        tool_class=str(row.tool_class),
        rerun_safe=row.rerun_safe,
        arguments=row.arguments,
        position=row.position,
        state=str(row.state),
    )


def has_expired(row: ToolCall) -> bool:
    """Whether its deadline completed it."""
    return row.outcome == Outcome.FAILED and row.content == _text(EXPIRED)


def one(call_id: UUID) -> Call:
    """A call as the engine holds it."""
    return next(in_order(ToolCall.objects.filter(pk=call_id)))


def _complete_one(call_id: UUID, from_state: ToolCallState, result: ToolOutcome) -> Call:
    _move(
        call_id,
        from_state,
        state=ToolCallState.COMPLETED,
        outcome=result.outcome,
        content=result.content,
        completed_at=ClockTimestamp(),
    )
    return replace(one(call_id), result=result)


def _move(call_id: UUID, from_state: ToolCallState, **columns: Any) -> None:
    if not connection.in_atomic_block:
        raise RuntimeError("tool calls are moved in the transaction that holds the session's lock")
    if not ToolCall.objects.filter(pk=call_id, state=from_state).update(**columns):
        raise Conflict(
            "the tool call is no longer in the state it was in", tool_calls=[ids.encode("tcl", call_id)]
        )


def _open(session_id: UUID) -> QuerySet[ToolCall]:
    if not connection.in_atomic_block:
        raise RuntimeError("tool calls are settled in the transaction that holds the session's lock")
    return ToolCall.objects.filter(session_id=session_id).exclude(state=ToolCallState.COMPLETED)


def _complete(session_id: UUID, settled: Settled) -> Settled:
    """Store the results, one statement for each that differs; the calls come back as they are now."""
    by_result: dict[str, tuple[ToolOutcome, list[UUID]]] = {}
    for call, result in settled.results:
        by_result.setdefault(dumps(result.content), (result, []))[1].append(call.id)
    for result, calls in by_result.values():
        changed = (
            _open(session_id)
            .filter(pk__in=calls)
            .update(
                state=ToolCallState.COMPLETED,
                outcome=result.outcome,
                content=result.content,
                completed_at=ClockTimestamp(),
            )
        )
        if changed != len(calls):
            named = [ids.encode("tcl", call) for call in calls]
            raise Conflict(
                "a tool call got its result from somebody without the session's lock", tool_calls=named
            )
    completed = [
        (replace(call, state=ToolCallState.COMPLETED.value, result=result), result)
        for call, result in settled.results
    ]
    return Settled(completed, settled.rerun)


def _text(text: str) -> Blocks:
    return [{"type": "text", "text": text}]
