"""What a step saves, as a value, and the one function that commits any number of them (S2, L3).

A `StepWrite` says what happened (a reply, results of tools) and what follows from it (`Then`: the next model
call, the end of the turn, the release). What happened is saved whenever the lease still holds. What follows was
planned on a certain `work_rev`; if that moved while the step was on its way, it is left out and the worker
plans again (S11), so an input that arrives in any interleaving is seen before the turn ends.

`commit_steps` takes all steps that gathered while the last commit was under way: it locks the session rows in
id order with SKIP LOCKED, then the lease rows in a second statement (which sees what was committed while the
first one waited), compares worker and attempt, and writes for those that match with one statement per table.
Missing leases are reported as lost; busy sessions and what the database refuses are tried again one by one,
so that one bad row fails alone, and one that stays busy is handed back (`Busy`) and delays no other. Two round
trips for any number of steps: the locks, then all writes with the COMMIT behind them.

A COMMIT whose answer got lost is looked up, not repeated: ids are made before the first try (S10).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
import structlog
from django.db import connection

from sessions_app import ids, log, tool_port, wakeups
from sessions_app.crashpoints import crash_point
from sessions_app.database import Cursor, dumps, is_transient, outcome_is_unknown, raw_connection
from sessions_app.due import Due
from sessions_app.errors import Conflict
from sessions_app.log import NewEntry
from sessions_app.providers.port import Usage
from sessions_app.tool_port import Call, Completed

logger = structlog.get_logger(__name__)

NO_USAGE = Usage(input_tokens=0, output_tokens=0, cached_tokens=0, reasoning_tokens=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallStart:
    """The row that is committed before the call is sent (R1)."""

    id: UUID
    turn: UUID | None  # None: a compaction between turns
    config: UUID
    purpose: str = "reply"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallEnd:
    """How a model call ended: `state` is succeeded or failed.

    `cost` is what this attempt cost, None where that is not known. `cost_added` goes into the turn's and the
    session's sums, and makes them unknown where it is None: what one call cost is not zero because nobody knows
    it. Only a failed attempt that may or may not have been billed leaves the sums as they are.
    """

    id: UUID
    turn: UUID | None
    state: str
    usage: Usage = NO_USAGE
    error: dict[str, Any] | None = None
    may_be_billed: bool = False
    first_token_seconds: float | None = None
    cost: Decimal | None = None
    cost_added: Decimal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStart:
    id: UUID
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnd:
    id: UUID
    status: str
    reason: str
    error: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Then:
    """What follows, if nothing new arrived since it was planned."""

    entries: tuple[NewEntry, ...] = ()
    turn_end: TurnEnd | None = None
    turn_start: TurnStart | None = None
    deliver: tuple[UUID, ...] = ()  # inputs, whose user messages are among the entries
    start_calls: tuple[UUID, ...] = ()  # `ready` -> `running`
    model_call: ModelCallStart | None = None
    retry_in: float | None = None  # seconds; the release is then a backoff
    compaction_over: bool = False  # what was asked for is not to be
    release: Due | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWrite:
    """One step of one session. `message` is the index of the reply in `entries` whose calls are in `calls`."""

    session: UUID
    attempt: int
    work_rev: int
    entries: tuple[NewEntry, ...] = ()
    message: int | None = None
    calls: tuple[Call, ...] = ()
    results: tuple[Completed, ...] = ()
    model_call_end: ModelCallEnd | None = None
    resumed: bool = False  # `session_resumed` is among the entries: what the last lease left is told
    resets_crashes: bool = False
    compaction_over: bool = False  # a checkpoint is among the entries, or will not come: nobody waits for one
    then: Then = field(default_factory=Then)
    id: UUID = field(default_factory=ids.new_id)


@dataclass(frozen=True, slots=True)
class Saved:
    """The step is saved; `then` too, unless `moved`. `first_seq` is the number of its first entry."""

    moved: bool
    first_seq: int
    work_rev: int


@dataclass(frozen=True, slots=True)
class Lost:
    """The lease is gone; nothing was written."""

    reason: str | None


@dataclass(frozen=True, slots=True)
class Refused:
    """The database refused this one step for good."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Busy:
    """Somebody kept the session locked for longer than a statement may wait; to be committed again."""

    error: Exception


type StepResult = Saved | Lost | Refused


@dataclass(frozen=True, slots=True)
class _Locked:
    project: UUID
    work_rev: int
    next_seq: int
    head_seq: int
    turn: UUID | None
    last_turn: UUID | None
    turn_count: int
    output_seq: int | None
    crash_count: int
    ended_attempt: int | None
    ended_reason: str | None
    lease_end: dict[str, Any] | None


# Both in id order (L11). The second statement has a snapshot of its own, taken when the first holds its locks.
LOCK_SESSIONS = """
SELECT id, project_id, work_rev, next_seq, head_seq, turn_id, last_turn_id, turn_count, output_seq, crash_count,
    ended_attempt, ended_reason, lease_end
FROM sessions_app_session WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
"""
LOCK_SESSION = LOCK_SESSIONS.replace(" SKIP LOCKED", "")
LOCK_LEASE = """
SELECT session_id, attempt FROM sessions_app_lease WHERE session_id = ANY(%s) AND worker_id = %s
ORDER BY session_id FOR UPDATE
"""
# It asks for all leases before it is known which sessions are busy, so it must not wait for those either.
LOCK_LEASES = LOCK_LEASE.replace("FOR UPDATE", "FOR UPDATE SKIP LOCKED")
_UPDATE_SESSIONS = """
UPDATE sessions_app_session s SET
    next_seq = row.next_seq, head_seq = row.next_seq - 1, turn_id = row.turn_id, last_turn_id = row.last_turn_id,
    turn_count = row.turn_count, output_seq = row.output_seq, crash_count = row.crash_count,
    compact_requested = s.compact_requested AND NOT row.compaction_over,
    lease_end = row.lease_end, updated_at = row.now,
    model_calls = s.model_calls + row.model_calls, tool_calls = s.tool_calls + row.tool_calls,
    input_tokens = s.input_tokens + row.input_tokens, output_tokens = s.output_tokens + row.output_tokens,
    cached_tokens = s.cached_tokens + row.cached_tokens,
    reasoning_tokens = s.reasoning_tokens + row.reasoning_tokens,
    cost = CASE WHEN row.model_calls = 0 THEN s.cost WHEN s.model_calls = 0 THEN row.cost
        ELSE s.cost + row.cost END,
    retry_at = CASE row.retry WHEN 'set' THEN row.now + make_interval(secs => row.retry_in)
        WHEN 'clear' THEN NULL ELSE s.retry_at END,
    status = coalesce(row.status, s.status), waiting_on = coalesce(row.waiting_on, s.waiting_on),
    wake_at = CASE row.wake WHEN 'now' THEN row.now WHEN 'at' THEN row.wake_at
        WHEN 'retry' THEN row.now + make_interval(secs => row.retry_in) END
FROM (SELECT *, clock_timestamp() AS now FROM jsonb_to_recordset(%s::jsonb) AS r (
    id uuid, next_seq bigint, turn_id uuid, last_turn_id uuid, turn_count int, output_seq bigint,
    crash_count smallint, compaction_over boolean, lease_end jsonb, model_calls int, tool_calls int,
    input_tokens bigint,
    output_tokens bigint, cached_tokens bigint, reasoning_tokens bigint, cost numeric, retry text,
    retry_in float8, status text, waiting_on jsonb, wake text, wake_at timestamptz)) row
WHERE s.id = row.id
"""
_DELETE_LEASES = "DELETE FROM sessions_app_lease WHERE session_id = ANY(%s)"
_START_MODEL_CALLS = """
INSERT INTO sessions_app_modelcall (id, session_id, turn_id, config_id, purpose, attempt, covers_seq, state,
    may_be_billed, input_tokens, output_tokens, cached_tokens, reasoning_tokens)
SELECT id, session_id, turn_id, config_id, purpose, attempt, covers_seq, 'started', false, 0, 0, 0, 0
FROM jsonb_to_recordset(%s::jsonb) AS r (
    id uuid, session_id uuid, turn_id uuid, config_id uuid, purpose text, attempt int, covers_seq bigint)
"""
_END_MODEL_CALLS = """
UPDATE sessions_app_modelcall c SET state = r.state, error = r.error, may_be_billed = r.may_be_billed,
    input_tokens = r.input_tokens, output_tokens = r.output_tokens, cached_tokens = r.cached_tokens,
    reasoning_tokens = r.reasoning_tokens, first_token_seconds = r.first_token_seconds,
    cost = r.cost, ended_at = clock_timestamp()
FROM jsonb_to_recordset(%s::jsonb) AS r (
    id uuid, state text, error jsonb, may_be_billed boolean, input_tokens bigint, output_tokens bigint,
    cached_tokens bigint, reasoning_tokens bigint, first_token_seconds float8, cost numeric)
WHERE c.id = r.id AND c.state = 'started'
"""
_START_TURNS = """
INSERT INTO sessions_app_turn (id, session_id, number, status, input_tokens, output_tokens, cached_tokens,
    reasoning_tokens, model_calls, tool_calls)
SELECT id, session_id, number, 'running', 0, 0, 0, 0, 0, 0
FROM jsonb_to_recordset(%s::jsonb) AS r (id uuid, session_id uuid, number int)
"""
_UPDATE_TURNS = """
UPDATE sessions_app_turn t SET
    model_calls = t.model_calls + r.model_calls, tool_calls = t.tool_calls + r.tool_calls,
    input_tokens = t.input_tokens + r.input_tokens, output_tokens = t.output_tokens + r.output_tokens,
    cached_tokens = t.cached_tokens + r.cached_tokens, reasoning_tokens = t.reasoning_tokens + r.reasoning_tokens,
    cost = CASE WHEN r.model_calls = 0 THEN t.cost WHEN t.model_calls = 0 THEN r.cost ELSE t.cost + r.cost END,
    output_seq = coalesce(r.output_seq, t.output_seq), status = coalesce(r.status, t.status), reason = r.reason,
    error = r.error, ended_at = CASE WHEN r.status IS NOT NULL THEN clock_timestamp() END
FROM jsonb_to_recordset(%s::jsonb) AS r (
    id uuid, model_calls int, tool_calls int, input_tokens bigint, output_tokens bigint, cached_tokens bigint,
    reasoning_tokens bigint, cost numeric, output_seq bigint, status text, reason text, error jsonb)
WHERE t.id = r.id
"""
_DELIVER_INPUTS = """
UPDATE sessions_app_input i SET state = 'delivered', turn_id = r.turn_id
FROM jsonb_to_recordset(%s::jsonb) AS r (id uuid, turn_id uuid) WHERE i.id = r.id AND i.state = 'received'
"""
_READ_BACK_ENTRIES = "SELECT id, seq FROM sessions_app_entry WHERE id = ANY(%s)"
_READ_BACK_MODEL_CALLS = "SELECT id FROM sessions_app_modelcall WHERE id = ANY(%s)"


def commit_steps(worker: int, steps: Sequence[StepWrite]) -> list[StepResult | Busy]:
    """Save `steps`, at most one per session, as far as `worker` still holds them. Results in their order.

    Raises `psycopg.OperationalError` and the like when the database is away; the same call may be repeated,
    what was saved all the same is found by its ids.
    """
    results = _commit_all(worker, steps)
    _ring(steps, results)
    return results


def _commit_all(worker: int, steps: Sequence[StepWrite]) -> list[StepResult | Busy]:
    alone = len(steps) == 1
    try:
        results = _commit(worker, steps, skip_busy=not alone)
        if alone and isinstance(results[0], Lost):
            # Perhaps lost by itself: a try whose outcome could not be looked up before has released it.
            results = [_find(worker, steps)[0] or results[0]]
    except (psycopg.Error, Conflict) as error:
        if outcome_is_unknown(error):
            connection.close()
            return _look_up(worker, steps)
        if isinstance(error, psycopg.errors.UniqueViolation) and alone:
            # Perhaps our own ids, from a try whose outcome could not be looked up before.
            found = _find(worker, steps)[0]
            if found is not None:
                return [found]
        if not alone:
            results = [None] * len(steps)
        elif isinstance(error, psycopg.DataError | psycopg.IntegrityError | Conflict):
            logger.exception("step.refused", session=str(steps[0].session))
            return [Refused(error)]
        elif is_transient(error) and not raw_connection().closed:
            logger.warning("step.busy", session=str(steps[0].session), error=str(error).strip())
            return [Busy(error)]
        else:
            raise
    # Busy ones, and after a refusal all of them, each alone.
    return [
        result if result is not None else _commit_all(worker, [step])[0]
        for step, result in zip(steps, results, strict=True)
    ]


def _ring(steps: Sequence[StepWrite], results: Sequence[StepResult | Busy]) -> None:
    grown = []
    due = False
    for step, result in zip(steps, results, strict=True):
        if isinstance(result, Saved):
            grown.append(step.session)
            release = step.then.release
            due = due or (release is not None and not result.moved and release.wake == "now")
    wakeups.ring_entries(grown)
    if due:
        wakeups.ring_due()


def _look_up(worker: int, steps: Sequence[StepWrite]) -> list[StepResult | Busy]:
    """The answer to COMMIT got lost: find what was saved, repeat what was not (S10)."""
    return [
        found if found is not None else _commit_all(worker, [step])[0]
        for step, found in zip(steps, _find(worker, steps), strict=True)
    ]


def _find(worker: int, steps: Sequence[StepWrite]) -> list[Saved | None]:
    """How far each step is saved already, by the ids that were made before the first try."""
    sessions = [step.session for step in steps]
    entries = [entry.id for step in steps for entry in (*step.entries, *step.then.entries)]
    model_calls = [step.then.model_call.id for step in steps if step.then.model_call is not None]
    raw = raw_connection()
    with raw.transaction(), psycopg.Cursor(raw) as cursor:
        # Waits for the lost transaction, should its backend still be at it.
        cursor.execute(LOCK_SESSION, (sessions,))
        locked = {row[0]: _locked(row) for row in cursor}
        cursor.execute(LOCK_LEASE, (sessions, worker))
        held = dict(cursor.fetchall())
        cursor.execute(_READ_BACK_ENTRIES, (entries,))
        seqs = dict(cursor.fetchall())
        cursor.execute(_READ_BACK_MODEL_CALLS, (model_calls,))
        calls = {row[0] for row in cursor}
    found: list[Saved | None] = []
    for step in steps:
        then = step.then
        own = [entry.id for entry in (*step.entries, *then.entries)]
        mine = [seqs[entry] for entry in own if entry in seqs]
        followed = (
            any(entry.id in seqs for entry in then.entries)
            or (then.model_call is not None and then.model_call.id in calls)
            # A lease that is gone tells of this step only where nothing of the step is missing.
            or (then.release is not None and held.get(step.session) != step.attempt and len(mine) == len(own))
        )
        if not mine and not followed:
            found.append(None)
        else:
            row = locked[step.session]
            moved = not followed and then != Then()
            found.append(Saved(moved=moved, first_seq=min(mine, default=row.next_seq), work_rev=row.work_rev))
    return found


def _commit(worker: int, steps: Sequence[StepWrite], *, skip_busy: bool) -> list[StepResult | None]:
    """One transaction. None for a session, or a lease, that somebody else may have locked."""
    session_ids = [step.session for step in steps]
    raw = raw_connection()
    with (
        raw.pipeline() as pipeline,
        raw.transaction(),
        psycopg.Cursor(raw) as cursor,
        psycopg.Cursor(raw) as lease_cursor,
    ):
        cursor.execute(LOCK_SESSIONS if skip_busy else LOCK_SESSION, (session_ids,))
        lease_cursor.execute(LOCK_LEASES if skip_busy else LOCK_LEASE, (session_ids, worker))
        # Only behind a sync does the server watch for a client that falls silent with its locks held (L11).
        pipeline.sync()
        locked = {row[0]: _locked(row) for row in cursor}
        held = dict(lease_cursor.fetchall())
        crash_point("step.locked")
        batch = _Batch()
        results: list[StepResult | None] = []
        for step in steps:
            row = locked.get(step.session)
            if row is None:
                results.append(None)
            elif held.get(step.session) != step.attempt and skip_busy:
                results.append(None)  # lost or locked: that is found out alone
            elif held.get(step.session) != step.attempt:
                results.append(Lost(row.ended_reason if row.ended_attempt == step.attempt else None))
            else:
                results.append(batch.add(step, row))
        batch.write(cursor)
        crash_point("step.written")
    crash_point("step.committed")
    return results


def _locked(row: tuple[Any, ...]) -> _Locked:
    locked = _Locked(*row[1:])
    # Django has its connections hand JSON over as text.
    return replace(locked, lease_end=json.loads(row[-1])) if row[-1] else locked


class _Batch:
    """The rows of all steps of one transaction, table by table."""

    def __init__(self) -> None:
        self.entries: list[log.Placed] = []
        self.new_calls: list[tuple[Call, int, int]] = []
        self.started_calls: list[tuple[UUID, int]] = []
        self.results: list[Completed] = []
        self.model_call_ends: list[dict[str, Any]] = []
        self.model_call_starts: list[dict[str, Any]] = []
        self.turn_starts: list[dict[str, Any]] = []
        self.turns: list[dict[str, Any]] = []
        self.inputs: list[dict[str, Any]] = []
        self.sessions: list[dict[str, Any]] = []
        self.released: list[UUID] = []

    def add(self, step: StepWrite, row: _Locked) -> Saved:
        moved = row.work_rev != step.work_rev
        then = Then() if moved else step.then
        placed = log.place(
            [*step.entries, *then.entries],
            session=step.session,
            project=row.project,
            next_seq=row.next_seq,
            head_seq=row.head_seq,
            attempt=step.attempt,
        )
        self.entries += placed
        next_seq = row.next_seq + len(placed)
        output_seq = row.output_seq
        if step.message is not None:
            output_seq = row.next_seq + step.message
            self.new_calls += [(call, output_seq, step.attempt) for call in step.calls]
        self.results += step.results
        self.started_calls += [(call, step.attempt) for call in then.start_calls]
        ended = step.model_call_end
        if ended is not None:
            self._end_model_call(
                ended, output_seq if step.message is not None else None, len(step.calls), then
            )
        elif then.turn_end is not None:
            self.turns.append(_turn_row(then.turn_end.id, None, 0, None, then.turn_end))
        turn, last_turn, turn_count = row.turn, row.last_turn, row.turn_count
        if then.turn_end is not None:
            turn, last_turn = None, then.turn_end.id
        if then.turn_start is not None:
            turn, turn_count = then.turn_start.id, then.turn_start.number
            self.turn_starts.append(
                {"id": str(turn), "session_id": str(step.session), "number": then.turn_start.number}
            )
        self.inputs += [{"id": str(item), "turn_id": str(turn)} for item in then.deliver]
        if then.model_call is not None:
            self.model_call_starts.append(
                {
                    "id": str(then.model_call.id),
                    "session_id": str(step.session),
                    "turn_id": str(then.model_call.turn) if then.model_call.turn else None,
                    "config_id": str(then.model_call.config),
                    "purpose": then.model_call.purpose,
                    "attempt": step.attempt,
                    "covers_seq": next_seq - 1,
                }
            )
        usage = ended.usage if ended is not None else NO_USAGE
        self.sessions.append(
            {
                "id": str(step.session),
                "next_seq": next_seq,
                "turn_id": str(turn) if turn else None,
                "last_turn_id": str(last_turn) if last_turn else None,
                "turn_count": turn_count,
                "output_seq": output_seq,
                "crash_count": 0 if step.resets_crashes or then.turn_end is not None else row.crash_count,
                "compaction_over": step.compaction_over or then.compaction_over,
                "lease_end": None if step.resumed or then.turn_end is not None else row.lease_end,
                "model_calls": 1 if ended is not None else 0,
                "tool_calls": len(step.calls),
                "input_tokens": usage.input_tokens,
                "output_tokens": usage.output_tokens,
                "cached_tokens": usage.cached_tokens,
                "reasoning_tokens": usage.reasoning_tokens,
                "cost": _amount(ended.cost_added) if ended is not None else None,
                **_schedule(then),
            }
        )
        if then.release is not None:
            self.released.append(step.session)
        return Saved(moved=moved, first_seq=row.next_seq, work_rev=row.work_rev)

    def _end_model_call(self, ended: ModelCallEnd, output_seq: int | None, calls: int, then: Then) -> None:
        usage = ended.usage
        self.model_call_ends.append(
            {
                "id": str(ended.id),
                "state": ended.state,
                "error": ended.error,
                "may_be_billed": ended.may_be_billed,
                "input_tokens": usage.input_tokens,
                "output_tokens": usage.output_tokens,
                "cached_tokens": usage.cached_tokens,
                "reasoning_tokens": usage.reasoning_tokens,
                "first_token_seconds": ended.first_token_seconds,
                "cost": _amount(ended.cost),
            }
        )
        end = then.turn_end if then.turn_end is not None and then.turn_end.id == ended.turn else None
        if ended.turn is not None:
            self.turns.append(_turn_row(ended.turn, ended, calls, output_seq, end))

    def write(self, cursor: Cursor) -> None:
        runtime = tool_port.runtime()
        log.insert_rows(cursor, self.entries)
        if self.new_calls:
            runtime.insert_calls(cursor, self.new_calls)
        if self.started_calls:
            runtime.start_calls(cursor, self.started_calls)
        if self.results:
            runtime.complete_calls(cursor, self.results)
        for statement, rows in (
            (_END_MODEL_CALLS, self.model_call_ends),
            (_UPDATE_TURNS, self.turns),
            (_START_TURNS, self.turn_starts),
            (_START_MODEL_CALLS, self.model_call_starts),
            (_DELIVER_INPUTS, self.inputs),
            (_UPDATE_SESSIONS, self.sessions),
        ):
            if rows:
                cursor.execute(statement, (dumps(rows),))
        if self.released:
            cursor.execute(_DELETE_LEASES, (self.released,))


def _turn_row(
    turn: UUID, ended: ModelCallEnd | None, tool_calls: int, output_seq: int | None, end: TurnEnd | None
) -> dict[str, Any]:
    usage = NO_USAGE if ended is None else ended.usage
    return {
        "id": str(turn),
        "model_calls": 0 if ended is None else 1,
        "tool_calls": tool_calls,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "cost": None if ended is None else _amount(ended.cost_added),
        "output_seq": output_seq,
        "status": end.status if end else None,
        "reason": end.reason if end else None,
        "error": end.error if end else None,
    }


def _amount(cost: Decimal | None) -> str | None:
    return None if cost is None else f"{cost:f}"


def _schedule(then: Then) -> dict[str, Any]:
    """The columns that say when the session is looked at again; all untouched while the lease goes on."""
    columns: dict[str, Any] = {
        "retry": "clear" if then.model_call is not None or then.turn_end is not None else None,
        "retry_in": then.retry_in,
        "status": None,
        "waiting_on": None,
        "wake": None,
        "wake_at": None,
    }
    if then.retry_in is not None:
        columns["retry"] = "set"
    release = then.release
    if release is None:
        return columns
    columns["status"] = release.status
    columns["waiting_on"] = list(release.waiting_on)
    if release.wake == "now":
        columns["wake"] = "now"
    elif isinstance(release.wake, datetime):
        columns |= {"wake": "at", "wake_at": release.wake.isoformat()}
    elif then.retry_in is not None:
        columns["wake"] = "retry"
    return columns
